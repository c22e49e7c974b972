/* What top_k and top_p leave of a row's masses. PURE.
 *
 * Nothing is sorted: masses are counted in buckets by the leading bits of their p (bits of a float
 * > 0 order like the float), the bucket in which the last one that is kept lies is counted again by
 * the bits behind, and so on until its p is known. top_p's sums, which are defined in descending
 * order, are those of buckets, which are near enough nearly always (sampler_masses.h); where they
 * aren't, tokens come off a heap one by one. */
#ifndef BATON_ENGINE_MODEL_SAMPLER_TOP_H
#define BATON_ENGINE_MODEL_SAMPLER_TOP_H

#include "common/engine/model/sampler_masses.h"

#define SAMPLER_BUCKETS       4096 /* by exponent and 5 bits of the mantissa: 32 an octave */
#define SAMPLER_FINER_BUCKETS 512  /* by the next 9, and by the last 9 */

struct sampler_bucket {
    double mass;
    uint32_t count;
};

struct sampler_top {
    uint64_t *keys;                 /* [count of masses] scratch */
    struct sampler_bucket *buckets; /* [SAMPLER_BUCKETS] scratch */
    struct sampler_bucket *finer;   /* [SAMPLER_FINER_BUCKETS] scratch */
};

/* The least key (sampler_masses.h) that both keep; 0: all. total: of masses->sums, of all masses;
 * top_k: 0: off; top_p: (0, 1], 1: off. */
uint64_t sampler_top_bound(const struct sampler_top *top, const struct sampler_masses *masses,
                           double total, uint32_t top_k, float top_p);

#endif
