/* The requests that every cell runs. A request's number alone decides its prompt and its seed. */
#ifndef BATON_TESTS_REQUESTS_H
#define BATON_TESTS_REQUESTS_H

#include "tests/equality/side.h"

enum {
    REQUESTS = 64, /* as many as the largest batch */
    WARM = 2,      /* requests that leave beginnings of the others in the cache */
    /* Reaches a fourth segment of attention. Even after a cached beginning it is too long for every
     * chunk except the whole. */
    LONGEST = 784,
    ANSWER = 96 /* tokens of each */
};

struct request {
    uint32_t count, cached; /* tokens of its prompt; tokens at its start that WARM leave cached */
    uint32_t tokens[LONGEST];
    uint64_t seed;
};

/* Return [REQUESTS] and [WARM] requests. The first call makes them. */
const struct request *requests_all(void);
const struct request *requests_warm(void);

static inline uint32_t requests_blocks_for(uint32_t tokens)
{
    return (tokens + SIDE_BLOCK_TOKENS - 1) / SIDE_BLOCK_TOKENS;
}

/* Returns room for the first `count` requests to their ends, one block more for each (otherwise
 * they aren't admitted), and a few more. */
uint32_t requests_pool_blocks(uint32_t count);

#endif
