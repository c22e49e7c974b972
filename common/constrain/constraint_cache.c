#include "common/constrain/constraint_cache.h"

#include "common/base/assert.h"
#include "common/base/str.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    struct constraint_entry entry; /* constraint NULL: free */
    enum constraint_kind kind;
    char *text;
    size_t length, bytes;
    uint64_t hash, last_taken;
    uint32_t holders;
};

struct constraint_cache {
    const struct token_trie *trie;
    struct constraint_cache_limits limits;
    struct slot **slots; /* each its own memory: entries are handed out */
    uint64_t clock;
    struct constraint_cache_counts counts;
};

struct constraint_cache *constraint_cache_create(const struct token_trie *trie,
                                                 struct constraint_cache_limits limits)
{
    struct constraint_cache *cache = calloc(1, sizeof *cache);
    ASSERT(cache && limits.max_entries >= 1 && limits.max_entries <= CONSTRAINT_CACHE_MAX_ENTRIES);
    cache->trie = trie;
    cache->limits = limits;
    cache->slots = calloc(limits.max_entries, sizeof(struct slot *));
    ASSERT(cache->slots);
    return cache;
}

static void drop(struct constraint_cache *cache, struct slot **slot)
{
    struct slot *old = *slot;
    ASSERT(!old->holders);
    cache->counts.entries--;
    cache->counts.bytes -= old->bytes;
    constraint_masks_destroy(old->entry.masks);
    constraint_destroy((struct constraint *)old->entry.constraint);
    free(old->text);
    free(old);
    *slot = NULL;
}

void constraint_cache_destroy(struct constraint_cache *cache)
{
    if (!cache)
        return;
    for (uint32_t i = 0; i < cache->limits.max_entries; i++)
        if (cache->slots[i])
            drop(cache, &cache->slots[i]);
    free(cache->slots);
    free(cache);
}

static struct slot *find(const struct constraint_cache *cache, enum constraint_kind kind,
                         const char *text, size_t length, uint64_t hash)
{
    for (uint32_t i = 0; i < cache->limits.max_entries; i++) {
        struct slot *slot = cache->slots[i];
        if (slot && slot->hash == hash && slot->kind == kind && slot->length == length &&
            (!length || !memcmp(slot->text, text, length)))
            return slot;
    }
    return NULL;
}

/* A place for so many bytes, for which others go if they must; NULL where they are all held. */
static struct slot **make_room(struct constraint_cache *cache, size_t bytes)
{
    for (;;) {
        struct slot **empty = NULL, **oldest = NULL;
        for (uint32_t i = 0; i < cache->limits.max_entries; i++) {
            struct slot **slot = &cache->slots[i];
            if (!*slot)
                empty = slot;
            else if (!(*slot)->holders && (!oldest || (*slot)->last_taken < (*oldest)->last_taken))
                oldest = slot;
        }
        if (empty && cache->counts.bytes + bytes <= cache->limits.max_bytes)
            return empty;
        if (!oldest)
            return NULL;
        drop(cache, oldest);
        cache->counts.dropped++;
    }
}

static enum status add(struct constraint_cache *cache, struct slot made, const char *text,
                       struct slot **slot, struct error *err)
{
    size_t set_bytes = cache->trie->words * sizeof(uint32_t) + 160;
    made.bytes = constraint_bytes(made.entry.constraint) + made.length +
                 (cache->limits.kept_sets + 1u) * set_bytes;
    struct slot **place = make_room(cache, made.bytes);
    if (!place)
        return error_set(err, STATUS_LIMIT,
                         "there is no room for another constraint of %zu bytes now (%u are in use)",
                         made.bytes, cache->counts.entries);
    made.text = malloc(made.length + 1);
    made.entry.masks =
        constraint_masks_create(made.entry.constraint, cache->trie, cache->limits.kept_sets);
    *place = malloc(sizeof **place);
    ASSERT(made.text && *place);
    if (made.length)
        memcpy(made.text, text, made.length);
    **place = made;
    *slot = *place;
    cache->counts.entries++;
    cache->counts.bytes += made.bytes;
    return STATUS_OK;
}

enum status constraint_cache_take(struct constraint_cache *cache, enum constraint_kind kind,
                                  const char *text, size_t length,
                                  const struct constraint_entry **entry, struct error *err)
{
    uint64_t hash = hash_bytes(text, length, HASH_SEED + kind);
    struct slot *slot = find(cache, kind, text, length, hash);
    if (slot) {
        cache->counts.found++;
    } else {
        struct constraint *constraint;
        TRY(constraint_compile(kind, text, length, &constraint, err));
        struct slot made = {
            .entry = {.constraint = constraint}, .kind = kind, .length = length, .hash = hash};
        enum status status = add(cache, made, text, &slot, err);
        if (status != STATUS_OK) {
            constraint_destroy(constraint);
            return status;
        }
        cache->counts.compiled++;
    }
    slot->holders++;
    slot->last_taken = ++cache->clock;
    *entry = &slot->entry;
    return STATUS_OK;
}

void constraint_cache_give(struct constraint_cache *cache, const struct constraint_entry *entry)
{
    for (uint32_t i = 0; i < cache->limits.max_entries; i++) {
        struct slot *slot = cache->slots[i];
        if (slot && &slot->entry == entry) {
            ASSERT(slot->holders);
            slot->holders--;
            return;
        }
    }
    ASSERT(false);
}

struct constraint_cache_counts constraint_cache_counts(const struct constraint_cache *cache)
{
    return cache->counts;
}
