#include "common/base/assert.h"
#include "common/base/rng.h"
#include "common/engine/sched/admission.h"
#include "common/engine/sched/preemption.h"
#include "common/engine/sched/reuse.h"

#include <stdlib.h>
#include <string.h>

static struct sequence **bucket_of(const struct scheduler *s, struct sequence_key key)
{
    uint64_t hash = rng_at(s->config.table_seed, key.request, key.attempt);
    return &s->buckets[hash & (s->bucket_count - 1)];
}

void sequence_spec_free(const struct sequence_spec *spec)
{
    free(spec->tokens);
    free((void *)spec->sampling.biases);
    free(spec->constraint_source);
}

void scheduler_slot_free(struct sequence *sequence)
{
    free(sequence->tokens);
    free((void *)sequence->sampling.biases);
    sequence->tokens = NULL;
    sequence->sampling.biases = NULL;
}

/* What another worker computes, it tells. */
static uint32_t scores_from(const struct sequence_spec *spec)
{
    bool here = spec->plan != PLAN_RECEIVE && spec->sampling.prompt_logprobs;
    return here ? spec->sampling.prompt_logprobs_from : UINT32_MAX;
}

enum status scheduler_slot_take(struct scheduler *s, const struct sequence_spec *spec,
                                struct sequence **out, struct error *err)
{
    if (s->count == s->config.max_sequences)
        return error_set(err, STATUS_LIMIT, "all %u sequence slots of the worker are in use",
                         s->config.max_sequences);
    uint32_t capacity = admission_hold_tokens(spec, s->config.context) + 1;
    uint32_t *tokens = realloc(spec->tokens, capacity * sizeof *tokens);
    if (!tokens)
        return error_set(err, STATUS_LIMIT, "out of memory for %u tokens", capacity);
    struct sequence *slot = s->empty[s->config.max_sequences - 1 - s->count];
    struct sequence **bucket = bucket_of(s, spec->key);
    uint32_t *blocks = slot->blocks;
    *slot = (struct sequence){.key = spec->key,
                              .next_in_bucket = *bucket,
                              .plan = spec->plan,
                              .state = SEQUENCE_WAITING,
                              .class_index = priority_class(spec->priority),
                              .order = s->next_order++,
                              .tokens = tokens,
                              .token_count = spec->token_count,
                              .token_capacity = capacity,
                              .prompt_count = spec->token_count,
                              .emitted_count = spec->emitted_count,
                              .arrived_us = spec->arrived_us,
                              .ran_us = spec->arrived_us,
                              .root = spec->root,
                              .score_next = scores_from(spec),
                              .sampling = spec->sampling,
                              .constraint = spec->constraint,
                              .blocks = blocks};
    if (s->policy->weighs_prompts)
        slot->likely_cached = reuse_match(s, slot).blocks * s->config.block_tokens;
    if (s->policy->came)
        s->policy->came(slot, &s->cost);
    s->by_arrival[s->count++] = slot;
    *bucket = slot;
    admission_end_round(s);
    *out = slot;
    return STATUS_OK;
}

/* Its place in by_arrival, which is sorted by order. */
static uint32_t place_of(const struct scheduler *s, const struct sequence *sequence)
{
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->by_arrival[middle]->order < sequence->order)
            low = middle + 1;
        else
            high = middle;
    }
    ASSERT(low < s->count && s->by_arrival[low] == sequence);
    return low;
}

static void take_from_bucket(struct scheduler *s, const struct sequence *sequence)
{
    struct sequence **link = bucket_of(s, sequence->key);
    while (*link != sequence)
        link = &(*link)->next_in_bucket;
    *link = sequence->next_in_bucket;
}

void scheduler_remove(struct scheduler *s, struct sequence *sequence)
{
    uint32_t at = place_of(s, sequence);
    memmove(s->by_arrival + at, s->by_arrival + at + 1,
            (s->count - at - 1) * sizeof *s->by_arrival);
    s->count--;
    s->empty[s->config.max_sequences - 1 - s->count] = sequence;
    take_from_bucket(s, sequence);
    preemption_forget(s, sequence);
    kv_blocks_give(s->blocks, sequence->blocks, sequence->block_count, sequence->hold);
    scheduler_slot_free(sequence);
    sequence->block_count = sequence->slot_count = 0;
    if (s->blocked == sequence)
        s->blocked = NULL;
    admission_end_round(s);
}

struct sequence *scheduler_find(struct scheduler *s, struct sequence_key key)
{
    struct sequence *sequence = *bucket_of(s, key);
    while (sequence &&
           (sequence->key.request != key.request || sequence->key.attempt != key.attempt))
        sequence = sequence->next_in_bucket;
    return sequence;
}

struct sequence *scheduler_next(struct scheduler *s, size_t *cursor)
{
    return *cursor < s->count ? s->by_arrival[(*cursor)++] : NULL;
}
