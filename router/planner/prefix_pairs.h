/* The pairs (block, worker) of the prefix index (prefix_index.h): which workers are credited with
 * which blocks. PURE.
 *
 * A block's workers are a set: a few slots, or a bit for each slot. Each worker has the list of its
 * pairs, the least recently used one first, and pairs are found by (block, slot). All in O(1). The
 * number of pairs is bounded; prefix_index.h has the rule by which a full table evicts. A seed
 * keeps clients from aiming names at one place. Owner: one thread. */
#ifndef BATON_ROUTER_PLANNER_PREFIX_PAIRS_H
#define BATON_ROUTER_PLANNER_PREFIX_PAIRS_H

#include "common/base/domain/prefix_hash.h"
#include "common/base/domain/worker_info.h"
#include "common/base/status.h"

#define PAIRS_NONE         UINT32_MAX
#define PAIRS_FEW          4 /* workers of a set that needs no bits */
#define PAIRS_WORDS        (CLUSTER_MAX_WORKERS / 64)
#define PAIRS_MAX_PROMISES 16383 /* open promises of one pair */

/* A block that any worker is credited with, and these workers. */
struct pair_entry {
    struct prefix_hash name;
    uint32_t count, words; /* words > 0: bits */
    union {
        uint16_t few[PAIRS_FEW]; /* [count] slots */
        uint64_t *bits;          /* [words] a bit a slot; further ones are 0 */
        uint32_t next_free;
    } set;
};

/* A credited pair. */
struct prefix_pair {
    uint64_t since;         /* promises with greater ids are open; UINT64_MAX: the pair is free */
    uint32_t entry;         /* free: the next free pair */
    uint32_t before, after; /* in the list of its worker */
    uint16_t slot;
    uint16_t promises : 14, held : 1, used : 1;
};

/* A worker's part. */
struct pair_owner {
    bool present;
    uint32_t first, last; /* pairs, the least recently used one first; PAIRS_NONE: none */
    uint32_t held, credited;
};

/* Ids of entries or pairs, by open addressing. At most half full. */
struct pair_table {
    uint32_t *slots; /* [mask + 1] id + 1; 0: empty. Memory that isn't used stays untouched */
    uint32_t mask;
};

struct prefix_pairs {
    uint32_t limit;
    uint64_t seed;
    struct pair_table names, by_pair;
    struct pair_entry *entries;                          /* [limit] */
    struct prefix_pair *items;                           /* [limit] */
    uint32_t free_entry, free_pair, new_entry, new_pair; /* new_: never used from there on */
    uint32_t count, name_count;
    struct pair_owner owners[CLUSTER_MAX_WORKERS]; /* by slot */
    uint32_t owner_count;
    uint32_t cursor; /* the search for a worker beyond its share goes on there */
    uint64_t evicted;
};

/* STATUS_LIMIT: no memory. Call prefix_pairs_deinit after a failure, too. */
enum status prefix_pairs_init(struct prefix_pairs *pairs, uint32_t limit,
                              uint64_t seed) WARN_UNUSED;
void prefix_pairs_deinit(struct prefix_pairs *pairs);

/* The worker of this slot comes, without pairs, or goes with its pairs. */
void prefix_pairs_join(struct prefix_pairs *pairs, uint32_t slot);
void prefix_pairs_leave(struct prefix_pairs *pairs, uint32_t slot);

const struct pair_entry *prefix_pairs_entry(const struct prefix_pairs *pairs,
                                            struct prefix_hash name); /* NULL: no pair */
bool pair_entry_has(const struct pair_entry *entry, uint32_t slot);
uint32_t prefix_pairs_find(const struct prefix_pairs *pairs, uint32_t slot,
                           struct prefix_hash name); /* PAIRS_NONE: none */
/* Adds a pair that isn't there, neither held nor promised. May evict another one, but not `parent`:
 * the same worker's with the block before, which is evicted after this one (PAIRS_NONE: not there).
 * PAIRS_NONE: there is no room. */
uint32_t prefix_pairs_add(struct prefix_pairs *pairs, uint32_t slot, struct prefix_hash name,
                          uint32_t parent);
/* The worker holds the block or not. A pair that is neither held nor promised is no pair. */
void prefix_pairs_hold(struct prefix_pairs *pairs, uint32_t id, bool held);
/* One promise of the pair less. */
void prefix_pairs_unpromise(struct prefix_pairs *pairs, uint32_t id);

#endif
