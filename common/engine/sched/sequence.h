/* One request's answer as a worker computes it: its tokens, its KV blocks, how far it is. PURE
 * data. */
#ifndef BATON_ENGINE_SCHED_SEQUENCE_H
#define BATON_ENGINE_SCHED_SEQUENCE_H

#include "common/base/domain/priority.h"
#include "common/base/domain/sampling.h"
#include "common/engine/sched/kv_blocks.h"
#include "common/engine/sched/prefix_cache.h"

#include <stdbool.h>
#include <stdint.h>

enum sequence_state {
    SEQUENCE_WAITING,  /* added, or preempted and dropped; not enough free blocks yet */
    SEQUENCE_RESERVED, /* blocks taken: a handoff fills them -> DECODE by scheduler_admit */
    SEQUENCE_PREFILL,  /* blocks taken, rows of the prompt still to compute -> HELD or DECODE */
    SEQUENCE_DECODE,   /* one row a step, until it finishes */
    SEQUENCE_HELD,     /* computed; its blocks wait for a reader, or for whoever removes it */
    /* preempted: its rows lie in host slots -> PREFILL or DECODE when there is room again */
    SEQUENCE_SWAPPED,
};

/* What is to be done with a new sequence. */
enum sequence_plan {
    PLAN_HAND_OFF, /* compute the prompt, draw one token, hold the blocks (prefill worker) */
    PLAN_RECEIVE,  /* blocks come from another worker, then decode (decode worker) */
    PLAN_LOCAL,    /* compute the prompt here and decode here */
};

#define PRIORITY_CLASSES 3
uint32_t priority_class(enum priority priority); /* 0 first */

struct sequence_key {
    uint64_t request;
    uint32_t attempt;
};

struct sequence {
    /* what each step looks at */
    enum sequence_state state;
    enum sequence_plan plan;
    enum kv_hold hold;     /* of its blocks, while it has any */
    uint32_t class_index;  /* by priority, 0 first */
    uint32_t token_count;  /* so far: prompt, then the answer */
    uint32_t prompt_count; /* leading tokens whose rows are prefill: prompt + emitted */
    uint32_t computed;     /* rows that are in the blocks; RESERVED: those of cached blocks */
    uint32_t
        /* of its prompt, when it came: what policies reckon with while it waits for blocks */
        likely_cached;
    uint32_t block_count;
    uint64_t order; /* of arrival: first come, first served */
    bool preempted; /* WAITING or SWAPPED after it ran: it goes before new ones of its class */
    bool arriving;  /* the next step's plan swaps it in: until then its blocks have no content */
    bool stalled;   /* in this plan: no block for its next row is to be had */
    /* the caller's word: no token can be drawn for it yet, so it has no rows in this plan */
    bool waits;
    bool promoted;                /* by the policy: it starved */
    uint32_t level;               /* skip-join MLFQ: its queue */
    uint64_t ran_us;              /* when a step last had rows of it; before: when it came */
    uint64_t arrived_us, used_us; /* used: of its level's quantum */

    struct sequence_key key;
    struct sequence *next_in_bucket; /* scheduler_find */
    uint32_t *tokens;                /* owned: [token_capacity] */
    uint32_t token_capacity;
    uint32_t emitted_count; /* of the prompt_count tokens, those of the answer drawn before */
    /* of the prompt's tokens, the first whose logprobs are still to be told; from its end on:
     * none */
    uint32_t score_next;
    uint32_t *blocks; /* the scheduler's: block_count ids; while SWAPPED slot_count host slots */
    uint32_t slot_count;
    struct prefix_hash root;   /* of its prompt in the prefix cache */
    struct prefix_chain chain; /* of its blocks that were remembered, or tried */
    bool remembers;            /* its whole blocks go to the prefix cache */
    struct sampling sampling;  /* its biases are owned */
    uint32_t constraint;       /* the caller's number of what its answer must look like; 0: none */
    /* the caller's word, before its last token is told: the constraint lets nothing follow */
    bool complete;
};

/* Tokens of the answer so far, drawn here or before. */
uint32_t sequence_answer_count(const struct sequence *sequence);

/* Tokens of the prompt, without those of the answer that were drawn before. */
uint32_t sequence_asked_count(const struct sequence *sequence);
bool sequence_scores(const struct sequence *sequence);
/* Of the next row_count rows, those that tell logprobs of a prompt's token: from row *first on,
 * counted in them. */
uint32_t sequence_rows_to_score(const struct sequence *sequence, uint32_t row_count,
                                uint32_t *first);

/* Does the answer end with its last token? `context`: tokens that the model can hold. The order of
 * the checks is the order of what a client cares for: the model's end, its own stop ids, then the
 * lengths. */
enum finish_reason sequence_finish(const struct sequence *sequence, const uint32_t *end_ids,
                                   uint32_t end_id_count, uint32_t context);

#endif
