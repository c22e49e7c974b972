/* The time and the memory of a worker's device, as numbers: costs of its steps, capacity of its KV,
 * speed of its links. The mock engine lives by one, and so can a simulation. PURE:
 * numbers in, numbers out.
 *
 * The rule of a step's time:
 * - prompt rows alone: `prefill`; decode rows alone: `decode`, or from `large_from` decode rows on
 *   `decode_large`;
 * - both: the larger of the two step_us, since the weights are read once, plus the rows of both.
 * Stairs come first: prompt rows are rounded up to a multiple of prefill_tile, and decode rows to
 * the next of decode_buckets (more rows than the last bucket stay as they are). The context that
 * decode rows read isn't rounded. Noise comes last: a factor exp(sigma * z - sigma^2 / 2), with z
 * from a normal distribution, drawn for each step by its number. The mean of the factor is 1. */
#ifndef BATON_BASE_DOMAIN_STEP_PROFILE_H
#define BATON_BASE_DOMAIN_STEP_PROFILE_H

#include "common/base/domain/step_cost.h"

#include <stdbool.h>

#define STEP_PROFILE_MAX_BUCKETS 64

struct step_profile {
    char name[64];
    struct step_cost prefill; /* only step_us, prefill_row_us and prefill_position_us count */
    struct step_cost decode, decode_large; /* only step_us and the decode_... count */
    uint32_t large_from;                   /* decode rows; 0: never */
    uint32_t prefill_tile;                 /* rows; 0 or 1: no stairs */
    uint32_t bucket_count;
    uint32_t decode_buckets[STEP_PROFILE_MAX_BUCKETS]; /* rows, ascending */
    double noise_sigma;                                /* 0: none */
    uint64_t noise_seed;
    uint64_t kv_tokens; /* capacity of the KV pool */
    uint64_t kv_bytes_per_token;
    double link_bytes_per_second; /* into one worker; 0: reads take no time of their own */
    uint64_t link_latency_us;     /* before the first byte of each read */
    double swap_bytes_per_second; /* between the KV pool and host memory; 0: no time */
};

/* Returns the time of the step with this number, in microseconds. */
double step_profile_us(const struct step_profile *profile, const struct step_shape *shape,
                       uint64_t step);
/* Returns the time that `tokens` tokens of KV take to host memory or back. */
double step_profile_swap_us(const struct step_profile *profile, uint64_t tokens);

#endif
