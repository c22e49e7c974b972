/* What a request changes about a row of logits before a token is drawn: bias, then penalties (the
 * order of vLLM). PURE, fp32, each token's operations in one fixed order. Nothing is counted along:
 * what penalties need of the past is looked up in the tokens so far, which a sequence has in any
 * case, wherever it runs and however it got there.
 *
 * bias                 logit += bias; of -100 and below: -infinity. repetition_penalty   tokens of
 * prompt or answer: a positive logit is divided by it, another multiplied. frequency_penalty
 * tokens of the answer: times how often they are in it, subtracted. presence_penalty     tokens of
 * the answer: subtracted once. */
#ifndef BATON_ENGINE_MODEL_LOGIT_EDITS_H
#define BATON_ENGINE_MODEL_LOGIT_EDITS_H

#include "common/base/domain/sampling.h"

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

#endif
