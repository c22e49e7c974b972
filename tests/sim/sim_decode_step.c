/* The step thread of a decode worker: room, first come first served, and sequences that run. */
#include "tests/sim/sim.h"

#include <string.h>

/* The prefix cache has the first blocks of some prompts. A played block has one owner, so that a
 * copy stands for it. */
static void find_cached(struct sim *sim, struct sim_process *p, struct sim_job *job)
{
    if (!job->source_serial || !sim_chance(sim, DRAW_CACHED, 30))
        return;
    job->held_blocks =
        (uint32_t)sim_between(sim, DRAW_CACHED, 0, sim_blocks_for(job->token_count) - 1);
    for (uint32_t i = 0; i < job->held_blocks; i++)
        p->blocks[job->blocks[i]].tag =
            (struct sim_tag){.serial = job->source_serial, .block = i, .fill = SIM_BLOCK_TOKENS};
}

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
        find_cached(sim, p, job);
        event->index = job->held_blocks;
        memcpy(event->message.blocks, job->blocks, sizeof job->blocks);
        if (full)
            sim_job_end(sim, p, job);
    }
}

static void fail_job(struct sim *sim, uint32_t process, struct sim_job *job)
{
    struct sim_event *event = sim_push_ring(sim, EVENT_FROM_STEP, process);
    event->value = STEP_FAILED;
    event->message.request = job->request;
    event->message.attempt = job->attempt;
    sim_job_end(sim, &sim->processes[process], job);
    reserve(sim, process);
}

bool sim_decode_fail_step(struct sim *sim, uint32_t process)
{
    struct sim_process *p = &sim->processes[process];
    struct sim_job *job = NULL;
    for (uint32_t i = 0; i < SIM_MAX_JOBS && !job; i++)
        if (p->jobs[i].serial && p->jobs[i].running)
            job = &p->jobs[i];
    if (job)
        fail_job(sim, process, job);
    return job != NULL;
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

void sim_decode_row(struct sim *sim, uint32_t process, const struct sim_event *event)
{
    struct sim_process *p = &sim->processes[process];
    struct sim_job *job = &p->jobs[event->index];
    if (job->serial != event->serial)
        return; /* stopped */
    p->steps_done++;
    if (sim_step_breaks(sim, p, job)) {
        fail_job(sim, process, job);
        return;
    }
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

void sim_decode_to_step(struct sim *sim, uint32_t process, const struct sim_event *event)
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
