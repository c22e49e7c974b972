/* The softmax of a row, unnormalized, and the draw from it. PURE.
 *
 * What is drawn is defined by sums in fp64 in ascending order of ids, which is one long chain of
 * additions. The same token is found by sums of blocks, which are added side by side: no order of
 * at most n additions of numbers >= 0 is further from their true sum than n * 2^-53 of it, so where
 * the random number is further than that from where a token begins and ends, the chain would say
 * the same; where it is nearer, as of one draw in some ten thousand, the chain is added. */
#ifndef BATON_ENGINE_MODEL_SAMPLER_MASSES_H
#define BATON_ENGINE_MODEL_SAMPLER_MASSES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SAMPLER_BLOCK 256 /* ids */

/* Orders tokens by descending p, then ascending id: bits of a float >= 0 compare like the float. */
static inline uint64_t sampler_key(float p, uint32_t id)
{
    uint32_t bits;
    memcpy(&bits, &p, sizeof bits);
    return (uint64_t)bits << 32 | (uint32_t)~id;
}

static inline float sampler_key_mass(uint64_t key)
{
    uint32_t bits = (uint32_t)(key >> 32);
    float p;
    memcpy(&p, &bits, sizeof p);
    return p;
}

/* How far a sum of `count` masses in one order may be from that in another; twice that, and what a
 * product of it adds. */
static inline double sampler_margin(uint32_t count, double sum)
{
    return 0x1p-50 * ((double)count + 8) * sum;
}

struct sampler_masses {
    float *p; /* [count] by id */
    double *
        /* [(count + SAMPLER_BLOCK - 1) / SAMPLER_BLOCK] of blocks of ids, of those that are kept */
        sums;
    uint32_t count;
};

/* p[i] = exp((logits[i] - max) / temperature), and its sums; `logits` may be p. Returns their
 * total. */
double sampler_masses_fill(const struct sampler_masses *masses, const float *logits, float max,
                           float temperature);

/* The sums are those of keys >= bound. Returns their total. */
double sampler_masses_keep(const struct sampler_masses *masses, uint64_t bound);

/* The token of those with p > 0 and key >= bound, whose sums are there with their total, where the
 * running mass passes unit * the total. */
uint32_t sampler_masses_pick(const struct sampler_masses *masses, uint64_t bound, double total,
                             double unit);

#endif
