/* Hash map from a 64-bit key, or from a string, to a pointer. Open addressing; grows to a limit.
 * Owner: one thread. The map owns its copies of string keys, never the values. Keys may come from
 * outside: the hash is seeded at start, so that no client can aim collisions. */
#ifndef BATON_BASE_MAP_H
#define BATON_BASE_MAP_H

#include "common/base/status.h"

#include <stdint.h>

struct map;

enum status map_create(size_t limit_count, struct map **map) WARN_UNUSED;
void map_destroy(struct map *map);
size_t map_count(const struct map *map);

/* Replaces the value of a key that is there. `value` isn't NULL. STATUS_LIMIT: the map is full. */
enum status map_put(struct map *map, uint64_t key, void *value) WARN_UNUSED;
void *map_get(const struct map *map, uint64_t key); /* NULL when absent */
void *map_take(struct map *map, uint64_t key);      /* removes; NULL when absent */

enum status map_put_str(struct map *map, const char *key, void *value) WARN_UNUSED;
void *map_get_str(const struct map *map, const char *key);
void *map_take_str(struct map *map, const char *key);

/* Iterates: `for (size_t i = 0; (value = map_next(map, &i)); )`. The caller may take the entry just
 * returned, and may put nothing. */
void *map_next(const struct map *map, size_t *cursor);

#endif
