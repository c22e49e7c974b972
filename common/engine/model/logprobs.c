#include "common/engine/model/logprobs.h"

#include "common/base/assert.h"
#include "common/engine/model/fixed_math.h"
#include "common/engine/model/greatest_logit.h"
#include "common/engine/model/quads.h"

#define LANES 16 /* lane j has ids j, j + LANES, ...; lanes are added in ascending order */

/* False if a logit is NaN or +infinity, or none is finite. */
static bool find_greatest(const float *logits, uint32_t vocab, float *max)
{
    bool sound = true;
    *max = logits[greatest_logit(logits, vocab, &sound)];
    return sound && *max > -INFINITY;
}

static double sum_exp(const float *logits, uint32_t vocab, float max)
{
    pair pairs[LANES / 2] = {{0}}, low, high;
    double lanes[LANES], total = 0;
    uint32_t whole = vocab / LANES * LANES;
    for (uint32_t i = 0; i < whole; i += LANES)
        for (uint32_t j = 0; j < LANES; j += QUAD) {
            quad_widen(quad_exp_negative(quad_load(logits + i + j) - max), &low, &high);
            pairs[j / 2] += low;
            pairs[j / 2 + 1] += high;
        }
    memcpy(lanes, pairs, sizeof lanes);
    for (uint32_t i = whole; i < vocab; i++)
        lanes[i - whole] += (double)exp_negative(logits[i] - max);
    for (uint32_t j = 0; j < LANES; j++)
        total += lanes[j];
    return total;
}

/* Ids come in ascending order, so of equals the one that is there already stays in front. */
static uint32_t find_top(const float *logits, uint32_t vocab, uint32_t limit, uint32_t *ids)
{
    uint32_t count = 0;
    for (uint32_t i = 0; limit && i < vocab; i++) {
        if (count == limit && !(logits[i] > logits[ids[count - 1]]))
            continue;
        uint32_t at = count < limit ? count++ : count - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--)
            ids[at] = ids[at - 1];
        ids[at] = i;
    }
    return count;
}

static float logprob_of(float logit, double log_total)
{
    float logprob = (float)((double)logit - log_total);
    return logprob > LOGPROB_FLOOR ? logprob : LOGPROB_FLOOR;
}

enum status logprobs_of(const float *logits, uint32_t vocab, uint32_t token, uint32_t top_count,
                        struct token_logprobs *out)
{
    ASSERT(token < vocab && top_count <= LOGPROBS_MAX_TOP);
    float max;
    if (!find_greatest(logits, vocab, &max))
        return STATUS_INTERNAL;
    double log_total = (double)max + log_positive(sum_exp(logits, vocab, max));
    *out = (struct token_logprobs){.given = true, .logprob = logprob_of(logits[token], log_total)};
    out->top_count = find_top(logits, vocab, top_count, out->top_ids);
    for (uint32_t i = 0; i < out->top_count; i++)
        out->top_logprobs[i] = logprob_of(logits[out->top_ids[i]], log_total);
    return STATUS_OK;
}
