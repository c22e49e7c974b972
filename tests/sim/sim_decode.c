/* A decode worker: the real sink table, a step thread that reserves and runs sequences, Session, Peer streams, and the byte plane. */
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

/* --------------------------------------------------------------------------------------- byte plane */

static void start_read(struct sim *sim, uint32_t process, const struct sink_action *action)
{
    struct sim_process *p = &sim->processes[process];
    const struct sim_job *job = sim_job_find(p, action->request, action->attempt);
    uint32_t slot = 0;
    while (slot < SIM_MAX_READS && p->reads[slot].used)
        slot++;
    if (!job || slot == SIM_MAX_READS || p->pairs[action->peer] == PAIR_IS_DOWN)
        sim_fail(sim, HOLDS_LANDING, "a read without blocks, without pairing, or one too many");
    if (!job || slot == SIM_MAX_READS)
        sim_give_up("a read that can't be played");
    if (p->confirmed[action->request] == action->attempt)
        sim_fail(sim, HOLDS_CONFIRM, "%llu.%u reads again after it has asked Confirm",
                 (unsigned long long)action->request, action->attempt);
    struct sim_read *read = &p->reads[slot];
    *read = (struct sim_read){.used = true,
                              .generation = read->generation + 1,
                              .source = (uint32_t)action->peer,
                              .cookie = action->cookie,
                              .owner = job->serial,
                              .count = action->block_count,
                              .closed = p->pairs[action->peer] != PAIR_IS_UP};
    uint64_t length_us = sim_chance(sim, DRAW_READ, 15) ? sim_between(sim, DRAW_READ, 1000, 60000)
                                                        : sim_between(sim, DRAW_READ, 100, 2000);
    bool hangs =
        !read->closed && sim_fault_hits(sim, FAULT_READ_HANGS, process, read->source) != NULL;
    for (uint32_t i = 0; i < read->count; i++) {
        read->remote[i] = action->remote[i];
        read->local[i] = action->local[i];
        p->blocks[read->local[i]].landing++;
        struct sim_event *copy =
            sim_push(sim, EVENT_COPY, process, sim_between(sim, DRAW_READ, 1, length_us));
        copy->index = slot;
        copy->value = i;
        copy->serial = read->generation;
    }
    if (read->closed) /* the transport knows already that this pairing is lost */
        length_us = 0;
    struct sim_event *end =
        sim_push(sim, EVENT_READ_END, process, hangs ? SIM_READ_LIMIT_US : length_us);
    end->index = slot;
    end->serial = read->generation;
    end->status = read->closed ? STATUS_UNAVAILABLE : hangs ? STATUS_TIMEOUT : STATUS_OK;
}

/* One block lands: whatever is in the source's pool at this moment. */
static void on_copy(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    const struct sim_read *read = &p->reads[event->index];
    if (!read->used || read->generation != event->serial || read->closed)
        return;
    const struct sim_process *source = &sim->processes[read->source];
    struct sim_block *block = &p->blocks[read->local[event->value]];
    if (block->owner != read->owner)
        sim_fail(sim, HOLDS_LANDING, "a read lands in block %u of %s, which was given away",
                 read->local[event->value], sim_name(sim, process));
    /* Over a pairing with one that has died: what is left of its memory, or what its successor has there. */
    bool old = p->pair_incarnations[read->source] != source->incarnation;
    bool there = source->up && (!old || sim_chance(sim, DRAW_READ, 50));
    block->tag = there ? source->blocks[read->remote[event->value]].tag : (struct sim_tag){0};
    if (sim_fault_hits(sim, FAULT_FLIP, process, read->source))
        block->tag.flipped = true;
    sim_trace(sim, process, "block %u has landed", read->local[event->value]);
}

void sim_decode_close_pair(struct sim *sim, uint32_t process, uint32_t source, enum status status)
{
    struct sim_process *p = &sim->processes[process];
    if (p->pairs[source] == PAIR_IS_DOWN || p->pairs[source] == PAIR_IS_CLOSING)
        return;
    p->pairs[source] = PAIR_IS_CLOSING;
    uint64_t last_us = 0;
    for (uint32_t i = 0; i < SIM_MAX_READS; i++) {
        struct sim_read *read = &p->reads[i];
        if (!read->used || read->closed || read->source != source)
            continue;
        read->closed = true;
        uint64_t delay_us = sim_between(sim, DRAW_READ, 0, 500);
        last_us = delay_us > last_us ? delay_us : last_us;
        struct sim_event *end = sim_push(sim, EVENT_READ_END, process, delay_us);
        end->index = i;
        end->serial = read->generation;
        end->status = status;
    }
    last_us += sim_chance(sim, DRAW_READ, 30) ? sim_between(sim, DRAW_READ, 1, 20000) : 1;
    struct sim_event *closed = sim_push(sim, EVENT_PAIR_CLOSED, process, last_us);
    closed->index = source;
    closed->serial = p->peer_uses[source];
}

/* ---------------------------------------------------------------------------------- transfer thread */

static void send_up(struct sim *sim, uint32_t process, const struct sink_action *action,
                    enum sim_message_kind kind)
{
    struct sim_message message = {.kind = kind,
                                  .request = action->request,
                                  .attempt = action->attempt,
                                  .retry = action->retry,
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
        if (action->kind == SINK_PAIR)
            p->pairs[action->peer] = PAIR_IS_ASKED;
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
    case SINK_READ: start_read(sim, process, action); break;
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

/* What is about an attempt before the newest one changes nothing. */
static void check_old(struct sim *sim, uint32_t process, uint64_t request, uint32_t attempt)
{
    const struct sim_process *p = &sim->processes[process];
    if (attempt < p->newest[request] && p->sink_out.count)
        sim_fail(sim, HOLDS_OLD, "a message about %llu.%u changes something for attempt %u",
                 (unsigned long long)request, attempt, p->newest[request]);
}

/* One that is draining takes nothing new. */
static void refuse(struct sim *sim, uint32_t process, const struct sim_message *m)
{
    struct sim_message message = {
        .kind = MESSAGE_REFUSED, .request = m->request, .attempt = m->attempt, .retry = true};
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
        if (p->draining) {
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
    if (source->up &&
        source->paused_until_us > sim->now_us) { /* its port accepts, but nobody answers */
        struct sim_event *later = sim_push(sim, EVENT_CONNECTED, process, 5000);
        later->index = event->index;
        later->serial = event->serial;
        return;
    }
    if (source->up && source->variant != p->variant) {
        enum sink_reason reason = source->variant == 3 || p->variant == 3
                                      ? SINK_REASON_NUMERICS_MISMATCH
                                      : SINK_REASON_LAYOUT_MISMATCH;
        sim_trace(sim, process, "and %s don't fit: %s", sim_name(sim, event->index),
                  sink_reason_name(reason));
        sink_on_peer_refused(p->sinks, sim->now_us, event->index, reason, &p->sink_out);
    } else if (source->up) {
        p->peers[event->index] = sim_open_stream(sim, process, event->index);
        sink_on_peer_up(p->sinks, sim->now_us, event->index, source->incarnation, &p->sink_out);
    } else {
        sink_on_peer_lost(p->sinks, sim->now_us, event->index, &p->sink_out);
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
        sink_on_pair_closed(p->sinks, sim->now_us, event->index, &p->sink_out);
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
    sink_on_read_done(p->sinks, sim->now_us, read->cookie, event->status, &p->sink_out);
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
                         &p->sink_out);
    else if (event->value == STEP_REFUSED)
        sink_on_reserve_failed(p->sinks, sim->now_us, m->request, m->attempt, true, &p->sink_out);
    else
        sink_on_finished(p->sinks, sim->now_us, m->request, m->attempt, &p->sink_out);
    if (event->value == STEP_FAILED) {
        struct sim_message lost = {
            .kind = MESSAGE_LOST, .request = m->request, .attempt = m->attempt};
        sim_send(sim, p->session, process, &lost);
    }
    execute(sim, process, NULL);
}

/* ------------------------------------------------------------------------------------- step thread */

static void reserve(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    for (struct sim_job *job; (job = sim_reserve_next(sim, p));) {
        struct sim_event *event = sim_push_ring(sim, EVENT_FROM_STEP, process);
        bool full = sim_fault_hits(sim, FAULT_NO_ROOM, process, process) != NULL;
        event->value = full ? STEP_REFUSED : STEP_RESERVED;
        event->message.request = job->request;
        event->message.attempt = job->attempt;
        event->message.token_count = job->block_count;
        memcpy(event->message.blocks, job->blocks, sizeof job->blocks);
        if (full)
            sim_job_end(sim, p, job);
    }
}

bool sim_decode_fail_step(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    struct sim_job *job = NULL;
    for (uint32_t i = 0; i < SIM_MAX_JOBS && !job; i++)
        if (p->jobs[i].serial && p->jobs[i].running)
            job = &p->jobs[i];
    if (!job)
        return false;
    struct sim_event *event = sim_push_ring(sim, EVENT_FROM_STEP, process);
    event->value = STEP_FAILED;
    event->message.request = job->request;
    event->message.attempt = job->attempt;
    sim_job_end(sim, p, job);
    reserve(sim, process);
    return true;
}

/* Nothing runs on bytes that were not answered `held` for it. */
static void check_held(struct sim *sim, const struct sim_job *job)
{
    for (uint32_t i = 0; i < sim->handle_count; i++)
        if (sim->handles[i].serial == job->source_serial &&
            sim->handles[i].held_attempt == job->attempt)
            return;
    sim_fail(sim, HOLDS_CONFIRM, "%llu.%u runs, but its handle was not held for it",
             (unsigned long long)job->request, job->attempt);
}

static void admit(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    const struct sim_message *m = &event->message;
    struct sim_job *job = sim_job_find(p, m->request, m->attempt);
    if (!job || !job->block_count || job->running)
        sim_fail(sim, HOLDS_FREE, "%llu.%u is admitted without room",
                 (unsigned long long)m->request, m->attempt);
    if (!job)
        return;
    uint32_t index = job->emitted_count + 1;
    if (m->has_handle) {
        sim_check_bytes(sim, process, job);
        check_held(sim, job);
        if (m->token.id != sim_token_id(m->request, index))
            sim_fail(sim, HOLDS_INDICES, "%llu.%u goes on from a wrong first token",
                     (unsigned long long)m->request, m->attempt);
    } else if (job->source_serial) {
        sim_fail(sim, HOLDS_ORDER, "a prompt that has a handle is computed again");
    }
    job->running = true;
    job->next_index = index;
    uint64_t delay_us = m->has_handle ? sim_between(sim, DRAW_COMPUTE, 10, 3000)
                                      : sim_between(sim, DRAW_COMPUTE, 3000, 30000);
    struct sim_event *row = sim_push(sim, EVENT_ROW, process, delay_us);
    row->index = (uint32_t)(job - p->jobs);
    row->serial = job->serial;
}

static void on_row(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    struct sim_job *job = &p->jobs[event->index];
    if (job->serial != event->serial)
        return; /* stopped */
    bool last = job->next_index >= sim->requests[job->request].length;
    struct sim_message message = {.kind = MESSAGE_TOKEN,
                                  .request = job->request,
                                  .attempt = job->attempt,
                                  .token = {.worker = process,
                                            .attempt = job->attempt,
                                            .index = job->next_index,
                                            .id = sim_token_id(job->request, job->next_index),
                                            .finish = last ? FINISH_MAX_TOKENS : FINISH_NONE}};
    sim_send(sim, p->session, process, &message);
    if (!last) {
        job->next_index++;
        struct sim_event *row =
            sim_push(sim, EVENT_ROW, process,
                     sim_between(sim, DRAW_COMPUTE, 500, 4000) * (sim->plan->slow ? 20 : 1));
        row->index = event->index;
        row->serial = event->serial;
        return;
    }
    struct sim_event *done = sim_push_ring(sim, EVENT_FROM_STEP, process);
    done->value = STEP_FINISHED;
    done->message.request = job->request;
    done->message.attempt = job->attempt;
    sim_job_end(sim, p, job);
    reserve(sim, process);
}

static void to_step(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    const struct sim_message *m = &event->message;
    struct sim_job *job;
    switch (event->value) {
    case STEP_RESERVE:
        job = sim_job_add(sim, p, m->request, m->attempt);
        job->emitted_count = m->emitted_count;
        job->token_count = m->token_count;
        job->source_serial = m->serial;
        job->reserve_tokens = event->index;
        break;
    case STEP_ADMIT: admit(sim, process, event); break;
    default:
        job = sim_job_find(p, m->request, m->attempt);
        if (job)
            sim_job_end(sim, p, job);
        break;
    }
    reserve(sim, process);
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
    case EVENT_TO_STEP: to_step(sim, process, event); return;
    case EVENT_FROM_STEP: from_step(sim, process, event); return;
    case EVENT_ROW: on_row(sim, process, event); return;
    case EVENT_CONNECTED: on_connected(sim, process, event); return;
    case EVENT_PAIRED:
    case EVENT_PAIR_CLOSED: on_pairing(sim, process, event); return;
    case EVENT_COPY: on_copy(sim, process, event); return;
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
            sink_on_peer_lost(p->sinks, sim->now_us, source, &p->sink_out);
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
