#include "kernels/cpu/sample.h"

#include "common/base/fixed_math.h"
#include "common/base/rng.h"
#include "common/base/u32.h"
#include "kernels/backend.h"
#include "kernels/cpu/sampler_masses.h"

#include <math.h>

#define CHAINS 4                    /* independent chains: one alone would wait for itself */
#define PART   (64 * CHAINS * QUAD) /* searched again for the greatest: fits a level 1 cache */
#define LINE   64                   /* bytes: each array of the scratch begins on one */

/* --- the greatest --- */

/* Returns the greatest of values[0 .. count). *sound becomes false if one is NaN or +infinity. */
static float greatest_of_part(const float *values, uint32_t count, bool *sound)
{
    quad most[CHAINS];
    quad_mask sounds = {-1, -1, -1, -1};
    uint32_t i = 0;
    for (int c = 0; c < CHAINS; c++)
        most[c] = quad_of(-INFINITY);
    for (; i + CHAINS * QUAD <= count; i += CHAINS * QUAD)
        for (int c = 0; c < CHAINS; c++) {
            quad next = quad_load(values + i + c * QUAD);
            most[c] = quad_choose(next > most[c], next, most[c]);
            sounds &= next < quad_of(INFINITY); /* false for NaN, too */
        }
    float best = -INFINITY;
    for (int lane = 0; lane < CHAINS * QUAD; lane++) {
        float one = most[lane / QUAD][lane % QUAD];
        best = one > best ? one : best;
        *sound &= sounds[lane % QUAD] != 0;
    }
    for (; i < count; i++) {
        best = values[i] > best ? values[i] : best;
        *sound &= values[i] < INFINITY;
    }
    return best;
}

uint32_t kernels_greatest(const float *values, uint32_t count, bool *sound)
{
    float best = -INFINITY;
    uint32_t at = 0;
    for (uint32_t first = 0; first < count; first += PART) {
        float most = greatest_of_part(values + first, min_u32(PART, count - first), sound);
        if (most > best) {
            best = most;
            at = first;
        }
    }
    while (at + 1 < count && values[at] != best)
        at++;
    return at;
}

/* --- a row --- */

struct scratch {
    struct sampler_masses masses;
    struct sampler_top top;
};

/* Takes `bytes` bytes at *used. Without memory it only counts them. */
static void *take(char *memory, size_t *used, size_t bytes)
{
    void *part = memory ? memory + *used : NULL;
    *used += (bytes + LINE - 1) / LINE * LINE;
    return part;
}

/* Cuts the memory of a row's scratch, the masses first. Returns its bytes. */
static size_t cut_scratch(void *memory, uint32_t vocab, struct scratch *scratch)
{
    size_t used = 0;
    struct sampler_masses *masses = &scratch->masses;
    struct sampler_top *top = &scratch->top;
    masses->count = vocab;
    masses->p = take(memory, &used, vocab * sizeof *masses->p);
    masses->sums = take(memory, &used, divide_up(vocab, SAMPLER_BLOCK) * sizeof *masses->sums);
    top->keys = take(memory, &used, vocab * sizeof *top->keys);
    top->buckets = take(memory, &used, SAMPLER_BUCKETS * sizeof *top->buckets);
    top->finer = take(memory, &used, SAMPLER_FINER_BUCKETS * sizeof *top->finer);
    return used;
}

size_t kernels_draw_bytes(uint32_t vocab)
{
    struct scratch scratch;
    return cut_scratch(NULL, vocab, &scratch);
}

/* Returns the least key that all filters keep; 0: they keep all. */
static uint64_t bound_of(const struct scratch *scratch, double total,
                         const struct kernels_draw *draw)
{
    /* min_p may be -0, which equals 0: its bits would be a great key. */
    uint64_t bound = draw->min_p > 0 ? sampler_key(draw->min_p, UINT32_MAX) : 0;
    if (draw->top_k || draw->top_p < 1.0f) {
        uint64_t top =
            sampler_top_bound(&scratch->top, &scratch->masses, total, draw->top_k, draw->top_p);
        bound = top > bound ? top : bound;
    }
    return bound;
}

enum status kernels_draw_row(const float *logits, uint32_t vocab, const struct kernels_draw *draw,
                             void *memory, uint32_t *token)
{
    bool sound = true;
    uint32_t best = kernels_greatest(logits, vocab, &sound);
    float max = logits[best];
    if (!sound || max == -INFINITY)
        return sound ? STATUS_INVALID : STATUS_INTERNAL;
    if (draw->temperature == 0) {
        *token = best;
        return STATUS_OK;
    }
    struct scratch scratch;
    cut_scratch(memory, vocab, &scratch);
    const struct sampler_masses *masses = &scratch.masses;
    double total = sampler_masses_fill(masses, logits, max, draw->temperature);
    uint64_t bound = bound_of(&scratch, total, draw);
    if (bound)
        total = sampler_masses_keep(masses, bound);
    *token = sampler_masses_pick(masses, bound, total,
                                 rng_unit_at(draw->seed, draw->choice, draw->index));
    return STATUS_OK;
}

/* --- the operations --- */

struct sample_job {
    const float *logits;
    uint32_t vocab;
    const struct kernels_draw *draws;
    struct kernels_drawn *drawn;
    char *scratch; /* one for each thread */
    size_t scratch_bytes;
};

static void draw_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct sample_job *job = context;
    for (uint32_t i = first; i < last; i++) {
        struct kernels_drawn *drawn = &job->drawn[i];
        drawn->token = 0;
        drawn->status =
            kernels_draw_row(job->logits + (size_t)i * job->vocab, job->vocab, &job->draws[i],
                             job->scratch + thread * job->scratch_bytes, &drawn->token);
    }
}

size_t sample_scratch_bytes(const struct kernels *kernels, uint32_t vocab)
{
    return kernels->threads * kernels_draw_bytes(vocab);
}

enum status sample_rows(struct kernels *kernels, const struct buffer *logits, uint32_t rows,
                        uint32_t vocab, const struct buffer *draws, struct buffer *scratch,
                        struct buffer *drawn)
{
    struct sample_job job = {.logits = logits->address,
                             .vocab = vocab,
                             .draws = draws->address,
                             .drawn = drawn->address,
                             .scratch = scratch->address,
                             .scratch_bytes = kernels_draw_bytes(vocab)};
    kernels->backend->work(kernels, rows, 1, draw_rows, &job);
    return STATUS_OK;
}

enum status sample_take_tokens(struct kernels *kernels, const struct buffer *from, uint32_t rows,
                               const struct buffer *drawn, struct buffer *tokens)
{
    (void)kernels;
    const uint32_t *places = from->address;
    const struct kernels_drawn *results = drawn->address;
    uint32_t *ids = tokens->address;
    for (uint32_t t = 0; t < rows; t++)
        if (places[t] != KERNELS_TOKEN_GIVEN)
            ids[t] = results[places[t]].token;
    return STATUS_OK;
}
