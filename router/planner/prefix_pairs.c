#include "router/planner/prefix_pairs.h"

#include "common/base/assert.h"
#include "router/planner/prefix_index.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------- tables */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9); /* splitmix64's rounds */
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint32_t home_of_name(const struct prefix_pairs *pairs, struct prefix_hash name)
{
    return (uint32_t)mix(mix(name.low ^ pairs->seed) ^ name.high) & pairs->names.mask;
}

static uint32_t home_of_pair(const struct prefix_pairs *pairs, uint32_t entry, uint32_t slot)
{
    return (uint32_t)mix((uint64_t)entry << 16 | slot) & pairs->by_pair.mask;
}

/* Returns the place of the name's entry, or the empty one at which its search ends. */
static uint32_t *place_of_name(const struct prefix_pairs *pairs, struct prefix_hash name)
{
    uint32_t i = home_of_name(pairs, name);
    uint32_t *slots = pairs->names.slots;
    while (slots[i] && !prefix_hash_equal(pairs->entries[slots[i] - 1].name, name))
        i = (i + 1) & pairs->names.mask;
    return &slots[i];
}

static uint32_t *place_of_pair(const struct prefix_pairs *pairs, uint32_t entry, uint32_t slot)
{
    uint32_t i = home_of_pair(pairs, entry, slot);
    uint32_t *slots = pairs->by_pair.slots;
    while (slots[i] &&
           (pairs->items[slots[i] - 1].entry != entry || pairs->items[slots[i] - 1].slot != slot))
        i = (i + 1) & pairs->by_pair.mask;
    return &slots[i];
}

/* Empties a place. An id that wouldn't be found any more moves into the hole. */
static void empty_place(const struct prefix_pairs *pairs, const struct pair_table *table,
                        const uint32_t *place)
{
    uint32_t *slots = table->slots, mask = table->mask, hole = (uint32_t)(place - slots);
    for (uint32_t i = (hole + 1) & mask; slots[i]; i = (i + 1) & mask) {
        uint32_t id = slots[i] - 1;
        uint32_t home = table == &pairs->names
                            ? home_of_name(pairs, pairs->entries[id].name)
                            : home_of_pair(pairs, pairs->items[id].entry, pairs->items[id].slot);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            slots[hole] = slots[i];
            hole = i;
        }
    }
    slots[hole] = 0;
}

/* ----------------------------------------------------------------------------------------- sets */

bool pair_entry_has(const struct pair_entry *entry, uint32_t slot)
{
    if (entry->words)
        return slot / 64 < entry->words && (entry->set.bits[slot / 64] >> slot % 64 & 1);
    for (uint32_t i = 0; i < entry->count; i++)
        if (entry->set.few[i] == slot)
            return true;
    return false;
}

/* Makes room for the slot's bit. False: no memory. */
static bool set_widen(struct pair_entry *entry, uint32_t slot)
{
    uint32_t words = slot / 64 + 1;
    for (uint32_t i = 0; !entry->words && i < entry->count; i++)
        if (entry->set.few[i] / 64u + 1 > words)
            words = entry->set.few[i] / 64u + 1;
    if (entry->words >= words)
        return true;
    uint64_t *bits = calloc(words, sizeof *bits);
    if (!bits)
        return false;
    for (uint32_t i = 0; !entry->words && i < entry->count; i++)
        bits[entry->set.few[i] / 64] |= UINT64_C(1) << entry->set.few[i] % 64;
    if (entry->words) {
        memcpy(bits, entry->set.bits, entry->words * sizeof *bits);
        free(entry->set.bits);
    }
    entry->set.bits = bits;
    entry->words = words;
    return true;
}

/* Adds a slot that isn't in the set. False: no memory. */
static bool set_add(struct pair_entry *entry, uint32_t slot)
{
    if (!entry->words && entry->count < PAIRS_FEW) {
        entry->set.few[entry->count++] = (uint16_t)slot;
        return true;
    }
    if (!set_widen(entry, slot))
        return false;
    entry->set.bits[slot / 64] |= UINT64_C(1) << slot % 64;
    entry->count++;
    return true;
}

/* Takes out a slot that is in the set. Bits are kept until half of a small set is left. */
static void set_take_out(struct pair_entry *entry, uint32_t slot)
{
    entry->count--;
    if (!entry->words) {
        uint32_t at = 0;
        while (entry->set.few[at] != slot)
            at++;
        entry->set.few[at] = entry->set.few[entry->count];
        return;
    }
    uint64_t *bits = entry->set.bits;
    bits[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    if (entry->count > PAIRS_FEW / 2)
        return;
    uint32_t count = 0;
    for (uint32_t i = 0; i < entry->words; i++)
        for (uint64_t word = bits[i]; word; word &= word - 1)
            entry->set.few[count++] = (uint16_t)(i * 64 + (uint32_t)__builtin_ctzll(word));
    free(bits);
    entry->words = 0;
}

/* ---------------------------------------------------------------------------------------- pairs */

static void unlink_pair(struct prefix_pairs *pairs, uint32_t id)
{
    struct prefix_pair *pair = &pairs->items[id];
    struct pair_owner *owner = &pairs->owners[pair->slot];
    *(pair->before == PAIRS_NONE ? &owner->first : &pairs->items[pair->before].after) = pair->after;
    *(pair->after == PAIRS_NONE ? &owner->last : &pairs->items[pair->after].before) = pair->before;
}

/* Links it before another pair of its worker; PAIRS_NONE: at the end. */
static void link_before(struct prefix_pairs *pairs, uint32_t id, uint32_t next)
{
    struct prefix_pair *pair = &pairs->items[id];
    struct pair_owner *owner = &pairs->owners[pair->slot];
    uint32_t *back = next == PAIRS_NONE ? &owner->last : &pairs->items[next].before;
    pair->before = *back;
    pair->after = next;
    *(pair->before == PAIRS_NONE ? &owner->first : &pairs->items[pair->before].after) = id;
    *back = id;
}

/* Forgets a pair, and the entry of a block that no worker is credited with any more. */
static void pair_free(struct prefix_pairs *pairs, uint32_t id)
{
    struct prefix_pair *pair = &pairs->items[id];
    struct pair_owner *owner = &pairs->owners[pair->slot];
    struct pair_entry *entry = &pairs->entries[pair->entry];
    empty_place(pairs, &pairs->by_pair, place_of_pair(pairs, pair->entry, pair->slot));
    unlink_pair(pairs, id);
    owner->held -= pair->held;
    owner->credited--;
    pairs->count--;
    set_take_out(entry, pair->slot);
    if (!entry->count) {
        empty_place(pairs, &pairs->names, place_of_name(pairs, entry->name));
        entry->set.next_free = pairs->free_entry;
        pairs->free_entry = pair->entry;
        pairs->name_count--;
    }
    *pair = (struct prefix_pair){.since = UINT64_MAX, .entry = pairs->free_pair};
    pairs->free_pair = id;
}

void prefix_pairs_hold(struct prefix_pairs *pairs, uint32_t id, bool held)
{
    struct prefix_pair *pair = &pairs->items[id];
    struct pair_owner *owner = &pairs->owners[pair->slot];
    owner->held = owner->held + held - pair->held;
    pair->held = held;
    if (!held && !pair->promises)
        pair_free(pairs, id);
}

void prefix_pairs_unpromise(struct prefix_pairs *pairs, uint32_t id)
{
    struct prefix_pair *pair = &pairs->items[id];
    pair->promises--;
    if (!pair->promises && !pair->held)
        pair_free(pairs, id);
}

/* Evicts the worker's least recently used pair that isn't promised. False: it isn't found soon, or
 * it is `kept`. */
static bool evict_from(struct prefix_pairs *pairs, const struct pair_owner *owner, uint32_t kept)
{
    for (int i = 0; i < PREFIX_VICTIMS && owner->first != PAIRS_NONE; i++) {
        uint32_t id = owner->first;
        if (id == kept)
            return false;
        struct prefix_pair *pair = &pairs->items[id];
        if (!pair->used && !pair->promises) {
            pair_free(pairs, id);
            pairs->evicted++;
            return true;
        }
        pair->used = false;
        unlink_pair(pairs, id);
        link_before(pairs, id, PAIRS_NONE);
    }
    return false;
}

/* Evicts a pair, so that the worker may have one more. */
static bool evict_for(struct prefix_pairs *pairs, const struct pair_owner *owner, uint32_t kept)
{
    uint32_t share = pairs->limit / pairs->owner_count;
    if (owner->credited && owner->credited >= share)
        return evict_from(pairs, owner, kept);
    for (uint32_t i = 0; i < CLUSTER_MAX_WORKERS; i++) {
        const struct pair_owner *other = &pairs->owners[pairs->cursor];
        if (other->present && other->credited > share)
            return evict_from(pairs, other, kept);
        pairs->cursor = (pairs->cursor + 1) % CLUSTER_MAX_WORKERS;
    }
    return false;
}

/* Adds an entry without workers, of which there are never more than pairs. Returns its id. */
static uint32_t add_entry(struct prefix_pairs *pairs, struct prefix_hash name, uint32_t *place)
{
    uint32_t id = pairs->free_entry;
    if (id == PAIRS_NONE)
        id = pairs->new_entry++;
    else
        pairs->free_entry = pairs->entries[id].set.next_free;
    pairs->entries[id] = (struct pair_entry){.name = name};
    pairs->name_count++;
    *place = id + 1;
    return id;
}

uint32_t prefix_pairs_add(struct prefix_pairs *pairs, uint32_t slot, struct prefix_hash name,
                          uint32_t parent)
{
    if (pairs->count == pairs->limit && !evict_for(pairs, &pairs->owners[slot], parent))
        return PAIRS_NONE;
    uint32_t *place = place_of_name(pairs, name);
    uint32_t entry = *place ? *place - 1 : add_entry(pairs, name, place);
    if (!set_add(&pairs->entries[entry], slot))
        return PAIRS_NONE; /* no memory for bits; a new entry has none */
    uint32_t id = pairs->free_pair;
    if (id == PAIRS_NONE)
        id = pairs->new_pair++;
    else
        pairs->free_pair = pairs->items[id].entry;
    pairs->items[id] = (struct prefix_pair){.entry = entry, .slot = (uint16_t)slot};
    *place_of_pair(pairs, entry, slot) = id + 1;
    link_before(pairs, id, parent);
    pairs->owners[slot].credited++;
    pairs->count++;
    return id;
}

const struct pair_entry *prefix_pairs_entry(const struct prefix_pairs *pairs,
                                            struct prefix_hash name)
{
    uint32_t place = *place_of_name(pairs, name);
    return place ? &pairs->entries[place - 1] : NULL;
}

uint32_t prefix_pairs_find(const struct prefix_pairs *pairs, uint32_t slot, struct prefix_hash name)
{
    uint32_t entry = *place_of_name(pairs, name);
    return entry ? *place_of_pair(pairs, entry - 1, slot) - 1 : PAIRS_NONE; /* 0 - 1: none */
}

void prefix_pairs_join(struct prefix_pairs *pairs, uint32_t slot)
{
    pairs->owners[slot] =
        (struct pair_owner){.present = true, .first = PAIRS_NONE, .last = PAIRS_NONE};
    pairs->owner_count++;
}

void prefix_pairs_leave(struct prefix_pairs *pairs, uint32_t slot)
{
    struct pair_owner *owner = &pairs->owners[slot];
    while (owner->first != PAIRS_NONE)
        pair_free(pairs, owner->first);
    owner->present = false;
    pairs->owner_count--;
}

/* --------------------------------------------------------------------------------- init, deinit */

static bool table_create(struct pair_table *table, uint32_t limit)
{
    size_t count = 4;
    while (count < 2 * (size_t)limit)
        count *= 2;
    table->mask = (uint32_t)(count - 1);
    table->slots = calloc(count, sizeof *table->slots);
    return table->slots;
}

enum status prefix_pairs_init(struct prefix_pairs *pairs, uint32_t limit, uint64_t seed)
{
    ASSERT(limit > 0 && limit <= PREFIX_MAX_PAIRS);
    *pairs = (struct prefix_pairs){
        .limit = limit, .seed = seed, .free_entry = PAIRS_NONE, .free_pair = PAIRS_NONE};
    pairs->entries = malloc(limit * sizeof *pairs->entries);
    pairs->items = malloc(limit * sizeof *pairs->items);
    bool made = table_create(&pairs->names, limit) && table_create(&pairs->by_pair, limit) &&
                pairs->entries && pairs->items;
    return made ? STATUS_OK : STATUS_LIMIT;
}

void prefix_pairs_deinit(struct prefix_pairs *pairs)
{
    for (uint32_t slot = 0; slot < CLUSTER_MAX_WORKERS; slot++)
        if (pairs->owners[slot].present)
            prefix_pairs_leave(pairs, slot);
    free(pairs->names.slots);
    free(pairs->by_pair.slots);
    free(pairs->entries);
    free(pairs->items);
}
