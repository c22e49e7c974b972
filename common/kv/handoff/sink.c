#include "common/kv/handoff/sink.h"

#include "common/base/assert.h"
#include "common/kv/handoff/sink_state.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- parts */

struct sink_action *sink_append(struct sink_actions *out, enum sink_action_kind kind,
                                uint64_t request, uint32_t attempt)
{
    ASSERT(out->count < out->capacity);
    struct sink_action *action = &out->items[out->count++];
    *action = (struct sink_action){.kind = kind, .request = request, .attempt = attempt};
    return action;
}

struct sink_action *sink_append_for(struct sink_actions *out, enum sink_action_kind kind,
                                    const struct sink *sink)
{
    struct sink_action *action = sink_append(out, kind, sink->request, sink->attempt);
    action->peer = sink->peer ? sink->peer->key : 0;
    return action;
}

struct sink *sink_of(struct sink_table *table, uint64_t request, uint32_t attempt)
{
    struct sink *sink = map_get(table->by_request, request);
    if (sink && sink->attempt == attempt)
        return sink;
    table->counters.dropped++;
    return NULL;
}

void sink_free_slot(struct sink_table *table, struct sink *sink)
{
    sink->state = SINK_UNUSED;
    sink->peer = NULL;
    table->free_slots[table->free_count++] = (uint32_t)(sink - table->slots);
}

void sink_end(struct sink_table *table, struct sink *sink, enum sink_reason reason,
              struct sink_actions *out)
{
    map_take(table->by_request, sink->request);
    past_attempts_add(&table->past, sink->request, sink->attempt);
    if (sink->reading) {
        sink->state = SINK_ORPHAN;
        sink->reason = reason;
        return;
    }
    sink_append_for(out, SINK_UNRESERVE, sink)->reason = reason;
    sink_free_slot(table, sink);
}

void sink_ask(struct sink_table *table, uint64_t now_us, struct sink *sink,
              enum peer_down_kind kind, struct sink_actions *out)
{
    sink->beat_us = now_us + table->config.heartbeat_us;
    if (sink->peer->stream != STREAM_UP)
        return; /* it asks when the stream is up again */
    sink->asked += kind == PEER_EXTEND || kind == PEER_SUBSCRIBE;
    sink_append_for(out, SINK_SEND_PEER, sink)->message = (struct peer_down){
        .kind = kind, .request = sink->request, .attempt = sink->attempt, .ref = sink->ref};
}

enum peer_down_kind sink_question_of(const struct sink *sink)
{
    if (sink->state == SINK_CONFIRMING)
        return PEER_CONFIRM;
    return sink->state == SINK_READING && (!sink->complete || sink->in_doubt) ? PEER_SUBSCRIBE
                                                                              : PEER_EXTEND;
}

void sink_give_up(struct sink_table *table, uint64_t now_us, struct sink *sink,
                  enum sink_reason reason, struct sink_actions *out)
{
    sink_ask(table, now_us, sink, PEER_RELEASE, out);
    sink_append_for(out, SINK_SEND_LOST, sink)->reason = reason;
    table->counters.given_up[reason]++;
    sink_end(table, sink, reason, out);
}

void sink_refuse(struct sink_table *table, uint64_t request, uint32_t attempt,
                 enum sink_reason reason, bool retry, struct sink_actions *out)
{
    struct sink_action *action = sink_append(out, SINK_SEND_REFUSED, request, attempt);
    action->reason = reason;
    action->retry = retry;
    table->counters.given_up[reason]++;
}

/* ---------------------------------------------------------------- links to prefill workers */

static void append_peer(struct sink_actions *out, enum sink_action_kind kind,
                        const struct sink_peer *peer)
{
    sink_append(out, kind, 0, 0)->peer = peer->key;
}

struct sink_peer *sink_peer_of(struct sink_table *table, uint64_t key)
{
    for (uint32_t i = 0; i < table->config.max_peers; i++)
        if (table->peers[i].used && table->peers[i].key == key)
            return &table->peers[i];
    return NULL;
}

struct sink_peer *sink_peer_take(struct sink_table *table, uint64_t key, struct sink_actions *out)
{
    struct sink_peer *place = NULL;
    for (uint32_t i = 0; i < table->config.max_peers; i++) {
        struct sink_peer *peer = &table->peers[i];
        if (peer->used && peer->key == key)
            return peer;
        if (!peer->used && (!place || place->used))
            place = peer;
    }
    for (uint32_t i = 0; !place && i < table->config.max_peers; i++) {
        bool idle = true;
        for (uint32_t j = 0; idle && j < table->config.max_sinks; j++)
            idle = table->slots[j].peer != &table->peers[i];
        if (idle) {
            place = &table->peers[i];
            append_peer(out, SINK_CLOSE, place);
        }
    }
    if (place)
        *place = (struct sink_peer){.used = true, .key = key};
    return place;
}

bool sink_peer_needed(const struct sink_table *table, const struct sink_peer *peer)
{
    for (uint32_t i = 0; i < table->config.max_sinks; i++)
        if (table->slots[i].peer == peer && sink_pulls(&table->slots[i]))
            return true;
    return false;
}

void sink_peer_connect(const struct sink_table *table, struct sink_peer *peer,
                       struct sink_actions *out)
{
    peer->dialled = peer->newest;
    for (uint32_t i = 0; i < table->config.max_sinks; i++) {
        const struct sink *sink = &table->slots[i];
        if (sink->peer != peer || !sink_pulls(sink))
            continue;
        peer->dialled = sink->ref.incarnation;
        if (peer->dialled == peer->newest)
            break; /* the newest handle's process, unless no sink waits for it any more */
    }
    peer->stream = STREAM_CONNECTING;
    append_peer(out, SINK_CONNECT, peer);
    out->items[out->count - 1].incarnation = peer->dialled;
}

void sink_peer_pair(struct sink_peer *peer, struct sink_actions *out)
{
    if (peer->stream != STREAM_UP || peer->pair != PAIR_NONE || peer->link_ended)
        return;
    peer->pair = PAIR_ASKED;
    peer->pair_incarnation = peer->incarnation;
    append_peer(out, SINK_PAIR, peer);
}

void sink_peer_unpair(struct sink_peer *peer, struct sink_actions *out)
{
    if (peer->pair == PAIR_NONE || peer->pair == PAIR_CLOSING)
        return;
    peer->pair = PAIR_CLOSING;
    append_peer(out, SINK_UNPAIR, peer);
}

/* ---------------------------------------------------------------- Session */

static enum sink_reason check_decode(const struct sink_table *table,
                                     const struct sink_decode *decode)
{
    const struct sink_config *config = &table->config;
    const struct handle *handle = &decode->handle;
    if (!decode->has_handle)
        return decode->reserve_tokens ? SINK_REASON_NONE : SINK_REASON_INVALID;
    if (handle->model_hash != config->model_hash || handle->layout_hash != config->layout_hash)
        return SINK_REASON_LAYOUT_MISMATCH;
    if (handle->numerics_id != config->numerics_id && !config->mixed_numerics)
        return SINK_REASON_NUMERICS_MISMATCH;
    uint64_t blocks =
        ((uint64_t)handle->token_count + config->block_tokens - 1) / config->block_tokens;
    if (!handle->token_count || blocks > config->max_blocks || handle->block_count != blocks ||
        decode->reserve_tokens < handle->token_count)
        return SINK_REASON_INVALID;
    return SINK_REASON_NONE;
}

static void fill(struct sink *sink, const struct sink_decode *decode, struct sink_peer *peer)
{
    *sink = (struct sink){.state = SINK_QUEUED,
                          .generation = sink->generation + 1,
                          .request = decode->request,
                          .attempt = decode->attempt,
                          .has_handle = decode->has_handle,
                          .peer = peer,
                          .emitted_count = decode->emitted_count,
                          .down_since_us = UINT64_MAX,
                          .remote = sink->remote,
                          .local = sink->local,
                          .sums = sink->sums};
    if (!decode->has_handle)
        return;
    sink->ref = decode->handle.ref;
    sink->token_count = decode->handle.token_count;
    sink->block_count = decode->handle.block_count;
    memcpy(sink->remote, decode->handle.blocks, sink->block_count * sizeof *sink->remote);
}

void sink_on_decode(struct sink_table *table, uint64_t now_us, const struct sink_decode *decode,
                    struct sink_actions *out)
{
    out->count = 0;
    struct sink *sink = map_get(table->by_request, decode->request);
    if (sink && sink->attempt >= decode->attempt) {
        table->counters.dropped++;
        return;
    }
    if (past_attempts_has(&table->past, decode->request, decode->attempt)) {
        sink_append(out, SINK_SEND_LOST, decode->request, decode->attempt)->reason =
            SINK_REASON_GONE;
        table->counters.given_up[SINK_REASON_GONE]++;
        return;
    }
    if (sink)
        sink_end(table, sink, SINK_REASON_NONE, out);
    enum sink_reason reason = check_decode(table, decode);
    if (reason != SINK_REASON_NONE) {
        past_attempts_add(&table->past, decode->request, decode->attempt);
        sink_refuse(table, decode->request, decode->attempt, reason, reason != SINK_REASON_INVALID,
                    out);
        return;
    }
    sink = table->free_count ? &table->slots[table->free_slots[table->free_count - 1]] : NULL;
    struct sink_peer *peer = NULL;
    if (sink && decode->has_handle)
        peer = sink_peer_take(table, decode->peer, out);
    if (!sink || (decode->has_handle && !peer) ||
        map_put(table->by_request, decode->request, sink) != STATUS_OK) {
        past_attempts_add(&table->past, decode->request, decode->attempt);
        sink_refuse(table, decode->request, decode->attempt, SINK_REASON_LIMIT, true, out);
        return;
    }
    table->free_count--;
    fill(sink, decode, peer);
    sink_append_for(out, SINK_RESERVE, sink)->reserve_tokens = decode->reserve_tokens;
    if (!decode->has_handle)
        return;
    sink->heard_us = now_us;
    peer->newest = sink->ref.incarnation;
    if (peer->stream != STREAM_UP)
        sink->down_since_us = now_us;
    if (peer->stream == STREAM_DOWN && peer->retry_us <= now_us)
        sink_peer_connect(table, peer, out);
    sink_ask(table, now_us, sink, PEER_EXTEND, out);
}

void sink_on_release(struct sink_table *table, uint64_t now_us, uint64_t request, uint32_t attempt,
                     struct sink_actions *out)
{
    (void)now_us;
    out->count = 0;
    struct sink *sink = map_get(table->by_request, request);
    if (sink && sink->attempt <= attempt)
        sink_end(table, sink, SINK_REASON_NONE, out);
}

void sink_on_session_lost(struct sink_table *table, uint64_t now_us, struct sink_actions *out)
{
    (void)now_us;
    out->count = 0;
    for (uint32_t i = 0; i < table->config.max_sinks; i++)
        if (table->slots[i].state != SINK_UNUSED && table->slots[i].state != SINK_ORPHAN)
            sink_end(table, &table->slots[i], SINK_REASON_NONE, out);
}

/* ---------------------------------------------------------------- the step thread */

static struct sink *sink_of_job(struct sink_table *table, uint64_t request, uint32_t attempt,
                                enum sink_state state)
{
    struct sink *sink = sink_of(table, request, attempt);
    if (sink && sink->state == state)
        return sink;
    table->counters.dropped += sink != NULL;
    return NULL;
}

void sink_on_reserved(struct sink_table *table, uint64_t now_us, uint64_t request, uint32_t attempt,
                      const uint32_t *blocks, uint32_t block_count, uint32_t held_blocks,
                      struct sink_actions *out)
{
    out->count = 0;
    struct sink *sink = sink_of_job(table, request, attempt, SINK_QUEUED);
    if (!sink)
        return;
    if (!sink->has_handle) {
        sink->state = SINK_RUNNING;
        table->counters.admitted_local++;
        sink_append_for(out, SINK_ADMIT, sink)->compute_prompt = true;
        return;
    }
    ASSERT(block_count >= sink->block_count && held_blocks < sink->block_count);
    memcpy(sink->local, blocks, sink->block_count * sizeof *sink->local);
    sink->ready_blocks = sink->read_blocks = sink->verified_blocks = held_blocks;
    sink->state = SINK_READING;
    sink_peer_pair(sink->peer, out);
    sink_ask(table, now_us, sink, PEER_SUBSCRIBE, out);
}

void sink_on_reserve_failed(struct sink_table *table, uint64_t now_us, uint64_t request,
                            uint32_t attempt, bool retry, struct sink_actions *out)
{
    (void)now_us;
    out->count = 0;
    struct sink *sink = sink_of_job(table, request, attempt, SINK_QUEUED);
    if (!sink)
        return;
    enum sink_reason reason = retry ? SINK_REASON_LIMIT : SINK_REASON_INVALID;
    sink_refuse(table, request, attempt, reason, retry, out);
    sink_end(table, sink, reason, out);
}

void sink_on_finished(struct sink_table *table, uint64_t now_us, uint64_t request, uint32_t attempt,
                      struct sink_actions *out)
{
    (void)now_us;
    out->count = 0;
    struct sink *sink = sink_of_job(table, request, attempt, SINK_RUNNING);
    if (!sink)
        return;
    map_take(table->by_request, request);
    past_attempts_add(&table->past, request, attempt);
    sink_free_slot(table, sink);
}

/* ---------------------------------------------------------------- time */

void sink_on_tick(struct sink_table *table, uint64_t now_us, struct sink_actions *out)
{
    const struct sink_config *config = &table->config;
    out->count = 0;
    for (uint32_t i = 0; i < config->max_sinks; i++) {
        struct sink *sink = &table->slots[i];
        if (!sink_pulls(sink))
            continue;
        bool down = sink_later_us(sink->down_since_us, config->peer_down_limit_us) <= now_us;
        if (down || sink_later_us(sink->heard_us, config->silence_limit_us) <= now_us)
            sink_give_up(table, now_us, sink,
                         sink->peer->full                    ? SINK_REASON_MADE_ROOM
                         : sink->down_since_us != UINT64_MAX ? SINK_REASON_PEER_DOWN
                                                             : SINK_REASON_SILENT,
                         out);
        else if (sink->beat_us <= now_us && sink->peer->stream == STREAM_UP)
            sink_ask(table, now_us, sink, sink_question_of(sink), out);
    }
    for (uint32_t i = 0; i < config->max_peers; i++) {
        struct sink_peer *peer = &table->peers[i];
        if (peer->used && peer->stream == STREAM_DOWN && peer->retry_us <= now_us &&
            sink_peer_needed(table, peer))
            sink_peer_connect(table, peer, out);
    }
}

/* ---------------------------------------------------------------- the table */

const char *sink_reason_name(enum sink_reason reason)
{
    static const char *const names[] = {"none",
                                        "gone",
                                        "peer_down",
                                        "silent",
                                        "read",
                                        "checksum",
                                        "pairing",
                                        "made_room",
                                        "protocol",
                                        "layout_mismatch",
                                        "numerics_mismatch",
                                        "limit",
                                        "invalid"};
    return (size_t)reason < sizeof names / sizeof *names ? names[reason] : "unknown";
}

enum status sink_table_create(const struct sink_config *config, struct sink_table **out,
                              struct error *err)
{
    if (!config->vocab || !config->block_tokens || !config->block_bytes || !config->max_sinks ||
        !config->max_blocks || !config->max_peers || !config->max_read_blocks)
        return error_set(err, STATUS_INVALID, "sink table: a size is 0");
    if (!config->heartbeat_us || !config->silence_limit_us || !config->peer_down_limit_us ||
        !config->reconnect_us)
        return error_set(err, STATUS_INVALID, "sink table: a time is 0");
    size_t per_slot = config->max_blocks;
    struct sink_table *table = calloc(1, sizeof *table);
    if (!table)
        goto fail_memory;
    table->config = *config;
    table->slots = calloc(config->max_sinks, sizeof *table->slots);
    table->free_slots = calloc(config->max_sinks, sizeof *table->free_slots);
    table->peers = calloc(config->max_peers, sizeof *table->peers);
    table->block_ids = calloc(config->max_sinks, 2 * per_slot * sizeof *table->block_ids);
    table->sums = calloc(config->max_sinks, per_slot * sizeof *table->sums);
    if (!table->slots || !table->free_slots || !table->peers || !table->block_ids || !table->sums ||
        map_create(config->max_sinks, &table->by_request) != STATUS_OK)
        goto fail_table;
    for (uint32_t i = 0; i < config->max_sinks; i++) {
        table->slots[i].remote = table->block_ids + 2 * i * per_slot;
        table->slots[i].local = table->slots[i].remote + per_slot;
        table->slots[i].sums = table->sums + i * per_slot;
        table->free_slots[table->free_count++] = config->max_sinks - 1 - i;
    }
    *out = table;
    return STATUS_OK;

fail_table:
    sink_table_destroy(table);
fail_memory:
    return error_set(err, STATUS_LIMIT, "sink table: no memory for %u sinks of %u blocks",
                     config->max_sinks, config->max_blocks);
}

void sink_table_destroy(struct sink_table *table)
{
    if (!table)
        return;
    map_destroy(table->by_request);
    free(table->block_ids);
    free(table->sums);
    free(table->peers);
    free(table->free_slots);
    free(table->slots);
    free(table);
}

enum status sink_actions_init(struct sink_actions *list, const struct sink_table *table)
{
    /* The most actions of one event: every sink gives up (Release, Lost, Unreserve) and every peer
     * is connected. */
    *list = (struct sink_actions){.capacity =
                                      3 * table->config.max_sinks + table->config.max_peers + 4};
    list->items = calloc(list->capacity, sizeof *list->items);
    return list->items ? STATUS_OK : STATUS_LIMIT;
}

void sink_actions_deinit(struct sink_actions *list)
{
    free(list->items);
    *list = (struct sink_actions){0};
}

static uint64_t earlier(uint64_t a_us, uint64_t b_us)
{
    return a_us < b_us ? a_us : b_us;
}

uint64_t sink_table_next_us(const struct sink_table *table)
{
    const struct sink_config *config = &table->config;
    uint64_t next_us = UINT64_MAX;
    for (uint32_t i = 0; i < config->max_sinks; i++) {
        const struct sink *sink = &table->slots[i];
        if (!sink_pulls(sink))
            continue;
        next_us = earlier(next_us, sink_later_us(sink->down_since_us, config->peer_down_limit_us));
        next_us = earlier(next_us, sink_later_us(sink->heard_us, config->silence_limit_us));
        if (sink->peer->stream == STREAM_UP)
            next_us = earlier(next_us, sink->beat_us);
        else if (sink->peer->stream == STREAM_DOWN)
            next_us = earlier(next_us, sink->peer->retry_us);
    }
    return next_us;
}

uint32_t sink_table_count(const struct sink_table *table)
{
    return table->config.max_sinks - table->free_count;
}

bool sink_table_uses_peer(const struct sink_table *table, uint64_t peer)
{
    for (uint32_t i = 0; i < table->config.max_sinks; i++)
        if (table->slots[i].peer && table->slots[i].peer->key == peer)
            return true;
    return false;
}

uint32_t sink_table_landing_blocks(const struct sink_table *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->config.max_sinks; i++)
        if (table->slots[i].state != SINK_UNUSED)
            count += table->slots[i].reading;
    return count;
}

struct sink_counters sink_table_counters(const struct sink_table *table)
{
    return table->counters;
}
