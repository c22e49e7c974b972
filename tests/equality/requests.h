/* The requests that every cell runs: a prompt, and a seed, each a function of its number alone. */
#ifndef BATON_TESTS_REQUESTS_H
#define BATON_TESTS_REQUESTS_H

#include "tests/equality/side.h"

enum {
    REQUESTS = 64, /* as many as the largest batch */
    WARM = 2,      /* requests that leave beginnings of the others in the cache */
    /* In a fourth segment of attention; even behind a cached beginning too long for every chunk but
     * the whole. */
    LONGEST = 784,
    ANSWER = 96 /* tokens of each */
};

struct request {
    uint32_t count, cached; /* tokens of its prompt, and those in front that WARM leave */
    uint32_t tokens[LONGEST];
    uint64_t seed;
};

/* [REQUESTS], [WARM]; the first call makes them. */
const struct request *requests_all(void);
const struct request *requests_warm(void);

static inline uint32_t requests_blocks_for(uint32_t tokens)
{
    return (tokens + SIDE_BLOCK_TOKENS - 1) / SIDE_BLOCK_TOKENS;
}

/* Room for the first `count` to their ends, one block more for each (or they aren't let in), and a
 * few. */
uint32_t requests_pool_blocks(uint32_t count);

#endif
