/* Log probabilities of a token: the natural logarithm of its probability, and those of likelier
 * tokens. They come from the model's logits before temperature, bias, penalties and bans. PURE
 * data. */
#ifndef BATON_BASE_DOMAIN_LOGPROBS_H
#define BATON_BASE_DOMAIN_LOGPROBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOGPROBS_MAX_TOP 20
#define LOGPROB_FLOOR    (-9999.0f) /* the least value, for -infinity too */

struct token_logprobs {
    bool given; /* false: not asked for; the other fields don't count */
    float logprob;
    uint32_t top_count; /* the likeliest tokens, descending; the lower id first among equals */
    uint32_t top_ids[LOGPROBS_MAX_TOP];
    float top_logprobs[LOGPROBS_MAX_TOP];
};

/* Log probabilities as they came in a message. token_logprobs_read copies the lists. False: too
 * many, lists of different lengths, or values that aren't log probabilities. token_logprobs_fit
 * returns whether all ids are below `vocab`. */
struct logprobs_lists {
    float logprob;
    const uint32_t *ids;
    const float *logprobs;
    size_t id_count, logprob_count;
};
bool token_logprobs_read(const struct logprobs_lists *lists, struct token_logprobs *out);
bool token_logprobs_fit(const struct token_logprobs *logprobs, uint32_t vocab);

#endif
