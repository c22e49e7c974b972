#include "common/base/assert.h"
#include "common/kv/handoff/sink_state.h"

static uint64_t cookie_of(const struct sink_table *table, const struct sink *sink)
{
    return (uint64_t)sink->generation << 32 | (uint32_t)(sink - table->slots);
}

static struct sink *sink_of_cookie(struct sink_table *table, uint64_t cookie)
{
    uint32_t slot = (uint32_t)cookie;
    ASSERT(slot < table->config.max_sinks); /* this is our own number */
    struct sink *sink = &table->slots[slot];
    return sink->state != SINK_UNUSED && sink->generation == (uint32_t)(cookie >> 32) ? sink : NULL;
}

static void ask_confirm(struct sink_table *table, uint64_t now_us, struct sink *sink,
                        struct sink_actions *out)
{
    sink->state = SINK_CONFIRMING;
    sink_ask(table, now_us, sink, PEER_CONFIRM, out);
}

/* Has the blocks checked that are here, as far as their sums are known. */
static void verify(const struct sink_table *table, struct sink *sink, struct sink_actions *out)
{
    uint32_t here =
        sink->read_blocks < sink->summed_blocks ? sink->read_blocks : sink->summed_blocks;
    if (sink->verifying || sink->spoiled || here <= sink->verified_blocks)
        return;
    sink->verifying = here - sink->verified_blocks;
    struct sink_action *action = sink_append_for(out, SINK_VERIFY, sink);
    action->cookie = cookie_of(table, sink);
    action->block_count = sink->verifying;
    action->local = sink->local + sink->verified_blocks;
    action->sums = sink->sums + sink->verified_blocks;
    action->crc = sink->crc;
}

/* Reads the blocks that are ready, and has them checked. Once all are, has them confirmed. */
static void advance(struct sink_table *table, uint64_t now_us, struct sink *sink,
                    struct sink_actions *out)
{
    if (sink->state == SINK_VERIFYING && !sink->verifying &&
        sink->verified_blocks == sink->block_count)
        ask_confirm(table, now_us, sink, out);
    if (sink->state != SINK_READING && sink->state != SINK_VERIFYING)
        return;
    verify(table, sink, out);
    if (sink->state != SINK_READING || sink->reading || sink->in_doubt)
        return;
    uint32_t left = sink->ready_blocks - sink->read_blocks;
    if (left && sink->peer->pair != PAIR_UP) {
        sink_peer_pair(sink->peer, out);
    } else if (left) {
        sink->reading = left < table->config.max_read_blocks ? left : table->config.max_read_blocks;
        struct sink_action *action = sink_append_for(out, SINK_READ, sink);
        action->cookie = cookie_of(table, sink);
        action->grant = handle_grant(sink->ref);
        action->block_count = sink->reading;
        action->remote = sink->remote + sink->read_blocks;
        action->local = sink->local + sink->read_blocks;
    } else if (sink->complete) {
        sink->state = SINK_VERIFYING;
        if (!sink->verifying &&
            (sink->verified_blocks == sink->block_count || !sink->summed_blocks))
            ask_confirm(table, now_us, sink, out);
    }
}

/* ---------------------------------------------------------------- Peer */

void sink_on_peer_up(struct sink_table *table, uint64_t now_us, uint64_t peer_key,
                     uint64_t incarnation, struct sink_actions *out)
{
    out->count = 0;
    struct sink_peer *peer = sink_peer_of(table, peer_key);
    if (!peer)
        return;
    peer->stream = STREAM_UP;
    peer->incarnation = incarnation;
    peer->full = false;
    peer->refused = false;
    peer->link_ended = false;
    if (peer->pair_incarnation != incarnation)
        sink_peer_unpair(peer, out); /* the memory of the earlier incarnation is gone */
    if (sink_peer_needed(table, peer))
        sink_peer_pair(peer, out);
    for (uint32_t i = 0; i < table->config.max_sinks; i++) {
        struct sink *sink = &table->slots[i];
        if (sink->peer != peer || !sink_pulls(sink))
            continue;
        sink->asked = sink->old_asked = 0;
        sink->down_since_us = UINT64_MAX;
        /* Only the stream of the last Subscribe may read. */
        bool reads = sink->state == SINK_READING || sink->state == SINK_VERIFYING;
        sink_ask(table, now_us, sink, reads ? PEER_SUBSCRIBE : sink_question_of(sink), out);
    }
}

void sink_on_peer_refused(struct sink_table *table, uint64_t now_us, uint64_t peer_key,
                          enum sink_reason reason, struct sink_actions *out)
{
    out->count = 0;
    struct sink_peer *peer = sink_peer_of(table, peer_key);
    if (!peer)
        return;
    peer->refused = false; /* a process listens there */
    if (reason == SINK_REASON_PAIRING) {
        peer->pair = PAIR_NONE; /* the stream stays */
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
            /* the handle may be confirmed already: no other reader can have it */
            SINK_CONFIRMING) {
            sink_give_up(table, now_us, sink, reason, out);
            continue;
        }
        sink_refuse(table, sink->request, sink->attempt, reason, true, out);
        sink_end(table, sink, reason, out);
    }
}

/* Gives up the sinks of a process that has ended, without waiting for peer_down_limit_us. It has
 * ended if no process listens there and no pairing speaks against that.
 *
 * A refusal may be reported late, when a successor listens already. It is certain for the
 * incarnation that was connected before. It is also certain for a handle that was here when a
 * connection broke, because the try after that is a new one. */
static void give_up_ended(struct sink_table *table, uint64_t now_us, const struct sink_peer *peer,
                          struct sink_actions *out)
{
    bool link_stood = peer->pair_incarnation == peer->incarnation && !peer->link_ended;
    bool has_ended =
        peer->refused && peer->pair == PAIR_NONE && (!peer->incarnation || !link_stood);
    for (uint32_t i = 0; has_ended && i < table->config.max_sinks; i++) {
        struct sink *sink = &table->slots[i];
        if (sink->peer != peer || !sink_pulls(sink))
            continue;
        if (sink->ref.incarnation == peer->incarnation || sink->down_since_us <= peer->broke_us)
            sink_give_up(table, now_us, sink, SINK_REASON_PEER_DOWN, out);
    }
}

static void wait_for_stream(struct sink_table *table, uint64_t now_us, struct sink_peer *peer,
                            uint64_t retry_us)
{
    peer->stream = STREAM_DOWN;
    peer->retry_us = retry_us;
    for (uint32_t i = 0; i < table->config.max_sinks; i++) {
        struct sink *sink = &table->slots[i];
        if (sink->peer == peer && sink->down_since_us == UINT64_MAX)
            sink->down_since_us = now_us;
    }
}

void sink_on_peer_lost(struct sink_table *table, uint64_t now_us, uint64_t peer_key, bool refused,
                       struct sink_actions *out)
{
    out->count = 0;
    struct sink_peer *peer = sink_peer_of(table, peer_key);
    if (!peer)
        return;
    bool was_up = peer->stream == STREAM_UP;
    peer->refused = refused && !was_up;
    peer->full = false;
    if (!peer->refused)
        peer->broke_us = now_us;
    wait_for_stream(table, now_us, peer, was_up ? now_us : now_us + table->config.reconnect_us);
    give_up_ended(table, now_us, peer, out);
    if (was_up && sink_peer_needed(table, peer))
        sink_peer_connect(table, peer, out);
}

void sink_on_peer_full(struct sink_table *table, uint64_t now_us, uint64_t peer_key,
                       struct sink_actions *out)
{
    sink_on_peer_lost(table, now_us, peer_key, false, out);
    struct sink_peer *peer = sink_peer_of(table, peer_key);
    if (peer)
        peer->full = true;
}

void sink_on_peer_replaced(struct sink_table *table, uint64_t now_us, uint64_t peer_key,
                           struct sink_actions *out)
{
    out->count = 0;
    struct sink_peer *peer = sink_peer_of(table, peer_key);
    if (!peer)
        return;
    uint64_t ended = peer->dialled;     /* a newer handle may have come since */
    peer->refused = peer->full = false; /* a process listens there */
    peer->broke_us = now_us;
    wait_for_stream(table, now_us, peer, now_us);
    for (uint32_t i = 0; i < table->config.max_sinks; i++) {
        struct sink *sink = &table->slots[i];
        if (sink->peer != peer || !sink_pulls(sink))
            continue;
        if (sink->ref.incarnation == ended)
            sink_give_up(table, now_us, sink, SINK_REASON_GONE, out);
    }
    if (sink_peer_needed(table, peer))
        sink_peer_connect(table, peer, out);
}

void sink_on_connect_failed(struct sink_table *table, uint64_t now_us, uint64_t peer_key,
                            struct sink_actions *out)
{
    out->count = 0;
    struct sink_peer *peer = sink_peer_of(table, peer_key);
    if (!peer)
        return;
    peer->refused = false;
    wait_for_stream(table, now_us, peer, now_us + table->config.reconnect_us);
}

void sink_on_pair_up(struct sink_table *table, uint64_t now_us, uint64_t peer_key,
                     struct sink_actions *out)
{
    out->count = 0;
    struct sink_peer *peer = sink_peer_of(table, peer_key);
    if (!peer || peer->pair != PAIR_ASKED)
        return; /* a forced close was asked for in the meantime */
    peer->pair = PAIR_UP;
    for (uint32_t i = 0; i < table->config.max_sinks; i++)
        if (table->slots[i].peer == peer)
            advance(table, now_us, &table->slots[i], out);
}

/* Asks for a sign of life. Most likely the process has ended and its stream ends as well; pairing
 * again would find that out by a deadline. */
static void ask_for_life(struct sink_table *table, uint64_t now_us, struct sink_peer *peer,
                         struct sink_actions *out)
{
    peer->link_ended = true;
    peer->link_ended_us = now_us;
    for (uint32_t i = 0; i < table->config.max_sinks; i++) {
        struct sink *sink = &table->slots[i];
        if (sink->peer != peer || !sink_pulls(sink))
            continue;
        sink->old_asked = sink->asked;
        if (sink->state != SINK_CONFIRMING)
            sink_ask(table, now_us, sink, PEER_EXTEND, out);
    }
}

/* Pairs again with a peer that has shown a sign of life since the link ended. A sign is an answer
 * to a question that was asked since then. If that answer is lost, any message after a heartbeat
 * will do. */
static void note_life(const struct sink_table *table, uint64_t now_us, struct sink *sink,
                      enum peer_up_kind kind, struct sink_actions *out)
{
    struct sink_peer *peer = sink->peer;
    bool anew = false;
    if (kind == PEER_EXTENDED) {
        anew = !sink->old_asked;
        sink->old_asked -= !anew;
        sink->asked -= sink->asked > 0;
    }
    if (!peer->link_ended || (!anew && now_us < peer->link_ended_us + table->config.heartbeat_us))
        return;
    peer->link_ended = false;
    sink_peer_pair(peer, out);
}

void sink_on_pair_closed(struct sink_table *table, uint64_t now_us, uint64_t peer_key, bool gone,
                         struct sink_actions *out)
{
    out->count = 0;
    struct sink_peer *peer = sink_peer_of(table, peer_key);
    if (!peer)
        return;
    /* A pairing that was up and closed by itself had no read in flight, so nothing is left to read.
     * It is made anew when the peer says that more is ready. */
    bool idle = peer->pair == PAIR_UP;
    peer->pair = PAIR_NONE;
    if (gone && peer->pair_incarnation == peer->incarnation)
        ask_for_life(table, now_us, peer, out);
    give_up_ended(table, now_us, peer, out);
    if (!idle && sink_peer_needed(table, peer))
        sink_peer_pair(peer, out);
}

/* Returns false if the peer contradicts the handle, or what it said before. Sums behind a gap (a
 * Ready is missing) aren't kept: Complete has all of them. */
static bool note_sums(struct sink *sink, const struct peer_up *message)
{
    uint32_t first = message->sum_first, known = sink->summed_blocks;
    if (message->sum_count == 0)
        return true;
    if (first > sink->block_count || message->sum_count > sink->block_count - first)
        return false;
    if (first > known)
        return true;
    for (uint32_t i = 0; i < message->sum_count; i++) {
        if (first + i < known && sink->sums[first + i] != message->sums[i])
            return false;
        sink->sums[first + i] = message->sums[i];
    }
    if (first + message->sum_count > known)
        sink->summed_blocks = first + message->sum_count;
    return true;
}

/* The same, for a Complete. */
static bool note_all_sums(const struct sink_table *table, struct sink *sink,
                          const struct peer_up *message)
{
    if (message->sum_count == 0 && message->checksum_count == 0)
        return !table->config.host_path && sink->summed_blocks == 0;
    if (message->sum_count > 0)
        return note_sums(sink, message) && sink->summed_blocks == sink->block_count;
    if (message->checksum_count != sink->block_count || (sink->summed_blocks && !sink->crc))
        return false;
    sink->crc = true;
    for (uint32_t i = 0; i < sink->block_count; i++)
        sink->sums[i] = message->checksums[i];
    sink->summed_blocks = sink->block_count;
    return true;
}

/* The same. */
static bool note_complete(const struct sink_table *table, struct sink *sink,
                          const struct peer_up *message)
{
    if (!note_all_sums(table, sink, message))
        return false;
    sink->complete = true;
    sink->in_doubt = false;
    sink->ready_blocks = sink->block_count;
    sink->first_token = message->first_token;
    sink->logits_hash = message->logits_hash;
    sink->logprobs = message->logprobs;
    return true;
}

static void on_ready(struct sink_table *table, uint64_t now_us, struct sink *sink,
                     const struct peer_up *message, struct sink_actions *out)
{
    if (message->ready_tokens > sink->token_count || !note_sums(sink, message)) {
        sink_give_up(table, now_us, sink, SINK_REASON_PROTOCOL, out);
        return;
    }
    uint32_t ready_blocks = message->ready_tokens / table->config.block_tokens;
    sink->in_doubt = false;
    if (ready_blocks > sink->ready_blocks)
        sink->ready_blocks = ready_blocks;
    advance(table, now_us, sink, out);
}

static void on_complete(struct sink_table *table, uint64_t now_us, struct sink *sink,
                        const struct peer_up *message, struct sink_actions *out)
{
    if (message->first_token >= table->config.vocab || message->finish > FINISH_COMPLETE ||
        !token_logprobs_fit(&message->logprobs, table->config.vocab)) {
        sink_give_up(table, now_us, sink, SINK_REASON_PROTOCOL, out);
    } else if (message->finish !=
               FINISH_NONE) { /* this worker reports the end, too: the peer's report may be lost */
        struct sink_action *action = sink_append_for(out, SINK_SEND_TOKEN, sink);
        action->index = sink->emitted_count + 1;
        action->first_token = message->first_token;
        action->logits_hash = message->logits_hash;
        action->logprobs = message->logprobs;
        action->finish = message->finish;
        table->counters.ended_with_first_token++;
        sink_end(table, sink, SINK_REASON_NONE, out);
    } else if (!note_complete(table, sink, message)) {
        sink_give_up(table, now_us, sink, SINK_REASON_PROTOCOL, out);
    } else {
        advance(table, now_us, sink, out);
    }
}

static void on_held(struct sink_table *table, struct sink *sink, struct sink_actions *out)
{
    struct sink_action *action = sink_append_for(out, SINK_ADMIT, sink);
    action->first_token = sink->first_token;
    action->logits_hash = sink->logits_hash;
    action->logprobs = sink->logprobs;
    action = sink_append_for(out, SINK_SEND_PULLED, sink);
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
    note_life(table, now_us, sink, message->kind, out);
    switch (message->kind) {
    case PEER_READY:
        if (sink->state != SINK_READING || sink->complete)
            break;
        on_ready(table, now_us, sink, message, out);
        return;
    case PEER_COMPLETE:
        if (sink->state != SINK_READING || (sink->complete && !sink->in_doubt))
            break;
        on_complete(table, now_us, sink, message, out);
        return;
    case PEER_HELD:
        if (sink->state != SINK_CONFIRMING)
            break;
        on_held(table, sink, out);
        return;
    case PEER_GONE: sink_give_up(table, now_us, sink, SINK_REASON_GONE, out); return;
    case PEER_EXTENDED: return;
    }
    table->counters.dropped++;
}

/* ---------------------------------------------------------------- the transport */

void sink_on_read_done(struct sink_table *table, uint64_t now_us, uint64_t cookie,
                       enum status status, struct sink_actions *out)
{
    out->count = 0;
    struct sink *sink = sink_of_cookie(table, cookie);
    ASSERT(sink && sink->reading); /* a slot is kept until its read has ended */
    uint32_t blocks = sink->reading;
    sink->reading = 0;
    /* Most often the request has ended, and the peer heard it first. Other sinks read on. */
    bool ended = status == STATUS_NOT_FOUND && (sink->state == SINK_ORPHAN || !sink->refused_once);
    if (status != STATUS_OK && !ended)
        sink_peer_unpair(sink->peer, out); /* end all else that it has in flight, then pair anew */
    if (sink->state == SINK_ORPHAN) {
        sink_append_for(out, SINK_UNRESERVE, sink)->reason = sink->reason;
        sink_free_slot(table, sink);
        return;
    }
    bool spoiled = sink->spoiled;
    if (spoiled)
        sink->read_blocks = sink->verified_blocks;
    sink->spoiled = false;
    if (status == STATUS_OK) {
        uint64_t bytes = blocks * table->config.block_bytes;
        sink->read_blocks += spoiled ? 0 : blocks;
        sink->pulled_bytes += bytes;
        table->counters.pulled_bytes += bytes;
        if (!sink->complete) {
            sink->early_bytes += bytes;
            table->counters.early_bytes += bytes;
        }
        advance(table, now_us, sink, out);
    } else if (ended) {
        sink->refused_once = sink->in_doubt = true; /* until Gone, or what is ready */
        sink_ask(table, now_us, sink, PEER_SUBSCRIBE, out);
    } else if (sink->again) {
        sink_give_up(table, now_us, sink, SINK_REASON_READ, out);
    } else {
        sink->again = true; /* it reads again when the new pairing is up */
        table->counters.rereads++;
    }
}

bool sink_is_verifying(const struct sink_table *table, uint64_t cookie)
{
    const struct sink *sink = sink_of_cookie((struct sink_table *)table, cookie);
    return sink && sink->verifying && sink_pulls(sink);
}

void sink_on_verified(struct sink_table *table, uint64_t now_us, uint64_t cookie, bool good,
                      struct sink_actions *out)
{
    out->count = 0;
    struct sink *sink = sink_of_cookie(table, cookie);
    if (!sink || !sink->verifying || !sink_pulls(sink)) {
        table->counters.dropped++; /* it has ended */
        return;
    }
    uint32_t blocks = sink->verifying;
    sink->verifying = 0;
    if (good) {
        sink->verified_blocks += blocks;
        advance(table, now_us, sink, out);
    } else if (sink->again) {
        sink_give_up(table, now_us, sink, SINK_REASON_CHECKSUM, out);
    } else {
        sink->again = true;
        table->counters.rereads++;
        sink->state = SINK_READING;
        sink->spoiled = sink->reading > 0;
        if (!sink->spoiled)
            sink->read_blocks = sink->verified_blocks;
        advance(table, now_us, sink, out);
    }
}
