/* The merges of a BPE model: which two tokens join, in which rank, to what. Immutable once made and
 * shared by threads.
 *
 * It also knows between which symbols (the tokens that a word starts from) a merge could ever reach
 * across. Where none can, a word falls into segments that don't know of each other: each is encoded
 * on its own, with the same outcome. */
#ifndef BATON_LANGUAGE_TEXT_MERGE_TABLE_H
#define BATON_LANGUAGE_TEXT_MERGE_TABLE_H

#include "common/language/text/text_hash.h"

#include <stdbool.h>

#define MERGE_TABLE_LIMIT_COUNT (1u << 20) /* the largest published files have 600,000 */
#define MERGE_TABLE_NONE        UINT32_MAX

struct bpe_merge {
    uint32_t left, right; /* tokens */
    uint32_t joined;
};

struct merge_slot {
    uint32_t left, right;
    uint32_t rank; /* MERGE_TABLE_NONE: empty */
};

struct merge_table {
    struct bpe_merge *merges; /* by rank */
    uint32_t count;
    uint32_t slot_mask;
    struct merge_slot *slots;
    uint64_t *joinable; /* a bit for each hash of two symbols: set where they may be joined */
    uint32_t joinable_mask;
    uint64_t seed;
};

/* Takes `merges` (malloc'ed, at most MERGE_TABLE_LIMIT_COUNT). Of equal pairs the last one
 * counts. */
void merge_table_init(struct merge_table *table, struct bpe_merge *merges, uint32_t count);
void merge_table_deinit(struct merge_table *table);

/* Told by the owner for each merge: its left part may end in `last`, its right part start with
 * `first`. */
void merge_table_set_joinable(struct merge_table *table, uint32_t last, uint32_t first);
void merge_table_set_all_joinable(struct merge_table *table);

static inline uint64_t merge_table_hash(const struct merge_table *table, uint32_t left,
                                        uint32_t right)
{
    return text_hash_u64((uint64_t)left << 32 | right, table->seed);
}

/* False only where no merge ever joins something that ends in `last` to something that starts with
 * `first`. */
static inline bool merge_table_joinable(const struct merge_table *table, uint32_t last,
                                        uint32_t first)
{
    uint32_t bit = (uint32_t)merge_table_hash(table, last, first) & table->joinable_mask;
    return table->joinable[bit / 64] >> bit % 64 & 1;
}

/* The rank of the pair, or MERGE_TABLE_NONE. At most half of the slots are taken. */
static inline uint32_t merge_table_rank(const struct merge_table *table, uint32_t left,
                                        uint32_t right)
{
    uint32_t slot = (uint32_t)merge_table_hash(table, left, right) & table->slot_mask;
    for (;; slot = (slot + 1) & table->slot_mask) {
        const struct merge_slot *entry = &table->slots[slot];
        if (entry->rank == MERGE_TABLE_NONE || (entry->left == left && entry->right == right))
            return entry->rank;
    }
}

#endif
