/* What a worker computes next: its sequences, their blocks, and the plan of each step. PURE: the
 * live step loop and the simulator call the same functions; nothing here knows a model, a clock or
 * a thread. Time is handed in and never goes back.
 *
 * A step is: scheduler_reserve until NULL (who waits for blocks and now fits), scheduler_plan, the
 * engine side (which carries the plan out, in its order), scheduler_step_done, scheduler_rows_done
 * for every part.
 *
 * sequence_slots.c  who is here: by key, by arrival admission.c       who can ever fit, who gets
 * blocks next, and whom nobody may overtake any more batch_plan.c      the rows of one step:
 * decodes first, then prompts, by a policy (policy.c), as far as there is time beside decodes
 * growth.c          blocks for sequences that grow, and room for a higher class preemption.c
 * whom it costs, swap or recompute, and the moves of a step fork.c            one prompt, several
 * answers reuse.c           what sequences take from the prefix cache and give to it
 *
 * Owner: one thread. After scheduler_create only scheduler_add (it takes over the caller's token
 * array) and scheduler_fork allocate.
 */
#ifndef BATON_ENGINE_SCHED_SCHEDULER_H
#define BATON_ENGINE_SCHED_SCHEDULER_H

#include "common/base/domain/constraint_source.h"
#include "common/engine/sched/batch_plan.h"
#include "common/engine/sched/kv_blocks.h"
#include "common/engine/sched/policy.h"
#include "common/engine/sched/prefix_cache.h"
#include "common/engine/sched/sequence.h"

struct scheduler;

/* What is left 0 (but the first five) means what its comment says. */
struct scheduler_config {
    uint32_t block_tokens, block_count;
    uint32_t max_sequences;  /* in any state */
    uint32_t chunk_tokens;   /* prompt rows of one step at most */
    uint32_t context;        /* tokens of prompt + answer at most */
    const uint32_t *end_ids; /* copied */
    uint32_t end_id_count;

    uint64_t chunk_us;            /* that prompt rows take beside decodes; 0: any (batch_plan.h) */
    uint32_t max_batch_sequences; /* of one step; 0: max_sequences */
    uint32_t max_batch_tokens;    /* rows of one step; 0: max_batch_sequences + chunk_tokens */
    enum policy_kind policy;
    uint64_t starve_us;   /* the policy promotes who starved that long; 0: at once */
    uint64_t overtake_us; /* who fits goes before who waits for blocks for that long; 0: never */
    /* false: a sequence that decodes here holds room for its whole answer from the start, and
     * nobody is preempted. true: it holds room for its prompt and one token, grows block by block,
     * and can be preempted for it: the caller must carry out swaps. (Copies come of scheduler_fork
     * only.) */
    bool grow;
    uint32_t host_slots;    /* blocks of host memory for who is swapped out; 0: all recompute */
    struct cost_model cost; /* prefill_row_us 0: cost_model_default */
    /* true: whole blocks stay when their sequences end, and prompts that begin like them skip those
     * rows. The caller reads a RESERVED sequence's rows only from `computed` on: what is before may
     * be others'. */
    bool prefix_cache;
    enum eviction_policy eviction;
    struct eviction_cost eviction_cost;
    uint64_t table_seed;     /* random in a worker */
    uint32_t event_capacity; /* of the cache's events; 0: 1024 */
};

enum status scheduler_create(const struct scheduler_config *config,
                             struct scheduler **scheduler) WARN_UNUSED;
void scheduler_destroy(struct scheduler *scheduler);

struct sequence_spec {
    struct sequence_key key;
    enum sequence_plan plan;
    enum priority priority;
    uint64_t arrived_us; /* on the clock of now_us */
    uint32_t *
        /* malloc'ed: prompt + emitted; taken over on success, and so are the biases of
         * `sampling` */
        tokens;
    uint32_t token_count, emitted_count;
    struct sampling sampling;
    /* malloc'ed, NULL: none. Who adds it makes a number of it for the sequence: the scheduler takes
     * over no source. */
    struct constraint_source *constraint_source;
    uint32_t constraint;
    uint64_t tenant;         /* whose turn it is to have a constraint compiled; 0: nobody's */
    struct prefix_hash root; /* prefix_hash_root of model, numerics and tenant */
};
/* Frees what it owns, where nobody has taken it over. */
void sequence_spec_free(const struct sequence_spec *spec);

/* Queues a sequence for blocks. STATUS_INVALID: it can never fit, even alone and with its whole
 * answer (the sentence has the numbers). STATUS_LIMIT: the table is full. The key must be new (a
 * newer attempt has another key). */
enum status scheduler_add(struct scheduler *scheduler, const struct sequence_spec *spec,
                          struct error *err) WARN_UNUSED;

/* Gives blocks to the next one that waits and fits now; NULL when none does. Call until NULL. It is
 * then RESERVED (plan RECEIVE: blocks[0..block_count) may be written from elsewhere at once) or
 * PREFILL.
 *
 * Order: class, who was preempted, who has waited overtake_us (by arrival), the policy. Who doesn't
 * fit may be overtaken by those behind, until it has waited overtake_us (a preempted one: not at
 * all): then it has a reservation, and nobody of its class or below gets blocks before it. With
 * overtake_us 0 all have one, and stand in the policy's order: who starved first. Offline ones get
 * none while another waits. In `grow` a free block is left for each one that runs, and who was
 * preempted doesn't come back while one of a higher class waits. Preempted ones that fit are taken
 * back on the way and not returned: the caller knows them. */
struct sequence *scheduler_reserve(struct scheduler *scheduler, uint64_t now_us);

/* A RESERVED sequence's prompt has arrived: its first drawn token joins, and it decodes from the
 * next step on, unless that token ends it. */
enum finish_reason scheduler_admit(struct scheduler *scheduler, struct sequence *sequence,
                                   uint32_t first_token);

/* One more answer (n > 1) to the prompt of `parent`, which is computed here and not handed off, and
 * whose prompt is done. The child shares the whole blocks of all prompt rows but the last; a
 * partial block is copied (plan->copies); it computes the last row again, so that the engine draws
 * its first token like any other: one row, equal bytes. Its `sampling` (copied) differs from the
 * parent's at least in `choice`, or both answers are the same; it has no constraint. STATUS_LIMIT:
 * no room or no slot now, or the parent is preempted: add it like a new request, or later. */
enum status scheduler_fork(struct scheduler *scheduler, const struct sequence *parent,
                           struct sequence_key key, const struct sampling *sampling,
                           struct sequence **child, struct error *err) WARN_UNUSED;

/* Ends a sequence in any state: its blocks are free again, the struct is gone. Not between a plan
 * and its end. */
void scheduler_remove(struct scheduler *scheduler, struct sequence *sequence);
struct sequence *scheduler_find(struct scheduler *scheduler, struct sequence_key key);
struct sequence *scheduler_next(struct scheduler *scheduler, size_t *cursor); /* iteration */

/* One block's content goes from `from` to `to`; `sequence` owns the target (swap_outs: owned the
 * source). */
struct block_move {
    uint32_t from, to;
    struct sequence *sequence;
};
/* Carried out in this order, each list before the next: a block or slot that one list frees, a
 * later one may fill. */
struct step_plan {
    const struct block_move *copies;    /* block to block, for forks */
    const struct block_move *swap_outs; /* block to host slot */
    const struct block_move *swap_ins;  /* host slot to block */
    const struct planned_rows *parts;   /* rows, at most max_batch_sequences parts */
    uint32_t copy_count, swap_out_count, swap_in_count, part_count;
    bool freed; /* blocks were freed: who waits may fit now, without any event from outside */
};
/* The next step; valid until the next call. Nothing to do is part_count 0 and no moves; sleep only
 * if not `freed`, too. */
const struct step_plan *scheduler_plan(struct scheduler *scheduler, uint64_t now_us);

/* The engine needed took_us for the rows of the last plan (swap_us for its swaps): the policy
 * charges them, the cost model learns. Before the rows are told; optional. */
void scheduler_step_done(struct scheduler *scheduler, uint64_t took_us, uint64_t swap_us);

/* After the engine: the rows are in the blocks; `token` was drawn where the part samples (else
 * ignored). Returns why the sequence ended (it then is HELD until removed), or FINISH_NONE. A
 * HAND_OFF sequence is HELD after its token. */
enum finish_reason scheduler_rows_done(struct scheduler *scheduler, const struct planned_rows *part,
                                       uint32_t token);

/* It can't go on: its rows or its token could not be had. HELD until removed. */
void scheduler_fail(struct scheduler *scheduler, struct sequence *sequence);
/* What was computed so far may be wrong (the device failed, a number that is none): the prefix
 * cache forgets all of it, also what is held, and those that run add nothing to it any more. */
void scheduler_distrust(struct scheduler *scheduler);

struct scheduler_load {
    uint32_t waiting, running;
    uint32_t preempted; /* of the waiting ones: ran before; swapped out or to be computed again */
    uint64_t queued_tokens; /* prompt rows still to compute */
    uint32_t blocks[KV_BLOCK_STATES];
    uint32_t host_slots;           /* in use */
    uint64_t swapped_out, dropped; /* preemptions so far, by what was done */
    uint64_t dropped_rows;         /* rows that were thrown away by them */
};
struct scheduler_load scheduler_load(const struct scheduler *scheduler);
struct prefix_cache *scheduler_prefix_cache(struct scheduler *scheduler); /* NULL: none */
const struct kv_blocks *scheduler_blocks(const struct scheduler *scheduler);

#endif
