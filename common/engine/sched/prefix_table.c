#include "common/engine/sched/prefix_table.h"

#include "common/base/assert.h"

#include <stdlib.h>

struct slot {
    struct prefix_hash hash;
    uint32_t block; /* PREFIX_TABLE_NONE: empty */
};

struct prefix_table {
    uint64_t seed;
    uint32_t limit_count, count;
    size_t mask; /* slots - 1; at most half of them are taken */
    struct slot slots[];
};

enum status prefix_table_create(uint32_t limit_count, uint64_t seed, struct prefix_table **out)
{
    size_t slots = 4;
    while (slots < 2 * (size_t)limit_count)
        slots *= 2;
    struct prefix_table *table = malloc(sizeof *table + slots * sizeof *table->slots);
    if (!table)
        return STATUS_LIMIT;
    *table = (struct prefix_table){.seed = seed, .limit_count = limit_count, .mask = slots - 1};
    for (size_t i = 0; i < slots; i++)
        table->slots[i].block = PREFIX_TABLE_NONE;
    *out = table;
    return STATUS_OK;
}

void prefix_table_destroy(struct prefix_table *table)
{
    free(table);
}

/* Where the name's search begins. Both rounds are splitmix64's. */
static size_t home_of(const struct prefix_table *table, struct prefix_hash hash)
{
    uint64_t x = hash.low ^ table->seed;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x ^= hash.high;
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (size_t)(x ^ x >> 31) & table->mask;
}

/* The slot that has the name, or the empty one at which its search ends. */
static size_t slot_of(const struct prefix_table *table, struct prefix_hash hash)
{
    size_t i = home_of(table, hash);
    while (table->slots[i].block != PREFIX_TABLE_NONE &&
           !prefix_hash_equal(table->slots[i].hash, hash))
        i = (i + 1) & table->mask;
    return i;
}

uint32_t prefix_table_find(const struct prefix_table *table, struct prefix_hash hash)
{
    return table->slots[slot_of(table, hash)].block;
}

void prefix_table_put(struct prefix_table *table, struct prefix_hash hash, uint32_t block)
{
    size_t i = slot_of(table, hash);
    ASSERT(table->slots[i].block == PREFIX_TABLE_NONE && table->count < table->limit_count);
    table->slots[i] = (struct slot){hash, block};
    table->count++;
}

void prefix_table_remove(struct prefix_table *table, struct prefix_hash hash)
{
    size_t hole = slot_of(table, hash);
    ASSERT(table->slots[hole].block != PREFIX_TABLE_NONE);
    /* Without a grave: whoever's search would end at the hole too early moves into it. */
    for (size_t i = (hole + 1) & table->mask; table->slots[i].block != PREFIX_TABLE_NONE;
         i = (i + 1) & table->mask) {
        size_t home = home_of(table, table->slots[i].hash);
        if (((i - home) & table->mask) >= ((i - hole) & table->mask)) {
            table->slots[hole] = table->slots[i];
            hole = i;
        }
    }
    table->slots[hole].block = PREFIX_TABLE_NONE;
    table->count--;
}
