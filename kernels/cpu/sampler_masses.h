/* The softmax of a row, unnormalized, its filters top_k and top_p, and the draw from it. PURE.
 *
 * The definition sums in fp64 in ascending order of ids: one long chain of additions. Sums of
 * blocks of ids, which are added side by side, find the same token. No order of at most n
 * additions of numbers >= 0 is further from the true sum than n * 2^-53 of it. So if the random
 * number is further than that from the borders of the token, the chain would give the same
 * token. Otherwise, in about one of ten thousand draws, the chain itself is added.
 *
 * Nothing is sorted for top_k and top_p. Masses are counted in buckets by the leading bits of
 * their p (bits of a float > 0 compare like the float). The bucket with the last mass that is
 * kept is counted again by the next bits, and so on, until its p is known. The definition of
 * top_p sums in descending order; here the sums of buckets are nearly always near enough.
 * Otherwise tokens come off a heap one by one. */
#ifndef BATON_KERNELS_CPU_SAMPLER_MASSES_H
#define BATON_KERNELS_CPU_SAMPLER_MASSES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SAMPLER_BLOCK         256  /* ids */
#define SAMPLER_BUCKETS       4096 /* by exponent and 5 bits of the mantissa: 32 an octave */
#define SAMPLER_FINER_BUCKETS 512  /* by the next 9 bits, and by the last 9 */

/* A key orders tokens by descending p, then ascending id: bits of a float >= 0 compare like the
 * float. */
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

struct sampler_masses {
    float *p;     /* [count] by id */
    double *sums; /* [(count + SAMPLER_BLOCK - 1) / SAMPLER_BLOCK] p of each block, if kept */
    uint32_t count;
};

/* Fills p[i] = exp((logits[i] - max) / temperature) and the sums; `logits` may be p. Returns the
 * total. */
double sampler_masses_fill(const struct sampler_masses *masses, const float *logits, float max,
                           float temperature);

struct sampler_bucket {
    double mass;
    uint32_t count;
};
struct sampler_top {                /* scratch */
    uint64_t *keys;                 /* [count of masses] */
    struct sampler_bucket *buckets; /* [SAMPLER_BUCKETS] */
    struct sampler_bucket *finer;   /* [SAMPLER_FINER_BUCKETS] */
};
/* Returns the least key that both filters keep; 0: they keep all. total: the sum of masses->sums,
 * of all masses. top_k 0: off. top_p in (0, 1], 1: off. */
uint64_t sampler_top_bound(const struct sampler_top *top, const struct sampler_masses *masses,
                           double total, uint32_t top_k, float top_p);

/* Makes the sums those of the keys >= bound. Returns their total. */
double sampler_masses_keep(const struct sampler_masses *masses, uint64_t bound);

/* Returns the token at which the running mass passes unit * total, among those with p > 0 and key
 * >= bound. The sums and `total` are theirs. */
uint32_t sampler_masses_pick(const struct sampler_masses *masses, uint64_t bound, double total,
                             double unit);

#endif
