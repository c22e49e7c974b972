#include "common/worker/constraint_host.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/ring.h"
#include "common/language/constrain/token_trie.h"
#include "common/language/text/detokenizer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODULE "constraints"

/* The texts of special tokens for a constraint: TOKEN_SPECIAL and their spelling. Made once, then
 * immutable. */
struct special_texts {
    struct special_text {
        uint32_t id, length;
        size_t offset; /* in the pool */
    } * items;         /* ascending by id */
    size_t count;
    char *pool;
};

struct constraint_host {
    char path[1100]; /* tokenizer.json */
    uint32_t vocab;
    uint32_t *end_ids;
    uint32_t end_count;
    struct constraint_cache_limits limits;
    struct ring *messages; /* leases: each comes once to be settled, and once to be given back */
    pthread_t thread;
    bool started, stopped;
    atomic_uint lease_count; /* allocated leases; `messages` has room for each twice */
    atomic_uint held_count;  /* leases that were not given back */
    /* The thread's own, until a lease is settled; then read by all. */
    struct tokenizer *tokenizer;
    struct special_texts specials;
    struct token_trie *trie;
    struct constraint_cache *cache;
    struct fair_queue queue; /* leases to be settled */
    enum status status;      /* the result of opening the vocabulary */
    struct error err;
};

/* The message that ends the thread. */
static struct constraint_lease stop_message;

/* ---------------------------------------------------------------- special tokens */

/* Returns the number of special tokens below `vocab`, and the bytes of their texts; stores them if
 * there is a pool. A spelling that is too long for a trie is left out. */
static size_t gather(struct special_texts *texts, const struct tokenizer *tokenizer, uint32_t vocab,
                     size_t *bytes)
{
    size_t count = 0, length;
    *bytes = 0;
    for (uint32_t id = 0; id < vocab; id++) {
        const char *spelling = token_special_text(tokenizer, id, &length);
        if (!spelling || !length || length >= TOKEN_TRIE_MAX_BYTES)
            continue;
        if (texts->pool) {
            texts->items[count] =
                (struct special_text){.id = id, .length = (uint32_t)length + 1, .offset = *bytes};
            texts->pool[*bytes] = (char)TOKEN_SPECIAL;
            memcpy(texts->pool + *bytes + 1, spelling, length);
        }
        *bytes += length + 1;
        count++;
    }
    return count;
}

static bool special_texts_init(struct special_texts *texts, const struct tokenizer *tokenizer,
                               uint32_t vocab)
{
    size_t bytes;
    *texts = (struct special_texts){0};
    size_t count = gather(texts, tokenizer, vocab, &bytes);
    texts->items = calloc(count + 1, sizeof *texts->items);
    texts->pool = malloc(bytes + 1);
    if (!texts->items || !texts->pool)
        return false;
    texts->count = gather(texts, tokenizer, vocab, &bytes);
    return true;
}

static int by_id(const void *key, const void *item)
{
    uint32_t id = *(const uint32_t *)key, other = ((const struct special_text *)item)->id;
    return (id > other) - (id < other);
}

/* ---------------------------------------------------------------- on the thread */

static const char *bytes_of(const void *context, uint32_t id, bool first, size_t *length)
{
    return constraint_host_text(context, id, first, length);
}

static enum status open_vocabulary(struct constraint_host *host)
{
    if (access(host->path, F_OK) != 0)
        return error_set(&host->err, STATUS_UNSUPPORTED,
                         "the worker's model has no tokenizer.json, so tokens have no text");
    TRY(tokenizer_open(host->path, &host->tokenizer, &host->err));
    if (!token_text_is_known(host->tokenizer))
        return error_set(&host->err, STATUS_UNSUPPORTED,
                         "the tokenizer has no decoder: its tokens have no text of their own");
    if (!special_texts_init(&host->specials, host->tokenizer, host->vocab))
        return error_set(&host->err, STATUS_LIMIT, "out of memory for constraints");
    struct token_source source = {.bytes = bytes_of,
                                  .context = host,
                                  .count = host->vocab,
                                  .end_ids = host->end_ids,
                                  .end_count = host->end_count};
    TRY(token_trie_create(&source, &host->trie, &host->err));
    host->cache = constraint_cache_create(host->trie, host->limits);
    return STATUS_OK;
}

static void open_and_log(struct constraint_host *host)
{
    uint64_t begun_us = clock_now_us();
    char quoted[600];
    host->status = open_vocabulary(host);
    if (host->status == STATUS_OK)
        log_info(MODULE, "msg=\"the vocabulary is laid out\" ids=%u took_us=%" PRIu64, host->vocab,
                 clock_now_us() - begun_us);
    else
        log_write(host->status == STATUS_UNSUPPORTED ? LOG_INFO : LOG_WARN, MODULE,
                  "status=%s why=%s msg=\"requests with a constraint will be refused\"",
                  status_name(host->status), log_quote(host->err.text, quoted, sizeof quoted));
}

static void settle(struct constraint_host *host, struct constraint_lease *lease)
{
    uint64_t begun_us = clock_now_us();
    lease->status = host->status;
    if (host->status == STATUS_OK)
        lease->status = constraint_cache_take(host->cache, lease->source, lease->owner,
                                              &lease->entry, &lease->err);
    else
        lease->err = host->err;
    log_debug(MODULE, "bytes=%zu status=%s took_us=%" PRIu64 " msg=\"compiled, or found\"",
              lease->source->length, status_name(lease->status), clock_now_us() - begun_us);
    free(lease->source);
    lease->source = NULL;
    void (*ready)(void *) = lease->ready;
    void *context = lease->context;
    atomic_store_explicit(&lease->settled, true, memory_order_release);
    ready(context);
}

static void take_back(struct constraint_host *host, struct constraint_lease *lease)
{
    if (lease->entry)
        constraint_cache_give(host->cache, lease->entry);
    free(lease->source);
    free(lease);
    atomic_fetch_sub(&host->lease_count, 1);
}

/* Takes a lease's first message (settle it) or its second one (free it). The second one may come
 * before the lease is settled. */
static void take_message(struct constraint_host *host, struct constraint_lease *lease)
{
    if (!lease->taken) {
        lease->taken = true;
        fair_queue_push(&host->queue, &lease->item, lease->owner);
        return;
    }
    if (!constraint_lease_settled(lease))
        fair_queue_remove(&host->queue, &lease->item);
    take_back(host, lease);
}

static void *host_main(void *argument)
{
    struct constraint_host *host = argument;
    pthread_setname_np(pthread_self(), "baton-constrain");
    open_and_log(host);
    for (;;) {
        struct constraint_lease *lease =
            host->queue.count ? ring_pop(host->messages) : ring_wait(host->messages, UINT64_MAX);
        if (lease == &stop_message)
            return NULL;
        if (lease)
            take_message(host, lease);
        else /* no more messages: settle the lease that is next in turn */
            settle(host, (struct constraint_lease *)fair_queue_pop(&host->queue));
    }
}

/* ---------------------------------------------------------------- life */

static bool start_thread(struct constraint_host *host)
{
    host->started = !pthread_create(&host->thread, NULL, host_main, host);
    return host->started;
}

static enum status create_parts(struct constraint_host *host,
                                const struct constraint_host_config *config, struct error *err)
{
    int length = snprintf(host->path, sizeof host->path, "%s/tokenizer.json", config->model_dir);
    if (length < 0 || (size_t)length >= sizeof host->path)
        return error_set(err, STATUS_LIMIT, "the path of the model's folder is too long");
    host->end_ids = calloc(config->end_count + 1u, sizeof *host->end_ids);
    /* Room for each lease twice, and for the stop. */
    if (!host->end_ids ||
        ring_create(2 * CONSTRAINT_HOST_MAX_LEASES + 1, &host->messages) != STATUS_OK)
        return error_set(err, STATUS_LIMIT, "out of memory for constraints");
    for (uint32_t i = 0; i < config->end_count; i++)
        if (config->end_ids[i] < config->vocab)
            host->end_ids[host->end_count++] = config->end_ids[i];
    if (!config->lazy && !start_thread(host))
        return error_set(err, STATUS_IO, "the thread for constraints could not be started");
    return STATUS_OK;
}

enum status constraint_host_create(const struct constraint_host_config *config,
                                   struct constraint_host **out, struct error *err)
{
    struct constraint_host *host = calloc(1, sizeof *host);
    if (!host)
        return error_set(err, STATUS_LIMIT, "out of memory for constraints");
    host->vocab = config->vocab;
    fair_queue_init(&host->queue);
    host->limits = (struct constraint_cache_limits){.max_entries = CONSTRAINT_HOST_ENTRIES,
                                                    .max_bytes = config->max_bytes,
                                                    .kept_sets = CONSTRAINT_HOST_KEPT_SETS};
    enum status status = create_parts(host, config, err);
    if (status != STATUS_OK) {
        host->stopped = true;
        constraint_host_destroy(host);
        return status;
    }
    *out = host;
    return STATUS_OK;
}

static void post(struct constraint_host *host, struct constraint_lease *lease)
{
    enum status status = ring_push(host->messages, lease);
    ASSERT(status == STATUS_OK); /* it was made for all messages */
}

void constraint_host_stop(struct constraint_host *host)
{
    if (!host || host->stopped)
        return;
    if (host->started) {
        post(host, &stop_message);
        pthread_join(host->thread, NULL);
    }
    host->stopped = true;
}

void constraint_host_destroy(struct constraint_host *host)
{
    if (!host)
        return;
    constraint_host_stop(host);
    ASSERT(constraint_host_held(host) == 0);
    for (struct constraint_lease *lease; host->messages && (lease = ring_pop(host->messages));) {
        if (lease->taken)
            take_back(host, lease);
        else
            lease->taken = true; /* it comes once more: all were given back */
    }
    ring_destroy(host->messages);
    constraint_cache_destroy(host->cache);
    token_trie_destroy(host->trie);
    free(host->specials.items);
    free(host->specials.pool);
    tokenizer_close(host->tokenizer);
    free(host->end_ids);
    free(host);
}

/* ---------------------------------------------------------------- leases */

struct constraint_lease *constraint_host_take(struct constraint_host *host,
                                              struct constraint_source *source, uint64_t owner,
                                              void (*ready)(void *context), void *context)
{
    struct constraint_lease *lease = calloc(1, sizeof *lease);
    if (atomic_fetch_add(&host->lease_count, 1) >= CONSTRAINT_HOST_MAX_LEASES || !lease ||
        (!host->started && !start_thread(host))) {
        atomic_fetch_sub(&host->lease_count, 1);
        free(lease);
        free(source);
        return NULL;
    }
    lease->source = source;
    lease->owner = owner;
    lease->ready = ready;
    lease->context = context;
    atomic_fetch_add(&host->held_count, 1);
    post(host, lease);
    return lease;
}

bool constraint_lease_settled(const struct constraint_lease *lease)
{
    return atomic_load_explicit(&lease->settled, memory_order_acquire);
}

void constraint_host_give(struct constraint_host *host, struct constraint_lease *lease)
{
    atomic_fetch_sub(&host->held_count, 1);
    post(host, lease);
}

uint32_t constraint_host_held(const struct constraint_host *host)
{
    return atomic_load(&host->held_count);
}

/* ---------------------------------------------------------------- the vocabulary */

const char *constraint_host_text(const struct constraint_host *host, uint32_t id, bool first,
                                 size_t *length)
{
    const struct special_texts *specials = &host->specials;
    const char *bytes = token_text(host->tokenizer, id, first, length);
    if (bytes && memchr(bytes, TOKEN_SPECIAL, *length))
        *length = 0; /* a byte that no text has; it must not pass for the mark of a special token */
    if (!bytes) {
        const struct special_text *found =
            bsearch(&id, specials->items, specials->count, sizeof *specials->items, by_id);
        *length = found ? found->length : 0;
        bytes = found ? specials->pool + found->offset : NULL;
    }
    return *length ? bytes : NULL;
}

bool constraint_host_is_end(const struct constraint_host *host, uint32_t id)
{
    for (uint32_t i = 0; i < host->end_count; i++)
        if (host->end_ids[i] == id)
            return true;
    return false;
}

const uint32_t *constraint_host_end_ids(const struct constraint_host *host, uint32_t *count)
{
    *count = host->end_count;
    return host->end_ids;
}

uint32_t constraint_host_words(const struct constraint_host *host)
{
    return (host->vocab + 31) / 32;
}
