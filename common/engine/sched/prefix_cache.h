/* Which KV blocks hold which prompts' beginnings, so that those aren't computed again. PURE: ids,
 * tokens and hashes; no KV bytes.
 *
 * Whole blocks only, and only those whose last row is computed. A block is found by its name
 * (prefix_hash.h) and is a hit when its tokens and the blocks before it are the same, too: a
 * collision of names is a miss, never another prompt's KV. Numerics id, model and tenant are in the
 * name of the root, so none of them ever sees another's blocks.
 *
 * A sequence's use:
 *     chain = prefix_chain_start(root);
 *     n = prefix_cache_lookup(cache, &chain, tokens, count, hold, blocks);   n blocks, held for it; it takes the rest
 *     after rows are computed, for each block that is now whole, in order:
 *         prefix_cache_insert(cache, &chain, tokens + chain.length * block_tokens, blocks[chain.length], &known);
 *     at its end it gives its holds as always (kv_blocks_give); what is cached stays until somebody needs the room:
 *         prefix_cache_evict(cache, missing), then kv_blocks_take.
 *
 * Evicted are blocks that nobody holds and that no cached block continues, so that what is cached
 * is always reached from its first block. A kv_blocks that has a cache is watched by it: it must
 * outlive it.
 *
 * Memory: for each block its tokens and about 150 bytes, allocated once; there are never more
 * entries than blocks. Lookup and insert are O(log n) a block. Owner: the step thread (or a
 * simulation).
 */
#ifndef BATON_ENGINE_SCHED_PREFIX_CACHE_H
#define BATON_ENGINE_SCHED_PREFIX_CACHE_H

#include "common/engine/sched/eviction.h"
#include "common/engine/sched/kv_blocks.h"
#include "common/engine/sched/prefix_events.h"

struct prefix_cache;

struct prefix_cache_config {
    struct kv_blocks *blocks; /* borrowed; has no watcher yet */
    uint32_t block_tokens;
    enum eviction_policy policy;
    struct eviction_cost cost;
    uint64_t table_seed; /* random in a worker; anything in a simulation, no result depends on it */
    uint32_t event_capacity; /* events that wait for their reader; > 0 */
    /* NULL: prefix_hash_block. Tests make names collide. */
    struct prefix_hash (*hash_block)(struct prefix_hash parent, const uint32_t *tokens,
                                     uint32_t count);
};

/* STATUS_LIMIT: out of memory. */
enum status prefix_cache_create(const struct prefix_cache_config *config,
                                struct prefix_cache **cache) WARN_UNUSED;
void prefix_cache_destroy(struct prefix_cache *cache); /* forgets everything first */

/* How far a sequence has come: the name of its whole blocks so far, and the cached block that ends
 * them. */
struct prefix_chain {
    struct prefix_hash hash; /* the root's at the start */
    uint32_t length;         /* blocks */
    uint32_t last;           /* cached block; meaningless at length 0 */
    uint64_t stamp;          /* of its content; 0: the chain is cut, what follows can't be cached */
};
struct prefix_chain prefix_chain_start(struct prefix_hash root);

/* What a lookup would find: `blocks`, of which `idle` could be evicted now, and couldn't once they
 * are held. Counts nothing: for who doesn't know yet whether it fits. */
struct prefix_match {
    uint32_t blocks, idle;
};
struct prefix_match prefix_cache_match(const struct prefix_cache *cache, struct prefix_hash root,
                                       const uint32_t *tokens, uint32_t count);

/* The longest run of cached blocks from the start of `tokens`, each with one hold for the caller,
 * and counted as asked for. At most (count - 1) / block_tokens: somebody must compute the last row.
 * The chain is at its start; returns how many ids it wrote. */
uint32_t prefix_cache_lookup(struct prefix_cache *cache, struct prefix_chain *chain,
                             const uint32_t *tokens, uint32_t count, enum kv_hold hold,
                             uint32_t *ids);

enum prefix_insert {
    PREFIX_INSERTED, /* the block is cached now: nobody may write into it any more */
    /* another block has the same content; `known` is its id, the caller may share it and give its
     * own */
    PREFIX_KNOWN,
    /* can't be cached: its name is taken by other tokens, or what comes before it is not cached */
    PREFIX_PRIVATE,
};
/* The next block_tokens tokens of the chain are computed, into `block`, which the caller holds.
 * Moves the chain on in any case. */
enum prefix_insert prefix_cache_insert(struct prefix_cache *cache, struct prefix_chain *chain,
                                       const uint32_t *tokens, uint32_t block, uint32_t *known);

/* Frees up to `count` blocks, those worth least first; returns how many: all that are
 * KV_BLOCK_CACHED, but prefix_cache_stuck. */
uint32_t prefix_cache_evict(struct prefix_cache *cache, uint32_t count);
/* Forgets all blocks, also held ones, which stay with their holders. */
void prefix_cache_clear(struct prefix_cache *cache);

/* Up to `limit` events for the one reader; see prefix_events.h. */
uint32_t prefix_cache_read_events(struct prefix_cache *cache, struct prefix_event *events,
                                  uint32_t limit);
void prefix_cache_restart_events(struct prefix_cache *cache);

struct prefix_cache_counters {
    uint64_t asked, hits; /* blocks of lookups */
    uint64_t inserted, known, kept_private, evicted;
    uint64_t collisions; /* names that were found with other tokens */
    uint64_t changes;    /* blocks that were stored or removed, and clears: what events tell */
};
struct prefix_cache_counters prefix_cache_counters(const struct prefix_cache *cache);
uint32_t prefix_cache_count(const struct prefix_cache *cache); /* blocks, held or not */
/* Blocks that nobody holds and that can't be evicted, since somebody holds one behind them: two
 * computed the same at the same time. */
uint32_t prefix_cache_stuck(const struct prefix_cache *cache);

#endif
