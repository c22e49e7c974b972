/* A request's settings of the sampler and of the end of its answer. PURE. The front door validates
 * them once. */
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
    /* Penalties lower the logits of tokens that occur: presence and frequency count the answer,
     * repetition counts prompt and answer. */
    float presence_penalty;  /* -2 .. 2: once for each token in the answer; 0: off */
    float frequency_penalty; /* -2 .. 2: for each occurrence in the answer; 0: off */
    /* 0.01 .. 100: divides positive logits, multiplies negative ones; 1: off */
    float repetition_penalty;
    uint32_t bias_count;
    const struct logit_bias *biases; /* [bias_count], ascending ids; not owned */
    uint64_t seed;                   /* the router chooses it if the client gave none */
    uint32_t choice;     /* index of the answer to its prompt (n > 1); answers draw apart */
    uint32_t max_tokens; /* limit of generated tokens, >= 1 */
    uint32_t min_tokens; /* no end id or stop id before this many tokens; <= max_tokens */
    bool ignore_eos;     /* the model's end ids are ordinary tokens; stop ids still end */
    /* return a hash of each drawn token's logits: for tests of byte equality */
    bool logits_hash;
    bool logprobs;         /* return the logprob of each drawn token, in the model's own logits */
    uint32_t top_logprobs; /* and of this many likeliest tokens: LOGPROBS_MAX_TOP at most */
    /* Return logprobs of the prompt's tokens, too, from index prompt_logprobs_from on. The first
     * token has none, because it follows nothing. */
    bool prompt_logprobs;
    uint32_t top_prompt_logprobs, prompt_logprobs_from; /* prompt_logprobs_from >= 1 */
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
    FINISH_COMPLETE, /* the constraint allows no further token */
};
const char *finish_reason_name(
    enum finish_reason reason); /* "stop" or "length" families: "eos", "stop_token", ... */

#endif
