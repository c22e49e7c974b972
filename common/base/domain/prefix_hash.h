/* The name of a prompt's beginning: a 128-bit hash over whole blocks of tokens, each chained to the
 * one before it, so that equal names mean equal tokens from the first one on. PURE.
 *
 * XXH3-128 (xxHash 0.8, whose values are final) with fixed seeds: workers and routers of all
 * machines give equal names. The seeds hold a version; another way of hashing is another version.
 * The hash is not cryptographic: who can choose tokens can make two prefixes collide, so a name is
 * never taken for the tokens. The prefix cache compares those. */
#ifndef BATON_BASE_DOMAIN_PREFIX_HASH_H
#define BATON_BASE_DOMAIN_PREFIX_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prefix_hash {
    uint64_t low, high;
};

/* What stands before the first token: KV of another model, of other arithmetic or of another tenant
 * is never shared. `salt`: the tenant's, any bytes; length 0 is the default tenant. */
struct prefix_hash prefix_hash_root(uint64_t model_hash, uint64_t numerics_id, const void *salt,
                                    size_t salt_length);
/* The block of `count` tokens behind `parent`. */
struct prefix_hash prefix_hash_block(struct prefix_hash parent, const uint32_t *tokens,
                                     uint32_t count);

bool prefix_hash_equal(struct prefix_hash a, struct prefix_hash b);

#endif
