/* What the modules of the scheduler share; nobody else includes this. */
#ifndef BATON_ENGINE_SCHED_SCHEDULER_STATE_H
#define BATON_ENGINE_SCHED_SCHEDULER_STATE_H

#include "common/base/u32.h"
#include "common/engine/sched/scheduler.h"

struct moves {
    struct block_move *list;
    uint32_t count;
};

struct scheduler {
    struct scheduler_config config;
    struct batch_limits limits;
    struct cost_model cost;
    const struct policy *policy;
    struct kv_blocks *blocks;
    struct prefix_cache *cache; /* NULL: none */
    uint64_t now_us;            /* as last told */
    uint64_t next_order;
    uint32_t count;
    uint32_t blocks_per_sequence; /* of the longest one */
    uint32_t *end_ids;
    uint32_t *block_ids;        /* [max_sequences, blocks_per_sequence] */
    struct sequence *sequences; /* [max_sequences]; tokens == NULL: an empty slot */
    struct sequence **empty;    /* [max_sequences]: the empty slots, max_sequences - count */
    struct sequence **buckets;  /* [bucket_count], a power of two: lists by hash of the key */
    uint32_t bucket_count;
    struct sequence **by_arrival; /* [max_sequences]: the live ones, first come first */
    struct ranked *scratch;       /* [BATCH_GROUPS, max_sequences] */

    /* admission.c: one round of scheduler_reserve */
    struct ranking queue; /* who waits; entries [max_sequences] */
    bool queue_is_built;
    bool online_waits;        /* of this round: one that is not offline didn't fit */
    uint32_t matches_left;    /* of this round: looks into the cache for who doesn't fit without */
    uint32_t growers;         /* who runs and may need a block soon */
    struct sequence *blocked; /* the first of the last round that didn't fit */

    /* preemption.c */
    uint32_t *slots; /* [host_slots]: free ones */
    uint32_t slot_count;
    const struct sequence *protected; /* preemption_protected */
    bool protected_is_known;          /* of this plan */
    uint32_t victim_class, victim_at; /* of this plan: where the search goes on */
    struct moves copies, swap_ins;    /* for the next plan */
    struct moves plan_copies, plan_swap_ins, plan_swap_outs;
    struct planned_rows *parts;          /* [max_batch_sequences] */
    const struct planned_rows **lacking; /* [max_batch_sequences]: growth.c, parts without blocks */
    struct step_plan plan;
    struct scheduler_load totals; /* what only counts up */
};

static inline uint32_t scheduler_blocks_for(const struct scheduler *s, uint32_t tokens)
{
    return divide_up(tokens, s->config.block_tokens);
}

static inline void scheduler_told(struct scheduler *s, uint64_t now_us)
{
    if (now_us > s->now_us)
        s->now_us = now_us;
}

/* Rows of it are computed here, step by step: it grows, and it can be preempted. */
static inline bool scheduler_runs(const struct sequence *sequence)
{
    return (sequence->state == SEQUENCE_PREFILL || sequence->state == SEQUENCE_DECODE) &&
           sequence->hold == KV_HOLD_USED;
}

/* Tokens that its blocks are reserved for: prompt and answer, as the router counts them, though the
 * last token's row isn't computed. */
static inline uint32_t scheduler_hold_tokens(const struct sequence *sequence)
{
    return sequence->token_capacity - 1;
}

/* A WAITING sequence of `spec` in an empty slot; takes over what it owns. STATUS_LIMIT: none is
 * empty, or no memory. */
enum status scheduler_slot_take(struct scheduler *s, const struct sequence_spec *spec,
                                struct sequence **sequence, struct error *err) WARN_UNUSED;
/* Frees what it owns: the slot is empty. */
void scheduler_slot_free(struct sequence *sequence);

#endif
