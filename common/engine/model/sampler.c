#include "common/engine/model/sampler.h"

#include "common/engine/model/logits.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum status sampler_init(struct sampler *sampler, uint32_t vocab)
{
    *sampler = (struct sampler){.vocab = vocab,
                                .scratch = calloc(1, kernels_draw_bytes(vocab)),
                                .counts = calloc(vocab, sizeof *sampler->counts)};
    sampler->edited = sampler->scratch;
    if (sampler->scratch && sampler->counts)
        return STATUS_OK;
    sampler_deinit(sampler);
    return STATUS_LIMIT;
}

void sampler_deinit(struct sampler *sampler)
{
    free(sampler->scratch);
    free(sampler->counts);
    *sampler = (struct sampler){0};
}

/* Sets the logits of all ids without their bit to -infinity. */
static void keep_allowed(struct sampler *sampler, const uint32_t *allowed)
{
    for (uint32_t first = 0; first < sampler->vocab; first += 32) {
        uint32_t bits = allowed[first / 32], left = sampler->vocab - first;
        float *part = sampler->edited + first;
        for (uint32_t i = 0; bits != UINT32_MAX && i < 32 && i < left; i++)
            part[i] = bits >> i & 1 ? part[i] : -INFINITY;
    }
}

/* Copies a row. False: a logit is NaN or +infinity. */
static bool copy_sound(const float *restrict logits, float *restrict copy, uint32_t count)
{
    int unsound = 0;
    for (uint32_t i = 0; i < count; i++) {
        unsound |= !(logits[i] < INFINITY); /* NaN, too */
        copy[i] = logits[i];
    }
    return !unsound;
}

/* Fills edited[] with the row's logits, edited as the request asks; banned ids get -infinity.
 * False: a logit is NaN or +infinity. */
static bool edit_logits(struct sampler *sampler, const struct sampler_row *row,
                        const struct sampling *sampling)
{
    const struct sampler_ban *ban = &row->ban;
    bool sound = copy_sound(row->logits, sampler->edited, sampler->vocab);
    logit_edits_bias(sampler->edited, sampler->vocab, sampling);
    if (logit_edits_penalizes(sampling))
        logit_edits_penalize(sampler->edited, sampler->vocab, sampler->counts, sampling,
                             &(struct logit_history){row->tokens, row->token_count, row->index});
    for (int list = 0; list < 2; list++)
        for (uint32_t i = 0; i < ban->counts[list]; i++)
            if (ban->ids[list][i] < sampler->vocab)
                sampler->edited[ban->ids[list][i]] = -INFINITY;
    if (row->allowed)
        keep_allowed(sampler, row->allowed);
    return sound;
}

struct kernels_draw sampler_settings(const struct sampling *sampling, uint32_t index)
{
    return (struct kernels_draw){.temperature = sampling->temperature,
                                 .top_p = sampling->top_p,
                                 .min_p = sampling->min_p,
                                 .top_k = sampling->top_k,
                                 .seed = sampling->seed,
                                 .choice = sampling->choice,
                                 .index = index};
}

enum status sampler_draw(struct sampler *sampler, const struct sampler_row *row,
                         const struct sampling *sampling, uint32_t *token)
{
    const struct kernels_draw draw = sampler_settings(sampling, row->index);
    const float *logits = row->logits;
    if (sampling->bias_count || logit_edits_penalizes(sampling) || row->ban.counts[0] ||
        row->ban.counts[1] || row->allowed) {
        if (!edit_logits(sampler, row, sampling))
            return STATUS_INTERNAL;
        logits = sampler->edited;
    }
    return kernels_draw_row(logits, sampler->vocab, &draw, sampler->scratch, token);
}
