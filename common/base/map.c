#include "common/base/map.h"

#include "common/base/assert.h"
#include "common/base/rng.h"
#include "common/base/str.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MIN_SLOTS 16

struct slot {
    uint64_t hash;
    uint64_t key;
    char *text;  /* string key, or NULL */
    void *value; /* NULL: free, or a tombstone when `used` */
    bool used;
};

struct map {
    uint64_t seed;
    size_t count, filled, limit, slot_count; /* filled counts tombstones too */
    struct slot *slots;
};

enum status map_create(size_t limit_count, struct map **out)
{
    struct map *map = calloc(1, sizeof *map);
    if (!map)
        return STATUS_LIMIT;
    map->seed = rng_entropy();
    map->limit = limit_count;
    map->slot_count = MIN_SLOTS;
    map->slots = calloc(map->slot_count, sizeof *map->slots);
    if (!map->slots) {
        free(map);
        return STATUS_LIMIT;
    }
    *out = map;
    return STATUS_OK;
}

void map_destroy(struct map *map)
{
    if (!map)
        return;
    for (size_t i = 0; i < map->slot_count; i++)
        free(map->slots[i].text);
    free(map->slots);
    free(map);
}

size_t map_count(const struct map *map)
{
    return map->count;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t key_hash(const struct map *map, uint64_t key, const char *text)
{
    return text ? mix(hash_bytes(text, strlen(text), map->seed)) : mix(key ^ map->seed);
}

static bool slot_matches(const struct slot *slot, uint64_t hash, uint64_t key, const char *text)
{
    if (!slot->value || slot->hash != hash)
        return false;
    return text ? slot->text && !strcmp(slot->text, text) : !slot->text && slot->key == key;
}

/* Returns the slot that holds the key, or NULL. */
static struct slot *map_find(const struct map *map, uint64_t key, const char *text)
{
    uint64_t hash = key_hash(map, key, text);
    for (size_t i = 0; i < map->slot_count; i++) {
        struct slot *slot = &map->slots[(hash + i) & (map->slot_count - 1)];
        if (!slot->used)
            return NULL;
        if (slot_matches(slot, hash, key, text))
            return slot;
    }
    return NULL;
}

static enum status map_rehash(struct map *map, size_t slot_count)
{
    struct slot *old = map->slots;
    size_t old_count = map->slot_count;
    struct slot *slots = calloc(slot_count, sizeof *slots);
    if (!slots)
        return STATUS_LIMIT;
    for (size_t i = 0; i < old_count; i++) {
        if (!old[i].value)
            continue;
        size_t at = old[i].hash & (slot_count - 1);
        while (slots[at].used)
            at = (at + 1) & (slot_count - 1);
        slots[at] = old[i];
    }
    free(old);
    map->slots = slots;
    map->slot_count = slot_count;
    map->filled = map->count;
    return STATUS_OK;
}

static enum status map_insert(struct map *map, uint64_t key, const char *text, void *value)
{
    ASSERT(value);
    struct slot *slot = map_find(map, key, text);
    if (slot) {
        slot->value = value;
        return STATUS_OK;
    }
    if (map->count >= map->limit)
        return STATUS_LIMIT;
    if ((map->filled + 1) * 4 > map->slot_count * 3) {
        size_t slot_count = map->slot_count;
        while ((map->count + 1) * 2 > slot_count)
            slot_count *= 2;
        TRY(map_rehash(map, slot_count));
    }
    char *copy = NULL;
    if (text && !(copy = strdup(text)))
        return STATUS_LIMIT;
    uint64_t hash = key_hash(map, key, text);
    size_t at = hash & (map->slot_count - 1);
    while (map->slots[at].value)
        at = (at + 1) & (map->slot_count - 1);
    map->filled += !map->slots[at].used;
    map->slots[at] =
        (struct slot){.hash = hash, .key = key, .text = copy, .value = value, .used = true};
    map->count++;
    return STATUS_OK;
}

static void *map_remove(struct map *map, uint64_t key, const char *text)
{
    struct slot *slot = map_find(map, key, text);
    if (!slot)
        return NULL;
    void *value = slot->value;
    free(slot->text);
    slot->text = NULL;
    slot->value = NULL; /* stays `used`: a tombstone, so that probes go on */
    map->count--;
    return value;
}

enum status map_put(struct map *map, uint64_t key, void *value)
{
    return map_insert(map, key, NULL, value);
}

void *map_get(const struct map *map, uint64_t key)
{
    struct slot *slot = map_find(map, key, NULL);
    return slot ? slot->value : NULL;
}

void *map_take(struct map *map, uint64_t key)
{
    return map_remove(map, key, NULL);
}

enum status map_put_str(struct map *map, const char *key, void *value)
{
    return map_insert(map, 0, key, value);
}

void *map_get_str(const struct map *map, const char *key)
{
    struct slot *slot = map_find(map, 0, key);
    return slot ? slot->value : NULL;
}

void *map_take_str(struct map *map, const char *key)
{
    return map_remove(map, 0, key);
}

void *map_next(const struct map *map, size_t *cursor)
{
    while (*cursor < map->slot_count) {
        void *value = map->slots[(*cursor)++].value;
        if (value)
            return value;
    }
    return NULL;
}
