#include "common/language/constrain/constraint_cache.h"

#include "common/base/assert.h"
#include "common/base/str.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    struct constraint_entry entry;
    struct constraint_source *source;
    size_t bytes;
    uint64_t hash, last_taken, owner;
    uint32_t holders;
};

/* A source that was refused for good. */
struct refused {
    struct constraint_source *source; /* NULL: free */
    uint64_t hash, last_taken;
    struct error err;
};

struct constraint_cache {
    const struct token_trie *trie;
    struct constraint_cache_limits limits;
    struct slot **slots; /* each has memory of its own, as entries are handed out */
    struct refused refused[CONSTRAINT_CACHE_MAX_REFUSED];
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
    free(old->source);
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
    for (uint32_t i = 0; i < CONSTRAINT_CACHE_MAX_REFUSED; i++)
        free(cache->refused[i].source);
    free(cache->slots);
    free(cache);
}

static struct slot *find(const struct constraint_cache *cache,
                         const struct constraint_source *source, uint64_t hash)
{
    for (uint32_t i = 0; i < cache->limits.max_entries; i++) {
        struct slot *slot = cache->slots[i];
        if (slot && slot->hash == hash && constraint_source_equal(slot->source, source))
            return slot;
    }
    return NULL;
}

/* Returns the place of the refused source, or the place that it may take. */
static struct refused *refused_place(struct constraint_cache *cache,
                                     const struct constraint_source *source, uint64_t hash)
{
    struct refused *oldest = cache->refused;
    for (uint32_t i = 0; i < CONSTRAINT_CACHE_MAX_REFUSED; i++) {
        struct refused *refused = &cache->refused[i];
        if (refused->source && refused->hash == hash &&
            constraint_source_equal(refused->source, source))
            return refused;
        if (refused->last_taken < oldest->last_taken)
            oldest = refused;
    }
    return oldest;
}

/* Remembers the error. Returns STATUS_INVALID. */
static enum status refuse(struct constraint_cache *cache, const struct constraint_source *source,
                          uint64_t hash, const struct error *err)
{
    struct refused *refused = refused_place(cache, source, hash);
    free(refused->source);
    *refused = (struct refused){constraint_source_copy(source), hash, ++cache->clock, *err};
    ASSERT(refused->source);
    cache->counts.refused++;
    return STATUS_INVALID;
}

/* Returns the bytes that an owner may fill. */
static size_t share_of(const struct constraint_cache *cache, uint64_t owner)
{
    return owner ? cache->limits.max_bytes / 2 : cache->limits.max_bytes;
}

/* Returns the bytes that the owner may still add now. */
static size_t room_of(const struct constraint_cache *cache, uint64_t owner)
{
    size_t share = share_of(cache, owner), own = 0;
    for (uint32_t i = 0; i < cache->limits.max_entries; i++)
        if (cache->slots[i] && cache->slots[i]->owner == owner)
            own += cache->slots[i]->bytes;
    size_t left = cache->limits.max_bytes - cache->counts.bytes;
    size_t of_share = share > own ? share - own : 0;
    return left < of_share ? left : of_share;
}

/* Returns the entry that goes next: not held, not taken for longest, and if `own`, of this owner,
 * as its share is full. NULL: all are held. */
static struct slot **next_to_go(const struct constraint_cache *cache, uint64_t owner, bool own)
{
    struct slot **oldest = NULL;
    for (uint32_t i = 0; i < cache->limits.max_entries; i++) {
        struct slot **slot = &cache->slots[i];
        if (*slot && !(*slot)->holders && (!own || (*slot)->owner == owner) &&
            (!oldest || (*slot)->last_taken < (*oldest)->last_taken))
            oldest = slot;
    }
    return oldest;
}

/* Returns whether `bytes` would fit if all entries went that aren't held. */
static bool may_fit(const struct constraint_cache *cache, uint64_t owner, size_t bytes)
{
    size_t held = 0, own = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < cache->limits.max_entries; i++) {
        const struct slot *slot = cache->slots[i];
        if (!slot || !slot->holders)
            continue;
        count++;
        held += slot->bytes;
        own += slot->owner == owner ? slot->bytes : 0;
    }
    return count < cache->limits.max_entries && held + bytes <= cache->limits.max_bytes &&
           own + bytes <= share_of(cache, owner);
}

/* Returns an empty place with room for `bytes`; drops entries for it. NULL: too much is held. */
static struct slot **make_room(struct constraint_cache *cache, uint64_t owner, size_t bytes)
{
    if (!may_fit(cache, owner, bytes))
        return NULL;
    for (;;) {
        struct slot **empty = NULL;
        for (uint32_t i = 0; i < cache->limits.max_entries && !empty; i++)
            empty = cache->slots[i] ? NULL : &cache->slots[i];
        size_t left = cache->limits.max_bytes - cache->counts.bytes;
        if (empty && bytes <= room_of(cache, owner))
            return empty;
        struct slot **going = next_to_go(cache, owner, empty && bytes <= left);
        ASSERT(going);
        drop(cache, going);
        cache->counts.dropped++;
    }
}

static enum status add(struct constraint_cache *cache, struct slot made,
                       const struct constraint_source *source, struct slot **slot,
                       struct error *err)
{
    size_t set_bytes = cache->trie->words * sizeof(uint32_t) + 160;
    size_t most = share_of(cache, made.owner);
    made.bytes = constraint_bytes(made.entry.constraint) + source->length +
                 (cache->limits.kept_sets + 1u) * set_bytes;
    if (made.bytes > most)
        return error_set(err, STATUS_INVALID,
                         "compiled, and with the sets of tokens kept for it, the constraint takes "
                         "%zu bytes, but one may take %zu here (constraint-memory)",
                         made.bytes, most);
    struct slot **place = make_room(cache, made.owner, made.bytes);
    if (!place)
        return error_set(err, STATUS_LIMIT,
                         "there is no room for another constraint of %zu bytes now (%u are in use)",
                         made.bytes, cache->counts.entries);
    made.source = constraint_source_copy(source);
    made.entry.masks =
        constraint_masks_create(made.entry.constraint, cache->trie, cache->limits.kept_sets);
    *place = malloc(sizeof **place);
    ASSERT(made.source && *place);
    **place = made;
    *slot = *place;
    cache->counts.entries++;
    cache->counts.bytes += made.bytes;
    return STATUS_OK;
}

static enum status compile(struct constraint_cache *cache, const struct constraint_source *source,
                           uint64_t hash, uint64_t owner, struct slot **slot, struct error *err)
{
    struct constraint *constraint;
    if (constraint_compile(source->kind, source->text, source->length, &constraint, err) !=
        STATUS_OK)
        return refuse(cache, source, hash, err);
    struct slot made = {.entry = {.constraint = constraint}, .hash = hash, .owner = owner};
    enum status status = add(cache, made, source, slot, err);
    cache->counts.compiled += status == STATUS_OK;
    if (status != STATUS_OK)
        constraint_destroy(constraint);
    return status == STATUS_INVALID ? refuse(cache, source, hash, err) : status;
}

enum status constraint_cache_take(struct constraint_cache *cache,
                                  const struct constraint_source *source, uint64_t owner,
                                  const struct constraint_entry **entry, struct error *err)
{
    uint64_t hash = hash_bytes(source->text, source->length, HASH_SEED + source->kind);
    struct slot *slot = find(cache, source, hash);
    struct refused *refused = refused_place(cache, source, hash);
    if (slot) {
        cache->counts.found++;
    } else if (refused->source && refused->hash == hash &&
               constraint_source_equal(refused->source, source)) {
        cache->counts.found++;
        refused->last_taken = ++cache->clock;
        *err = refused->err;
        return STATUS_INVALID;
    } else {
        TRY(compile(cache, source, hash, owner, &slot, err));
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
