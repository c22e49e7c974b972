#include "router/dispatch/constraint_checks.h"

#include "common/base/assert.h"
#include "common/base/domain/content_hash.h"
#include "common/language/constrain/constraint.h"
#include "router/dispatch/constraint_queue.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NETWORK_BYTES 8 /* the first ones of an IPv6 address */

/* A known verdict. A refusal keeps its source, so as not to hit another constraint with the same
 * hash. A fine verdict has none: workers compile the text itself, and would refuse it. */
struct known {
    uint64_t hash;
    uint64_t last_asked; /* 0: the entry is free */
    struct constraint_checked *refused;
};

struct constraint_checks {
    pthread_mutex_t mutex; /* guards all; not held while a constraint is compiled */
    pthread_cond_t changed;
    struct known fine[CONSTRAINT_CHECKS_MAX], refused[CONSTRAINT_REFUSED_MAX];
    uint64_t clock;
    struct constraint_queue queue;
    const struct constraint_checked *compiling; /* NULL: none */
    uint64_t compiling_hash;
    uint32_t untaken; /* left the queue, and their message isn't taken yet */
    struct constraint_checks_counts counts;
    bool started, stopping;
    pthread_t thread;
    void (*told)(void *context, struct constraint_checked *checked);
    void *context;
};

void constraint_checked_free(struct constraint_checked *checked)
{
    if (checked)
        free(checked->source);
    free(checked);
}

static uint64_t address_owner(const char *peer)
{
    char host[INET6_ADDRSTRLEN + 16]; /* with a zone: "fe80::1%eth0" */
    struct in6_addr address;
    const char *colon = strrchr(peer, ':');
    size_t length = colon ? (size_t)(colon - peer) : strlen(peer);
    if (*peer != '[' || length < 2 || length >= sizeof host)
        return content_hash(peer, length);
    snprintf(host, sizeof host, "%.*s", (int)length - 2, peer + 1);
    host[strcspn(host, "%")] = 0;
    if (inet_pton(AF_INET6, host, &address) != 1)
        return content_hash(peer, length);
    if (!IN6_IS_ADDR_V4MAPPED(&address))
        return content_hash(address.s6_addr, NETWORK_BYTES);
    inet_ntop(AF_INET, &address.s6_addr[12], host, sizeof host);
    return content_hash(host, strlen(host));
}

uint64_t constraint_owner_of(const char *tenant, const char *peer)
{
    return *tenant ? content_hash(tenant, strlen(tenant)) : address_owner(peer);
}

/* Takes the source over. */
static struct constraint_checked *checked_of(struct constraint_source *source,
                                             enum constraint_verdict verdict,
                                             const struct error *err)
{
    ASSERT(source);
    struct constraint_checked *checked = calloc(1, sizeof *checked);
    ASSERT(checked);
    checked->message.kind = INBOX_CONSTRAINT;
    checked->source = source;
    checked->verdict = verdict;
    if (err)
        checked->err = *err;
    return checked;
}

/* ---------------------------------------------------------------- what is known */

static uint64_t hash_of(const struct constraint_source *source)
{
    return content_hash(source->text, source->length) ^ (source->kind * 0x9e3779b97f4a7c15);
}

static bool is_that(const struct known *known, uint64_t hash,
                    const struct constraint_source *source)
{
    return known->last_asked && known->hash == hash &&
           (!known->refused || constraint_source_equal(known->refused->source, source));
}

/* Returns its entry, or the one asked for longest ago, to be replaced. */
static struct known *place_of(struct known *list, size_t count, uint64_t hash,
                              const struct constraint_source *source)
{
    struct known *oldest = list;
    for (size_t i = 0; i < count; i++) {
        if (is_that(&list[i], hash, source))
            return &list[i];
        if (list[i].last_asked < oldest->last_asked)
            oldest = &list[i];
    }
    return oldest;
}

static enum constraint_verdict find(struct constraint_checks *checks, uint64_t hash,
                                    const struct constraint_source *source, struct error *err)
{
    struct known *fine = place_of(checks->fine, CONSTRAINT_CHECKS_MAX, hash, source);
    struct known *refused = place_of(checks->refused, CONSTRAINT_REFUSED_MAX, hash, source);
    bool is_fine = is_that(fine, hash, source), is_refused = is_that(refused, hash, source);
    if (!is_fine && !is_refused)
        return CONSTRAINT_UNKNOWN;
    checks->counts.found++;
    (is_fine ? fine : refused)->last_asked = ++checks->clock;
    if (is_fine)
        return CONSTRAINT_FINE;
    *err = refused->refused->err;
    return CONSTRAINT_REFUSED;
}

static void remember(struct constraint_checks *checks, uint64_t hash,
                     const struct constraint_checked *checked)
{
    bool fine = checked->verdict == CONSTRAINT_FINE;
    struct known *place =
        fine ? place_of(checks->fine, CONSTRAINT_CHECKS_MAX, hash, checked->source)
             : place_of(checks->refused, CONSTRAINT_REFUSED_MAX, hash, checked->source);
    constraint_checked_free(place->refused);
    *place = (struct known){.hash = hash,
                            .last_asked = ++checks->clock,
                            .refused = fine ? NULL
                                            : checked_of(constraint_source_copy(checked->source),
                                                         CONSTRAINT_REFUSED, &checked->err)};
    checks->counts.compiled++;
    checks->counts.refused += !fine;
}

/* ---------------------------------------------------------------- the thread */

static void compile(struct constraint_checked *checked)
{
    const struct constraint_source *source = checked->source;
    struct constraint *constraint;
    enum status status =
        constraint_compile(source->kind, source->text, source->length, &constraint, &checked->err);
    checked->verdict = status == STATUS_OK ? CONSTRAINT_FINE : CONSTRAINT_REFUSED;
    if (status == STATUS_OK)
        constraint_destroy(constraint);
    else if (source->kind != CONSTRAINT_BEHIND_REASONING) /* its sentence names the kind inside */
        error_prefix(&checked->err, STATUS_INVALID, "%s", constraint_kind_names[source->kind]);
}

/* Waits for the next constraint. NULL: stopping. The mutex is held. */
static struct constraint_checked *next(struct constraint_checks *checks)
{
    while (!checks->stopping && !checks->queue.count)
        pthread_cond_wait(&checks->changed, &checks->mutex);
    if (checks->stopping)
        return NULL;
    struct constraint_source *source =
        constraint_queue_pop(&checks->queue, &checks->compiling_hash);
    checks->untaken++;
    return checked_of(source, CONSTRAINT_PENDING, NULL);
}

static void *checks_main(void *argument)
{
    struct constraint_checks *checks = argument;
    struct constraint_checked *checked;
    pthread_setname_np(pthread_self(), "baton-constrain");
    pthread_mutex_lock(&checks->mutex);
    while ((checked = next(checks))) {
        checks->compiling = checked;
        pthread_mutex_unlock(&checks->mutex);
        compile(checked);
        pthread_mutex_lock(&checks->mutex);
        remember(checks, checks->compiling_hash, checked);
        checks->compiling = NULL; /* from here on find has it */
        pthread_mutex_unlock(&checks->mutex);
        checks->told(checks->context, checked);
        pthread_mutex_lock(&checks->mutex);
    }
    pthread_mutex_unlock(&checks->mutex);
    return NULL;
}

/* ---------------------------------------------------------------- life */

struct constraint_checks *constraint_checks_create(void)
{
    struct constraint_checks *checks = calloc(1, sizeof *checks);
    if (!checks)
        return NULL;
    pthread_mutex_init(&checks->mutex, NULL);
    pthread_cond_init(&checks->changed, NULL);
    constraint_queue_init(&checks->queue);
    return checks;
}

enum status constraint_checks_start(struct constraint_checks *checks,
                                    void (*told)(void *context, struct constraint_checked *checked),
                                    void *context)
{
    checks->told = told;
    checks->context = context;
    if (pthread_create(&checks->thread, NULL, checks_main, checks))
        return STATUS_IO;
    checks->started = true;
    return STATUS_OK;
}

void constraint_checks_stop(struct constraint_checks *checks)
{
    if (!checks || !checks->started)
        return;
    pthread_mutex_lock(&checks->mutex);
    checks->stopping = true;
    pthread_cond_signal(&checks->changed);
    pthread_mutex_unlock(&checks->mutex);
    pthread_join(checks->thread, NULL);
    checks->started = false;
}

void constraint_checks_destroy(struct constraint_checks *checks)
{
    if (!checks)
        return;
    constraint_queue_deinit(&checks->queue);
    for (size_t i = 0; i < CONSTRAINT_REFUSED_MAX; i++)
        constraint_checked_free(checks->refused[i].refused);
    pthread_cond_destroy(&checks->changed);
    pthread_mutex_destroy(&checks->mutex);
    free(checks);
}

/* ---------------------------------------------------------------- asking */

enum constraint_verdict constraint_checks_find(struct constraint_checks *checks,
                                               const struct constraint_source *source,
                                               struct error *err)
{
    uint64_t hash = hash_of(source);
    pthread_mutex_lock(&checks->mutex);
    enum constraint_verdict verdict = find(checks, hash, source, err);
    pthread_mutex_unlock(&checks->mutex);
    return verdict;
}

/* Puts a constraint into the queue, except one that is being compiled already. */
static enum constraint_verdict wait_in_turn(struct constraint_checks *checks, uint64_t hash,
                                            const struct constraint_source *source, uint64_t owner)
{
    if (checks->compiling && checks->compiling_hash == hash &&
        constraint_source_equal(checks->compiling->source, source))
        return CONSTRAINT_PENDING;
    bool room = checks->queue.count + checks->untaken < CONSTRAINT_WAITING_MAX;
    if (constraint_queue_ask(&checks->queue, source, hash, owner, room) != STATUS_OK)
        return CONSTRAINT_CROWDED;
    pthread_cond_signal(&checks->changed);
    return CONSTRAINT_PENDING;
}

enum constraint_verdict constraint_checks_ask(struct constraint_checks *checks,
                                              const struct constraint_source *source,
                                              uint64_t owner, struct error *err)
{
    uint64_t hash = hash_of(source);
    pthread_mutex_lock(&checks->mutex);
    enum constraint_verdict verdict = find(checks, hash, source, err);
    if (verdict == CONSTRAINT_UNKNOWN)
        verdict = wait_in_turn(checks, hash, source, owner);
    pthread_mutex_unlock(&checks->mutex);
    return verdict;
}

void constraint_checks_withdraw(struct constraint_checks *checks,
                                const struct constraint_source *source, uint64_t owner)
{
    uint64_t hash = hash_of(source);
    pthread_mutex_lock(&checks->mutex);
    constraint_queue_withdraw(&checks->queue, source, hash, owner);
    pthread_mutex_unlock(&checks->mutex);
}

void constraint_checks_taken(struct constraint_checks *checks)
{
    pthread_mutex_lock(&checks->mutex);
    checks->untaken--;
    pthread_mutex_unlock(&checks->mutex);
}

struct constraint_checks_counts constraint_checks_counts(struct constraint_checks *checks)
{
    pthread_mutex_lock(&checks->mutex);
    struct constraint_checks_counts counts = checks->counts;
    pthread_mutex_unlock(&checks->mutex);
    return counts;
}
