#include "tests/equality/requests.h"

#include "common/base/rng.h"

#include <string.h>

enum {
    VOCABULARY = 384,
    LONGEST_CACHED = 264, /* in the second segment */
    SECOND_CACHED = 40,
    SPARE_BLOCKS = 8
};

static struct request all[REQUESTS], warm[WARM];

static void fill(uint32_t *tokens, uint32_t from, uint32_t to, struct rng *rng)
{
    for (uint32_t i = from; i < to; i++)
        tokens[i] = 3 + (uint32_t)rng_below(rng, VOCABULARY - 3);
}

static uint32_t draw_length(uint32_t number, struct rng *rng)
{
    static const uint32_t first[] = {LONGEST, 290, 250,
                                     261}; /* one gets into a second segment by its answer */
    if (number < sizeof first / sizeof *first)
        return first[number];
    return (number < 16 ? 9 : 1) + (uint32_t)rng_below(rng, 16);
}

/* The first request is long and has a beginning of its own. The others begin alike and share one
 * block of the second's cached beginning. */
static void make(void)
{
    struct rng rng = rng_seeded(20);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct request *r = &all[i];
        r->count = draw_length(i, &rng);
        r->seed = 100 + i;
        fill(r->tokens, 0, r->count, &rng);
        r->cached = i == 0 ? LONGEST_CACHED : i == 1 ? SECOND_CACHED : SIDE_BLOCK_TOKENS;
        if (r->cached >= r->count)
            r->cached = 0; /* the last row is always computed */
        else if (i > 1)
            memcpy(r->tokens, all[1].tokens, r->cached * sizeof *r->tokens);
    }
    for (uint32_t i = 0; i < WARM; i++) {
        warm[i] = all[i];
        warm[i].count = all[i].cached + SIDE_BLOCK_TOKENS;
        fill(warm[i].tokens, all[i].cached, warm[i].count, &rng);
    }
}

const struct request *requests_all(void)
{
    if (all[0].count == 0)
        make();
    return all;
}

const struct request *requests_warm(void)
{
    requests_all();
    return warm;
}

uint32_t requests_pool_blocks(uint32_t count)
{
    const struct request *requests = requests_all();
    uint32_t blocks = count + SPARE_BLOCKS;
    for (uint32_t i = 0; i < count; i++)
        blocks += requests_blocks_for(requests[i].count + ANSWER);
    return blocks;
}
