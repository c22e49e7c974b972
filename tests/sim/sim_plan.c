/* Makes the plan of a seed: workers, requests, faults. */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

const char *sim_fault_name(enum sim_fault_kind kind)
{
    static const char *const names[] = {
        "crash",          "pause",      "give_up",      "session_lost", "peer_lost",
        "drop_session",   "drop_peer",  "duplicate",    "delay",        "read_hangs",
        "lane_lost",      "flip",       "lease",        "prefill_step", "decode_step",
        "no_room",        "no_pairing", "forgery",      "mismatch",     "drain",
        "router_restart", "hang",       "broken_device"};
    return (size_t)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

static uint64_t between(struct rng *rng, uint64_t low, uint64_t high)
{
    return low + rng_below(rng, high - low + 1);
}

static bool chance(struct rng *rng, uint32_t percent)
{
    return rng_below(rng, 100) < percent;
}

static void plan_workers(struct sim_plan *plan, struct rng *rng)
{
    plan->prefills = (uint32_t)between(rng, 1, 2);
    plan->decodes = (uint32_t)between(rng, 1, 2);
    plan->tiny = chance(rng, 8);
    plan->slow = chance(rng, 15);
    bool tight = plan->slow || chance(rng, 20);
    for (uint32_t i = 1; i <= SIM_MAX_WORKERS; i++) {
        plan->pool_blocks[i] =
            (uint32_t)between(rng, SIM_MAX_BLOCKS, tight ? SIM_MAX_BLOCKS : SIM_POOL_BLOCKS);
        plan->read_blocks[i] = (uint32_t)between(rng, 1, 4);
    }
}

static void plan_requests(struct sim_plan *plan, struct rng *rng)
{
    plan->request_count = (uint32_t)between(rng, 1, SIM_MAX_REQUESTS);
    uint32_t leavers = chance(rng, 60) ? 0 : (uint32_t)between(rng, 1, 3);
    uint64_t spread_us = chance(rng, 30) ? 1000 : 100000;
    for (uint32_t i = 0; i < plan->request_count; i++) {
        uint32_t length = (uint32_t)(chance(rng, 25) ? 1 : between(rng, 1, 12));
        plan->requests[i].length = length;
        plan->requests[i].prompt_count = (uint32_t)between(rng, 1, SIM_MAX_PROMPT - length);
        plan->requests[i].arrival_us = between(rng, 0, spread_us);
        if (i < leavers && chance(rng, 75))
            plan->requests[i].cancel_us = between(rng, 1, 150000);
        else if (i < leavers)
            plan->requests[i].deadline_us = between(rng, 1, 100000);
    }
    plan->long_prompt = plan->seed % 16 == 7;
    if (plan->long_prompt)
        plan->requests[0].prompt_count = SIM_MAX_PROMPT - plan->requests[0].length;
}

static void plan_fault(struct sim_fault *fault, struct rng *rng)
{
    static const uint8_t weights[FAULT_COUNT] = {
        [FAULT_CRASH] = 8,        [FAULT_PAUSE] = 8,        [FAULT_GIVE_UP] = 6,
        [FAULT_SESSION_LOST] = 8, [FAULT_PEER_LOST] = 8,    [FAULT_DROP_SESSION] = 4,
        [FAULT_DROP_PEER] = 8,    [FAULT_DUPLICATE] = 5,    [FAULT_DELAY] = 5,
        [FAULT_READ_HANGS] = 5,   [FAULT_LANE_LOST] = 5,    [FAULT_FLIP] = 6,
        [FAULT_LEASE] = 5,        [FAULT_PREFILL_STEP] = 3, [FAULT_DECODE_STEP] = 3,
        [FAULT_NO_ROOM] = 4,      [FAULT_NO_PAIRING] = 3,   [FAULT_FORGERY] = 3,
        [FAULT_MISMATCH] = 3,     [FAULT_DRAIN] = 4,        [FAULT_ROUTER_RESTART] = 2,
        [FAULT_HANG] = 5,         [FAULT_BROKEN_DEVICE] = 5};
    uint32_t sum = 0, kind = 0;
    for (uint32_t i = 0; i < FAULT_COUNT; i++)
        sum += weights[i];
    uint64_t at = rng_below(rng, sum);
    for (; at >= weights[kind]; kind++)
        at -= weights[kind];
    fault->kind = (enum sim_fault_kind)kind;
    fault->gap = (uint32_t)between(rng, 1, 60);
    fault->pick = (uint32_t)rng_next(rng);
    fault->skip = chance(rng, 50) ? 0 : (uint32_t)between(rng, 1, 8);
    fault->length_us = chance(rng, 50) ? between(rng, 1000, 100000) : between(rng, 100000, 1500000);
    if (kind == FAULT_MISMATCH || kind == FAULT_DELAY)
        fault->length_us /= 4;
    if (kind == FAULT_HANG)
        fault->length_us *= 3;
}

void sim_plan_make(struct sim_plan *plan, uint64_t seed)
{
    struct rng rng = rng_seeded(seed);
    memset(plan, 0, sizeof *plan);
    plan->seed = plan->draws = seed;
    plan->guarded = seed % 2;
    plan->binds_late = seed / 16 % 2;
    plan_workers(plan, &rng);
    plan_requests(plan, &rng);
    plan->fault_count = chance(&rng, 20) ? 0 : (uint32_t)between(&rng, 1, 6);
    for (uint32_t i = 0; i < plan->fault_count; i++)
        plan_fault(&plan->faults[i], &rng);
    if (plan->fault_count)
        plan->faults[0].gap = (uint32_t)between(&rng, 1, 150);
}

void sim_plan_print(const struct sim_plan *plan)
{
    printf("seed %llu%s%s%s%s%s; blocks:", (unsigned long long)plan->seed,
           plan->tiny ? ", tiny" : "", plan->slow ? ", slow" : "",
           plan->long_prompt ? ", long prompt" : "", plan->guarded ? ", guarded" : "",
           plan->binds_late ? ", binds late" : "");
    for (uint32_t i = 1; i <= plan->prefills + plan->decodes; i++)
        printf(" %c%u %u", i <= plan->prefills ? 'p' : 'd', i, plan->pool_blocks[i]);
    printf("\n");
    for (uint32_t i = 0; i < plan->request_count; i++) {
        if (plan->requests[i].left_out)
            continue;
        printf("  request %u: at %llu us, prompt of %u tokens, answer of %u", i,
               (unsigned long long)plan->requests[i].arrival_us, plan->requests[i].prompt_count,
               plan->requests[i].length);
        if (plan->requests[i].cancel_us)
            printf(", its client leaves %llu us later",
                   (unsigned long long)plan->requests[i].cancel_us);
        if (plan->requests[i].deadline_us)
            printf(", deadline %llu us later", (unsigned long long)plan->requests[i].deadline_us);
        printf("\n");
    }
    for (uint32_t i = 0; i < plan->fault_count; i++) {
        const struct sim_fault *fault = &plan->faults[i];
        printf("  fault %s", sim_fault_name(fault->kind));
        if (fault->fixed)
            printf(" at %llu us, of process %u", (unsigned long long)fault->at_us, fault->victim);
        printf("\n");
    }
}
