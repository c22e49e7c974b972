/* How long answers get, learnt from the ones that ended: a distribution by model, prompt length and
 * max_tokens. PURE.
 *
 * The length of an answer that nothing cuts off is a random variable L >= 1. Its hazard is kept in
 * buckets of lengths, four an octave: P(L ends in the bucket | L reaches it), which is the life
 * table's (actuarial) form of Kaplan and Meier's estimator (JASA 1958). An answer that is still on
 * its way, or that max_tokens or its client cut off at n tokens, is censored: it counts as having
 * passed the buckets below n and a part of the bucket of n, and as an end nowhere. So limits don't
 * make answers look short, and answers that become longer are seen while they are drawn: the first
 * ones to end are short. This takes cuts as independent of what would have followed, given prompt
 * length and max_tokens.
 *
 * Cells: (model, prompt bucket, max_tokens bucket). A cell with few answers leans on the one of
 * (model, prompt bucket), that on the model's, that on a constant hazard per token, which is the
 * model's ends by its tokens (one answer of ANSWER_PRIOR_TOKENS is added). Each parent counts as
 * ANSWER_PRIOR_WEIGHT answers in each bucket. All forget: an answer's weight halves with each
 * ANSWER_HALF_LIFE later ones of its model, so a cell that few come to leans on its parents again.
 *
 * Memory: about 110 KiB a model. Time: O(buckets), 76. Owner: one thread. */
#ifndef BATON_ROUTER_PLANNER_ANSWER_LENGTH_H
#define BATON_ROUTER_PLANNER_ANSWER_LENGTH_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ANSWER_PRIOR_TOKENS 256
#define ANSWER_PRIOR_WEIGHT 16
#define ANSWER_HALF_LIFE    200
#define ANSWER_KNOWN        16

struct answer_lengths;

/* An answer, as far as its length depends on it. */
struct answer_ask {
    size_t model;
    uint64_t prompt_tokens;
    uint32_t max_tokens; /* > 0: it is cut off there */
    bool open;           /* the client set no max_tokens */
    bool exact;          /* it never ends by itself (ignore_eos): max_tokens long */
};

/* STATUS_LIMIT: no memory. */
enum status answer_lengths_create(size_t model_count, struct answer_lengths **lengths) WARN_UNUSED;
void answer_lengths_destroy(struct answer_lengths *lengths);

/* Returns how many answers its cell remembers, as weights: at most about 1.44 half-lives. */
double answer_lengths_weight(const struct answer_lengths *lengths, const struct answer_ask *ask);

/* All below: given that `drawn` tokens came, and the answer goes on. Lengths are of the whole
 * answer, cut off at max_tokens. `drawn` >= max_tokens: it has max_tokens. */
struct answer_length {
    double mean, p50, p90; /* tokens */
};
struct answer_length answer_length_predict(const struct answer_lengths *lengths,
                                           const struct answer_ask *ask, uint32_t drawn);

/* An answer on its way. All zeros: none of it came yet. */
struct answer_course {
    struct answer_length expected; /* the whole answer */
    uint32_t expect_at;            /* tokens with which that is looked up again */
    uint32_t told_tokens, tell_at; /* learnt that it passed these; when more will be */
};
/* The answer has `drawn` tokens, and goes on: learns that it reached them. Returns how long it is
 * expected to get, looked up when it has twice as many tokens, and when it is longer than that. */
struct answer_length answer_lengths_follow(struct answer_lengths *lengths,
                                           const struct answer_ask *ask,
                                           struct answer_course *course, uint32_t drawn);
/* An answer ended with `tokens`: by itself (`ended`), or cut off by max_tokens, its client, a
 * failure. Ignores exact ones, and those without a token. */
void answer_lengths_learn(struct answer_lengths *lengths, const struct answer_ask *ask,
                          const struct answer_course *course, uint32_t tokens, bool ended);
/* Returns the tokens that likely come still: the mean, once ANSWER_KNOWN answers of its cell have
 * ended, otherwise the `least` that surely come. */
double answer_length_likely(const struct answer_lengths *lengths, const struct answer_ask *ask,
                            uint32_t drawn, double least);
/* Returns P(length > tokens). */
double answer_length_exceeds(const struct answer_lengths *lengths, const struct answer_ask *ask,
                             uint32_t drawn, double tokens);
/* Returns the least length that is exceeded with a probability of at most 1 - q. 0 < q < 1. */
double answer_length_quantile(const struct answer_lengths *lengths, const struct answer_ask *ask,
                              uint32_t drawn, double q);
/* Returns the mean of the tokens still to come. */
double answer_length_rest(const struct answer_lengths *lengths, const struct answer_ask *ask,
                          uint32_t drawn);

#endif
