/* The state of the scheduler and the functions that its four files share. scheduler.c keeps the
 * sequences and plans steps, admission.c gives blocks, preemption.c takes them back, deadline.c
 * judges which sequences are too late. Only these files include it. */
#ifndef BATON_ENGINE_SCHED_SCHEDULER_STATE_H
#define BATON_ENGINE_SCHED_SCHEDULER_STATE_H

#include "common/base/u32.h"
#include "common/engine/sched/scheduler.h"

struct moves {
    struct block_move *list; /* [host_slots] */
    uint32_t count;
};

/* A plan, and all that belongs to it until its step has ended. */
struct planned {
    struct step_plan plan;      /* the first member: its address is the plan's */
    struct planned_rows *parts; /* [max_batch_sequences] */
    struct moves swap_ins, swap_outs;
    bool in_flight;
    uint32_t *replaced; /* [block_count]: held until then, since its rows may read them */
    uint32_t replaced_count;
};

struct scheduler {
    struct scheduler_config config;
    struct batch_limits limits;
    struct cost_model cost;
    const struct policy *policy;
    struct kv_blocks *blocks;
    struct prefix_cache *cache; /* NULL: none */
    uint64_t now_us;            /* the latest that the caller handed in */
    uint64_t next_order;
    struct tenants tenants;
    uint32_t count;
    uint32_t blocks_per_sequence; /* the longest sequence's */
    uint32_t *end_ids;
    uint32_t *block_ids; /* [sequence_slots, blocks_per_sequence] */
    /* [sequence_slots]: those that are here, and removed ones in flight. tokens == NULL: an empty
     * slot. */
    struct sequence *sequences;
    struct sequence **empty; /* [sequence_slots]: the empty slots */
    uint32_t sequence_slots, empty_count;
    struct sequence **buckets; /* [bucket_count], a power of two: lists by hash of the key */
    uint32_t bucket_count;
    TAILQ_HEAD(alike, sequence) * heads; /* [bucket_count]: lists by `head` */
    struct sequence **by_arrival;        /* [max_sequences]: the live ones, first come first */
    struct ranked *scratch;              /* [BATCH_GROUPS, max_sequences] */
    const struct planned_rows **lacking; /* [max_batch_sequences]: parts without enough blocks */
    struct planned plans[2];             /* [1]: only if the next step is planned in flight */
    struct planned *made;                /* the last plan, or the one that is being made */
    const struct planned *flying;        /* the step in flight while that is made; NULL: none */
    struct scheduler_load totals;        /* its fields that only count up */

    /* admission.c: one round of scheduler_reserve */
    struct ranking queue; /* waiting sequences; entries [max_sequences] */
    bool queue_is_built;
    bool had_turns;    /* in this round a tenant had a turn, beside others */
    bool online_waits; /* in this round a sequence that is not offline didn't fit */
    uint32_t
        matches_left; /* in this round: lookups for sequences that fit only with cached blocks */
    uint32_t growers; /* sequences that run and may need a block soon */
    struct sequence *blocked; /* the first of the last round that didn't fit */
    uint64_t wake_us;         /* in this round: then one waits for its sibling no longer */

    /* preemption.c */
    uint32_t *slots;           /* [host_slots]: free ones */
    uint64_t *counted, counts; /* [block_count]: the last of `counts` that met the block */
    uint32_t slot_count;
    const struct sequence *protected; /* in this plan, once victims_are_known */
    bool victims_are_known;           /* `protected`, and the blocks of each tenant */
    bool victims_of_all; /* the search: also of tenants that hold no more than their part */
    uint32_t victim_class, victim_at; /* the search for victims goes on here */
    struct moves swap_ins;            /* for the next plan */

    /* deadline.c */
    uint32_t deadline_count; /* sequences with a deadline */
    uint32_t missed_at;      /* the search goes on here */
    uint64_t search_us;      /* no search before */
    /* Measured steps with answers in them: the moving average, and the fastest of late. */
    double step_us, fast_step_us;
    /* Measured steps with rows of prompts, and with answers in them; at most MEASURED_STEPS. */
    uint32_t prompt_steps, answer_steps;
};

static inline uint32_t scheduler_blocks_for(const struct scheduler *s, uint32_t tokens)
{
    return divide_up(tokens, s->config.block_tokens);
}

static inline void scheduler_set_now(struct scheduler *s, uint64_t now_us)
{
    if (now_us > s->now_us)
        s->now_us = now_us;
}

/* Returns true if its rows are computed here step by step: it grows, and can be preempted. */
static inline bool scheduler_runs(const struct sequence *sequence)
{
    return sequence_computes(sequence) && sequence->hold == KV_HOLD_USED;
}

static inline bool scheduler_waits(const struct sequence *sequence)
{
    return sequence->state == SEQUENCE_WAITING || sequence->state == SEQUENCE_SWAPPED;
}

/* --- admission.c --- */

/* STATUS_INVALID, with the numbers: the sequence would not fit even alone on the worker. */
enum status admission_check(const struct scheduler *s, const struct sequence_spec *spec,
                            struct error *err) WARN_UNUSED;
/* Returns the tokens that the sequence's blocks must hold at its end. */
uint32_t admission_hold_tokens(const struct sequence_spec *spec, uint32_t context);
/* Returns the cached blocks of its prompt, for a sequence without blocks that is computed from its
 * first row on. */
struct prefix_match admission_match(const struct scheduler *s, const struct sequence *sequence);
/* Returns the blocks that it needs to begin, or to go on after a preemption. */
uint32_t admission_need(const struct scheduler *s, const struct sequence *sequence);
/* Returns how many blocks are free, or can be freed by the prefix cache. */
uint32_t admission_available(const struct scheduler *s);
/* Evicts until `count` blocks are free. False: there are fewer. */
bool admission_make_free(struct scheduler *s, uint32_t count);
/* Makes `need` blocks free if, with `grow`, one more is left (free or cached) for each sequence
 * that runs. */
bool admission_make_room(struct scheduler *s, uint32_t need);
/* Appends `count` blocks to the sequence's. They are free (admission_make_free). */
void admission_take(struct scheduler *s, struct sequence *sequence, uint32_t count);
/* Its siblings don't find it any more. */
void admission_unlist(struct scheduler *s, struct sequence *sequence);
/* Something changed: the next scheduler_reserve begins a new round. */
void admission_end_round(struct scheduler *s);
/* Counts the blocks that each tenant holds. One that several sequences of a tenant share counts
 * once, with the first that came. */
void admission_count_blocks(struct scheduler *s);

/* --- preemption.c --- */

/* Gives a SWAPPED sequence `count` blocks. The next plan fills them from its slots. */
void preemption_swap_in(struct scheduler *s, struct sequence *sequence, uint32_t count);
/* The moves of a plan are done: the slots that it emptied are free. */
void preemption_end_moves(struct scheduler *s, struct planned *planned);
/* Begins the plan s->made: the swap-ins so far become its swap-ins. */
void preemption_begin_plan(struct scheduler *s);
/* Gives each part of the plan blocks for its rows, if need be by preempting. False: some parts have
 * none, or their sequences were preempted; the rows must be chosen again without them. Takes no
 * blocks from others while a step is in flight: the plan then asks to drain. */
bool preemption_find_blocks(struct scheduler *s);
/* Marks sequences that decode and lack a block as stalled; !mark: clears all marks. A stalled one
 * must take no place in the batch: a sequence that only needs rows, and pins the blocks that the
 * stalled one lacks, would wait for that place. */
void preemption_mark_stalled(struct scheduler *s, bool mark);
/* Preempts lower classes for the first sequence that waits, if that makes enough room. It gets the
 * blocks at the next scheduler_reserve, after they were swapped out. */
void preemption_for_waiting(struct scheduler *s);
/* Ends a plan: puts its moves into it. Blocks that it swaps in have content from now on. */
void preemption_end_plan(struct scheduler *s);
/* The sequence ends: its moves don't happen, its slots are free. */
void preemption_forget(struct scheduler *s, const struct sequence *sequence);

/* --- deadline.c --- */

/* A step with `decodes` answers in it, and with rows of prompts or not, took so long. */
void deadline_learn_step(struct scheduler *s, bool has_prompts, uint32_t decodes, uint64_t took_us);
/* Returns true if a sequence that waits, or has rows of its prompt to compute, would hardly meet
 * the deadline that it has, if it went on now. */
bool deadline_is_likely_missed(const struct scheduler *s, const struct sequence *sequence);
/* Judges the prompts that have blocks and are not computed yet. */
void deadline_judge_prompts(struct scheduler *s);

#endif
