/* Draws one token from one row of logits. PURE: the token is a function of (logits, sampling,
 * index, banned, allowed, tokens so far) alone. It uses IEEE operations in one fixed order (not
 * even libm), so it never depends on the batch, the machine or earlier draws.
 *
 * First the logits are edited if the request asks for it (logits.h): bias, then penalties. Ids
 * that are banned, or not allowed, can't be drawn.
 *
 * Then kernels_draw_row draws; kernels.h has its definition. A device draws the same tokens from
 * rows that nothing edits.
 *
 * Owner: the step thread. sampler_init sizes the scratch memory; a draw allocates nothing. */
#ifndef BATON_ENGINE_MODEL_SAMPLER_H
#define BATON_ENGINE_MODEL_SAMPLER_H

#include "common/base/domain/sampling.h"
#include "common/base/status.h"
#include "kernels/kernels.h"

struct sampler {
    uint32_t vocab;
    void *scratch;    /* kernels_draw_bytes */
    float *edited;    /* [vocab] in the scratch: logits that the request edits */
    uint32_t *counts; /* [vocab] zero between two draws */
};

/* STATUS_LIMIT: out of memory. */
enum status sampler_init(struct sampler *sampler, uint32_t vocab) WARN_UNUSED;
void sampler_deinit(struct sampler *sampler);

/* Ids that can't be drawn (min_tokens: end ids and stop ids). Ids >= vocab are passed over. */
struct sampler_ban {
    const uint32_t *ids[2];
    uint32_t counts[2];
};

/* The input of a draw. */
struct sampler_row {
    const float *logits; /* [vocab] */
    uint32_t index;      /* the token's in the answer, from 0 */
    struct sampler_ban ban;
    const uint32_t
        *allowed; /* [(vocab + 31) / 32] a bit for each id that may be drawn; NULL: all */
    /* [token_count] prompt and answer so far; the answer is the last `index`. Read for
     * penalties. */
    const uint32_t *tokens;
    uint32_t token_count;
};

/* The settings of a draw by the device or by kernels_draw_row. */
struct kernels_draw sampler_settings(const struct sampling *sampling, uint32_t index);

/* STATUS_INTERNAL: a logit is NaN or +infinity. STATUS_INVALID: every token is banned, or not
 * allowed. */
enum status sampler_draw(struct sampler *sampler, const struct sampler_row *row,
                         const struct sampling *sampling, uint32_t *token) WARN_UNUSED;

#endif
