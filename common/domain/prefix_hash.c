#include "common/domain/prefix_hash.h"

#define XXH_STATIC_LINKING_ONLY /* the size of a state, which then stands on the stack */
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tokens are hashed as they lie in memory");

/* Version 1: "baton kv" and the version. A root never equals a block by construction. */
#define SEED_ROOT  UINT64_C(0x6261746f6e722001)
#define SEED_BLOCK UINT64_C(0x6261746f6e622001)

static struct prefix_hash hash_of(uint64_t seed, const uint64_t head[2], const void *bytes,
                                  size_t length)
{
    XXH3_state_t state;
    XXH3_128bits_reset_withSeed(&state, seed);
    XXH3_128bits_update(&state, head, 2 * sizeof *head);
    if (length)
        XXH3_128bits_update(&state, bytes, length);
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    return (struct prefix_hash){.low = hash.low64, .high = hash.high64};
}

struct prefix_hash prefix_hash_root(uint64_t model_hash, uint64_t numerics_id, const void *salt,
                                    size_t salt_length)
{
    return hash_of(SEED_ROOT, (const uint64_t[]){model_hash, numerics_id}, salt, salt_length);
}

struct prefix_hash prefix_hash_block(struct prefix_hash parent, const uint32_t *tokens,
                                     uint32_t count)
{
    return hash_of(SEED_BLOCK, (const uint64_t[]){parent.low, parent.high}, tokens,
                   count * sizeof *tokens);
}

bool prefix_hash_equal(struct prefix_hash a, struct prefix_hash b)
{
    return a.low == b.low && a.high == b.high;
}
