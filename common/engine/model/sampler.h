/* Draws one token from one row of logits. PURE: the token is a function of (logits, sampling,
 * index, banned, allowed, tokens so far) and nothing else, by IEEE operations in one fixed order
 * (not even libm), so that it never depends on the batch, the machine or what ran before.
 *
 * First logits are edited where the request asks for that (logit_edits.h): bias, then penalties;
 * those that are banned, or aren't allowed, can't be drawn.
 *
 * temperature 0    the greatest logit; of equals, the lower id. otherwise        p[i] =
 * exp((logits[i] - max) / temperature) in fp32, then each filter in turn on what the one before
 * kept:
 *     top_k          the k greatest; of equals, the lower ids.
 *     top_p          the shortest prefix in descending order (of equals, lower ids first) that holds at least top_p of the mass.
 *     min_p          p[i] >= min_p times the greatest.
 *                    (temperature, top-k, top-p, min-p: the order of transformers.) A unit random number, keyed by (seed,
 *                    choice, index), then picks from what is left: masses are added in fp64 in ascending id order.
 * Tokens more than 87 temperatures below the greatest have p = 0 and are never drawn.
 *
 * Owner: the step thread; scratch is sized by sampler_init, a draw allocates nothing. */
#ifndef BATON_ENGINE_MODEL_SAMPLER_H
#define BATON_ENGINE_MODEL_SAMPLER_H

#include "common/base/domain/sampling.h"
#include "common/base/status.h"
#include "common/engine/model/sampler_top.h"

#define SAMPLER_VERSION 1 /* part of the numerics id: changes when any draw could change */

struct sampler {
    uint32_t vocab;
    float *mass;  /* [vocab] p by id */
    double *sums; /* of its blocks */
    struct sampler_top top;
    uint32_t *counts; /* [vocab] zero between two draws */
};

/* Ids that can't be drawn (min_tokens: end ids and stop ids); ids >= vocab are passed over. */
struct sampler_ban {
    const uint32_t *ids[2];
    uint32_t counts[2];
};

/* STATUS_LIMIT when memory is short. */
enum status sampler_init(struct sampler *sampler, uint32_t vocab) WARN_UNUSED;
void sampler_deinit(struct sampler *sampler);

/* What is drawn from. */
struct sampler_row {
    const float *logits; /* [vocab] */
    uint32_t index;      /* of the token in the answer, from 0 */
    struct sampler_ban ban;
    const uint32_t *allowed; /* [(vocab + 31) / 32] bits: others can't be drawn; NULL: all may be */
    /* [token_count] prompt and answer so far, whose last `index` they are; looked at for penalties
     * alone. */
    const uint32_t *tokens;
    uint32_t token_count;
};

/* STATUS_INTERNAL if a logit is NaN or +infinity, STATUS_INVALID if every token is banned, or those
 * that are allowed are. */
enum status sampler_draw(struct sampler *sampler, const struct sampler_row *row,
                         const struct sampling *sampling, uint32_t *token) WARN_UNUSED;

#endif
