#include "common/engine/sched/scheduler.h"

#include "common/base/assert.h"
#include "common/engine/sched/admission.h"
#include "common/engine/sched/growth.h"
#include "common/engine/sched/preemption.h"
#include "common/engine/sched/reuse.h"

#include <stdlib.h>
#include <string.h>

#define EVENT_CAPACITY 1024

static void settle_config(struct scheduler *s)
{
    struct scheduler_config *config = &s->config;
    struct batch_limits *limits = &s->limits;
    limits->chunk_tokens = config->chunk_tokens;
    limits->chunk_us = config->chunk_us;
    limits->max_batch_sequences =
        config->max_batch_sequences && config->max_batch_sequences < config->max_sequences
            ? config->max_batch_sequences
            : config->max_sequences;
    limits->max_batch_tokens = config->max_batch_tokens
                                   ? config->max_batch_tokens
                                   : limits->max_batch_sequences + config->chunk_tokens;
    s->cost = config->cost.prefill_row_us > 0 ? config->cost : cost_model_default();
    s->policy = policy_of(config->policy);
    s->blocks_per_sequence = scheduler_blocks_for(s, config->context);
    for (s->bucket_count = 1; s->bucket_count < config->max_sequences;)
        s->bucket_count *= 2;
}

static bool open_cache(struct scheduler *s)
{
    struct prefix_cache_config config = {
        .blocks = s->blocks,
        .block_tokens = s->config.block_tokens,
        .policy = s->config.eviction,
        .cost = s->config.eviction_cost,
        .table_seed = s->config.table_seed,
        .event_capacity = s->config.event_capacity ? s->config.event_capacity : EVENT_CAPACITY};
    return !s->config.prefix_cache || prefix_cache_create(&config, &s->cache) == STATUS_OK;
}

static bool allocate(struct scheduler *s)
{
    size_t n = s->config.max_sequences, slots = s->config.host_slots + (size_t)1;
    s->sequences = calloc(n, sizeof *s->sequences);
    s->empty = calloc(n, sizeof *s->empty);
    s->buckets = calloc(s->bucket_count, sizeof *s->buckets);
    s->by_arrival = calloc(n, sizeof *s->by_arrival);
    s->scratch = calloc(BATCH_GROUPS * n, sizeof *s->scratch);
    s->queue.entries = calloc(n, sizeof *s->queue.entries);
    s->parts = calloc(s->limits.max_batch_sequences, sizeof *s->parts);
    s->lacking = calloc(s->limits.max_batch_sequences, sizeof *s->lacking);
    s->block_ids = calloc(n * s->blocks_per_sequence, sizeof *s->block_ids);
    s->end_ids = calloc(s->config.end_id_count + (size_t)1, sizeof *s->end_ids);
    s->slots = calloc(slots, sizeof *s->slots);
    s->copies.list = calloc(n, sizeof *s->copies.list);
    s->plan_copies.list = calloc(n, sizeof *s->plan_copies.list);
    s->swap_ins.list = calloc(slots, sizeof *s->swap_ins.list);
    s->plan_swap_ins.list = calloc(slots, sizeof *s->plan_swap_ins.list);
    s->plan_swap_outs.list = calloc(slots, sizeof *s->plan_swap_outs.list);
    return s->sequences && s->empty && s->buckets && s->by_arrival && s->scratch &&
           s->queue.entries && s->parts && s->lacking && s->block_ids && s->end_ids && s->slots &&
           s->copies.list && s->plan_copies.list && s->swap_ins.list && s->plan_swap_ins.list &&
           s->plan_swap_outs.list &&
           kv_blocks_create(s->config.block_count, &s->blocks) == STATUS_OK && open_cache(s);
}

enum status scheduler_create(const struct scheduler_config *config, struct scheduler **out)
{
    struct scheduler *s = calloc(1, sizeof *s);
    if (!s)
        return STATUS_LIMIT;
    s->config = *config;
    settle_config(s);
    if (!allocate(s)) {
        scheduler_destroy(s);
        return STATUS_LIMIT;
    }
    if (config->end_id_count)
        memcpy(s->end_ids, config->end_ids, config->end_id_count * sizeof *s->end_ids);
    s->config.end_ids = s->end_ids;
    for (uint32_t i = 0; i < config->max_sequences; i++) {
        s->sequences[i].blocks = s->block_ids + (size_t)i * s->blocks_per_sequence;
        s->empty[i] = &s->sequences[config->max_sequences - 1 - i];
    }
    for (uint32_t i = 0; i < config->host_slots; i++)
        s->slots[i] = config->host_slots - 1 - i;
    s->slot_count = config->host_slots;
    *out = s;
    return STATUS_OK;
}

void scheduler_destroy(struct scheduler *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; s->sequences && i < s->config.max_sequences; i++)
        scheduler_slot_free(&s->sequences[i]);
    prefix_cache_destroy(s->cache); /* before what it watches */
    kv_blocks_destroy(s->blocks);
    free(s->sequences);
    free(s->empty);
    free(s->buckets);
    free(s->by_arrival);
    free(s->scratch);
    free(s->queue.entries);
    free(s->parts);
    free(s->lacking);
    free(s->block_ids);
    free(s->end_ids);
    free(s->slots);
    free(s->copies.list);
    free(s->plan_copies.list);
    free(s->swap_ins.list);
    free(s->plan_swap_ins.list);
    free(s->plan_swap_outs.list);
    free(s);
}

enum status scheduler_add(struct scheduler *s, const struct sequence_spec *spec, struct error *err)
{
    struct sequence *sequence;
    TRY(admission_check(s, spec, err));
    return scheduler_slot_take(s, spec, &sequence, err);
}

static enum finish_reason finish_of(struct scheduler *s, struct sequence *sequence)
{
    enum finish_reason reason =
        sequence_finish(sequence, s->end_ids, s->config.end_id_count, s->config.context);
    if (reason != FINISH_NONE)
        sequence->state = SEQUENCE_HELD;
    return reason;
}

static void append_token(struct sequence *sequence, uint32_t token)
{
    ASSERT(sequence->token_count < sequence->token_capacity);
    sequence->tokens[sequence->token_count++] = token;
}

enum finish_reason scheduler_admit(struct scheduler *s, struct sequence *sequence,
                                   uint32_t first_token)
{
    ASSERT(sequence->state == SEQUENCE_RESERVED);
    kv_blocks_change(s->blocks, sequence->blocks, sequence->block_count, KV_HOLD_LANDING,
                     KV_HOLD_USED);
    sequence->hold = KV_HOLD_USED;
    sequence->computed = sequence->prompt_count;
    sequence->state = SEQUENCE_DECODE;
    sequence->ran_us = s->now_us;
    reuse_remember(s, sequence);
    append_token(sequence, first_token);
    admission_end_round(s);
    return finish_of(s, sequence);
}

static void age(struct scheduler *s)
{
    for (uint32_t i = 0; s->policy->age && i < s->count; i++) {
        struct sequence *sequence = s->by_arrival[i];
        if (sequence->state == SEQUENCE_PREFILL || sequence->state == SEQUENCE_DECODE)
            s->policy->age(sequence, s->now_us, s->config.starve_us);
    }
}

static void plan_parts(struct scheduler *s)
{
    s->plan.part_count =
        batch_plan(&s->limits, s->policy, &s->cost, s->by_arrival, s->count, s->scratch, s->parts);
}

/* What others may read is never written: it would be a wrong token. */
static void check_targets(const struct scheduler *s, const struct planned_rows *part)
{
    const struct sequence *sequence = part->sequence;
    uint32_t first = sequence->computed / s->config.block_tokens;
    uint32_t end = scheduler_blocks_for(s, sequence->computed + part->row_count);
    ASSERT(end <= sequence->block_count);
    for (uint32_t i = first; i < end; i++)
        ASSERT(kv_blocks_writable(s->blocks, sequence->blocks[i]));
}

const struct step_plan *scheduler_plan(struct scheduler *s, uint64_t now_us)
{
    scheduler_told(s, now_us);
    admission_end_round(s);
    preemption_begin_plan(s);
    age(s);
    s->plan = (struct step_plan){.parts = s->parts};
    plan_parts(s);
    if (!growth_for_parts(s)) {
        growth_mark_stalled(s, true);
        plan_parts(s);
        growth_mark_stalled(s, false);
    }
    if (s->config.grow)
        growth_for_class(s);
    preemption_end_plan(s);
    for (uint32_t i = 0; i < s->plan.part_count; i++) {
        check_targets(s, &s->parts[i]);
        s->parts[i].sequence->ran_us = s->now_us;
    }
    s->plan.copies = s->plan_copies.list;
    s->plan.copy_count = s->plan_copies.count;
    s->plan.swap_outs = s->plan_swap_outs.list;
    s->plan.swap_out_count = s->plan_swap_outs.count;
    s->plan.swap_ins = s->plan_swap_ins.list;
    s->plan.swap_in_count = s->plan_swap_ins.count;
    return &s->plan;
}

void scheduler_step_done(struct scheduler *s, uint64_t took_us, uint64_t swap_us)
{
    double prefill_us = 0;
    uint32_t decodes = 0;
    for (uint32_t i = 0; i < s->plan.part_count; i++) {
        const struct planned_rows *part = &s->parts[i];
        if (part->sequence->state == SEQUENCE_DECODE)
            decodes++;
        else
            prefill_us +=
                cost_model_prefill_us(&s->cost, part->sequence->computed, part->row_count);
        if (s->policy->ran)
            s->policy->ran(part->sequence, took_us);
    }
    if (s->plan.part_count)
        cost_model_learn_step(&s->cost, prefill_us, cost_model_decode_us(&s->cost, decodes),
                              (double)took_us);
    if (s->plan.swap_out_count + s->plan.swap_in_count)
        cost_model_learn_swap(&s->cost, s->plan.swap_out_count + s->plan.swap_in_count,
                              (double)swap_us);
}

enum finish_reason scheduler_rows_done(struct scheduler *s, const struct planned_rows *part,
                                       uint32_t token)
{
    struct sequence *sequence = part->sequence;
    sequence->computed += part->row_count;
    if (sequence->score_next <= sequence->computed)
        sequence->score_next = sequence->computed + 1;
    reuse_remember(s, sequence);
    if (!part->samples)
        return FINISH_NONE;
    append_token(sequence, token);
    if (sequence->state == SEQUENCE_PREFILL)
        sequence->state = sequence->plan == PLAN_HAND_OFF ? SEQUENCE_HELD : SEQUENCE_DECODE;
    return finish_of(s, sequence);
}

void scheduler_fail(struct scheduler *s, struct sequence *sequence)
{
    sequence->state = SEQUENCE_HELD;
    admission_end_round(s);
}

void scheduler_distrust(struct scheduler *s)
{
    if (!s->cache)
        return;
    prefix_cache_clear(s->cache);
    for (uint32_t i = 0; i < s->count; i++)
        reuse_stop(s->by_arrival[i]);
}

struct scheduler_load scheduler_load(const struct scheduler *s)
{
    struct scheduler_load load = s->totals;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct sequence *sequence = s->by_arrival[i];
        bool waits = sequence->state == SEQUENCE_WAITING || sequence->state == SEQUENCE_SWAPPED;
        load.waiting += waits;
        load.preempted += waits && sequence->preempted;
        load.running += sequence->state == SEQUENCE_PREFILL || sequence->state == SEQUENCE_DECODE;
        if (sequence->plan != PLAN_RECEIVE && (waits || sequence->state == SEQUENCE_PREFILL) &&
            sequence->prompt_count > sequence->computed)
            load.queued_tokens += sequence->prompt_count - sequence->computed;
    }
    for (int state = 0; state < KV_BLOCK_STATES; state++)
        load.blocks[state] = kv_blocks_count(s->blocks, (enum kv_block_state)state);
    load.host_slots = s->config.host_slots - s->slot_count;
    return load;
}

struct prefix_cache *scheduler_prefix_cache(struct scheduler *s)
{
    return s->cache;
}

const struct kv_blocks *scheduler_blocks(const struct scheduler *s)
{
    return s->blocks;
}
