/* From the name of a prefix to the block that ends it. PURE. A hash table with open addressing,
 * allocated once for `limit_count` names. Where names lie in it depends on `seed`, so that nobody
 * who chooses tokens can aim them at one place. */
#ifndef BATON_ENGINE_SCHED_PREFIX_TABLE_H
#define BATON_ENGINE_SCHED_PREFIX_TABLE_H

#include "common/base/domain/prefix_hash.h"
#include "common/base/status.h"

#define PREFIX_TABLE_NONE UINT32_MAX

struct prefix_table;

enum status prefix_table_create(uint32_t limit_count, uint64_t seed,
                                struct prefix_table **table) WARN_UNUSED;
void prefix_table_destroy(struct prefix_table *table);

uint32_t prefix_table_find(const struct prefix_table *table, struct prefix_hash hash);
/* The name is not there yet, and fewer than limit_count are. */
void prefix_table_put(struct prefix_table *table, struct prefix_hash hash, uint32_t block);
/* It is there. */
void prefix_table_remove(struct prefix_table *table, struct prefix_hash hash);

#endif
