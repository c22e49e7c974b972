/* Random numbers. `rng` is a small sequential generator for tests and schedules (splitmix64).
 * `rng_at` is a counter-based generator (Philox4x32-10: Salmon et al., SC'11). It is a pure
 * function of its key and counters, so that the draw of one token never depends on other draws.
 * `rng_entropy` asks the kernel. */
#ifndef BATON_BASE_RNG_H
#define BATON_BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

struct rng rng_seeded(uint64_t seed);
uint64_t rng_next(struct rng *rng);
void rng_skip(struct rng *rng, uint64_t count);      /* leaves out the next `count` numbers */
uint64_t rng_below(struct rng *rng, uint64_t bound); /* uniform in [0, bound), bound > 0 */
double rng_unit(struct rng *rng);                    /* uniform in [0, 1) */

uint64_t rng_at(uint64_t seed, uint64_t stream,
                uint64_t index); /* 64 random bits for this key and counter */
double rng_unit_at(uint64_t seed, uint64_t stream, uint64_t index);

uint64_t rng_entropy(void); /* from the kernel; for ids and for seeds that a client left out */

#endif
