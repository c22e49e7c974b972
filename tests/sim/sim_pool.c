#include "tests/sim/sim.h"

#include <string.h>

uint32_t sim_blocks_for(uint32_t tokens)
{
    return (tokens + SIM_BLOCK_TOKENS - 1) / SIM_BLOCK_TOKENS;
}

struct sim_job *sim_job_find(struct sim_process *process, uint64_t request, uint32_t attempt)
{
    for (uint32_t i = 0; i < SIM_MAX_JOBS; i++) {
        struct sim_job *job = &process->jobs[i];
        if (job->serial && job->request == request && job->attempt == attempt)
            return job;
    }
    return NULL;
}

struct sim_job *sim_job_add(struct sim *sim, struct sim_process *process, uint64_t request,
                            uint32_t attempt)
{
    for (uint32_t i = 0; i < SIM_MAX_JOBS; i++) {
        struct sim_job *job = &process->jobs[i];
        if (job->serial)
            continue;
        *job = (struct sim_job){.serial = ++sim->last_serial,
                                .request = request,
                                .attempt = attempt,
                                .arrival = sim->order};
        if (!process->reports)
            sim_push(sim, EVENT_LOAD, (uint32_t)(process - sim->processes), SIM_LOAD_US);
        process->reports = true;
        return job;
    }
    sim_give_up("a step thread has more jobs than there is room for");
}

void sim_job_end(struct sim *sim, struct sim_process *process, struct sim_job *job)
{
    for (uint32_t i = 0; i < job->block_count; i++) {
        struct sim_block *block = &process->blocks[job->blocks[i]];
        if (block->landing)
            sim_fail(sim, HOLDS_LANDING,
                     "block %u of %llu.%u is freed while a read is in flight into it",
                     job->blocks[i], (unsigned long long)job->request, job->attempt);
        if (block->owner != job->serial)
            sim_fail(sim, HOLDS_FREE, "block %u is freed by %llu.%u but isn't its own",
                     job->blocks[i], (unsigned long long)job->request, job->attempt);
        block->owner = 0;
    }
    *job = (struct sim_job){0};
    sim->freed_us = sim->now_us;
}

bool sim_step_breaks(struct sim *sim, const struct sim_process *process, const struct sim_job *job)
{
    if (process->broken_until_us <= sim->now_us)
        return false;
    sim->requests[job->request].costs++;
    return true;
}

struct sim_handle *sim_find_handle(struct sim *sim, uint64_t request, struct handle_ref ref)
{
    for (uint32_t i = 0; i < sim->handle_count; i++)
        if (sim->handles[i].request == request && handle_ref_equal(sim->handles[i].ref, ref))
            return &sim->handles[i];
    return NULL;
}

/* Blocks in an order that makes neighbours on both sides sometimes, and reuse likely. */
static void take_blocks(struct sim *sim, struct sim_process *process, struct sim_job *job,
                        uint32_t need)
{
    uint32_t start = sim_chance(sim, DRAW_BLOCKS, 50)
                         ? (uint32_t)sim_between(sim, DRAW_BLOCKS, 0, process->pool_blocks - 1)
                         : 0;
    for (uint32_t i = 0; job->block_count < need; i++) {
        uint32_t id = (start + i) % process->pool_blocks;
        struct sim_block *block = &process->blocks[id];
        if (block->owner)
            continue;
        if (block->landing)
            sim_fail(sim, HOLDS_LANDING,
                     "block %u is given to %llu.%u while a read is in flight into it", id,
                     (unsigned long long)job->request, job->attempt);
        block->owner = job->serial;
        block->tag = (struct sim_tag){.serial = job->serial}; /* whatever is there is its own now */
        job->blocks[job->block_count++] = id;
    }
}

struct sim_job *sim_reserve_next(struct sim *sim, struct sim_process *process)
{
    struct sim_job *first = NULL;
    for (uint32_t i = 0; i < SIM_MAX_JOBS; i++) {
        struct sim_job *job = &process->jobs[i];
        if (job->serial && !job->block_count && (!first || job->arrival < first->arrival))
            first = job;
    }
    if (!first)
        return NULL;
    uint32_t free_count = 0, need = sim_blocks_for(first->reserve_tokens);
    for (uint32_t i = 0; i < process->pool_blocks; i++)
        free_count += process->blocks[i].owner == 0;
    if (free_count < need)
        return NULL;
    take_blocks(sim, process, first, need);
    return first;
}
