#include "common/handoff/sink.h"

#include "common/base/assert.h"
#include "common/handoff/sink_state.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------ parts */

static struct sink_action *append(struct sink_actions *out, enum sink_action_kind kind,
                                  uint64_t request, uint32_t attempt)
{
    ASSERT(out->count < out->capacity);
    struct sink_action *action = &out->items[out->count++];
    *action = (struct sink_action){.kind = kind, .request = request, .attempt = attempt};
    return action;
}

static struct sink_action *append_for(struct sink_actions *out, enum sink_action_kind kind,
                                      const struct sink *sink)
{
    struct sink_action *action = append(out, kind, sink->request, sink->attempt);
    action->peer = sink->peer ? sink->peer->key : 0;
    return action;
}

static void append_peer(struct sink_actions *out, enum sink_action_kind kind,
                        const struct sink_peer *peer)
{
    append(out, kind, 0, 0)->peer = peer->key;
}

static uint64_t cookie_of(const struct sink_table *table, const struct sink *sink)
{
    return (uint64_t)sink->generation << 32 | (uint32_t)(sink - table->slots);
}

static struct sink *sink_of_cookie(struct sink_table *table, uint64_t cookie)
{
    uint32_t slot = (uint32_t)cookie;
    ASSERT(slot < table->config.max_sinks); /* our own number came back */
    struct sink *sink = &table->slots[slot];
    return sink->state != SINK_UNUSED && sink->generation == (uint32_t)(cookie >> 32) ? sink : NULL;
}

/* The sink of exactly this attempt, or NULL and counted. */
static struct sink *sink_of(struct sink_table *table, uint64_t request, uint32_t attempt)
{
    struct sink *sink = map_get(table->by_request, request);
    if (sink && sink->attempt == attempt)
        return sink;
    table->counters.dropped++;
    return NULL;
}

static void free_slot(struct sink_table *table, struct sink *sink)
{
    sink->state = SINK_UNUSED;
    sink->peer = NULL;
    table->free_slots[table->free_count++] = (uint32_t)(sink - table->slots);
}

/* The same for every way out but a sequence's own end. */
static void end(struct sink_table *table, struct sink *sink, enum sink_reason reason,
                struct sink_actions *out)
{
    map_take(table->by_request, sink->request);
    if (sink->reading) {
        sink->state = SINK_ORPHAN;
        return;
    }
    append_for(out, SINK_UNRESERVE, sink)->reason = reason;
    free_slot(table, sink);
}

static void ask(struct sink_table *table, uint64_t now_us, struct sink *sink,
                enum peer_down_kind kind, struct sink_actions *out)
{
    sink->beat_us = now_us + table->config.heartbeat_us;
    if (sink->peer->stream != STREAM_UP)
        return; /* asked when it is up again */
    append_for(out, SINK_SEND_PEER, sink)->message = (struct peer_down){
        .kind = kind, .request = sink->request, .attempt = sink->attempt, .ref = sink->ref};
}

/* What a sink asks again, with every heartbeat and on a new stream. Each answer tells all that it waits for, so that no single
 * message has to arrive; and once Confirm was sent nothing else is asked, so that nothing is read again. */
static enum peer_down_kind question_of(const struct sink *sink)
{
    if (sink->state == SINK_CONFIRMING)
        return PEER_CONFIRM;
    return sink->state == SINK_READING && !sink->complete ? PEER_SUBSCRIBE : PEER_EXTEND;
}

/* Gives up by itself: the peer may free, the router tries again. */
static void give_up(struct sink_table *table, uint64_t now_us, struct sink *sink,
                    enum sink_reason reason, struct sink_actions *out)
{
    ask(table, now_us, sink, PEER_RELEASE, out);
    append_for(out, SINK_SEND_LOST, sink)->reason = reason;
    table->counters.given_up[reason]++;
    end(table, sink, reason, out);
}

static void refuse(struct sink_table *table, uint64_t request, uint32_t attempt,
                   enum sink_reason reason, bool retry, struct sink_actions *out)
{
    struct sink_action *action = append(out, SINK_SEND_REFUSED, request, attempt);
    action->reason = reason;
    action->retry = retry;
    table->counters.given_up[reason]++;
}

static bool peer_needed(const struct sink_table *table, const struct sink_peer *peer)
{
    for (uint32_t i = 0; i < table->config.max_sinks; i++)
        if (table->slots[i].peer == peer && sink_pulls(&table->slots[i]))
            return true;
    return false;
}

static void connect_peer(struct sink_peer *peer, struct sink_actions *out)
{
    peer->stream = STREAM_CONNECTING;
    append_peer(out, SINK_CONNECT, peer);
}

static void pair_peer(struct sink_peer *peer, struct sink_actions *out)
{
    if (peer->stream != STREAM_UP || peer->pair != PAIR_NONE)
        return;
    peer->pair = PAIR_ASKED;
    peer->pair_incarnation = peer->incarnation;
    append_peer(out, SINK_PAIR, peer);
}

static void unpair_peer(struct sink_peer *peer, struct sink_actions *out)
{
    if (peer->pair == PAIR_NONE || peer->pair == PAIR_CLOSING)
        return;
    peer->pair = PAIR_CLOSING;
    append_peer(out, SINK_UNPAIR, peer);
}

static void ask_confirm(struct sink_table *table, uint64_t now_us, struct sink *sink,
                        struct sink_actions *out)
{
    sink->state = SINK_CONFIRMING;
    ask(table, now_us, sink, PEER_CONFIRM, out);
}

/* Reads what is ready; once all is here, has it checked, and then confirmed. */
static void advance(struct sink_table *table, uint64_t now_us, struct sink *sink,
                    struct sink_actions *out)
{
    if (sink->state != SINK_READING || sink->reading)
        return;
    uint32_t left = sink->ready_blocks - sink->read_blocks;
    if (left && sink->peer->pair != PAIR_UP) {
        pair_peer(sink->peer, out);
    } else if (left) {
        sink->reading = left < table->config.max_read_blocks ? left : table->config.max_read_blocks;
        struct sink_action *action = append_for(out, SINK_READ, sink);
        action->cookie = cookie_of(table, sink);
        action->block_count = sink->reading;
        action->remote = sink->remote + sink->read_blocks;
        action->local = sink->local + sink->read_blocks;
    } else if (sink->complete && sink->checksum_count) {
        sink->state = SINK_VERIFYING;
        struct sink_action *action = append_for(out, SINK_VERIFY, sink);
        action->cookie = cookie_of(table, sink);
        action->block_count = sink->block_count;
        action->local = sink->local;
        action->checksums = sink->checksums;
    } else if (sink->complete) {
        ask_confirm(table, now_us, sink, out);
    }
}

/* ---------------------------------------------------------------------------------------- Session */

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

/* The peer of that key: known, or put in a free place, or in that of one that nothing uses. NULL: no place. */
static struct sink_peer *peer_take(struct sink_table *table, uint64_t key, struct sink_actions *out)
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

static struct sink_peer *peer_of(struct sink_table *table, uint64_t key)
{
    for (uint32_t i = 0; i < table->config.max_peers; i++)
        if (table->peers[i].used && table->peers[i].key == key)
            return &table->peers[i];
    return NULL;
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
    if (sink)
        end(table, sink, SINK_REASON_NONE, out);
    enum sink_reason reason = check_decode(table, decode);
    if (reason != SINK_REASON_NONE) {
        refuse(table, decode->request, decode->attempt, reason, reason != SINK_REASON_INVALID, out);
        return;
    }
    sink = table->free_count ? &table->slots[table->free_slots[table->free_count - 1]] : NULL;
    struct sink_peer *peer = NULL;
    if (sink && decode->has_handle)
        peer = peer_take(table, decode->peer, out);
    if (!sink || (decode->has_handle && !peer) ||
        map_put(table->by_request, decode->request, sink) != STATUS_OK) {
        refuse(table, decode->request, decode->attempt, SINK_REASON_LIMIT, true, out);
        return;
    }
    table->free_count--;
    fill(sink, decode, peer);
    append_for(out, SINK_RESERVE, sink)->reserve_tokens = decode->reserve_tokens;
    if (!decode->has_handle)
        return;
    sink->heard_us = now_us;
    if (peer->stream != STREAM_UP)
        sink->down_since_us = now_us;
    if (peer->stream == STREAM_DOWN && peer->retry_us <= now_us)
        connect_peer(peer, out);
    ask(table, now_us, sink, PEER_EXTEND, out);
}

void sink_on_release(struct sink_table *table, uint64_t now_us, uint64_t request, uint32_t attempt,
                     struct sink_actions *out)
{
    (void)now_us;
    out->count = 0;
    struct sink *sink = map_get(table->by_request, request);
    if (sink && sink->attempt <= attempt)
        end(table, sink, SINK_REASON_NONE, out);
}

void sink_on_session_lost(struct sink_table *table, uint64_t now_us, struct sink_actions *out)
{
    (void)now_us;
    out->count = 0;
    for (uint32_t i = 0; i < table->config.max_sinks; i++)
        if (table->slots[i].state != SINK_UNUSED && table->slots[i].state != SINK_ORPHAN)
            end(table, &table->slots[i], SINK_REASON_NONE, out);
}

/* ------------------------------------------------------------------------------------ step thread */

void sink_on_reserved(struct sink_table *table, uint64_t now_us, uint64_t request, uint32_t attempt,
                      const uint32_t *blocks, uint32_t block_count, struct sink_actions *out)
{
    out->count = 0;
    struct sink *sink = sink_of(table, request, attempt);
    if (!sink)
        return;
    ASSERT(sink->state == SINK_QUEUED && block_count >= sink->block_count);
    if (!sink->has_handle) {
        sink->state = SINK_RUNNING;
        table->counters.admitted_local++;
        append_for(out, SINK_ADMIT, sink)->compute_prompt = true;
        return;
    }
    memcpy(sink->local, blocks, sink->block_count * sizeof *sink->local);
    sink->state = SINK_READING;
    pair_peer(sink->peer, out);
    ask(table, now_us, sink, PEER_SUBSCRIBE, out);
}

void sink_on_reserve_failed(struct sink_table *table, uint64_t now_us, uint64_t request,
                            uint32_t attempt, bool retry, struct sink_actions *out)
{
    (void)now_us;
    out->count = 0;
    struct sink *sink = sink_of(table, request, attempt);
    if (!sink)
        return;
    ASSERT(sink->state == SINK_QUEUED);
    enum sink_reason reason = retry ? SINK_REASON_LIMIT : SINK_REASON_INVALID;
    refuse(table, request, attempt, reason, retry, out);
    end(table, sink, reason, out);
}

void sink_on_finished(struct sink_table *table, uint64_t now_us, uint64_t request, uint32_t attempt,
                      struct sink_actions *out)
{
    (void)now_us;
    out->count = 0;
    struct sink *sink = sink_of(table, request, attempt);
    if (!sink)
        return;
    ASSERT(sink->state == SINK_RUNNING);
    map_take(table->by_request, request);
    free_slot(table, sink);
}

/* ------------------------------------------------------------------------------------------- Peer */

void sink_on_peer_up(struct sink_table *table, uint64_t now_us, uint64_t peer_key,
                     uint64_t incarnation, struct sink_actions *out)
{
    out->count = 0;
    struct sink_peer *peer = peer_of(table, peer_key);
    if (!peer)
        return;
    peer->stream = STREAM_UP;
    peer->incarnation = incarnation;
    if (peer->pair_incarnation != incarnation)
        unpair_peer(peer, out); /* its memory is not there any more */
    if (peer_needed(table, peer))
        pair_peer(peer, out);
    for (uint32_t i = 0; i < table->config.max_sinks; i++) {
        struct sink *sink = &table->slots[i];
        if (sink->peer != peer || !sink_pulls(sink))
            continue;
        sink->down_since_us = UINT64_MAX;
        ask(table, now_us, sink, question_of(sink), out);
    }
}

void sink_on_peer_refused(struct sink_table *table, uint64_t now_us, uint64_t peer_key,
                          enum sink_reason reason, struct sink_actions *out)
{
    out->count = 0;
    struct sink_peer *peer = peer_of(table, peer_key);
    if (!peer)
        return;
    if (reason == SINK_REASON_PAIRING) {
        peer->pair = PAIR_NONE; /* the stream is still there */
    } else {
        peer->stream = STREAM_DOWN;
        peer->retry_us = now_us + table->config.reconnect_us;
    }
    for (uint32_t i = 0; i < table->config.max_sinks; i++) {
        struct sink *sink = &table->slots[i];
        bool has_all = sink->state == SINK_VERIFYING || sink->state == SINK_CONFIRMING;
        if (sink->peer != peer || !sink_pulls(sink) || (reason == SINK_REASON_PAIRING && has_all))
            continue;
        if (sink->state ==
            SINK_CONFIRMING) { /* the handle may be confirmed: nobody else can read it */
            give_up(table, now_us, sink, reason, out);
            continue;
        }
        refuse(table, sink->request, sink->attempt, reason, true, out);
        end(table, sink, reason, out);
    }
}

void sink_on_peer_lost(struct sink_table *table, uint64_t now_us, uint64_t peer_key,
                       struct sink_actions *out)
{
    out->count = 0;
    struct sink_peer *peer = peer_of(table, peer_key);
    if (!peer)
        return;
    bool was_up = peer->stream == STREAM_UP;
    peer->stream = STREAM_DOWN;
    peer->retry_us = was_up ? now_us : now_us + table->config.reconnect_us;
    for (uint32_t i = 0; i < table->config.max_sinks; i++) {
        struct sink *sink = &table->slots[i];
        if (sink->peer == peer && sink->down_since_us == UINT64_MAX)
            sink->down_since_us = now_us;
    }
    if (was_up && peer_needed(table, peer))
        connect_peer(peer, out);
}

void sink_on_pair_up(struct sink_table *table, uint64_t now_us, uint64_t peer_key,
                     struct sink_actions *out)
{
    out->count = 0;
    struct sink_peer *peer = peer_of(table, peer_key);
    if (!peer || peer->pair != PAIR_ASKED)
        return; /* a forced close was asked for meanwhile */
    peer->pair = PAIR_UP;
    for (uint32_t i = 0; i < table->config.max_sinks; i++)
        if (table->slots[i].peer == peer)
            advance(table, now_us, &table->slots[i], out);
}

void sink_on_pair_closed(struct sink_table *table, uint64_t now_us, uint64_t peer_key,
                         struct sink_actions *out)
{
    (void)now_us;
    out->count = 0;
    struct sink_peer *peer = peer_of(table, peer_key);
    if (!peer)
        return;
    peer->pair = PAIR_NONE;
    if (peer_needed(table, peer))
        pair_peer(peer, out);
}

/* False: the peer contradicts the handle. */
static bool note_complete(const struct sink_table *table, struct sink *sink,
                          const struct peer_up *message)
{
    bool none = message->checksum_count == 0 && !table->config.host_path;
    if (!none && message->checksum_count != sink->block_count)
        return false;
    sink->complete = true;
    sink->ready_blocks = sink->block_count;
    sink->first_token = message->first_token;
    sink->logits_hash = message->logits_hash;
    sink->checksum_count = message->checksum_count;
    if (message->checksum_count)
        memcpy(sink->checksums, message->checksums,
               message->checksum_count * sizeof *sink->checksums);
    return true;
}

static void on_ready(struct sink_table *table, uint64_t now_us, struct sink *sink,
                     uint32_t ready_tokens, struct sink_actions *out)
{
    if (ready_tokens > sink->token_count) {
        give_up(table, now_us, sink, SINK_REASON_PROTOCOL, out);
        return;
    }
    uint32_t ready_blocks = ready_tokens / table->config.block_tokens;
    if (ready_blocks > sink->ready_blocks)
        sink->ready_blocks = ready_blocks;
    advance(table, now_us, sink, out);
}

static void on_complete(struct sink_table *table, uint64_t now_us, struct sink *sink,
                        const struct peer_up *message, struct sink_actions *out)
{
    if (message->first_token >= table->config.vocab || message->finish > FINISH_CONTEXT) {
        give_up(table, now_us, sink, SINK_REASON_PROTOCOL, out);
    } else if (message->finish !=
               FINISH_NONE) { /* this worker, too, reports the end: the peer's may be lost */
        struct sink_action *action = append_for(out, SINK_SEND_TOKEN, sink);
        action->index = sink->emitted_count + 1;
        action->first_token = message->first_token;
        action->logits_hash = message->logits_hash;
        action->finish = message->finish;
        table->counters.ended_with_first_token++;
        end(table, sink, SINK_REASON_NONE, out);
    } else if (!note_complete(table, sink, message)) {
        give_up(table, now_us, sink, SINK_REASON_PROTOCOL, out);
    } else {
        advance(table, now_us, sink, out);
    }
}

static void on_held(struct sink_table *table, struct sink *sink, struct sink_actions *out)
{
    struct sink_action *action = append_for(out, SINK_ADMIT, sink);
    action->first_token = sink->first_token;
    action->logits_hash = sink->logits_hash;
    action = append_for(out, SINK_SEND_PULLED, sink);
    action->pulled_bytes = sink->pulled_bytes;
    action->early_bytes = sink->early_bytes;
    table->counters.admitted++;
    sink->state = SINK_RUNNING;
    sink->peer = NULL;
}

void sink_on_message(struct sink_table *table, uint64_t now_us, uint64_t peer,
                     const struct peer_up *message, struct sink_actions *out)
{
    out->count = 0;
    struct sink *sink = sink_of(table, message->request, message->attempt);
    if (!sink)
        return;
    if (!sink_pulls(sink) || sink->peer->key != peer) {
        table->counters.dropped++;
        return;
    }
    sink->heard_us = now_us;
    switch (message->kind) {
    case PEER_READY:
        if (sink->state != SINK_READING || sink->complete)
            break;
        on_ready(table, now_us, sink, message->ready_tokens, out);
        return;
    case PEER_COMPLETE:
        if (sink->state != SINK_READING || sink->complete)
            break;
        on_complete(table, now_us, sink, message, out);
        return;
    case PEER_HELD:
        if (sink->state != SINK_CONFIRMING)
            break;
        on_held(table, sink, out);
        return;
    case PEER_GONE: give_up(table, now_us, sink, SINK_REASON_GONE, out); return;
    case PEER_EXTENDED: return;
    }
    table->counters.dropped++;
}

/* --------------------------------------------------------------------------------------- transport */

void sink_on_read_done(struct sink_table *table, uint64_t now_us, uint64_t cookie,
                       enum status status, struct sink_actions *out)
{
    out->count = 0;
    struct sink *sink = sink_of_cookie(table, cookie);
    ASSERT(sink && sink->reading); /* a slot isn't given away before its read has ended */
    uint32_t blocks = sink->reading;
    sink->reading = 0;
    if (status != STATUS_OK)
        unpair_peer(sink->peer,
                    out); /* whatever else it has in flight: end it now, then pair anew */
    if (sink->state == SINK_ORPHAN) {
        append_for(out, SINK_UNRESERVE, sink);
        free_slot(table, sink);
        return;
    }
    if (status == STATUS_OK) {
        uint64_t bytes = blocks * table->config.block_bytes;
        sink->read_blocks += blocks;
        sink->pulled_bytes += bytes;
        table->counters.pulled_bytes += bytes;
        if (!sink->complete) {
            sink->early_bytes += bytes;
            table->counters.early_bytes += bytes;
        }
        advance(table, now_us, sink, out);
    } else if (sink->again) {
        give_up(table, now_us, sink, SINK_REASON_READ, out);
    } else {
        sink->again = true; /* read again when the new pairing is up */
        table->counters.rereads++;
    }
}

void sink_on_verified(struct sink_table *table, uint64_t now_us, uint64_t cookie, bool good,
                      struct sink_actions *out)
{
    out->count = 0;
    struct sink *sink = sink_of_cookie(table, cookie);
    if (!sink || sink->state != SINK_VERIFYING) {
        table->counters.dropped++; /* it has ended meanwhile */
        return;
    }
    if (good) {
        ask_confirm(table, now_us, sink, out);
    } else if (sink->again) {
        give_up(table, now_us, sink, SINK_REASON_CHECKSUM, out);
    } else {
        sink->again = true;
        table->counters.rereads++;
        sink->state = SINK_READING;
        sink->read_blocks = 0;
        advance(table, now_us, sink, out);
    }
}

/* ------------------------------------------------------------------------------------------- time */

void sink_on_tick(struct sink_table *table, uint64_t now_us, struct sink_actions *out)
{
    const struct sink_config *config = &table->config;
    out->count = 0;
    for (uint32_t i = 0; i < config->max_sinks; i++) {
        struct sink *sink = &table->slots[i];
        if (!sink_pulls(sink))
            continue;
        if (sink_later_us(sink->down_since_us, config->peer_down_limit_us) <= now_us)
            give_up(table, now_us, sink, SINK_REASON_PEER_DOWN, out);
        else if (sink_later_us(sink->heard_us, config->silence_limit_us) <= now_us)
            give_up(table, now_us, sink, SINK_REASON_SILENT, out);
        else if (sink->beat_us <= now_us && sink->peer->stream == STREAM_UP)
            ask(table, now_us, sink, question_of(sink), out);
    }
    for (uint32_t i = 0; i < config->max_peers; i++) {
        struct sink_peer *peer = &table->peers[i];
        if (peer->used && peer->stream == STREAM_DOWN && peer->retry_us <= now_us &&
            peer_needed(table, peer))
            connect_peer(peer, out);
    }
}
