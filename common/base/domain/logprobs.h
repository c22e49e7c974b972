/* What a request may be told of a token besides its id: the natural logarithm of its probability,
 * and of those that were likelier. Of the model's logits as they are, before temperature, bias,
 * penalties and bans. PURE data. */
#ifndef BATON_BASE_DOMAIN_LOGPROBS_H
#define BATON_BASE_DOMAIN_LOGPROBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOGPROBS_MAX_TOP 20
#define LOGPROB_FLOOR    (-9999.0f) /* nothing is below, -infinity neither */

struct token_logprobs {
    bool given; /* false: nobody asked, and nothing below counts */
    float logprob;
    uint32_t top_count; /* the likeliest tokens, descending; of equals, the lower id first */
    uint32_t top_ids[LOGPROBS_MAX_TOP];
    float top_logprobs[LOGPROBS_MAX_TOP];
};

/* Numbers that came in a message; the lists are copied. False: too many, not as many of the one as
 * of the other, or no numbers. Of the ids, token_logprobs_fit says whether a model has them. */
struct logprobs_lists {
    float logprob;
    const uint32_t *ids;
    const float *logprobs;
    size_t id_count, logprob_count;
};
bool token_logprobs_read(const struct logprobs_lists *lists, struct token_logprobs *out);
bool token_logprobs_fit(const struct token_logprobs *logprobs, uint32_t vocab);

#endif
