#include "common/base/domain/prefix_hash.h"

#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tokens are hashed as they lie in memory");

/* Version 1 of each seed. Different things with equal bytes have different names. */
#define SEED_ROOT   UINT64_C(0x6261746f6e722001)
#define SEED_BLOCK  UINT64_C(0x6261746f6e622001)
#define SEED_SALT   UINT64_C(0x6261746f6e732001)
#define SEED_TOKENS UINT64_C(0x6261746f6e742001)

/* Hashes 16 bytes together with the hash of a content. It takes two calls: one call would need a
 * copy of the content, or the state of the library. The state's layout changes between versions. */
static struct prefix_hash hash_of(uint64_t seed, uint64_t low, uint64_t high, XXH128_hash_t content)
{
    const uint64_t words[] = {low, high, content.low64, content.high64};
    XXH128_hash_t hash = XXH3_128bits_withSeed(words, sizeof words, seed);
    return (struct prefix_hash){.low = hash.low64, .high = hash.high64};
}

struct prefix_hash prefix_hash_root(uint64_t model_hash, uint64_t numerics_id, const void *salt,
                                    size_t salt_length)
{
    return hash_of(SEED_ROOT, model_hash, numerics_id,
                   XXH3_128bits_withSeed(salt, salt_length, SEED_SALT));
}

struct prefix_hash prefix_hash_block(struct prefix_hash parent, const uint32_t *tokens,
                                     uint32_t count)
{
    return hash_of(SEED_BLOCK, parent.low, parent.high,
                   XXH3_128bits_withSeed(tokens, count * sizeof *tokens, SEED_TOKENS));
}

bool prefix_hash_equal(struct prefix_hash a, struct prefix_hash b)
{
    return a.low == b.low && a.high == b.high;
}
