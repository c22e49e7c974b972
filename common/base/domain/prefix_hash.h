/* The name of a prompt's beginning: a 128-bit hash over whole blocks of tokens. Each block is
 * chained to the one before it, so that equal names mean equal tokens from the first one on. PURE.
 *
 * It is XXH3-128 (xxHash 0.8, with final values) with fixed seeds, so that workers and routers on
 * all machines give equal names. The seeds hold a version; another way of hashing is another
 * version. The hash is not cryptographic: a client that chooses tokens can make two prefixes
 * collide. A name is therefore never taken for the tokens: the prefix cache compares the tokens. */
#ifndef BATON_BASE_DOMAIN_PREFIX_HASH_H
#define BATON_BASE_DOMAIN_PREFIX_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prefix_hash {
    uint64_t low, high;
};

/* Returns the name of the empty prompt. KV of another model, other arithmetic or another tenant is
 * never shared. `salt`: the tenant's bytes; length 0 is the default tenant. */
struct prefix_hash prefix_hash_root(uint64_t model_hash, uint64_t numerics_id, const void *salt,
                                    size_t salt_length);
/* Returns the name of `parent` with the next block of `count` tokens. */
struct prefix_hash prefix_hash_block(struct prefix_hash parent, const uint32_t *tokens,
                                     uint32_t count);

bool prefix_hash_equal(struct prefix_hash a, struct prefix_hash b);

#endif
