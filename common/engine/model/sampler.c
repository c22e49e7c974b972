#include "common/engine/model/sampler.h"

#include "common/base/rng.h"
#include "common/base/u32.h"
#include "common/engine/model/logits.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum status sampler_init(struct sampler *sampler, uint32_t vocab)
{
    *sampler =
        (struct sampler){.vocab = vocab,
                         .mass = calloc(vocab, sizeof *sampler->mass),
                         .sums = calloc(divide_up(vocab, SAMPLER_BLOCK), sizeof *sampler->sums),
                         .top.keys = calloc(vocab, sizeof *sampler->top.keys),
                         .top.buckets = calloc(SAMPLER_BUCKETS, sizeof *sampler->top.buckets),
                         .top.finer = calloc(SAMPLER_FINER_BUCKETS, sizeof *sampler->top.finer),
                         .counts = calloc(vocab, sizeof *sampler->counts)};
    const struct sampler_top *top = &sampler->top;
    if (sampler->mass && sampler->sums && top->keys && top->buckets && top->finer &&
        sampler->counts)
        return STATUS_OK;
    sampler_deinit(sampler);
    return STATUS_LIMIT;
}

void sampler_deinit(struct sampler *sampler)
{
    free(sampler->mass);
    free(sampler->sums);
    free(sampler->top.keys);
    free(sampler->top.buckets);
    free(sampler->top.finer);
    free(sampler->counts);
    *sampler = (struct sampler){0};
}

/* Sets the mass of all ids without their bit to -infinity. */
static void keep_allowed(struct sampler *sampler, const uint32_t *allowed)
{
    for (uint32_t first = 0; first < sampler->vocab; first += 32) {
        uint32_t bits = allowed[first / 32], left = sampler->vocab - first;
        float *mass = sampler->mass + first;
        for (uint32_t i = 0; bits != UINT32_MAX && i < 32 && i < left; i++)
            mass[i] = bits >> i & 1 ? mass[i] : -INFINITY;
    }
}

/* Copies a row. False: a logit is NaN or +infinity. */
static bool copy_sound(const float *restrict logits, float *restrict mass, uint32_t count)
{
    int unsound = 0;
    for (uint32_t i = 0; i < count; i++) {
        unsound |= !(logits[i] < INFINITY); /* NaN, too */
        mass[i] = logits[i];
    }
    return !unsound;
}

/* Fills mass[] with the row's logits, edited as the request asks; banned ids get -infinity.
 * False: a logit is NaN or +infinity. */
static bool edit_logits(struct sampler *sampler, const struct sampler_row *row,
                        const struct sampling *sampling)
{
    const struct sampler_ban *ban = &row->ban;
    bool sound = copy_sound(row->logits, sampler->mass, sampler->vocab);
    logit_edits_bias(sampler->mass, sampler->vocab, sampling);
    if (logit_edits_penalizes(sampling))
        logit_edits_penalize(sampler->mass, sampler->vocab, sampler->counts, sampling,
                             &(struct logit_history){row->tokens, row->token_count, row->index});
    for (int list = 0; list < 2; list++)
        for (uint32_t i = 0; i < ban->counts[list]; i++)
            if (ban->ids[list][i] < sampler->vocab)
                sampler->mass[ban->ids[list][i]] = -INFINITY;
    if (row->allowed)
        keep_allowed(sampler, row->allowed);
    return sound;
}

/* Returns the logits to draw from, and in *best the first of the greatest: the row itself if
 * nothing edits it, otherwise mass[]. NULL: a logit is NaN or +infinity. */
static const float *take_logits(struct sampler *sampler, const struct sampler_row *row,
                                const struct sampling *sampling, uint32_t *best)
{
    bool sound = true, edited_sound = true;
    bool edited = sampling->bias_count || logit_edits_penalizes(sampling) || row->ban.counts[0] ||
                  row->ban.counts[1] || row->allowed;
    if (!edited) {
        *best = greatest_logit(row->logits, sampler->vocab, &sound);
        return sound ? row->logits : NULL;
    }
    sound = edit_logits(sampler, row, sampling);
    *best = greatest_logit(sampler->mass, sampler->vocab, &edited_sound);
    return sound ? sampler->mass : NULL;
}

/* Returns the least key that all filters keep; 0: they keep all. */
static uint64_t bound_of(const struct sampler *sampler, const struct sampler_masses *masses,
                         double total, const struct sampling *sampling)
{
    /* min_p may be -0, which equals 0: its bits would be a great key. */
    uint64_t bound = sampling->min_p > 0 ? sampler_key(sampling->min_p, UINT32_MAX) : 0;
    if (sampling->top_k || sampling->top_p < 1.0f) {
        uint64_t top =
            sampler_top_bound(&sampler->top, masses, total, sampling->top_k, sampling->top_p);
        bound = top > bound ? top : bound;
    }
    return bound;
}

enum status sampler_draw(struct sampler *sampler, const struct sampler_row *row,
                         const struct sampling *sampling, uint32_t *token)
{
    uint32_t best;
    const float *logits = take_logits(sampler, row, sampling, &best);
    if (!logits)
        return STATUS_INTERNAL;
    float max = logits[best];
    if (max == -INFINITY)
        return STATUS_INVALID;
    if (sampling->temperature == 0) {
        *token = best;
        return STATUS_OK;
    }
    const struct sampler_masses masses = {sampler->mass, sampler->sums, sampler->vocab};
    double total = sampler_masses_fill(&masses, logits, max, sampling->temperature);
    uint64_t bound = bound_of(sampler, &masses, total, sampling);
    if (bound)
        total = sampler_masses_keep(&masses, bound);
    *token = sampler_masses_pick(&masses, bound, total,
                                 rng_unit_at(sampling->seed, sampling->choice, row->index));
    return STATUS_OK;
}
