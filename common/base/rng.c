#include "common/base/rng.h"

#include "common/base/assert.h"

#include <sys/random.h>

#define INCREMENT 0x9e3779b97f4a7c15u

struct rng rng_seeded(uint64_t seed)
{
    return (struct rng){.state = seed};
}

uint64_t rng_next(struct rng *rng)
{
    uint64_t z = rng->state += INCREMENT;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void rng_skip(struct rng *rng, uint64_t count)
{
    rng->state += count * INCREMENT;
}

uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    ASSERT(bound > 0);
    return (uint64_t)(((__uint128_t)rng_next(rng) * bound) >> 64);
}

double rng_unit(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

uint64_t rng_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                           (uint32_t)(stream >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * counter[0], b = (uint64_t)0xcd9e8d57u * counter[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ counter[1] ^ key[0], (uint32_t)b,
                            (uint32_t)(a >> 32) ^ counter[3] ^ key[1], (uint32_t)a};
        for (int i = 0; i < 4; i++)
            counter[i] = next[i];
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    return (uint64_t)counter[1] << 32 | counter[0];
}

double rng_unit_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(rng_at(seed, stream, index) >> 11) * 0x1p-53;
}

uint64_t rng_entropy(void)
{
    uint64_t value;
    ssize_t got = getrandom(&value, sizeof value, 0);
    ASSERT(got == sizeof value);
    return value;
}
