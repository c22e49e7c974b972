#include "router/ops/access.h"

#include "common/base/assert.h"
#include "common/base/file_read.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/reload.h"
#include "common/base/str.h"
#include "router/ops/access_keys.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOD         "access"
#define SALT_PREFIX "baton cache salt 1 " /* another way to make salts needs another number */

/* The use of one key, found by its id. Freed when neither a grant nor the file refers to it.
 * Guarded by access.lock. */
struct holder {
    uint32_t references;
    struct access_key key;
    struct quota quota;
};

struct access {
    char path[FILE_WATCH_MAX_PATH_BYTES];
    struct reload *watch;
    const struct slo_classes *classes; /* the router's */
    pthread_mutex_t reading;           /* held while the file is read and used */
    pthread_mutex_t lock;              /* guards the fields below */
    struct access_keys keys;
    struct holder **holders; /* [keys.count], in the order of the keys */
};

struct access_grant {
    struct access *access;
    struct holder *holder;
    char id[API_KEY_NAME_BYTES], tenant[API_KEY_NAME_BYTES];
    uint32_t shares;  /* not settled yet; guarded by access.lock */
    uint32_t running; /* choices that count as running; 0: the call isn't counted */
    uint64_t begun_us;
    uint64_t reserved, used;           /* tokens */
    bool class_priorities[PRIORITIES]; /* its class's, besides the key's own */
};

/* ------------------------------------------------------------------------------------- the file */

static enum status read_keys(const struct access *access, struct access_keys *keys,
                             struct error *err)
{
    const char *path = access->path;
    char *text = NULL;
    size_t size = 0;
    TRY(file_read(path, ACCESS_KEYS_MAX_FILE_BYTES, &text, &size, err));
    enum status status = access_keys_parse(text, size, keys, err);
    free(text);
    if (status == STATUS_OK) {
        status = access_keys_check_classes(keys, access->classes, err);
        if (status != STATUS_OK)
            access_keys_deinit(keys);
    }
    return status == STATUS_OK ? status : error_prefix(err, status, "%s", path);
}

static void let_go(struct holder *holder)
{
    if (!--holder->references)
        free(holder);
}

static struct map *index_holders(const struct access *access)
{
    struct map *map = NULL;
    if (!access->keys.count)
        return NULL;
    enum status status = map_create(access->keys.count, &map);
    for (size_t i = 0; status == STATUS_OK && i < access->keys.count; i++)
        status = map_put_str(map, access->holders[i]->key.id, access->holders[i]);
    ASSERT(status == STATUS_OK); /* there is a place for each id, and ids are unique */
    return map;
}

/* Replaces the keys; a holder of an id that stays is kept. */
static void use(struct access *access, struct access_keys *keys)
{
    pthread_mutex_lock(&access->lock);
    struct map *before = index_holders(access);
    struct holder **holders = calloc(keys->count + 1, sizeof *holders);
    ASSERT(holders);
    for (size_t i = 0; i < keys->count; i++) {
        const struct access_key *key = &keys->items[i];
        holders[i] = before ? map_get_str(before, key->id) : NULL;
        if (!holders[i])
            holders[i] = calloc(1, sizeof *holders[i]);
        ASSERT(holders[i]);
        holders[i]->references++;
        holders[i]->key = *key;
    }
    for (size_t i = 0; i < access->keys.count; i++)
        let_go(access->holders[i]);
    if (before)
        map_destroy(before);
    access_keys_deinit(&access->keys);
    free(access->holders);
    access->keys = *keys;
    access->holders = holders;
    pthread_mutex_unlock(&access->lock);
    log_info(MOD, "keys=%zu msg=\"keys read\"", keys->count);
}

static void on_changed(void *context)
{
    struct access *access = context;
    struct access_keys keys;
    struct error err;
    char quoted[700];
    pthread_mutex_lock(&access->reading);
    if (read_keys(access, &keys, &err) == STATUS_OK)
        use(access, &keys);
    else
        log_error(MOD, "why=%s msg=\"the changed file of keys can't be used; the old keys stay\"",
                  log_quote(err.text, quoted, sizeof quoted));
    pthread_mutex_unlock(&access->reading);
}

/* -------------------------------------------------------------------------------- start and end */

/* The watch starts first, so that a change during the read causes another read. */
static enum status watch_and_read(struct access *access, uint64_t interval_us, struct error *err)
{
    struct reload_config watch = {.paths = {access->path},
                                  .interval_us = interval_us,
                                  .changed = on_changed,
                                  .context = access};
    struct access_keys keys;
    pthread_mutex_lock(&access->reading);
    enum status status = reload_start(&watch, &access->watch, err);
    if (status == STATUS_OK)
        status = read_keys(access, &keys, err);
    if (status == STATUS_OK)
        use(access, &keys);
    pthread_mutex_unlock(&access->reading);
    return status;
}

enum status access_open(const char *path, uint64_t watch_interval_us,
                        const struct slo_classes *classes, struct access **out, struct error *err)
{
    *out = NULL;
    if (!*path)
        return STATUS_OK;
    struct access *access = calloc(1, sizeof *access);
    ASSERT(access);
    access->classes = classes;
    pthread_mutex_init(&access->reading, NULL);
    pthread_mutex_init(&access->lock, NULL);
    enum status status = STATUS_OK;
    if (!str_copy(access->path, sizeof access->path, path))
        status = error_set(err, STATUS_LIMIT, "the path of the file of keys is too long");
    if (status == STATUS_OK)
        status = watch_and_read(access, watch_interval_us, err);
    if (status != STATUS_OK) {
        access_close(access);
        return error_prefix(err, status, "--api-keys");
    }
    file_warn_if_open(MOD, "the file of clients' keys", path);
    *out = access;
    return STATUS_OK;
}

void access_close(struct access *access)
{
    if (!access)
        return;
    reload_stop(access->watch);
    for (size_t i = 0; i < access->keys.count; i++)
        let_go(access->holders[i]);
    free(access->holders);
    access_keys_deinit(&access->keys);
    pthread_mutex_destroy(&access->reading);
    pthread_mutex_destroy(&access->lock);
    free(access);
}

/* ---------------------------------------------------------------------------------------- calls */

const char *access_token(const char *authorization)
{
    static const char scheme[] = "bearer ";
    if (strncasecmp(authorization, scheme, strlen(scheme)) != 0)
        return "";
    authorization += strlen(scheme);
    return authorization + strspn(authorization, " ");
}

static enum reason refuse_key(struct access_refusal *refusal, bool none)
{
    log_info_limited(MOD, "msg=\"refused: %s API key\"", none ? "no" : "an unknown");
    error_set(&refusal->why, STATUS_INVALID,
              none ? "an API key is needed: send authorization: Bearer KEY"
                   : "this API key is not known here");
    return REASON_INVALID_API_KEY;
}

/* Turns a verdict into a reason and a sentence for the client. */
static enum reason refuse_use(const struct access_key *key, enum quota_verdict verdict,
                              uint64_t retry_us, struct access_refusal *refusal)
{
    const struct quota_limits *limits = &key->limits;
    refusal->retry_after_s = (uint32_t)((retry_us + 999999) / 1000000);
    switch (verdict) {
    case QUOTA_GRANTED: return REASON_NONE;
    case QUOTA_REQUESTS:
        error_set(&refusal->why, STATUS_LIMIT,
                  "this API key may make %" PRIu64 " requests a minute; try again in %u s",
                  limits->requests_per_minute, refusal->retry_after_s);
        return REASON_RATE_LIMITED;
    case QUOTA_TOKENS:
        error_set(&refusal->why, STATUS_LIMIT,
                  "this API key may use %" PRIu64
                  " tokens a minute, prompts and max_tokens together; try again in %u s",
                  limits->tokens_per_minute, refusal->retry_after_s);
        return REASON_RATE_LIMITED;
    case QUOTA_RUNNING:
        error_set(&refusal->why, STATUS_LIMIT,
                  "this API key may have %u requests running at once, each choice counts as one; "
                  "try again in %u s",
                  limits->running, refusal->retry_after_s);
        return REASON_RATE_LIMITED;
    case QUOTA_TOO_MANY:
        error_set(&refusal->why, STATUS_LIMIT,
                  "the request has more choices than the %u that this API key may have running at "
                  "once: ask for fewer",
                  limits->running);
        return REASON_QUOTA;
    case QUOTA_NEVER: break;
    }
    error_set(&refusal->why, STATUS_LIMIT,
              "prompt and max_tokens are more together than the %" PRIu64
              " tokens a minute that this API key may use: ask for less",
              limits->tokens_per_minute);
    return REASON_QUOTA;
}

static struct access_grant *grant_create(struct access *access, struct holder *holder,
                                         const uint64_t *counted_us)
{
    struct access_grant *grant = calloc(1, sizeof *grant);
    ASSERT(grant);
    grant->access = access;
    grant->holder = holder;
    grant->shares = 1;
    grant->running = counted_us != NULL;
    grant->begun_us = counted_us ? *counted_us : 0;
    holder->references++;
    str_copy(grant->id, sizeof grant->id, holder->key.id);
    str_copy(grant->tenant, sizeof grant->tenant, holder->key.tenant);
    return grant;
}

/* Makes the grant, and counts the call at *counted_us; NULL: it doesn't count. The lock is held. */
static enum reason let_in(struct access *access, struct holder *holder, const uint64_t *counted_us,
                          struct access_grant **grant, struct access_refusal *refusal)
{
    uint64_t retry_us = 0;
    enum quota_verdict verdict = QUOTA_GRANTED;
    if (counted_us)
        verdict = quota_begin(&holder->quota, &holder->key.limits, *counted_us, &retry_us);
    if (verdict == QUOTA_GRANTED)
        *grant = grant_create(access, holder, counted_us);
    str_copy(refusal->key, sizeof refusal->key, holder->key.id);
    str_copy(refusal->tenant, sizeof refusal->tenant, holder->key.tenant);
    return refuse_use(&holder->key, verdict, retry_us, refusal);
}

static enum reason check(struct access *access, const char *token, const uint64_t *counted_us,
                         struct access_grant **grant, struct access_refusal *refusal)
{
    *grant = NULL;
    *refusal = (struct access_refusal){.retry_after_s = 0};
    if (!access)
        return REASON_NONE;
    size_t length = strnlen(token, ACCESS_MAX_TOKEN_BYTES + 1);
    if (!length || length > ACCESS_MAX_TOKEN_BYTES)
        return refuse_key(refusal, !length);
    struct digest digest = digest_of(token, length);
    pthread_mutex_lock(&access->lock);
    const struct access_key *key = access_keys_find(&access->keys, &digest);
    enum reason reason = REASON_INVALID_API_KEY;
    if (key)
        reason =
            let_in(access, access->holders[key - access->keys.items], counted_us, grant, refusal);
    pthread_mutex_unlock(&access->lock);
    return key ? reason : refuse_key(refusal, false);
}

enum reason access_check(struct access *access, const char *token, uint64_t now_us,
                         struct access_grant **grant, struct access_refusal *refusal)
{
    return check(access, token, &now_us, grant, refusal);
}

enum reason access_know(struct access *access, const char *token, struct access_grant **grant,
                        struct access_refusal *refusal)
{
    return check(access, token, NULL, grant, refusal);
}

enum reason access_run(struct access_grant *grant, uint32_t choices, struct access_refusal *refusal)
{
    *refusal = (struct access_refusal){.retry_after_s = 0};
    if (!grant || choices <= 1)
        return REASON_NONE;
    ASSERT(grant->running == 1);
    uint64_t retry_us = 0;
    pthread_mutex_lock(&grant->access->lock);
    struct holder *holder = grant->holder;
    enum quota_verdict verdict =
        quota_run(&holder->quota, &holder->key.limits, choices - 1, &retry_us);
    if (verdict == QUOTA_GRANTED)
        grant->running = choices;
    enum reason reason = refuse_use(&holder->key, verdict, retry_us, refusal);
    pthread_mutex_unlock(&grant->access->lock);
    return reason;
}

/* The lock is held. */
static void choice_ended(struct access_grant *grant, uint64_t now_us)
{
    grant->running--;
    quota_choice_ended(&grant->holder->quota,
                       now_us > grant->begun_us ? now_us - grant->begun_us : 0);
}

void access_choice_ended(struct access_grant *grant, uint64_t now_us)
{
    if (!grant)
        return;
    pthread_mutex_lock(&grant->access->lock);
    if (grant->running > 1) /* the last one runs until the call is settled */
        choice_ended(grant, now_us);
    pthread_mutex_unlock(&grant->access->lock);
}

enum reason access_use_class(struct access_grant *grant, const struct slo_class *class,
                             struct access_refusal *refusal)
{
    *refusal = (struct access_refusal){.retry_after_s = 0};
    if (!grant || !class)
        return REASON_NONE;
    enum reason reason = REASON_NONE;
    pthread_mutex_lock(&grant->access->lock);
    const char *classes = grant->holder->key.classes;
    bool listed = *classes && api_key_has_class(classes, class->name);
    grant->class_priorities[class->priority] |= listed;
    if (*classes && !listed) {
        error_set(&refusal->why, STATUS_INVALID,
                  "this API key may not use the SLO class %s, only %.200s: name one in slo_class",
                  class->name, classes);
        reason = REASON_SLO_CLASS_NOT_ALLOWED;
    }
    pthread_mutex_unlock(&grant->access->lock);
    return reason;
}

enum reason access_reserve(struct access_grant *grant, uint64_t tokens, enum priority priority,
                           uint64_t now_us, struct access_refusal *refusal)
{
    *refusal = (struct access_refusal){.retry_after_s = 0};
    if (!grant)
        return REASON_NONE;
    ASSERT(grant->running && !grant->reserved && priority < PRIORITIES);
    struct holder *holder = grant->holder;
    uint64_t retry_us = 0;
    pthread_mutex_lock(&grant->access->lock);
    enum reason reason = REASON_PRIORITY_NOT_ALLOWED;
    if (holder->key.priorities[priority] || grant->class_priorities[priority]) {
        enum quota_verdict verdict =
            quota_reserve(&holder->quota, &holder->key.limits, tokens, now_us, &retry_us);
        if (verdict == QUOTA_GRANTED && holder->key.limits.tokens_per_minute)
            grant->reserved = tokens;
        reason = refuse_use(&holder->key, verdict, retry_us, refusal);
    } else {
        error_set(&refusal->why, STATUS_INVALID, "this API key may not ask for priority %s",
                  priority_names[priority]);
    }
    pthread_mutex_unlock(&grant->access->lock);
    return reason;
}

struct access_grant *access_share(struct access_grant *grant)
{
    if (!grant)
        return NULL;
    pthread_mutex_lock(&grant->access->lock);
    grant->shares++;
    pthread_mutex_unlock(&grant->access->lock);
    return grant;
}

void access_settle(struct access_grant *grant, uint64_t used_tokens, uint64_t now_us)
{
    if (!grant)
        return;
    struct access *access = grant->access;
    struct holder *holder = grant->holder;
    pthread_mutex_lock(&access->lock);
    grant->used += used_tokens;
    bool last = !--grant->shares;
    if (last && grant->running)
        quota_end(&holder->quota, &holder->key.limits, grant->reserved, grant->used, now_us);
    while (last && grant->running)
        choice_ended(grant, now_us);
    if (last)
        let_go(holder);
    pthread_mutex_unlock(&access->lock);
    if (last)
        free(grant);
}

size_t access_salt(const struct access_grant *grant, uint8_t salt[ACCESS_SALT_BYTES])
{
    if (!grant)
        return 0;
    char named[sizeof SALT_PREFIX + API_KEY_MAX_NAME_BYTES];
    int length = snprintf(named, sizeof named, SALT_PREFIX "%s", grant->tenant);
    struct digest digest = digest_of(named, (size_t)length);
    memcpy(salt, digest.bytes, ACCESS_SALT_BYTES);
    return ACCESS_SALT_BYTES;
}

const char *access_key_id(const struct access_grant *grant)
{
    return grant ? grant->id : "";
}

const char *access_tenant(const struct access_grant *grant)
{
    return grant ? grant->tenant : "";
}
