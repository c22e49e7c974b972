/* One request's answer as a worker computes it: its tokens, its KV blocks, how far it is. PURE data. */
#ifndef BATON_ENGINE_SCHED_SEQUENCE_H
#define BATON_ENGINE_SCHED_SEQUENCE_H

#include "common/domain/sampling.h"

#include <stdbool.h>
#include <stdint.h>

enum sequence_state {
    SEQUENCE_WAITING,  /* added; not enough free blocks yet */
    SEQUENCE_RESERVED, /* blocks taken: a handoff fills them -> DECODE by scheduler_admit */
    SEQUENCE_PREFILL,  /* blocks taken, rows of the prompt still to compute -> HELD or DECODE */
    SEQUENCE_DECODE,   /* one row a step, until it finishes */
    SEQUENCE_HELD,     /* computed; its blocks wait for a reader, or for whoever removes it */
};

/* What is to be done with a new sequence. */
enum sequence_plan {
    PLAN_HAND_OFF, /* compute the prompt, draw one token, hold the blocks (prefill worker) */
    PLAN_RECEIVE,  /* blocks come from another worker, then decode (decode worker) */
    PLAN_LOCAL,    /* compute the prompt here and decode here */
};

struct sequence_key {
    uint64_t request;
    uint32_t attempt;
};

struct sequence {
    struct sequence_key key;
    enum sequence_plan plan;
    enum sequence_state state;
    uint64_t order;   /* of arrival: first come, first served */
    uint32_t *tokens; /* owned: prompt, then the answer */
    uint32_t token_count, token_capacity;
    uint32_t prompt_count;  /* leading tokens whose rows are prefill: prompt + emitted */
    uint32_t emitted_count; /* of them, tokens of the answer that were drawn before */
    uint32_t computed;      /* rows whose keys and values are in the blocks */
    struct sampling sampling;
    uint32_t *blocks; /* owned: block_count ids */
    uint32_t block_count;
};

/* Tokens of the answer so far, drawn here or before. */
uint32_t sequence_answer_count(const struct sequence *sequence);

/* Does the answer end with its last token? `context`: tokens that the model can hold. The order of the checks is the order
 * of what a client cares for: the model's end, its own stop ids, then the lengths. */
enum finish_reason sequence_finish(const struct sequence *sequence, const uint32_t *end_ids,
                                   uint32_t end_id_count, uint32_t context);

#endif
