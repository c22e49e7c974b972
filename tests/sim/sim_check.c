/* Checks the invariants of sim.h after every event. Some are checked where they could break: the
 * tags that a batch reads in sim_decode.c, answers about handles in sim_prefill.c, tokens in
 * sim_router.c. */
#include "tests/sim/sim.h"

#define U(x) ((unsigned long long)(x))

/* --- blocks --- */

void sim_check_bytes(struct sim *sim, uint32_t process, const struct sim_job *job)
{
    const struct sim_process *p = &sim->processes[process];
    uint32_t blocks = sim_blocks_for(job->token_count);
    for (uint32_t i = 0; i < blocks; i++) {
        const struct sim_block *block = &p->blocks[job->blocks[i]];
        uint32_t fill = i + 1 < blocks ? SIM_BLOCK_TOKENS : job->token_count - i * SIM_BLOCK_TOKENS;
        if (block->owner != job->serial || block->landing)
            sim_fail(sim, HOLDS_LANDING,
                     "%llu.%u is in the batch with a block that lands or isn't its own",
                     U(job->request), job->attempt);
        if (block->tag.serial != job->source_serial || block->tag.block != i ||
            block->tag.fill < fill)
            sim_fail(sim, HOLDS_BYTES, "%llu.%u is in the batch with stale bytes in block %u",
                     U(job->request), job->attempt, i);
        if (block->tag.flipped)
            sim_fail(sim, HOLDS_BYTES, "%llu.%u is in the batch with damaged bytes in block %u",
                     U(job->request), job->attempt, i);
    }
}

static void check_owners(struct sim *sim, uint32_t process)
{
    const struct sim_process *p = &sim->processes[process];
    uint32_t owned = 0, listed = 0;
    for (uint32_t i = 0; i < p->pool_blocks; i++) {
        owned += p->blocks[i].owner != 0;
        if (p->blocks[i].landing && !p->blocks[i].owner)
            sim_fail(sim, HOLDS_LANDING, "block %u is free while a read is in flight into it", i);
    }
    for (uint32_t i = 0; i < SIM_MAX_JOBS; i++) {
        const struct sim_job *job = &p->jobs[i];
        for (uint32_t j = 0; job->serial && j < job->block_count; j++)
            if (p->blocks[job->blocks[j]].owner != job->serial)
                sim_fail(sim, HOLDS_FREE, "block %u of %llu.%u belongs to another", job->blocks[j],
                         U(job->request), job->attempt);
        listed += job->serial ? job->block_count : 0;
        if (job->serial && job->running && job->source_serial)
            sim_check_bytes(sim, process, job);
    }
    if (owned != listed)
        sim_fail(sim, HOLDS_FREE, "%u blocks are taken, but their owners know of %u", owned,
                 listed);
}

static void check_reads(struct sim *sim, uint32_t process)
{
    const struct sim_process *p = &sim->processes[process];
    uint32_t landing = 0;
    for (uint32_t i = 0; i < SIM_MAX_READS; i++) {
        const struct sim_read *read = &p->reads[i];
        if (!read->used)
            continue;
        landing += read->count;
        for (uint32_t j = 0; j < read->count; j++)
            if (p->blocks[read->local[j]].owner != read->owner)
                sim_fail(sim, HOLDS_LANDING, "block %u was given away while a read lands in it",
                         read->local[j]);
    }
    if (landing != sink_table_landing_blocks(p->sinks))
        sim_fail(sim, HOLDS_LANDING, "%u blocks are landing, the sinks know of %u", landing,
                 sink_table_landing_blocks(p->sinks));
}

void sim_check_process(struct sim *sim, uint32_t process)
{
    if (process == 0 || !sim->processes[process].up)
        return;
    check_owners(sim, process);
    if (!sim->processes[process].is_prefill)
        check_reads(sim, process);
}

/* --- requests --- */

/* Returns how many runs the faults may have cost this request. */
static uint32_t costs_of(struct sim *sim, const struct sim_request *request)
{
    uint32_t costs = sim->costs + request->costs;
    for (uint32_t i = 0; i < request->left_count; i++) {
        const struct sim_handle *handle =
            sim_find_handle(sim, (uint64_t)(request - sim->requests), request->left[i].ref);
        costs += handle && handle->held_attempt == request->left[i].attempt;
    }
    return costs;
}

/* Retries that are paid for stay within what was there, and what arrivals and time brought. */
static void check_budget(struct sim *sim)
{
    const struct retry_budget_limits *limits = &sim->budget.limits;
    uint64_t percents = (uint64_t)100 * limits->most + (uint64_t)limits->percent * sim->arrivals +
                        sim->now_us * limits->per_second / 10000;
    if ((uint64_t)100 * sim->paid > percents)
        sim_fail(sim, HOLDS_BUDGET, "%u retries were paid for, %llu hundredths were there",
                 sim->paid, U(percents));
}

void sim_check_requests(struct sim *sim)
{
    check_budget(sim);
    for (uint32_t i = 0; i < sim->request_count; i++) {
        const struct sim_request *request = &sim->requests[i];
        const struct request_life *life = &request->life;
        if (!request->arrived)
            continue;
        if (request->finishes != (life->state == REQUEST_ENDED))
            sim_fail(sim, HOLDS_TERMINAL, "request %u is %s and was ended %u times", i,
                     request_state_name(life->state), request->finishes);
        if (request->delivered != life->delivered)
            sim_fail(sim, HOLDS_INDICES, "request %u counts %u tokens, its client %u", i,
                     life->delivered, request->delivered);
        if (life->runs > 1 + sim->costs + request->costs && !sim->plan->tiny &&
            life->runs > 1 + costs_of(sim, request))
            sim_fail(sim, HOLDS_RUNS, "request %u ran %u times for %u faults that cost one", i,
                     life->runs, costs_of(sim, request));
    }
}

/* The workers of the last attempt have stopped, if the Release could reach them in time. */
void sim_check_stopped(struct sim *sim, uint32_t id)
{
    const struct sim_request *request = &sim->requests[id];
    const uint64_t workers[] = {request->life.prefill, request->life.decode};
    if (sim->message_lost || sim->stalled)
        return;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t worker = (uint32_t)workers[i];
        const struct sim_process *p = &sim->processes[worker];
        if (!worker || sim->sessions[worker] == SIM_NONE)
            continue;
        const struct sim_stream *session = &sim->streams[sim->sessions[worker]];
        if (session->opened_us >= request->finish_us || session->broken_us != UINT64_MAX ||
            p->paused_until_us > request->finish_us || p->hung_until_us > request->finish_us)
            continue;
        for (uint32_t j = 0; j < SIM_MAX_JOBS; j++)
            if (p->jobs[j].serial && p->jobs[j].request == id)
                sim_fail(sim, HOLDS_STOP, "%s still holds %u.%u, which has ended",
                         sim_name(sim, worker), id, p->jobs[j].attempt);
    }
}

/* --- rest --- */

static bool status_is_right(struct sim *sim, const struct sim_request *request)
{
    const struct request_life *life = &request->life;
    struct sim_totals *t = sim->totals;
    switch (life->status) {
    case TERMINAL_OK: t->ok++; return request->delivered == request->length;
    case TERMINAL_CANCELLED: t->cancelled++; return request->cancelled;
    case TERMINAL_DEADLINE:
        t->deadline++;
        return request->deadline_us && request->finish_us >= request->deadline_us;
    case TERMINAL_UNAVAILABLE:
        t->unavailable++;
        if (!strcmp(life->reason, "no_worker")) /* the only one of its role hung, or all did */
            return sim->hung_us >= life->limits.no_worker_us / 2;
        if (life->losses - life->forgiven.losses >= life->limits.losses)
            return sim->fault_count >= life->losses - life->forgiven.losses;
        return sim->plan->tiny || costs_of(sim, request) >= life->limits.runs;
    case TERMINAL_INTERNAL:
        t->internal++;
        return life->step_failed &&
               (sim->plan->tiny || costs_of(sim, request) >= life->limits.runs);
    case TERMINAL_OVERLOADED: t->overloaded++; return sim->plan->tiny;
    default: return false;
    }
}

/* Only failures since the last progress use up a request's limits. */
static void check_limits(struct sim *sim, uint32_t id)
{
    const struct sim_request *request = &sim->requests[id];
    const struct request_life *life = &request->life;
    bool used_up = (life->status == TERMINAL_UNAVAILABLE && strcmp(life->reason, "no_worker")) ||
                   life->status == TERMINAL_INTERNAL;
    uint32_t least =
        life->limits.runs < life->limits.losses ? life->limits.runs : life->limits.losses;
    if (used_up && request->tries + 1 < least)
        sim_fail(sim, HOLDS_LIMITS, "request %u ended (%s) after %u tries since its last progress",
                 id, life->reason, request->tries);
}

static void check_ends(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->request_count; i++) {
        const struct sim_request *request = &sim->requests[i];
        const struct request_life *life = &request->life;
        if (sim->plan->requests[i].left_out)
            continue;
        if (life->state != REQUEST_ENDED)
            sim_fail(sim, HOLDS_WAITS, "request %u is %s for ever", i,
                     request_state_name(life->state));
        if (request->router_died) {
            sim->totals->router_died++;
            continue;
        }
        bool waited = life->status == TERMINAL_DEADLINE && !sim->plan->requests[i].deadline_us;
        if (waited)
            sim_fail(sim, HOLDS_WAITS, "request %u waited for its deadline, with %u of %u tokens",
                     i, request->delivered, request->length);
        check_limits(sim, i);
        if (!status_is_right(sim, request))
            sim_fail(sim, HOLDS_TERMINAL,
                     "request %u ended %s (%s) with %u of %u tokens after %u faults", i,
                     terminal_status_name(life->status), life->reason, request->delivered,
                     request->length, sim->fault_count);
    }
}

void sim_check_rest(struct sim *sim)
{
    check_ends(sim);
    bool told = !sim->message_lost && !sim->stalled;
    /* A prompt that a dead router has left is computed to its end first. */
    uint64_t long_us = sim->plan->long_prompt ? (uint64_t)SIM_MAX_PROMPT * SIM_LONG_US : 0;
    if (told && sim->freed_us > sim->calm_us + SIM_FREE_US + long_us)
        sim_fail(sim, HOLDS_FREE,
                 "the last blocks were freed %llu us after the last thing happened",
                 U(sim->freed_us - sim->calm_us));
    for (uint32_t i = 1; i <= sim->worker_count; i++) {
        struct sim_process *p = &sim->processes[i];
        if (!p->up)
            sim_fail(sim, HOLDS_WAITS, "%s did not start again", sim_name(sim, i));
        uint32_t left = p->is_prefill ? source_table_count(p->sources) : sink_table_count(p->sinks);
        if (left)
            sim_fail(sim, HOLDS_FREE, "%s has %u sources or sinks at rest", sim_name(sim, i), left);
        for (uint32_t j = 0; j < SIM_MAX_JOBS; j++)
            if (p->jobs[j].serial)
                sim_fail(sim, HOLDS_FREE, "%s still works on %llu.%u at rest", sim_name(sim, i),
                         U(p->jobs[j].request), p->jobs[j].attempt);
        for (uint32_t j = 0; j < p->pool_blocks; j++)
            if (p->blocks[j].owner || p->blocks[j].landing)
                sim_fail(sim, HOLDS_FREE, "%s: block %u is not free at rest", sim_name(sim, i), j);
        for (uint32_t j = 0; j < SIM_MAX_READS; j++)
            if (p->reads[j].used)
                sim_fail(sim, HOLDS_WAITS, "%s: a read never ended", sim_name(sim, i));
    }
}
