#include "common/kv/handoff/source.h"

#include "common/base/assert.h"
#include "common/base/map.h"

#include <stdlib.h>
#include <string.h>

enum source_state {
    SOURCE_UNUSED,
    SOURCE_QUEUED,   /* prefill */
    SOURCE_OPENED,   /* reserved */
    SOURCE_COMPLETE, /* completed */
};

struct source {
    enum source_state state;
    uint32_t generation; /* counts the uses of the slot, and survives them */
    uint64_t request;
    uint32_t attempt;
    uint32_t reader;     /* the newest attempt that has subscribed; before, its own attempt */
    uint64_t subscriber; /* the reader's stream */
    bool subscribed;     /* false again once the stream is lost */
    uint32_t token_count, block_count, ready_tokens;
    uint64_t prompt_hash;
    uint64_t lease_end_us;
    struct source_completion completion; /* without its sums */
    uint32_t *blocks, *checksums;        /* [max_blocks], the slot's part of the table's arrays */
    uint64_t *sums;                      /* the same */
    uint32_t summed, told;               /* blocks: with sums; their sums went to the subscriber */
};

struct memo { /* this attempt of this handle was answered HELD */
    struct handle_ref ref;
    uint64_t request;
    uint32_t attempt;
};

struct source_table {
    struct source_config config;
    struct source *slots; /* [max_sources] */
    uint32_t *free_slots; /* stack */
    uint32_t free_count;
    struct map *by_request; /* request -> slot */
    uint32_t *block_ids, *checksums;
    uint64_t *sums;
    struct memo *memos; /* [memo_count], a ring */
    uint64_t memos_made;
    struct past_attempts past;
    struct source_counters counters;
};

/* ---------------------------------------------------------------- parts */

static struct source_action *append(struct source_actions *out, enum source_action_kind kind,
                                    uint64_t request, uint32_t attempt)
{
    ASSERT(out->count < out->capacity);
    struct source_action *action = &out->items[out->count++];
    *action = (struct source_action){.kind = kind, .request = request, .attempt = attempt};
    return action;
}

/* Returns the source that holds this handle for this request, or NULL. Every question passes this
 * fence. */
static struct source *source_of_ref(struct source_table *table, uint64_t request,
                                    struct handle_ref ref)
{
    if (ref.incarnation != table->config.incarnation || ref.id >= table->config.max_sources)
        return NULL;
    struct source *source = &table->slots[ref.id];
    bool same = source->state >= SOURCE_OPENED && source->generation == ref.generation &&
                source->request == request;
    return same ? source : NULL;
}

/* Returns the source of exactly this attempt, for an event of the step thread, if its state is in
 * `from` .. `to`. Otherwise counts a dropped event, and returns NULL. */
static struct source *source_of_job(struct source_table *table, uint64_t request, uint32_t attempt,
                                    enum source_state from, enum source_state to)
{
    struct source *source = map_get(table->by_request, request);
    if (source && source->attempt == attempt && source->state >= from && source->state <= to)
        return source;
    table->counters.dropped++;
    return NULL;
}

/* Ends a source, whatever the reason. */
static void end(struct source_table *table, struct source *source, enum source_end how,
                struct source_actions *out)
{
    append(out, SOURCE_FREE, source->request, source->attempt)->end = how;
    table->counters.ended[how]++;
    map_take(table->by_request, source->request);
    past_attempts_add(&table->past, source->request, source->attempt);
    source->state = SOURCE_UNUSED;
    source->subscribed = false;
    table->free_slots[table->free_count++] = (uint32_t)(source - table->slots);
}

static struct peer_up *answer(struct source_actions *out, uint64_t peer, enum peer_up_kind kind,
                              uint64_t request, uint32_t attempt)
{
    struct source_action *action = append(out, SOURCE_SEND_PEER, request, attempt);
    action->peer = peer;
    action->message = (struct peer_up){.kind = kind, .request = request, .attempt = attempt};
    return &action->message;
}

static void send_opened(const struct source_table *table, const struct source *source,
                        struct source_actions *out)
{
    append(out, SOURCE_SEND_OPENED, source->request, source->attempt)->handle =
        (struct handle){.ref = {.incarnation = table->config.incarnation,
                                .id = (uint32_t)(source - table->slots),
                                .generation = source->generation},
                        .model_hash = table->config.model_hash,
                        .layout_hash = table->config.layout_hash,
                        .numerics_id = table->config.numerics_id,
                        .token_count = source->token_count,
                        .prompt_hash = source->prompt_hash,
                        .block_count = source->block_count,
                        .blocks = source->blocks};
}

static void refuse(uint64_t request, uint32_t attempt, const char *reason, bool retry,
                   struct source_actions *out)
{
    struct source_action *action = append(out, SOURCE_SEND_REFUSED, request, attempt);
    action->reason = reason;
    action->retry = retry;
}

/* Sends the reader how far it may read, if there is a reader and anything to read. */
static void publish(struct source *source, struct source_actions *out)
{
    struct peer_up *m;
    if (!source->subscribed)
        return;
    if (source->state == SOURCE_COMPLETE) {
        m = answer(out, source->subscriber, PEER_COMPLETE, source->request, source->reader);
        m->first_token = source->completion.first_token;
        m->logits_hash = source->completion.logits_hash;
        m->logprobs = source->completion.logprobs;
        m->finish = source->completion.finish;
        m->sum_count = m->checksum_count = source->summed;
        m->sums = source->sums;
        m->checksums = source->checksums;
    } else if (source->ready_tokens) {
        m = answer(out, source->subscriber, PEER_READY, source->request, source->reader);
        m->ready_tokens = source->ready_tokens;
        m->sum_first = source->told;
        m->sum_count = source->summed - source->told;
        m->sums = source->sums + source->told;
        source->told = source->summed;
    }
}

/* ---------------------------------------------------------------- Session */

void source_on_prefill(struct source_table *table, uint64_t now_us, uint64_t request,
                       uint32_t attempt, uint32_t token_count, uint64_t prompt_hash,
                       struct source_actions *out)
{
    (void)now_us; /* a queued source has no lease */
    out->count = 0;
    struct source *source = map_get(table->by_request, request);
    if (source && source->attempt >= attempt) {
        table->counters.dropped++;
        if (source->attempt == attempt && source->state >= SOURCE_OPENED)
            send_opened(table, source, out);
        return;
    }
    if (past_attempts_has(&table->past, request, attempt)) {
        refuse(request, attempt, "gone", true, out);
        return;
    }
    if (source)
        end(table, source, SOURCE_SUPERSEDED, out);
    uint64_t block_count =
        ((uint64_t)token_count + table->config.block_tokens - 1) / table->config.block_tokens;
    if (token_count == 0 || block_count > table->config.max_blocks) {
        past_attempts_add(&table->past, request, attempt);
        refuse(request, attempt, "invalid", false, out);
        return;
    }
    source = table->free_count ? &table->slots[table->free_slots[table->free_count - 1]] : NULL;
    if (!source || map_put(table->by_request, request, source) != STATUS_OK) {
        past_attempts_add(&table->past, request, attempt);
        refuse(request, attempt, "limit", true, out);
        return;
    }
    table->free_count--;
    source->state = SOURCE_QUEUED;
    source->request = request;
    source->attempt = source->reader = attempt;
    source->token_count = token_count;
    source->prompt_hash = prompt_hash;
    source->block_count = (uint32_t)block_count;
    source->ready_tokens = source->summed = source->told = 0;
    append(out, SOURCE_START, request, attempt);
}

void source_on_release(struct source_table *table, uint64_t now_us, uint64_t request,
                       uint32_t attempt, struct source_actions *out)
{
    (void)now_us;
    out->count = 0;
    struct source *source = map_get(table->by_request, request);
    if (source && source->attempt <= attempt)
        end(table, source, SOURCE_RELEASED, out);
}

void source_on_session_lost(struct source_table *table, uint64_t now_us, struct source_actions *out)
{
    (void)now_us;
    out->count = 0;
    for (uint32_t i = 0; i < table->config.max_sources; i++)
        if (table->slots[i].state == SOURCE_QUEUED)
            end(table, &table->slots[i], SOURCE_SESSION, out);
}

void source_on_router_changed(struct source_table *table, uint64_t now_us,
                              struct source_actions *out)
{
    (void)now_us;
    out->count = 0;
    for (uint32_t i = 0; i < table->config.max_sources; i++)
        if (table->slots[i].state != SOURCE_UNUSED)
            end(table, &table->slots[i], SOURCE_SESSION, out);
}

/* ---------------------------------------------------------------- the step thread */

void source_on_reserved(struct source_table *table, uint64_t now_us, uint64_t request,
                        uint32_t attempt, const uint32_t *blocks, uint32_t block_count,
                        struct source_actions *out)
{
    (void)now_us; /* unused: the lease begins later */
    out->count = 0;
    struct source *source = source_of_job(table, request, attempt, SOURCE_QUEUED, SOURCE_QUEUED);
    if (!source)
        return;
    ASSERT(block_count == source->block_count);
    memcpy(source->blocks, blocks, block_count * sizeof *blocks);
    source->state = SOURCE_OPENED;
    source->generation++;
    source->lease_end_us = UINT64_MAX; /* no lease while it computes without a reader */
    table->counters.opened++;
    send_opened(table, source, out);
}

void source_on_failed(struct source_table *table, uint64_t now_us, uint64_t request,
                      uint32_t attempt, const char *reason, bool retry, struct source_actions *out)
{
    (void)now_us;
    out->count = 0;
    struct source *source = source_of_job(table, request, attempt, SOURCE_QUEUED, SOURCE_COMPLETE);
    if (!source)
        return;
    if (source->state == SOURCE_QUEUED) {
        refuse(request, attempt, reason, retry, out);
    } else {
        append(out, SOURCE_SEND_LOST, request, source->reader);
        if (source->subscribed)
            answer(out, source->subscriber, PEER_GONE, request, source->reader);
    }
    end(table, source, SOURCE_FAILED, out);
}

static void keep_sums(struct source *source, struct source_sums sums, uint32_t blocks)
{
    if (!sums.sums)
        return;
    size_t first = source->summed, count = blocks - first;
    memcpy(source->sums + first, sums.sums + first, count * sizeof *source->sums);
    memcpy(source->checksums + first, sums.checksums + first, count * sizeof *source->checksums);
    source->summed = blocks;
}

void source_on_computed(struct source_table *table, uint64_t now_us, uint64_t request,
                        uint32_t attempt, uint32_t tokens, struct source_sums sums,
                        struct source_actions *out)
{
    (void)now_us;
    out->count = 0;
    struct source *source = source_of_job(table, request, attempt, SOURCE_OPENED, SOURCE_OPENED);
    if (!source)
        return;
    ASSERT(tokens <= source->token_count);
    uint32_t whole = tokens - tokens % table->config.block_tokens;
    if (whole <= source->ready_tokens)
        return;
    source->ready_tokens = whole;
    keep_sums(source, sums, whole / table->config.block_tokens);
    publish(source, out);
}

void source_on_completed(struct source_table *table, uint64_t now_us, uint64_t request,
                         uint32_t attempt, const struct source_completion *completion,
                         struct source_actions *out)
{
    out->count = 0;
    struct source *source = source_of_job(table, request, attempt, SOURCE_OPENED, SOURCE_OPENED);
    if (!source)
        return;
    source->state = SOURCE_COMPLETE;
    if (source->lease_end_us == UINT64_MAX)
        source->lease_end_us = now_us + table->config.lease_us;
    source->completion = *completion;
    ASSERT(completion->sums.sums || source->summed == 0);
    keep_sums(source, completion->sums, source->block_count);
    table->counters.completed++;
    publish(source, out);
}

/* ---------------------------------------------------------------- Peer */

static void extend(struct source_table *table, uint64_t now_us, uint64_t peer,
                   struct source *source, uint32_t attempt, struct source_actions *out)
{
    source->lease_end_us = now_us + table->config.lease_us;
    answer(out, peer, PEER_EXTENDED, source->request, attempt)->left_us = table->config.lease_us;
}

/* Returns true if the answer is HELD: from Opened until this answer the blocks were this handle's.
 * Only the newest reader gets that answer. */
static bool confirm(struct source_table *table, struct source *source,
                    const struct peer_down *message, struct source_actions *out)
{
    if (source && source->state == SOURCE_COMPLETE && message->attempt >= source->reader) {
        table->memos[table->memos_made++ % table->config.memo_count] =
            (struct memo){message->ref, message->request, message->attempt};
        end(table, source, SOURCE_CONFIRMED, out);
        return true;
    }
    uint64_t count =
        table->memos_made < table->config.memo_count ? table->memos_made : table->config.memo_count;
    for (uint64_t i = 0; i < count; i++) {
        const struct memo *memo = &table->memos[i];
        if (memo->request == message->request && memo->attempt == message->attempt &&
            handle_ref_equal(memo->ref, message->ref))
            return true;
    }
    return false;
}

void source_on_message(struct source_table *table, uint64_t now_us, uint64_t peer,
                       const struct peer_down *message, struct source_actions *out)
{
    out->count = 0;
    struct source *source = source_of_ref(table, message->request, message->ref);
    bool reads = source && message->attempt >= source->reader;
    switch (message->kind) {
    case PEER_SUBSCRIBE:
        if (!reads)
            break;
        source->reader = message->attempt;
        source->subscriber = peer;
        source->subscribed = true;
        source->told = 0;
        extend(table, now_us, peer, source, message->attempt, out);
        publish(source, out);
        return;
    case PEER_EXTEND:
        if (!reads)
            break;
        extend(table, now_us, peer, source, message->attempt, out);
        return;
    case PEER_CONFIRM:
        if (!confirm(table, source, message, out))
            break;
        table->counters.held++;
        answer(out, peer, PEER_HELD, message->request, message->attempt);
        return;
    case PEER_RELEASE: /* no question, so no answer */
        if (reads)
            end(table, source, SOURCE_RELEASED, out);
        else
            table->counters.dropped++;
        return;
    }
    table->counters.gone++;
    answer(out, peer, PEER_GONE, message->request, message->attempt);
}

bool source_may_read(const struct source_table *table, uint64_t peer, uint64_t grant,
                     uint64_t first, uint64_t count)
{
    uint32_t id = (uint32_t)grant, generation = (uint32_t)(grant >> 32), at = 0;
    if (id >= table->config.max_sources || count == 0)
        return false;
    const struct source *source = &table->slots[id];
    if (source->state < SOURCE_OPENED || source->generation != generation)
        return false;
    if (!source->subscribed || source->subscriber != peer)
        return false;
    uint32_t ready = source->state == SOURCE_COMPLETE
                         ? source->block_count
                         : source->ready_tokens / table->config.block_tokens;
    while (at < ready && source->blocks[at] != first)
        at++;
    if (count > ready - at)
        return false;
    for (uint32_t i = 1; i < count; i++)
        if (source->blocks[at + i] != first + i)
            return false;
    return true;
}

void source_on_peer_lost(struct source_table *table, uint64_t now_us, uint64_t peer,
                         struct source_actions *out)
{
    (void)now_us;
    out->count = 0;
    for (uint32_t i = 0; i < table->config.max_sources; i++)
        if (table->slots[i].subscribed && table->slots[i].subscriber == peer)
            table->slots[i].subscribed = false;
}

bool source_table_uses_peer(const struct source_table *table, uint64_t peer)
{
    for (uint32_t i = 0; i < table->config.max_sources; i++)
        if (table->slots[i].subscribed && table->slots[i].subscriber == peer)
            return true;
    return false;
}

/* ---------------------------------------------------------------- time */

void source_on_tick(struct source_table *table, uint64_t now_us, struct source_actions *out)
{
    out->count = 0;
    for (uint32_t i = 0; i < table->config.max_sources; i++) {
        struct source *source = &table->slots[i];
        if (source->state >= SOURCE_OPENED && source->lease_end_us <= now_us)
            end(table, source, SOURCE_EXPIRED, out);
    }
}

/* ---------------------------------------------------------------- the table */

const char *source_end_name(enum source_end end)
{
    static const char *const names[] = {"confirmed", "released", "superseded",
                                        "expired",   "session",  "failed"};
    return (size_t)end < sizeof names / sizeof *names ? names[end] : "unknown";
}

enum status source_table_create(const struct source_config *config, struct source_table **out,
                                struct error *err)
{
    if (!config->block_tokens || !config->max_sources || !config->max_blocks ||
        !config->memo_count || !config->lease_us)
        return error_set(err, STATUS_INVALID, "source table: a size or the lease is 0");
    size_t per_slot = config->max_blocks;
    struct source_table *table = calloc(1, sizeof *table);
    if (!table)
        goto fail_memory;
    table->config = *config;
    table->slots = calloc(config->max_sources, sizeof *table->slots);
    table->free_slots = calloc(config->max_sources, sizeof *table->free_slots);
    table->block_ids = calloc(config->max_sources, per_slot * sizeof *table->block_ids);
    table->checksums = calloc(config->max_sources, per_slot * sizeof *table->checksums);
    table->sums = calloc(config->max_sources, per_slot * sizeof *table->sums);
    table->memos = calloc(config->memo_count, sizeof *table->memos);
    if (!table->slots || !table->free_slots || !table->block_ids || !table->checksums ||
        !table->sums || !table->memos ||
        map_create(config->max_sources, &table->by_request) != STATUS_OK)
        goto fail_table;
    for (uint32_t i = 0; i < config->max_sources; i++) {
        table->slots[i].blocks = table->block_ids + i * per_slot;
        table->slots[i].checksums = table->checksums + i * per_slot;
        table->slots[i].sums = table->sums + i * per_slot;
        table->free_slots[table->free_count++] = config->max_sources - 1 - i;
    }
    *out = table;
    return STATUS_OK;

fail_table:
    source_table_destroy(table);
fail_memory:
    return error_set(err, STATUS_LIMIT, "source table: no memory for %u sources of %u blocks",
                     config->max_sources, config->max_blocks);
}

void source_table_destroy(struct source_table *table)
{
    if (!table)
        return;
    map_destroy(table->by_request);
    free(table->memos);
    free(table->checksums);
    free(table->sums);
    free(table->block_ids);
    free(table->free_slots);
    free(table->slots);
    free(table);
}

enum status source_actions_init(struct source_actions *list, const struct source_table *table)
{
    /* The most actions of one event: every source ends. A Prefill ends one and starts one, a
     * message is answered twice. */
    *list = (struct source_actions){.capacity = table->config.max_sources + 2};
    list->items = calloc(list->capacity, sizeof *list->items);
    return list->items ? STATUS_OK : STATUS_LIMIT;
}

void source_actions_deinit(struct source_actions *list)
{
    free(list->items);
    *list = (struct source_actions){0};
}

uint64_t source_table_next_us(const struct source_table *table)
{
    uint64_t next_us = UINT64_MAX;
    for (uint32_t i = 0; i < table->config.max_sources; i++) {
        const struct source *source = &table->slots[i];
        if (source->state >= SOURCE_OPENED && source->lease_end_us < next_us)
            next_us = source->lease_end_us;
    }
    return next_us;
}

uint32_t source_table_count(const struct source_table *table)
{
    return table->config.max_sources - table->free_count;
}

uint32_t source_table_queued(const struct source_table *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->config.max_sources; i++)
        count += table->slots[i].state == SOURCE_QUEUED;
    return count;
}

uint32_t source_table_pinned_blocks(const struct source_table *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->config.max_sources; i++)
        if (table->slots[i].state >= SOURCE_OPENED)
            count += table->slots[i].block_count;
    return count;
}

struct source_counters source_table_counters(const struct source_table *table)
{
    return table->counters;
}
