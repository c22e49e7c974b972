/* Functions of one row of logits: its hash, the edits that a request asks for, and
 * logprobs. PURE: IEEE operations in one fixed order, so that equal rows give equal bits on every
 * machine.
 *
 * Edits, in the order of vLLM, each in fp32:
 *   bias                logit += bias; a bias of -100 or less: -infinity.
 *   repetition_penalty  tokens of prompt or answer: a positive logit is divided by it, another
 *                       multiplied.
 *   frequency_penalty   tokens of the answer: subtracted as often as they are in it.
 *   presence_penalty    tokens of the answer: subtracted once.
 * No counts are kept between draws. Penalties count the tokens so far, which a sequence has in any
 * case, wherever it runs. */
#ifndef BATON_ENGINE_MODEL_LOGITS_H
#define BATON_ENGINE_MODEL_LOGITS_H

#include "common/base/domain/logprobs.h"
#include "common/base/domain/sampling.h"
#include "common/base/status.h"

#include <stddef.h>

/* A 64-bit fingerprint of logits[0 .. count), so that "the same bytes" can be checked token by
 * token without moving the row. Rows with equal bits have equal hashes; 0 and -0 differ. No
 * protection against a row that an attacker chooses. */
uint64_t logits_hash(const float *logits, size_t count);

struct logit_history {
    const uint32_t *tokens; /* [count] prompt and answer; ids >= vocab are passed over */
    uint32_t count, answer_count;
};
/* logits: [vocab] */
void logit_edits_bias(float *logits, uint32_t vocab, const struct sampling *sampling);
bool logit_edits_penalizes(const struct sampling *sampling);
/* counts: [vocab], all zero before and after. */
void logit_edits_penalize(float *logits, uint32_t vocab, uint32_t *counts,
                          const struct sampling *sampling, const struct logit_history *history);

/* The logprobs (log-softmax) of `token` and of the top_count likeliest tokens. exp in fp32, the sum
 * in fp64 in 16 lanes of ids, its logarithm in fp64. logits: [vocab]; token < vocab; top_count <=
 * LOGPROBS_MAX_TOP (a smaller vocabulary: all of it). STATUS_INTERNAL: one is NaN or +infinity, or
 * all are -infinity. */
enum status logprobs_of(const float *logits, uint32_t vocab, uint32_t token, uint32_t top_count,
                        struct token_logprobs *out) WARN_UNUSED;

#endif
