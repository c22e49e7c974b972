/* A prefill worker: the real source table, a step thread that reserves and computes, Session and
 * Peer streams. */
#include "tests/sim/sim.h"

#include <string.h>

/* flips are marked in the tags */
static const uint32_t checksums[SIM_MAX_BLOCKS];
static const uint64_t sums[SIM_MAX_BLOCKS];

void sim_prefill_start(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    struct source_config config = {.incarnation = p->incarnation,
                                   .model_hash = p->variant == 1 ? 11 : 1,
                                   .layout_hash = p->variant == 2 ? 12 : 2,
                                   .numerics_id = p->variant == 3 ? 13 : 3,
                                   .block_tokens = SIM_BLOCK_TOKENS,
                                   .max_sources = sim->plan->tiny ? 2 : 2 * SIM_MAX_REQUESTS,
                                   .max_blocks = SIM_MAX_BLOCKS,
                                   .memo_count = 64,
                                   .lease_us = SIM_LEASE_US};
    p->computing = SIM_NONE;
    struct error err;
    if (source_table_create(&config, &p->sources, &err) != STATUS_OK ||
        source_actions_init(&p->source_out, p->sources) != STATUS_OK)
        sim_give_up("no source table");
}

void sim_prefill_stop(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    struct source_counters counters = source_table_counters(p->sources);
    sim->totals->gone += counters.gone;
    sim->totals->expired += counters.ended[SOURCE_EXPIRED];
    sim->totals->dropped += counters.dropped;
    source_actions_deinit(&p->source_out);
    source_table_destroy(p->sources);
    p->sources = NULL;
}

/* --- transfer thread --- */

/* One handle is held for one reader. */
static void note_held(struct sim *sim, const struct peer_down *question)
{
    struct sim_handle *handle = sim_find_handle(sim, question->request, question->ref);
    const struct sim_process *p = &sim->processes[sim->actor];
    if (!handle)
        return;
    bool whole = handle->held_attempt != 0; /* otherwise its blocks are still there, and full */
    for (uint32_t i = 0; i < SIM_MAX_JOBS && !whole; i++)
        whole = p->jobs[i].serial == handle->serial && p->jobs[i].block_count &&
                p->jobs[i].computed_tokens == p->jobs[i].token_count;
    if (!whole)
        sim_fail(sim, HOLDS_BYTES, "a handle of %llu is held, but its blocks are not",
                 (unsigned long long)question->request);
    if (handle->held_attempt && handle->held_attempt != question->attempt)
        sim_fail(sim, HOLDS_READER, "a handle of %llu is held for attempts %u and %u",
                 (unsigned long long)question->request, handle->held_attempt, question->attempt);
    sim->totals->held_again += handle->held_attempt != 0;
    handle->held_attempt = question->attempt;
}

/* A question about a handle that never was is answered GONE, and changes nothing. */
static void check_answer(struct sim *sim, uint32_t reader, const struct source_actions *out,
                         const struct peer_down *question)
{
    struct sim_handle *handle = sim_find_handle(sim, question->request, question->ref);
    for (uint32_t i = 0; i < out->count; i++) {
        const struct source_action *action = &out->items[i];
        bool gone = action->kind == SOURCE_SEND_PEER && action->message.kind == PEER_GONE;
        if (!handle && !gone)
            sim_fail(sim, HOLDS_FENCE, "a handle of %llu that never was is good for a %s",
                     (unsigned long long)question->request, peer_down_kind_name(question->kind));
        if (handle && !gone && question->attempt < handle->reader)
            sim_fail(sim, HOLDS_READER,
                     "a handle of %llu is good for a %s of attempt %u, its reader is %u",
                     (unsigned long long)question->request, peer_down_kind_name(question->kind),
                     question->attempt, handle->reader);
        if (handle && !gone && question->kind == PEER_SUBSCRIBE) {
            handle->reader = question->attempt;
            handle->reads = reader;
        }
        if (action->kind == SOURCE_SEND_PEER && action->message.kind == PEER_HELD)
            note_held(sim, question);
    }
}

static void send_opened(struct sim *sim, uint32_t process, const struct source_action *action)
{
    struct sim_process *p = &sim->processes[process];
    const struct sim_job *job = sim_job_find(p, action->request, action->attempt);
    if (!job)
        sim_give_up("opened without blocks");
    if (sim->handle_count == SIM_MAX_HANDLES)
        sim_give_up("more handles were opened than there is room for");
    sim->handles[sim->handle_count++] = (struct sim_handle){
        .ref = action->handle.ref, .request = action->request, .serial = job->serial};
    struct sim_message message = {.kind = MESSAGE_OPENED,
                                  .request = action->request,
                                  .attempt = action->attempt,
                                  .handle = action->handle,
                                  .token_count = action->handle.token_count,
                                  .variant = p->variant,
                                  .serial = job->serial};
    memcpy(message.blocks, action->handle.blocks,
           action->handle.block_count * sizeof *message.blocks);
    sim_send(sim, p->session, process, &message);
}

/* `cause` is the message that is being handled, if it is one. */
static void execute(struct sim *sim, uint32_t process, const struct sim_message *cause)
{
    struct sim_process *p = &sim->processes[process];
    for (uint32_t i = 0; i < p->source_out.count; i++) {
        const struct source_action *action = &p->source_out.items[i];
        if (sim->trace) {
            struct str text;
            str_init(&text, 1024);
            if (sim_say_source(sim, &text, action))
                sim_trace(sim, process, "%s", text.data);
            str_deinit(&text);
        }
        struct sim_message message = {.request = action->request, .attempt = action->attempt};
        struct sim_event *event;
        switch (action->kind) {
        case SOURCE_START:
        case SOURCE_FREE:
            event = sim_push_ring(sim, EVENT_TO_STEP, process);
            event->value = action->kind == SOURCE_START ? STEP_START : STEP_FREE;
            if (action->kind == SOURCE_START)
                event->message = *cause;
            event->message.request = action->request;
            event->message.attempt = action->attempt;
            break;
        case SOURCE_SEND_OPENED: send_opened(sim, process, action); break;
        case SOURCE_SEND_REFUSED:
            message.kind = MESSAGE_REFUSED;
            message.retry = action->retry;
            message.reason = "limit";
            sim_send(sim, p->session, process, &message);
            break;
        case SOURCE_SEND_LOST:
            message.kind = MESSAGE_LOST;
            message.step_failed = true;
            message.reason = "step_failed";
            sim_send(sim, p->session, process, &message);
            break;
        case SOURCE_SEND_PEER:
            message.kind = MESSAGE_PEER_UP;
            message.up = action->message;
            message.up.checksums = checksums;
            message.up.sums = sums;
            sim_send(sim, (uint32_t)action->peer, process, &message);
            break;
        }
    }
    sim_schedule_tick(sim, process, source_table_next_us(p->sources));
}

void sim_prefill_session_lost(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    sim_trace(sim, process, "has lost its Session");
    p->session = SIM_NONE;
    source_on_session_lost(p->sources, sim->now_us, &p->source_out);
    execute(sim, process, NULL);
}

void sim_prefill_expire_leases(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    source_on_tick(p->sources, sim->now_us + SIM_LEASE_US, &p->source_out);
    execute(sim, process, NULL);
}

bool sim_prefill_fail_step(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    if (p->computing == SIM_NONE || !p->jobs[p->computing].serial)
        return false;
    const struct sim_job *job = &p->jobs[p->computing];
    struct sim_event *event = sim_push_ring(sim, EVENT_FROM_STEP, process);
    event->value = STEP_FAILED;
    event->message.request = job->request;
    event->message.attempt = job->attempt;
    return true;
}

/* One that is draining takes nothing that may begin elsewhere. */
static bool refuses(struct sim *sim, uint32_t process, const struct sim_message *m)
{
    struct sim_process *p = &sim->processes[process];
    if (m->attempt > p->newest[m->request])
        p->newest[m->request] = m->attempt;
    if (!p->draining || m->emitted_count)
        return false;
    struct sim_message message = {.kind = MESSAGE_REFUSED,
                                  .request = m->request,
                                  .attempt = m->attempt,
                                  .retry = true,
                                  .reason = "draining"};
    sim_send(sim, p->session, process, &message);
    return true;
}

static void on_message(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    const struct sim_message *m = &event->message;
    switch (m->kind) {
    case MESSAGE_PREFILL:
        if (refuses(sim, process, m))
            return;
        source_on_prefill(p->sources, sim->now_us, m->request, m->attempt, m->token_count, 0,
                          &p->source_out);
        break;
    case MESSAGE_RELEASE:
        source_on_release(p->sources, sim->now_us, m->request, m->attempt, &p->source_out);
        if (m->attempt < p->newest[m->request] && p->source_out.count)
            sim_fail(sim, HOLDS_OLD, "a Release of %llu.%u ends attempt %u",
                     (unsigned long long)m->request, m->attempt, p->newest[m->request]);
        break;
    case MESSAGE_PEER_DOWN:
        source_on_message(p->sources, sim->now_us, event->stream, &m->down, &p->source_out);
        check_answer(sim, sim->streams[event->stream].dialer, &p->source_out, &m->down);
        break;
    default: sim_give_up("a message that is not for a prefill worker");
    }
    execute(sim, process, m);
}

static void from_step(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    const struct sim_message *m = &event->message;
    struct source_completion completion = {
        .first_token = m->token.id, .finish = m->token.finish, .sums = {sums, checksums}};
    switch (event->value) {
    case STEP_RESERVED:
        source_on_reserved(p->sources, sim->now_us, m->request, m->attempt, m->blocks,
                           sim_blocks_for(m->token_count), &p->source_out);
        break;
    case STEP_COMPUTED:
        source_on_computed(p->sources, sim->now_us, m->request, m->attempt, m->token_count,
                           (struct source_sums){sums, checksums}, &p->source_out);
        break;
    case STEP_COMPLETED:
        source_on_completed(p->sources, sim->now_us, m->request, m->attempt, &completion,
                            &p->source_out);
        break;
    case STEP_FAILED:
        source_on_failed(p->sources, sim->now_us, m->request, m->attempt, "internal", true,
                         &p->source_out);
        break;
    default: sim_give_up("a step event that is not for a prefill worker");
    }
    execute(sim, process, NULL);
}

/* --- step thread --- */

static struct sim_event *tell(struct sim *sim, uint32_t process, const struct sim_job *job,
                              enum sim_step_kind kind)
{
    struct sim_event *event = sim_push_ring(sim, EVENT_FROM_STEP, process);
    event->value = kind;
    event->message.request = job->request;
    event->message.attempt = job->attempt;
    event->message.token_count = job->token_count;
    memcpy(event->message.blocks, job->blocks, sizeof job->blocks);
    return event;
}

static void work(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    for (struct sim_job *job; (job = sim_reserve_next(sim, p));) {
        bool full = sim_fault_hits(sim, FAULT_NO_ROOM, process, process);
        tell(sim, process, job, full ? STEP_FAILED : STEP_RESERVED);
        if (full)
            sim_job_end(sim, p, job);
    }
    if (p->computing != SIM_NONE)
        return;
    struct sim_job *next = NULL;
    for (uint32_t i = 0; i < SIM_MAX_JOBS; i++) {
        struct sim_job *job = &p->jobs[i];
        bool goes_on = !job->failed && job->computed_tokens < job->token_count;
        if (job->serial && job->block_count && goes_on && (!next || job->arrival < next->arrival))
            next = job;
    }
    if (!next)
        return;
    p->computing = (uint32_t)(next - p->jobs);
    bool is_long = sim->plan->long_prompt && !next->request;
    sim_push(sim, EVENT_CHUNK, process,
             sim_between(sim, DRAW_COMPUTE, 200, SIM_STEP_US) * (is_long ? SIM_LONG_TIMES : 1))
        ->serial = next->serial;
}

static void complete(struct sim *sim, uint32_t process, const struct sim_job *job)
{
    uint32_t index = job->emitted_count + 1;
    struct life_token token = {
        .worker = process,
        .attempt = job->attempt,
        .index = index,
        .id = sim_token_id(job->request, index),
        .finish = index == sim->requests[job->request].length ? FINISH_MAX_TOKENS : FINISH_NONE};
    struct sim_message message = {
        .kind = MESSAGE_TOKEN, .request = job->request, .attempt = job->attempt, .token = token};
    sim_send(sim, sim->processes[process].session, process, &message);
    tell(sim, process, job, STEP_COMPLETED)->message.token = token;
}

static void on_chunk(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    struct sim_job *job = &p->jobs[p->computing];
    p->computing = SIM_NONE;
    if (job->serial != event->serial) { /* freed meanwhile */
        work(sim, process);
        return;
    }
    p->steps_done++;
    if (sim_step_breaks(sim, p, job)) {
        job->failed = true;
        tell(sim, process, job, STEP_FAILED);
        work(sim, process);
        return;
    }
    uint32_t left = job->token_count - job->computed_tokens;
    uint32_t chunk = (uint32_t)sim_between(sim, DRAW_COMPUTE, 1, 12);
    if (sim->plan->long_prompt && !job->request)
        chunk = 1;
    for (uint32_t i = 0; i < (chunk < left ? chunk : left); i++, job->computed_tokens++) {
        uint32_t block = job->computed_tokens / SIM_BLOCK_TOKENS;
        p->blocks[job->blocks[block]].tag =
            (struct sim_tag){.serial = job->serial,
                             .block = block,
                             .fill = job->computed_tokens % SIM_BLOCK_TOKENS + 1};
    }
    if (job->computed_tokens == job->token_count)
        complete(sim, process, job);
    else
        tell(sim, process, job, STEP_COMPUTED)->message.token_count = job->computed_tokens;
    work(sim, process);
}

static void to_step(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    const struct sim_message *m = &event->message;
    struct sim_job *job = sim_job_find(p, m->request, m->attempt);
    if (event->value == STEP_START) {
        job = sim_job_add(sim, p, m->request, m->attempt);
        job->emitted_count = m->emitted_count;
        job->token_count = job->reserve_tokens = m->token_count;
    } else if (job) {
        sim_job_end(sim, p, job);
    }
    work(sim, process);
}

void sim_prefill_event(struct sim *sim, struct sim_event *event)
{
    uint32_t process = event->process;
    struct sim_process *p = &sim->processes[process];
    switch (event->kind) {
    case EVENT_MESSAGE: on_message(sim, process, event); return;
    case EVENT_TO_STEP: to_step(sim, process, event); return;
    case EVENT_FROM_STEP: from_step(sim, process, event); return;
    case EVENT_CHUNK: on_chunk(sim, process, event); return;
    case EVENT_STREAM_LOST:
        if (event->stream == p->session) {
            sim_prefill_session_lost(sim, process);
        } else {
            source_on_peer_lost(p->sources, sim->now_us, event->stream, &p->source_out);
            execute(sim, process, NULL);
            sim_bytes_revoke(sim, process, event->stream);
        }
        return;
    case EVENT_TICK:
        source_on_tick(p->sources, sim->now_us, &p->source_out);
        if (source_table_next_us(p->sources) <= sim->now_us)
            sim_fail(sim, HOLDS_WAITS, "a tick changed nothing");
        execute(sim, process, NULL);
        return;
    default: sim_give_up("an event that is not for a prefill worker");
    }
}
