#include "common/kv/handoff/sink.h"

#include "common/base/assert.h"
#include "common/kv/handoff/sink_state.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------
 * parts */

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
        return; /* asked when it is up again */
    sink->asked += kind == PEER_EXTEND || kind == PEER_SUBSCRIBE;
    sink_append_for(out, SINK_SEND_PEER, sink)->message = (struct peer_down){
        .kind = kind, .request = sink->request, .attempt = sink->attempt, .ref = sink->ref};
}

enum peer_down_kind sink_question_of(const struct sink *sink)
{
    if (sink->state == SINK_CONFIRMING)
        return PEER_CONFIRM;
    return sink->state == SINK_READING && !sink->complete ? PEER_SUBSCRIBE : PEER_EXTEND;
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

/* ----------------------------------------------------------------------------------------
 * Session */

static enum sink_reason check_decode(const struct sink_table *table,
                                     const struct sink_decode *decode)
{
    const struct sink_config *config = &table->config;
    const struct handle *handle = &decode->handle;
    if (!decode->has_handle)
        return decode->reserve_tokens ? SINK_REASON_NONE : SINK_REASON_INVALID;
    if (handle->model_hash != config->model_hash || handle->layout_hash != config->layout_hash)
        return SINK_REASON_LAYOUT_MISMATCH;
    if (handle->numerics_id != config->numerics_id)
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
                          .checksums = sink->checksums};
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
    if (peer->stream != STREAM_UP)
        sink->down_since_us = now_us;
    if (peer->stream == STREAM_DOWN && peer->retry_us <= now_us)
        sink_peer_connect(peer, out);
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

/* ------------------------------------------------------------------------------------ step
 * thread */

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
    sink->held_blocks = sink->ready_blocks = sink->read_blocks = held_blocks;
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

/* -------------------------------------------------------------------------------------------
 * time */

void sink_on_tick(struct sink_table *table, uint64_t now_us, struct sink_actions *out)
{
    const struct sink_config *config = &table->config;
    out->count = 0;
    for (uint32_t i = 0; i < config->max_sinks; i++) {
        struct sink *sink = &table->slots[i];
        if (!sink_pulls(sink))
            continue;
        if (sink_later_us(sink->down_since_us, config->peer_down_limit_us) <= now_us)
            sink_give_up(table, now_us, sink, SINK_REASON_PEER_DOWN, out);
        else if (sink_later_us(sink->heard_us, config->silence_limit_us) <= now_us)
            sink_give_up(table, now_us, sink, SINK_REASON_SILENT, out);
        else if (sink->beat_us <= now_us && sink->peer->stream == STREAM_UP)
            sink_ask(table, now_us, sink, sink_question_of(sink), out);
    }
    for (uint32_t i = 0; i < config->max_peers; i++) {
        struct sink_peer *peer = &table->peers[i];
        if (peer->used && peer->stream == STREAM_DOWN && peer->retry_us <= now_us &&
            sink_peer_needed(table, peer))
            sink_peer_connect(peer, out);
    }
}
