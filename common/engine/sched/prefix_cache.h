/* Remembers which KV blocks hold which beginnings of prompts, so that those are not computed again.
 * PURE: ids, tokens and hashes; no KV bytes.
 *
 * It keeps whole blocks only, after their last row is computed. A block is found by its name
 * (prefix_hash.h). It is a hit if its tokens and the blocks before it are the same, too: when two
 * names collide, that is a miss, never another prompt's KV. Numerics id, model and tenant are part
 * of the root's name, so none of them ever sees another's blocks.
 *
 * A sequence uses it so:
 *     chain = prefix_chain_start(root);
 *     n = prefix_cache_lookup(cache, &chain, tokens, count, hold, blocks);
 *         (n blocks, held for it; it takes the others from kv_blocks)
 *     for each block that becomes whole, in order:
 *         prefix_cache_insert(cache, &chain, tokens + chain.length * block_tokens,
 *                             blocks[chain.length], &known);
 *     at its end it gives its holds (kv_blocks_give); cached blocks stay until they are needed:
 *         prefix_cache_evict(cache, missing), then kv_blocks_take.
 *
 * It evicts blocks without holds that no cached block continues: so every cached block can be
 * reached from its first block. The cache watches its kv_blocks, which must outlive it.
 *
 * A reader (a router, through the worker) learns by events which blocks are stored. The reader
 * applies the events in order to an empty set of names. Each has a number, from 1, one more than
 * the last: a gap means lost events, and the reader asks for a restart. A stream begins with
 * PREFIX_CLEARED and then lists the stored blocks in no particular order, while changes go on. It
 * begins again after a restart, and when more events wait than the ring holds: a slow reader costs
 * a listing, never memory.
 *
 * Memory: for each block its tokens and about 150 bytes, allocated once. There are never more
 * entries than blocks. Lookup and insert are O(log n) a block. Owner: the step thread (or a
 * simulation).
 */
#ifndef BATON_ENGINE_SCHED_PREFIX_CACHE_H
#define BATON_ENGINE_SCHED_PREFIX_CACHE_H

#include "common/base/domain/prefix_hash.h"
#include "common/engine/sched/eviction.h"
#include "common/engine/sched/kv_blocks.h"

struct prefix_cache;

struct prefix_cache_config {
    struct kv_blocks *blocks; /* borrowed; has no watcher yet */
    uint32_t block_tokens;
    enum eviction_policy policy;
    struct eviction_cost cost;
    /* Random in a worker, so that no client can aim names at one place of the hash table. No result
     * depends on it. */
    uint64_t table_seed;
    uint32_t event_capacity; /* events that wait for their reader; > 0 */
    /* NULL: prefix_hash_block. Tests make names collide. */
    struct prefix_hash (*hash_block)(struct prefix_hash parent, const uint32_t *tokens,
                                     uint32_t count);
};

/* STATUS_LIMIT: out of memory. */
enum status prefix_cache_create(const struct prefix_cache_config *config,
                                struct prefix_cache **cache) WARN_UNUSED;
void prefix_cache_destroy(struct prefix_cache *cache); /* forgets everything first */

/* A sequence's place: the name of its whole blocks so far, and the cached block that ends them. */
struct prefix_chain {
    struct prefix_hash hash; /* at the start the root's */
    uint32_t length;         /* blocks */
    uint32_t last;           /* cached block; meaningless at length 0 */
    uint64_t stamp;          /* its content's; 0: the chain is cut, the rest can't be cached */
};
struct prefix_chain prefix_chain_start(struct prefix_hash root);

/* Result of a lookup that holds nothing: `blocks` hits. `idle` of them could be evicted now; once
 * held they can't. */
struct prefix_match {
    uint32_t blocks, idle;
};
/* Counts nothing: for a sequence that may not fit. */
struct prefix_match prefix_cache_match(const struct prefix_cache *cache, struct prefix_hash root,
                                       const uint32_t *tokens, uint32_t count);

/* Finds the longest run of cached blocks from the start of `tokens`. Adds one hold to each and
 * counts it as asked for. At most (count - 1) / block_tokens blocks: the last row must be computed.
 * The chain is at its start. Writes the ids, returns how many. */
uint32_t prefix_cache_lookup(struct prefix_cache *cache, struct prefix_chain *chain,
                             const uint32_t *tokens, uint32_t count, enum kv_hold hold,
                             uint32_t *ids);

enum prefix_insert {
    PREFIX_INSERTED, /* the block is cached now: it must not be written any more */
    /* Block `known` has the same content: the caller may share it and give its own. */
    PREFIX_KNOWN,
    /* It can't be cached: other tokens have its name, or the block before it is not cached. */
    PREFIX_PRIVATE,
};
/* The next block_tokens tokens of the chain are computed, into `block`, which the caller holds.
 * Moves the chain on in any case. */
enum prefix_insert prefix_cache_insert(struct prefix_cache *cache, struct prefix_chain *chain,
                                       const uint32_t *tokens, uint32_t block, uint32_t *known);

/* Frees up to `count` blocks, those worth least first, and returns how many. It can free all that
 * are KV_BLOCK_CACHED, except prefix_cache_stuck. */
uint32_t prefix_cache_evict(struct prefix_cache *cache, uint32_t count);
/* Forgets all blocks. Blocks with holds stay with their holders. */
void prefix_cache_clear(struct prefix_cache *cache);

enum prefix_event_kind {
    PREFIX_CLEARED, /* forget all names; no other field counts */
    PREFIX_STORED,
    PREFIX_REMOVED, /* only `hash` counts */
};
struct prefix_event {
    uint64_t number;
    enum prefix_event_kind kind;
    struct prefix_hash hash, parent; /* parent: of the block before it, or the root */
    uint32_t position;               /* blocks before it in its prompt */
    uint32_t token_count;            /* tokens of the block */
};
/* Takes up to `limit` events for the one reader; returns how many. */
uint32_t prefix_cache_read_events(struct prefix_cache *cache, struct prefix_event *events,
                                  uint32_t limit);
void prefix_cache_restart_events(struct prefix_cache *cache);

struct prefix_cache_counters {
    uint64_t asked, hits; /* blocks of lookups */
    uint64_t inserted, known, kept_private, evicted;
    uint64_t collisions; /* names that were found with other tokens */
    uint64_t changes;    /* blocks stored or removed, and clears: the changes that events report */
};
struct prefix_cache_counters prefix_cache_counters(const struct prefix_cache *cache);
uint32_t prefix_cache_count(const struct prefix_cache *cache); /* blocks, held or not */
/* Returns the cached blocks without holds that can't be evicted, since a block behind them has a
 * hold: two sequences computed the same at the same time. */
uint32_t prefix_cache_stuck(const struct prefix_cache *cache);

#endif
