/* A decode worker: the real sink table, its Session and its Peer streams. */
#include "tests/sim/sim.h"

#include <string.h>

void sim_decode_start(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    struct sink_config config = {.vocab = UINT32_MAX,
                                 .model_hash = p->variant == 1 ? 11 : 1,
                                 .layout_hash = p->variant == 2 ? 12 : 2,
                                 .numerics_id = p->variant == 3 ? 13 : 3,
                                 .block_tokens = SIM_BLOCK_TOKENS,
                                 .block_bytes = 1,
                                 .max_sinks = sim->plan->tiny ? 3 : 4 * SIM_MAX_REQUESTS,
                                 .max_blocks = SIM_MAX_BLOCKS,
                                 .max_peers = sim->plan->tiny ? 1 : SIM_MAX_WORKERS,
                                 .max_read_blocks = sim->plan->read_blocks[process],
                                 .heartbeat_us = SIM_HEARTBEAT_US,
                                 .silence_limit_us = SIM_SILENCE_US,
                                 .peer_down_limit_us = SIM_PEER_DOWN_US,
                                 .reconnect_us = SIM_RECONNECT_US};
    memset(p->reads, 0, sizeof p->reads);
    memset(p->pairs, 0, sizeof p->pairs);
    memset(p->confirmed, 0, sizeof p->confirmed);
    for (uint32_t i = 0; i <= SIM_MAX_WORKERS; i++)
        p->peers[i] = SIM_NONE;
    struct error err;
    if (sink_table_create(&config, &p->sinks, &err) != STATUS_OK ||
        sink_actions_init(&p->sink_out, p->sinks) != STATUS_OK)
        sim_give_up("no sink table");
}

void sim_decode_stop(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    struct sink_counters counters = sink_table_counters(p->sinks);
    struct sim_totals *t = sim->totals;
    t->admitted += counters.admitted;
    t->admitted_local += counters.admitted_local;
    t->ended_with_first_token += counters.ended_with_first_token;
    t->rereads += counters.rereads;
    t->early_bytes += counters.early_bytes;
    t->dropped += counters.dropped;
    for (uint32_t i = 0; i <= SINK_REASON_INVALID; i++)
        t->lost_by_reason[i] += counters.given_up[i];
    sink_actions_deinit(&p->sink_out);
    sink_table_destroy(p->sinks);
    p->sinks = NULL;
}

/* --- transfer thread --- */

static void send_up(struct sim *sim, uint32_t process, const struct sink_action *action,
                    enum sim_message_kind kind)
{
    struct sim_message message = {.kind = kind,
                                  .request = action->request,
                                  .attempt = action->attempt,
                                  .retry = action->retry,
                                  .reason = sink_reason_name(action->reason),
                                  .misfit = action->reason == SINK_REASON_LAYOUT_MISMATCH ||
                                            action->reason == SINK_REASON_NUMERICS_MISMATCH,
                                  .token = {.worker = process,
                                            .attempt = action->attempt,
                                            .index = action->index,
                                            .id = action->first_token,
                                            .finish = action->finish}};
    sim_send(sim, sim->processes[process].session, process, &message);
}

static void tell_step(struct sim *sim, uint32_t process, const struct sink_action *action,
                      enum sim_step_kind kind, const struct sim_message *cause)
{
    struct sim_event *event = sim_push_ring(sim, EVENT_TO_STEP, process);
    event->value = kind;
    if (kind == STEP_RESERVE)
        event->message = *cause;
    event->message.request = action->request;
    event->message.attempt = action->attempt;
    event->message.has_handle = !action->compute_prompt;
    event->message.token.id = action->first_token;
    event->index = action->reserve_tokens;
}

static void verify(struct sim *sim, uint32_t process, const struct sink_action *action)
{
    struct sim_event *event =
        sim_push(sim, EVENT_VERIFIED, process, sim_between(sim, DRAW_READ, 10, 1000));
    event->cookie = action->cookie;
    event->value = true;
    for (uint32_t i = 0; i < action->block_count; i++)
        if (sim->processes[process].blocks[action->local[i]].tag.flipped)
            event->value = false;
}

/* A question that names another handle than its reader's: as from a confused worker. */
static void forge(struct sim *sim, uint32_t process, uint32_t source, struct peer_down *question)
{
    const struct sim_fault *fault = sim_fault_hits(sim, FAULT_FORGERY, process, source);
    if (!fault)
        return;
    uint32_t part = fault->pick % 3;
    if (part == 0)
        question->ref.incarnation++;
    else if (part == 1)
        question->ref.generation++;
    else
        question->ref.id++;
}

static void execute_peer(struct sim *sim, uint32_t process, const struct sink_action *action)
{
    struct sim_process *p = &sim->processes[process];
    struct sim_message message = {.kind = MESSAGE_PEER_DOWN, .down = action->message};
    struct sim_event *event;
    switch (action->kind) {
    case SINK_CONNECT:
    case SINK_PAIR:
        event = sim_push(sim, action->kind == SINK_PAIR ? EVENT_PAIRED : EVENT_CONNECTED, process,
                         sim_between(sim, DRAW_CONNECT, 100, 5000));
        event->index = (uint32_t)action->peer;
        event->serial = p->peer_uses[action->peer];
        event->cookie = action->incarnation;
        if (action->kind == SINK_PAIR) {
            p->pairs[action->peer] = PAIR_IS_ASKED;
            p->pair_streams[action->peer] = p->peers[action->peer];
        }
        break;
    case SINK_CLOSE:
        if (p->peers[action->peer] != SIM_NONE)
            sim_break_stream(sim, p->peers[action->peer]);
        p->peers[action->peer] = SIM_NONE;
        p->pairs[action->peer] = PAIR_IS_DOWN;
        p->peer_uses[action->peer]++;
        break;
    case SINK_UNPAIR:
        sim_decode_close_pair(sim, process, (uint32_t)action->peer, STATUS_CANCELLED);
        break;
    default:
        if (action->message.kind == PEER_CONFIRM)
            p->confirmed[action->request] = action->attempt;
        forge(sim, process, (uint32_t)action->peer, &message.down);
        sim_send(sim, p->peers[action->peer], process, &message);
        break;
    }
}

static void execute_one(struct sim *sim, uint32_t process, const struct sink_action *action,
                        const struct sim_message *cause)
{
    switch (action->kind) {
    case SINK_RESERVE: tell_step(sim, process, action, STEP_RESERVE, cause); break;
    case SINK_UNRESERVE: tell_step(sim, process, action, STEP_UNRESERVE, NULL); break;
    case SINK_ADMIT: tell_step(sim, process, action, STEP_ADMIT, NULL); break;
    case SINK_CONNECT:
    case SINK_CLOSE:
    case SINK_PAIR:
    case SINK_UNPAIR:
    case SINK_SEND_PEER: execute_peer(sim, process, action); break;
    case SINK_READ: sim_bytes_read(sim, process, action); break;
    case SINK_VERIFY: verify(sim, process, action); break;
    case SINK_SEND_TOKEN: send_up(sim, process, action, MESSAGE_TOKEN); break;
    case SINK_SEND_LOST: send_up(sim, process, action, MESSAGE_LOST); break;
    case SINK_SEND_REFUSED: send_up(sim, process, action, MESSAGE_REFUSED); break;
    case SINK_SEND_PULLED: break;
    }
}

/* `cause` is the message that is being handled, if it is one. */
static void execute(struct sim *sim, uint32_t process, const struct sim_message *cause)
{
    struct sim_process *p = &sim->processes[process];
    for (uint32_t i = 0; i < p->sink_out.count; i++) {
        if (sim->trace) {
            struct str text;
            str_init(&text, 1024);
            if (sim_say_sink(sim, &text, &p->sink_out.items[i]))
                sim_trace(sim, process, "%s", text.data);
            str_deinit(&text);
        }
        execute_one(sim, process, &p->sink_out.items[i], cause);
    }
    sim_schedule_tick(sim, process, sink_table_next_us(p->sinks));
}

void sim_decode_session_lost(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    sim_trace(sim, process, "has lost its Session");
    p->session = SIM_NONE;
    sink_on_session_lost(p->sinks, sim->now_us, &p->sink_out);
    execute(sim, process, NULL);
}

/* A message about an attempt before the newest one changes nothing. */
static void check_old(struct sim *sim, uint32_t process, uint64_t request, uint32_t attempt)
{
    const struct sim_process *p = &sim->processes[process];
    if (attempt < p->newest[request] && p->sink_out.count)
        sim_fail(sim, HOLDS_OLD, "a message about %llu.%u changes something for attempt %u",
                 (unsigned long long)request, attempt, p->newest[request]);
}

/* One that is draining takes nothing that may begin elsewhere. */
static void refuse(struct sim *sim, uint32_t process, const struct sim_message *m)
{
    struct sim_message message = {.kind = MESSAGE_REFUSED,
                                  .request = m->request,
                                  .attempt = m->attempt,
                                  .retry = true,
                                  .reason = "draining"};
    sim_send(sim, sim->processes[process].session, process, &message);
}

static void on_message(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    const struct sim_message *m = &event->message;
    struct sink_decode decode = {.request = m->request,
                                 .attempt = m->attempt,
                                 .has_handle = m->has_handle,
                                 .handle = m->handle,
                                 .peer = m->source,
                                 .emitted_count = m->emitted_count};
    switch (m->kind) {
    case MESSAGE_DECODE:
        if (m->attempt > p->newest[m->request])
            p->newest[m->request] = m->attempt;
        if (p->draining && !m->has_handle && !m->emitted_count) {
            refuse(sim, process, m);
            return;
        }
        decode.handle.blocks = m->blocks;
        decode.reserve_tokens = m->token_count + sim->requests[m->request].length;
        sink_on_decode(p->sinks, sim->now_us, &decode, &p->sink_out);
        break;
    case MESSAGE_RELEASE:
        sink_on_release(p->sinks, sim->now_us, m->request, m->attempt, &p->sink_out);
        check_old(sim, process, m->request, m->attempt);
        break;
    case MESSAGE_PEER_UP:
        sink_on_message(p->sinks, sim->now_us, sim->streams[event->stream].acceptor, &m->up,
                        &p->sink_out);
        check_old(sim, process, m->up.request, m->up.attempt);
        break;
    default: sim_give_up("a message that is not for a decode worker");
    }
    execute(sim, process, m);
}

static void on_connected(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    struct sim_process *source = &sim->processes[event->index];
    bool refused = event->value || !source->up;
    if (!event->value && !source->up && sim_chance(sim, DRAW_CONNECT, 30)) {
        struct sim_event *later = /* arrives when it may be outdated */
            sim_push(sim, EVENT_CONNECTED, process, sim_between(sim, DRAW_CONNECT, 1000, 200000));
        later->index = event->index;
        later->serial = event->serial;
        later->cookie = event->cookie;
        later->value = true;
        return;
    }
    if (!refused &&
        source->paused_until_us > sim->now_us) { /* its port accepts, but no process answers */
        struct sim_event *later = sim_push(sim, EVENT_CONNECTED, process, 5000);
        later->index = event->index;
        later->serial = event->serial;
        later->cookie = event->cookie;
        return;
    }
    if (!refused && source->incarnation != event->cookie) {
        sim_trace(sim, process, "meant another life of %s", sim_name(sim, event->index));
        sink_on_peer_replaced(p->sinks, sim->now_us, event->index, &p->sink_out);
    } else if (!refused && source->variant != p->variant) {
        enum sink_reason reason = source->variant == 3 || p->variant == 3
                                      ? SINK_REASON_NUMERICS_MISMATCH
                                      : SINK_REASON_LAYOUT_MISMATCH;
        sim_trace(sim, process, "and %s don't fit: %s", sim_name(sim, event->index),
                  sink_reason_name(reason));
        sink_on_peer_refused(p->sinks, sim->now_us, event->index, reason, &p->sink_out);
    } else if (!refused) {
        p->peers[event->index] = sim_open_stream(sim, process, event->index);
        sink_on_peer_up(p->sinks, sim->now_us, event->index, source->incarnation, &p->sink_out);
    } else {
        sink_on_peer_lost(p->sinks, sim->now_us, event->index, true, &p->sink_out);
    }
    execute(sim, process, NULL);
}

static void on_pairing(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    enum sim_pair *pair = &p->pairs[event->index];
    if (event->kind == EVENT_PAIRED && *pair == PAIR_IS_ASKED &&
        sim_fault_hits(sim, FAULT_NO_PAIRING, process, event->index)) {
        *pair = PAIR_IS_DOWN;
        sink_on_peer_refused(p->sinks, sim->now_us, event->index, SINK_REASON_PAIRING,
                             &p->sink_out);
        execute(sim, process, NULL);
    } else if (event->kind == EVENT_PAIRED && *pair == PAIR_IS_ASKED) {
        *pair = PAIR_IS_UP;
        p->pair_incarnations[event->index] = sim->processes[event->index].incarnation;
        sink_on_pair_up(p->sinks, sim->now_us, event->index, &p->sink_out);
        execute(sim, process, NULL);
    } else if (event->kind == EVENT_PAIR_CLOSED) {
        *pair = PAIR_IS_DOWN;
        sink_on_pair_closed(p->sinks, sim->now_us, event->index,
                            event->status == STATUS_UNAVAILABLE, &p->sink_out);
        execute(sim, process, NULL);
    }
}

static void on_read_end(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    struct sim_read *read = &p->reads[event->index];
    if (!read->used || read->generation != event->serial)
        return;
    if (read->closed && event->status == STATUS_OK)
        return; /* its other end is on the way */
    if (event->status == STATUS_TIMEOUT && !read->closed) {
        sim_trace(sim, process, "has a read past its deadline");
        sim_decode_close_pair(sim, process, read->source, STATUS_TIMEOUT);
        return;
    }
    for (uint32_t i = 0; i < read->count; i++)
        p->blocks[read->local[i]].landing--;
    read->used = false;
    const struct sim_job *job = NULL;
    for (uint32_t i = 0; i < SIM_MAX_JOBS && !job; i++)
        if (p->jobs[i].serial == read->owner)
            job = &p->jobs[i];
    if (!job)
        sim_fail(sim, HOLDS_LANDING, "the blocks of a read were freed before its end");
    bool refused = event->status == STATUS_OK && read->refused;
    sink_on_read_done(p->sinks, sim->now_us, read->cookie,
                      refused ? STATUS_NOT_FOUND : event->status, &p->sink_out);
    for (uint32_t i = 0; i < p->sink_out.count; i++)
        sim->totals->orphans += p->sink_out.items[i].kind == SINK_UNRESERVE;
    execute(sim, process, NULL);
}

static void from_step(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    const struct sim_message *m = &event->message;
    if (event->value == STEP_RESERVED)
        sink_on_reserved(p->sinks, sim->now_us, m->request, m->attempt, m->blocks, m->token_count,
                         event->index, &p->sink_out);
    else if (event->value == STEP_REFUSED)
        sink_on_reserve_failed(p->sinks, sim->now_us, m->request, m->attempt, true, &p->sink_out);
    else
        sink_on_finished(p->sinks, sim->now_us, m->request, m->attempt, &p->sink_out);
    if (event->value == STEP_FAILED) {
        struct sim_message lost = {.kind = MESSAGE_LOST,
                                   .request = m->request,
                                   .attempt = m->attempt,
                                   .step_failed = true,
                                   .reason = "step_failed"};
        sim_send(sim, p->session, process, &lost);
    }
    execute(sim, process, NULL);
}

void sim_decode_event(struct sim *sim, struct sim_event *event)
{
    uint32_t process = event->process;
    struct sim_process *p = &sim->processes[process];
    bool of_peer = event->kind == EVENT_CONNECTED || event->kind == EVENT_PAIRED ||
                   event->kind == EVENT_PAIR_CLOSED;
    if (of_peer && event->serial != p->peer_uses[event->index])
        return;
    switch (event->kind) {
    case EVENT_MESSAGE: on_message(sim, process, event); return;
    case EVENT_TO_STEP: sim_decode_to_step(sim, process, event); return;
    case EVENT_FROM_STEP: from_step(sim, process, event); return;
    case EVENT_ROW: sim_decode_row(sim, process, event); return;
    case EVENT_CONNECTED: on_connected(sim, process, event); return;
    case EVENT_PAIRED:
    case EVENT_PAIR_CLOSED: on_pairing(sim, process, event); return;
    case EVENT_COPY: sim_bytes_land(sim, process, event); return;
    case EVENT_READ_END: on_read_end(sim, process, event); return;
    case EVENT_VERIFIED:
        sink_on_verified(p->sinks, sim->now_us, event->cookie, event->value, &p->sink_out);
        execute(sim, process, NULL);
        return;
    case EVENT_STREAM_LOST:
        if (event->stream == p->session) {
            sim_decode_session_lost(sim, process);
        } else if (p->peers[sim->streams[event->stream].acceptor] == event->stream) {
            uint32_t source = sim->streams[event->stream].acceptor;
            p->peers[source] = SIM_NONE;
            sink_on_peer_lost(p->sinks, sim->now_us, source, false, &p->sink_out);
            execute(sim, process, NULL);
        }
        return;
    case EVENT_TICK:
        sink_on_tick(p->sinks, sim->now_us, &p->sink_out);
        if (sink_table_next_us(p->sinks) <= sim->now_us)
            sim_fail(sim, HOLDS_WAITS, "a tick changed nothing");
        execute(sim, process, NULL);
        return;
    default: sim_give_up("an event that is not for a decode worker");
    }
}
