#include "common/engine/model/sampler.h"

#include "common/base/rng.h"
#include "common/base/u32.h"
#include "common/engine/model/fixed_math.h"
#include "common/engine/model/logit_edits.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum status sampler_init(struct sampler *sampler, uint32_t vocab)
{
    *sampler = (struct sampler){.vocab = vocab,
                                .mass = calloc(vocab, sizeof *sampler->mass),
                                .heap = calloc(vocab, sizeof *sampler->heap),
                                .counts = calloc(vocab, sizeof *sampler->counts)};
    if (sampler->mass && sampler->heap && sampler->counts)
        return STATUS_OK;
    sampler_deinit(sampler);
    return STATUS_LIMIT;
}

void sampler_deinit(struct sampler *sampler)
{
    free(sampler->mass);
    free(sampler->heap);
    free(sampler->counts);
    *sampler = (struct sampler){0};
}

static void keep_allowed(struct sampler *sampler, const uint32_t *allowed)
{
    for (uint32_t first = 0; first < sampler->vocab; first += 32) {
        uint32_t bits = allowed[first / 32], left = sampler->vocab - first;
        float *mass = sampler->mass + first;
        for (uint32_t i = 0; bits != UINT32_MAX && i < 32 && i < left; i++)
            mass[i] = bits >> i & 1 ? mass[i] : -INFINITY;
    }
}

/* False if a logit is NaN or +infinity. */
static bool copy_sound(const float *restrict logits, float *restrict mass, uint32_t count)
{
    int unsound = 0;
    for (uint32_t i = 0; i < count; i++) {
        unsound |= !(logits[i] < INFINITY); /* NaN, too */
        mass[i] = logits[i];
    }
    return !unsound;
}

/* Whether anything of this row becomes other than the model left it. */
static bool is_edited(const struct sampler_row *row, const struct sampling *sampling)
{
    return sampling->bias_count || logit_edits_penalizes(sampling) || row->ban.counts[0] ||
           row->ban.counts[1] || row->allowed;
}

/* mass[] = logits[] as the request has them edited, banned ids at -infinity. False if a logit is NaN or +infinity. */
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

#define LANES 4
#define QUADS 4                    /* independent chains: one would wait for the one before */
#define PART  (64 * QUADS * LANES) /* where the greatest is looked for again: in a level 1 cache */

/* In the compiler's vectors, since it makes none of a maximum that has to be that of IEEE numbers. */
typedef float quad __attribute__((vector_size(4 * LANES)));
typedef int32_t quad_mask __attribute__((vector_size(4 * LANES)));

/* The greatest of values[0 .. count); *sound becomes false if one is NaN or +infinity. */
static float greatest_of_part(const float *values, uint32_t count, bool *sound)
{
    quad most[QUADS], next;
    quad_mask sounds = {-1, -1, -1, -1};
    uint32_t i = 0;
    for (int q = 0; q < QUADS; q++)
        most[q] = (quad){-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (; i + QUADS * LANES <= count; i += QUADS * LANES)
        for (int q = 0; q < QUADS; q++) {
            memcpy(&next, values + i + q * LANES, sizeof next);
            quad_mask greater = next > most[q];
            most[q] = (quad)(((quad_mask)next & greater) | ((quad_mask)most[q] & ~greater));
            sounds &= next < INFINITY; /* nor is NaN */
        }
    float best = -INFINITY;
    for (int lane = 0; lane < QUADS * LANES; lane++) {
        float one = most[lane / LANES][lane % LANES];
        best = one > best ? one : best;
        *sound &= sounds[lane % LANES] != 0;
    }
    for (; i < count; i++) {
        best = values[i] > best ? values[i] : best;
        *sound &= values[i] < INFINITY;
    }
    return best;
}

/* The first of the greatest, in one pass; *sound becomes false if a value is NaN or +infinity. */
static uint32_t greatest(const float *values, uint32_t count, bool *sound)
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

/* What is drawn from, and the first of its greatest: the row itself where nothing edits it, else mass[]. NULL if a logit is NaN or
 * +infinity. */
static const float *take_logits(struct sampler *sampler, const struct sampler_row *row,
                                const struct sampling *sampling, uint32_t *best)
{
    bool sound = true, edited_sound = true;
    if (!is_edited(row, sampling)) {
        *best = greatest(row->logits, sampler->vocab, &sound);
        return sound ? row->logits : NULL;
    }
    sound = edit_logits(sampler, row, sampling);
    *best = greatest(sampler->mass, sampler->vocab, &edited_sound);
    return sound ? sampler->mass : NULL;
}

/* Orders tokens by descending p, then ascending id: bits of a float >= 0 compare like the float. */
static uint64_t key_of(float p, uint32_t id)
{
    uint32_t bits;
    memcpy(&bits, &p, sizeof bits);
    return (uint64_t)bits << 32 | (uint32_t)~id;
}

static float key_mass(uint64_t key)
{
    uint32_t bits = (uint32_t)(key >> 32);
    float p;
    memcpy(&p, &bits, sizeof p);
    return p;
}

static void sift_down(uint64_t *heap, uint32_t count, uint32_t at)
{
    uint64_t key = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] > heap[child])
            child++;
        if (heap[child] <= key)
            break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

/* Moves the greatest of heap[0 .. count) behind the other count - 1 keys; returns its p. */
static double pop_greatest(uint64_t *heap, uint32_t count)
{
    uint64_t key = heap[0];
    heap[0] = heap[count - 1];
    heap[count - 1] = key;
    sift_down(heap, count - 1, 0);
    return (double)key_mass(key);
}

/* Makes sampler->heap a max-heap of the tokens with p > 0; returns how many. */
static uint32_t build_heap(struct sampler *sampler, double *total)
{
    uint32_t count = 0;
    *total = 0;
    for (uint32_t i = 0; i < sampler->vocab; i++)
        if (sampler->mass[i] > 0) {
            sampler->heap[count++] = key_of(sampler->mass[i], i);
            *total += (double)sampler->mass[i];
        }
    for (uint32_t i = count / 2; i-- > 0;)
        sift_down(sampler->heap, count, i);
    return count;
}

/* The least key that top_k and top_p keep. Pops no more than it has to: top_p usually keeps a few of many. */
static uint64_t top_bound(struct sampler *sampler, const struct sampling *sampling)
{
    uint64_t *heap = sampler->heap;
    double total;
    uint32_t count = build_heap(sampler, &total),
             popped = 0; /* popped keys: descending from the end */
    if (sampling->top_k && sampling->top_k < count)
        for (total = 0; popped < sampling->top_k; popped++)
            total += pop_greatest(heap, count - popped);
    uint32_t limit = popped ? popped : count, kept = limit;
    if (sampling->top_p < 1.0f) {
        double prefix = 0;
        for (kept = 0; kept < limit && prefix < (double)sampling->top_p * total; kept++) {
            if (kept == popped)
                pop_greatest(heap, count - popped++);
            prefix += (double)key_mass(heap[count - 1 - kept]);
        }
    } else if (kept == count) {
        return 0;
    }
    return heap[count - kept];
}

/* The token where the running mass of the kept ones passes unit * their total. */
static uint32_t pick(const struct sampler *sampler, uint64_t bound, double unit)
{
    double total = 0;
    for (uint32_t i = 0; i < sampler->vocab; i++)
        if (sampler->mass[i] > 0 && key_of(sampler->mass[i], i) >= bound)
            total += (double)sampler->mass[i];
    double passed = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < sampler->vocab; i++)
        if (sampler->mass[i] > 0 && key_of(sampler->mass[i], i) >= bound) {
            last = i;
            passed += (double)sampler->mass[i];
            if (passed > unit * total)
                break;
        }
    return last; /* unit * total may round up to total: the last one then */
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
    for (uint32_t i = 0; i < sampler->vocab; i++)
        sampler->mass[i] = exp_negative((logits[i] - max) / sampling->temperature);
    uint64_t bound = key_of(sampling->min_p, UINT32_MAX); /* the least key of mass min_p */
    if (sampling->top_k || sampling->top_p < 1.0f) {
        uint64_t top = top_bound(sampler, sampling);
        bound = top > bound ? top : bound;
    }
    *token = pick(sampler, bound, rng_unit_at(sampling->seed, sampling->choice, row->index));
    return STATUS_OK;
}
