/* What a request asks of the sampler and of the end of its answer. PURE: validated once at the
 * front door. */
#ifndef BATON_BASE_DOMAIN_SAMPLING_H
#define BATON_BASE_DOMAIN_SAMPLING_H

#include "common/base/domain/logprobs.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SAMPLING_MAX_STOP_IDS     64
#define SAMPLING_MAX_TOKENS_LIMIT (1u << 20)
#define SAMPLING_MAX_BIASES       1024

/* Added to a token's logit; -100: it can't be drawn. */
struct logit_bias {
    uint32_t id;
    float bias; /* -100 .. 100 */
};

struct sampling {
    float temperature; /* 0: greedy; at most 100 */
    uint32_t top_k;    /* 0: off */
    float top_p;       /* (0, 1]; 1: off */
    float min_p;       /* [0, 1); 0: off */
    /* What tokens that are there already lose of their logits; of the answer's, and of prompt and
     * answer. */
    float presence_penalty;  /* -2 .. 2: once for each that is in the answer; 0: off */
    float frequency_penalty; /* -2 .. 2: for each time that it is; 0: off */
    float
        /* 0.01 .. 100: positive ones are divided, negative multiplied; 1: off */
        repetition_penalty;
    uint32_t bias_count;
    const struct logit_bias *biases; /* [bias_count], ascending ids; of whoever owns this struct */
    uint64_t seed;                   /* minted by the router where the client gave none */
    uint32_t choice;       /* which answer to its prompt (n > 1), 0 first: they draw apart */
    uint32_t max_tokens;   /* generated tokens at most, >= 1 */
    uint32_t min_tokens;   /* end ids and stop ids can't be drawn before; <= max_tokens */
    bool ignore_eos;       /* the model's end ids are ordinary tokens; stop ids still end */
    bool logits_hash;      /* of each drawn token's row of logits: for tests of byte equality */
    bool logprobs;         /* of each drawn token, in the model's own logits */
    uint32_t top_logprobs; /* and of the likeliest: LOGPROBS_MAX_TOP at most */
    /* Of the prompt's tokens, too, from that at prompt_logprobs_from on: not of the first, which
     * follows nothing. */
    bool prompt_logprobs;
    uint32_t top_prompt_logprobs, prompt_logprobs_from; /* the latter at least 1 */
    uint32_t stop_id_count;
    uint32_t stop_ids[SAMPLING_MAX_STOP_IDS]; /* end the answer; not part of its text */
};

/* Library defaults: temperature 1, top_p 1, everything else off, max_tokens 16. */
struct sampling sampling_default(void);

/* STATUS_INVALID and a sentence that names each wrong field, its range and what was given. */
enum status sampling_validate(const struct sampling *sampling, struct error *err) WARN_UNUSED;

enum finish_reason {
    FINISH_NONE = 0,
    FINISH_EOS,         /* the model ended */
    FINISH_STOP_TOKEN,  /* a stop id of the request */
    FINISH_STOP_STRING, /* a stop string of the request (decided by the router) */
    FINISH_MAX_TOKENS,
    FINISH_CONTEXT,  /* the model's context is full */
    FINISH_COMPLETE, /* the constraint lets nothing follow */
};
const char *finish_reason_name(
    enum finish_reason reason); /* "stop" or "length" families: "eos", "stop_token", ... */

#endif
