/* One request's answer as a worker computes it: its tokens, its KV blocks, its progress. PURE
 * data. */
#ifndef BATON_ENGINE_SCHED_SEQUENCE_H
#define BATON_ENGINE_SCHED_SEQUENCE_H

#include "common/base/domain/priority.h"
#include "common/base/domain/sampling.h"
#include "common/engine/sched/kv_blocks.h"
#include "common/engine/sched/prefix_cache.h"
#include "common/engine/sched/tenants.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum sequence_state {
    SEQUENCE_WAITING,  /* added, or preempted and dropped; too few blocks are free */
    SEQUENCE_RESERVED, /* has blocks, which a handoff fills -> DECODE by scheduler_admit */
    SEQUENCE_PREFILL,  /* has blocks, rows of the prompt are left -> HELD or DECODE */
    SEQUENCE_DECODE,   /* one row a step, until it finishes */
    SEQUENCE_HELD,     /* computed; keeps its blocks for a reader until it is removed */
    /* preempted: its rows are in host slots -> PREFILL or DECODE when blocks are free again */
    SEQUENCE_SWAPPED,
};

/* The work to do for a new sequence. */
enum sequence_plan {
    PLAN_HAND_OFF, /* compute the prompt, draw one token, hold the blocks (prefill worker) */
    PLAN_RECEIVE,  /* blocks come from another worker, then decode (decode worker) */
    PLAN_LOCAL,    /* compute the prompt and decode here */
};

#define PRIORITY_CLASSES 3
uint32_t priority_class(enum priority priority); /* 0 goes first */

struct sequence_key {
    uint64_t request;
    uint32_t attempt;
};

struct sequence {
    /* each step looks at these */
    enum sequence_state state;
    enum sequence_plan plan;
    enum kv_hold hold;     /* the purpose of its blocks, while it has any */
    uint32_t class_index;  /* by priority, 0 first */
    uint32_t token_count;  /* so far: prompt, then the answer */
    uint32_t prompt_count; /* leading tokens with prefill rows: prompt + emitted */
    /* Rows that are in the blocks, or will be when the steps in flight have ended. RESERVED: rows
     * of cached blocks. */
    uint32_t computed;
    /* Prompt rows that were cached when it came. Policies count with them while it waits. */
    uint32_t likely_cached;
    struct sequence *next_of_tenant; /* in the list of its tenant's, as of the last count */
    uint32_t block_count;
    uint32_t own_blocks; /* admission and preemption: its part of its tenant's, as last counted */
    uint64_t order;      /* by arrival: first come, first served */
    bool preempted; /* WAITING or SWAPPED after it ran: goes before new sequences of its class */
    bool arriving;  /* the next plan swaps it in; until then its blocks have no content */
    bool stalled;   /* in this plan: no block for its next row is free */
    bool waits;     /* set by the caller: no token can be drawn yet, so plans have no rows of it */
    /* Rows and swap-ins of it in steps in flight; tokens that those draw and that aren't known yet.
     * The last of these is sample `drawn_at` of its step. */
    uint32_t in_flight, pending, drawn_at;
    bool needs_token; /* its next row can only be computed once its last token is known here */
    bool may_draft;   /* its step may have rows of tokens that were only proposed */
    bool verifies;    /* such rows are in a step: no other ones before their tokens are known */
    bool removed;     /* while in flight: nothing but the blocks is left of it */
    bool promoted;    /* by the policy: it starved */
    uint32_t level;   /* mlfq: its queue */
    uint64_t ran_us;  /* when a step last had rows of it; before that: when it came */
    uint64_t arrived_us, used_us; /* used: of its level's quantum */
    struct tenant *tenant;
    uint64_t ranked_turn; /* its tenant's, in this round of admission */
    uint64_t deadline_us; /* UINT64_MAX: none */
    uint64_t due_us;      /* later, it is likely missed: at most deadline_us */
    bool likely_late;     /* as last judged: it would hardly meet its deadline */

    struct sequence_key key;
    struct sequence *next_in_bucket; /* scheduler_find */
    uint32_t *tokens;                /* owned: [token_capacity] */
    uint32_t token_capacity;
    uint32_t emitted_count; /* tokens of the answer among the prompt_count tokens: drawn before */
    uint32_t score_next;    /* the first prompt token with logprobs due; past its end: none */
    uint32_t *blocks; /* the scheduler's: block_count ids; while SWAPPED slot_count host slots */
    uint32_t slot_count;
    struct prefix_hash root;   /* its prompt's in the prefix cache */
    struct prefix_chain chain; /* its blocks that went into the prefix cache, or were tried */
    bool remembers;            /* its whole blocks go into the prefix cache */
    /* admission: the name of its first whole block, by which its siblings are found; 0: it has
     * none. */
    uint64_t head;
    bool is_listed; /* it is in the list of its head's bucket, and may compute its prompt */
    TAILQ_ENTRY(sequence) alike;
    /* It waits until the sequence of this slot and order has so many blocks in the cache. */
    struct sequence *awaits; /* NULL: it waits for none */
    uint64_t awaits_order;
    uint64_t awaits_us; /* since the first time that it waited so; UINT64_MAX: it never did */
    uint32_t awaits_blocks;
    struct sampling sampling; /* its biases are owned */
    uint32_t constraint;      /* the caller's number of the constraint on its answer; 0: none */
    bool complete; /* set by the caller before its last token: the constraint allows no more */
};

/* Returns true in the states that get rows: PREFILL and DECODE. */
static inline bool sequence_computes(const struct sequence *sequence)
{
    return sequence->state == SEQUENCE_PREFILL || sequence->state == SEQUENCE_DECODE;
}

/* Returns false if the answer ends by count with the tokens in flight. */
static inline bool sequence_goes_on(const struct sequence *sequence)
{
    return sequence->token_count + sequence->pending < sequence->token_capacity - 1;
}

/* Returns the answer's known tokens so far, drawn here or before. */
uint32_t sequence_answer_count(const struct sequence *sequence);

/* Returns the prompt's tokens, without tokens of the answer that were drawn before. */
uint32_t sequence_asked_count(const struct sequence *sequence);
/* Returns true if logprobs of prompt tokens are due. */
bool sequence_scores(const struct sequence *sequence);
/* Returns how many of the next row_count rows give logprobs of a prompt token. `first`: the first
 * such row, counted from the sequence's next row. */
uint32_t sequence_rows_to_score(const struct sequence *sequence, uint32_t row_count,
                                uint32_t *first);

/* Proposes at most `most` tokens for the places behind its known tokens and `skip` more. Fills
 * `drafts` [most], and returns how many. Prompt lookup (Saxena, 2023; Yang et al., Inference with
 * Reference, 2023): looks for the last place that has the same 3, otherwise 2, tokens as the end,
 * and takes the tokens that follow there, as if they went round. Looks back over at most
 * SEQUENCE_LOOKBACK tokens. */
#define SEQUENCE_LOOKBACK 8192
uint32_t sequence_lookup(const struct sequence *sequence, uint32_t skip, uint32_t most,
                         uint32_t *drafts);

/* Decides whether the answer ends with its last token, and why. `context`: tokens that the model
 * can hold. Checks in the order that a client cares for: the model's end, the request's stop ids,
 * the lengths. */
enum finish_reason sequence_finish(const struct sequence *sequence, const uint32_t *end_ids,
                                   uint32_t end_id_count, uint32_t context);

#endif
