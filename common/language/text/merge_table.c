#include "common/language/text/merge_table.h"

#include "common/base/assert.h"

#include <stdlib.h>

#define JOINABLE_BITS_MIN 4096

static uint32_t power_of_two_at_least(uint32_t count, uint32_t from)
{
    while (from < count)
        from *= 2;
    return from;
}

static void add(struct merge_table *table, uint32_t rank)
{
    const struct bpe_merge *merge = &table->merges[rank];
    uint32_t slot = (uint32_t)merge_table_hash(table, merge->left, merge->right) & table->slot_mask;
    for (;; slot = (slot + 1) & table->slot_mask) {
        const struct merge_slot *entry = &table->slots[slot];
        if (entry->rank == MERGE_TABLE_NONE ||
            (entry->left == merge->left && entry->right == merge->right))
            break;
    }
    table->slots[slot] = (struct merge_slot){merge->left, merge->right, rank};
}

void merge_table_init(struct merge_table *table, struct bpe_merge *merges, uint32_t count)
{
    ASSERT(count <= MERGE_TABLE_LIMIT_COUNT);
    uint32_t slots = power_of_two_at_least(2 * count, 64);
    uint32_t bits = power_of_two_at_least(4 * count, JOINABLE_BITS_MIN);
    *table = (struct merge_table){.merges = merges,
                                  .count = count,
                                  .slot_mask = slots - 1,
                                  .slots = malloc(slots * sizeof *table->slots),
                                  .joinable = calloc(bits / 64, sizeof *table->joinable),
                                  .joinable_mask = bits - 1,
                                  .seed = text_hash_seed()};
    ASSERT(table->slots && table->joinable);
    for (uint32_t slot = 0; slot < slots; slot++)
        table->slots[slot].rank = MERGE_TABLE_NONE;
    for (uint32_t rank = 0; rank < count; rank++)
        add(table, rank);
}

void merge_table_deinit(struct merge_table *table)
{
    free(table->merges);
    free(table->slots);
    free(table->joinable);
    *table = (struct merge_table){0};
}

void merge_table_set_joinable(struct merge_table *table, uint32_t last, uint32_t first)
{
    uint32_t bit = (uint32_t)merge_table_hash(table, last, first) & table->joinable_mask;
    table->joinable[bit / 64] |= UINT64_C(1) << bit % 64;
}

void merge_table_set_all_joinable(struct merge_table *table)
{
    memset(table->joinable, 0xFF, (table->joinable_mask / 64 + 1) * sizeof *table->joinable);
}
