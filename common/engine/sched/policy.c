#include "common/engine/sched/policy.h"

#include "common/base/assert.h"

#include <stddef.h>

static uint64_t since(uint64_t then_us, uint64_t now_us)
{
    return now_us > then_us ? now_us - then_us : 0;
}

/* 1: no row of it is computed. 0: its prompt was begun, or is done. */
static uint64_t is_new(const struct sequence *sequence)
{
    return sequence->computed == 0;
}

static uint32_t rows_left(const struct sequence *sequence)
{
    uint32_t done =
        sequence->state == SEQUENCE_WAITING ? sequence->likely_cached : sequence->computed;
    return sequence->prompt_count > done ? sequence->prompt_count - done : 0;
}

static uint64_t srpf_key(const struct sequence *sequence)
{
    return sequence->plan == PLAN_RECEIVE ? 0 : rows_left(sequence);
}

static void srpf_age(struct sequence *sequence, uint64_t now_us, uint64_t starve_us)
{
    if (since(sequence->arrived_us, now_us) >= starve_us)
        sequence->promoted = true;
}

static uint64_t quantum_us(uint32_t level)
{
    return (uint64_t)MLFQ_QUANTUM_US << level;
}

static uint64_t mlfq_key(const struct sequence *sequence)
{
    return sequence->level * 2 + is_new(sequence);
}

static void mlfq_came(struct sequence *sequence, const struct cost_model *cost)
{
    double first_us =
        sequence->plan == PLAN_RECEIVE
            ? cost_model_decode_us(cost, 1)
            : cost_model_prefill_us(cost, sequence->likely_cached, rows_left(sequence));
    sequence->level = 0;
    while (sequence->level + 1 < MLFQ_LEVELS && (double)quantum_us(sequence->level) < first_us)
        sequence->level++;
}

static void mlfq_ran(struct sequence *sequence, uint64_t took_us)
{
    sequence->used_us += took_us;
    if (sequence->used_us < quantum_us(sequence->level))
        return;
    sequence->used_us = 0;
    sequence->promoted = false;
    if (sequence->level + 1 < MLFQ_LEVELS)
        sequence->level++;
}

static void mlfq_age(struct sequence *sequence, uint64_t now_us, uint64_t starve_us)
{
    if (since(sequence->ran_us, now_us) < starve_us || sequence->promoted)
        return;
    sequence->level = 0;
    sequence->used_us = 0;
    sequence->promoted = true; /* for one quantum */
}

static const struct policy policies[POLICIES] = {
    [POLICY_FCFS] = {.name = "fcfs", .key = is_new},
    [POLICY_SRPF] = {.name = "srpf", .weighs_prompts = true, .key = srpf_key, .age = srpf_age},
    [POLICY_MLFQ] = {.name = "mlfq",
                     .weighs_prompts = true,
                     .key = mlfq_key,
                     .came = mlfq_came,
                     .ran = mlfq_ran,
                     .age = mlfq_age},
};

const struct policy *policy_of(enum policy_kind kind)
{
    ASSERT(kind < POLICIES);
    return &policies[kind];
}

uint64_t policy_rank(const struct policy *policy, const struct sequence *sequence)
{
    return sequence->promoted ? 0 : UINT64_C(1) << POLICY_KEY_BITS | policy->key(sequence);
}

/* ---------------------------------------------------------------- ranking */

static bool before(const struct ranked *a, const struct ranked *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->order < b->order;
}

/* Moves the entry at `at` down to its place. */
static void sink_down(struct ranking *ranking, uint32_t at)
{
    struct ranked moving = ranking->entries[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= ranking->count)
            break;
        if (child + 1 < ranking->count &&
            before(&ranking->entries[child + 1], &ranking->entries[child]))
            child++;
        if (!before(&ranking->entries[child], &moving))
            break;
        ranking->entries[at] = ranking->entries[child];
        at = child;
    }
    ranking->entries[at] = moving;
}

void ranking_build(struct ranking *ranking)
{
    for (uint32_t at = ranking->count / 2; at-- > 0;)
        sink_down(ranking, at);
}

struct sequence *ranking_take(struct ranking *ranking)
{
    if (ranking->count == 0)
        return NULL;
    struct sequence *first = ranking->entries[0].sequence;
    ranking->entries[0] = ranking->entries[--ranking->count];
    if (ranking->count)
        sink_down(ranking, 0);
    return first;
}

void ranking_put(struct ranking *ranking, struct ranked entry)
{
    uint32_t at = ranking->count++;
    for (; at > 0 && before(&entry, &ranking->entries[(at - 1) / 2]); at = (at - 1) / 2)
        ranking->entries[at] = ranking->entries[(at - 1) / 2];
    ranking->entries[at] = entry;
}
