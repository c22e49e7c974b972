/* log-softmax of one row of logits, at the tokens that somebody asks about. PURE: a function of the
 * logits, by IEEE operations in one fixed order: exp in fp32, their sum in fp64 in 16 lanes of ids,
 * its logarithm in fp64. */
#ifndef BATON_ENGINE_MODEL_LOGPROBS_H
#define BATON_ENGINE_MODEL_LOGPROBS_H

#include "common/base/domain/logprobs.h"
#include "common/base/status.h"

/* logits: [vocab], token < vocab, top_count <= LOGPROBS_MAX_TOP (of a smaller vocabulary, all).
 * STATUS_INTERNAL if one is NaN or +infinity, or all are -infinity. */
enum status logprobs_of(const float *logits, uint32_t vocab, uint32_t token, uint32_t top_count,
                        struct token_logprobs *out) WARN_UNUSED;

#endif
