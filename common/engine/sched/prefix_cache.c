#include "common/engine/sched/prefix_cache.h"

#include "common/base/assert.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct entry { /* describes the block with its index */
    struct prefix_hash hash, parent_hash;
    uint64_t stamp;    /* differs for each content that the block ever had; 0: nothing is stored */
    uint32_t parent;   /* the block before it; NONE: it is the first */
    uint32_t children; /* cached blocks that continue it */
    uint32_t kept;     /* children that have a hold, or have a block with a hold behind them */
    uint32_t position;
};

struct slot {
    struct prefix_hash hash;
    uint32_t block; /* NONE: empty */
};

struct prefix_cache {
    struct prefix_cache_config config;
    struct eviction *eviction;
    struct slot *slots; /* [slot_mask + 1] hash table with open addressing, at most half full */
    size_t slot_mask;
    uint64_t last_stamp;
    uint32_t count, stuck;
    struct prefix_cache_counters counters;

    struct prefix_event *events; /* [event_capacity] a ring */
    uint32_t first_event, event_count;
    uint64_t last_number;
    bool begins; /* the next event is PREFIX_CLEARED */
    /* Blocks below have been listed: their changes are events. Changes of the others show when they
     * are listed. */
    uint32_t listed;

    uint32_t *tokens;       /* [block_count, block_tokens] */
    struct entry entries[]; /* [block_count] */
};

/* ---------------------------------------------------------------- the table of names */

/* Returns the slot at which the search for a name begins. Both rounds are splitmix64's. */
static size_t home_of(const struct prefix_cache *cache, struct prefix_hash hash)
{
    uint64_t x = hash.low ^ cache->config.table_seed;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x ^= hash.high;
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (size_t)(x ^ x >> 31) & cache->slot_mask;
}

/* Returns the slot that has the name, or the empty one at which its search ends. */
static size_t slot_of(const struct prefix_cache *cache, struct prefix_hash hash)
{
    size_t i = home_of(cache, hash);
    while (cache->slots[i].block != NONE && !prefix_hash_equal(cache->slots[i].hash, hash))
        i = (i + 1) & cache->slot_mask;
    return i;
}

static void remove_name(struct prefix_cache *cache, struct prefix_hash hash)
{
    struct slot *slots = cache->slots;
    size_t mask = cache->slot_mask, hole = slot_of(cache, hash);
    ASSERT(slots[hole].block != NONE);
    /* No tombstones: if a name's search would now end too early, the name moves into the hole. */
    for (size_t i = (hole + 1) & mask; slots[i].block != NONE; i = (i + 1) & mask) {
        size_t home = home_of(cache, slots[i].hash);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            slots[hole] = slots[i];
            hole = i;
        }
    }
    slots[hole].block = NONE;
}

/* ---------------------------------------------------------------- events */

static bool describe(const struct prefix_cache *cache, uint32_t id, enum prefix_event_kind kind,
                     struct prefix_event *event)
{
    const struct entry *entry = &cache->entries[id];
    if (!entry->stamp)
        return false;
    *event = (struct prefix_event){.kind = kind,
                                   .hash = entry->hash,
                                   .parent = entry->parent_hash,
                                   .position = entry->position,
                                   .token_count = cache->config.block_tokens};
    return true;
}

/* Queues an event for a block that was stored or is about to be removed. */
static void note(struct prefix_cache *cache, uint32_t id, enum prefix_event_kind kind)
{
    uint32_t capacity = cache->config.event_capacity;
    if (id >= cache->listed)
        return;
    if (cache->event_count == capacity) {
        prefix_cache_restart_events(cache);
        return;
    }
    uint32_t at = (cache->first_event + cache->event_count++) % capacity;
    describe(cache, id, kind, &cache->events[at]);
}

/* Changes go before the rest of the listing: a name that was removed from a listed block may be
 * stored in one that isn't listed yet. */
static bool next_event(struct prefix_cache *cache, struct prefix_event *event)
{
    if (cache->begins) {
        cache->begins = false;
        *event = (struct prefix_event){.kind = PREFIX_CLEARED};
        return true;
    }
    if (cache->event_count) {
        *event = cache->events[cache->first_event];
        cache->first_event = (cache->first_event + 1) % cache->config.event_capacity;
        cache->event_count--;
        return true;
    }
    while (cache->listed < kv_blocks_total(cache->config.blocks))
        if (describe(cache, cache->listed++, PREFIX_STORED, event))
            return true;
    return false;
}

uint32_t prefix_cache_read_events(struct prefix_cache *cache, struct prefix_event *events,
                                  uint32_t limit)
{
    uint32_t count = 0;
    for (; count < limit && next_event(cache, &events[count]); count++)
        events[count].number = ++cache->last_number;
    return count;
}

void prefix_cache_restart_events(struct prefix_cache *cache)
{
    cache->begins = true;
    cache->listed = 0;
    cache->event_count = 0;
}

/* ---------------------------------------------------------------- blocks come and go */

/* A block without holds that no cached block continues may be evicted. */
static void offer_if_idle(struct prefix_cache *cache, uint32_t id)
{
    if (cache->entries[id].children == 0 && !kv_blocks_held(cache->config.blocks, id))
        eviction_offer(cache->eviction, id);
}

/* Now (kept), or no longer, the block or one behind it has a hold. Adapts the blocks before it, up
 * to one that is kept for another reason. */
static void pass_on(struct prefix_cache *cache, uint32_t id, bool kept)
{
    for (id = cache->entries[id].parent; id != NONE; id = cache->entries[id].parent) {
        struct entry *entry = &cache->entries[id];
        bool others = kept ? entry->kept++ > 0 : --entry->kept > 0;
        if (others || kv_blocks_held(cache->config.blocks, id))
            return;
        cache->stuck += kept ? 1 : -1;
    }
}

static void on_held(void *context, uint32_t id, bool held)
{
    struct prefix_cache *cache = context;
    if (held)
        eviction_withdraw(cache->eviction, id);
    else
        offer_if_idle(cache, id);
    if (cache->entries[id].kept > 0)
        cache->stuck += held ? -1 : 1;
    else
        pass_on(cache, id, held);
}

static uint32_t *tokens_of(const struct prefix_cache *cache, uint32_t id)
{
    return cache->tokens + (size_t)id * cache->config.block_tokens;
}

static void store(struct prefix_cache *cache, const struct prefix_chain *chain,
                  struct prefix_hash hash, const uint32_t *tokens, uint32_t id)
{
    uint32_t parent = chain->length ? chain->last : NONE;
    struct slot *slot = &cache->slots[slot_of(cache, hash)];
    ASSERT(slot->block == NONE);
    *slot = (struct slot){hash, id};
    kv_blocks_remember(cache->config.blocks, id);
    memcpy(tokens_of(cache, id), tokens, cache->config.block_tokens * sizeof *tokens);
    cache->entries[id] = (struct entry){.hash = hash,
                                        .parent_hash = chain->hash,
                                        .stamp = ++cache->last_stamp,
                                        .parent = parent,
                                        .position = chain->length};
    if (parent != NONE) {
        cache->entries[parent].children++;
        eviction_withdraw(cache->eviction, parent);
    }
    eviction_store(cache->eviction, id, chain->length);
    pass_on(cache, id, true); /* the sequence that computed it holds it */
    cache->count++;
    cache->counters.changes++;
    note(cache, id, PREFIX_STORED);
}

/* Forgets a block that isn't offered (any more) and that no cached block continues. */
static void forget(struct prefix_cache *cache, uint32_t id)
{
    struct entry *entry = &cache->entries[id];
    ASSERT(entry->stamp && entry->children == 0);
    note(cache, id, PREFIX_REMOVED);
    remove_name(cache, entry->hash);
    kv_blocks_forget(cache->config.blocks, id);
    entry->stamp = 0;
    cache->count--;
    cache->counters.changes++;
    if (entry->parent != NONE) {
        cache->entries[entry->parent].children--;
        offer_if_idle(cache, entry->parent);
    }
}

uint32_t prefix_cache_evict(struct prefix_cache *cache, uint32_t count)
{
    uint32_t freed = 0;
    for (; freed < count; freed++) {
        uint32_t id = eviction_take(cache->eviction);
        if (id == EVICTION_NONE)
            break;
        forget(cache, id);
    }
    cache->counters.evicted += freed;
    return freed;
}

void prefix_cache_clear(struct prefix_cache *cache)
{
    prefix_cache_restart_events(cache); /* one PREFIX_CLEARED replaces all PREFIX_REMOVED */
    for (uint32_t id = 0; id < kv_blocks_total(cache->config.blocks); id++) {
        struct entry *entry = &cache->entries[id];
        if (!entry->stamp)
            continue;
        eviction_withdraw(cache->eviction, id);
        remove_name(cache, entry->hash);
        *entry = (struct entry){0};
        kv_blocks_forget(cache->config.blocks, id);
    }
    cache->count = cache->stuck = 0;
    cache->counters.changes++;
}

/* ---------------------------------------------------------------- create, destroy */

enum status prefix_cache_create(const struct prefix_cache_config *config, struct prefix_cache **out)
{
    ASSERT(config->block_tokens > 0 && config->event_capacity > 0);
    uint32_t block_count = kv_blocks_total(config->blocks);
    struct prefix_cache *cache = calloc(1, sizeof *cache + block_count * sizeof *cache->entries);
    if (!cache)
        return STATUS_LIMIT;
    cache->config = *config;
    if (!config->hash_block)
        cache->config.hash_block = prefix_hash_block;
    cache->begins = true;
    size_t slots = 4;
    while (slots < 2 * (size_t)block_count)
        slots *= 2;
    cache->slot_mask = slots - 1;
    cache->slots = malloc(slots * sizeof *cache->slots);
    cache->events = calloc(config->event_capacity, sizeof *cache->events);
    cache->tokens = calloc((size_t)block_count * config->block_tokens, sizeof *cache->tokens);
    enum status status =
        eviction_create(block_count, config->policy, &config->cost, &cache->eviction);
    if (!cache->slots || !cache->events || !cache->tokens || status != STATUS_OK) {
        prefix_cache_destroy(cache);
        return STATUS_LIMIT;
    }
    for (size_t i = 0; i < slots; i++)
        cache->slots[i].block = NONE;
    kv_blocks_watch(config->blocks, on_held, cache);
    *out = cache;
    return STATUS_OK;
}

void prefix_cache_destroy(struct prefix_cache *cache)
{
    if (!cache)
        return;
    prefix_cache_clear(cache);
    kv_blocks_watch(cache->config.blocks, NULL, NULL);
    eviction_destroy(cache->eviction);
    free(cache->slots);
    free(cache->events);
    free(cache->tokens);
    free(cache);
}

/* ---------------------------------------------------------------- lookup, insert */

struct prefix_chain prefix_chain_start(struct prefix_hash root)
{
    return (struct prefix_chain){.hash = root};
}

/* Returns true if block `id` continues the chain with these tokens. Other blocks may have the same
 * name. */
static bool is_behind(const struct prefix_cache *cache, const struct prefix_chain *chain,
                      const uint32_t *tokens, uint32_t id)
{
    const struct entry *entry = &cache->entries[id];
    uint32_t parent = chain->length ? chain->last : NONE;
    return entry->parent == parent && prefix_hash_equal(entry->parent_hash, chain->hash) &&
           !memcmp(tokens_of(cache, id), tokens, cache->config.block_tokens * sizeof *tokens);
}

static void move_on(const struct prefix_cache *cache, struct prefix_chain *chain,
                    struct prefix_hash hash, uint32_t id)
{
    chain->hash = hash;
    chain->length++;
    chain->last = id;
    chain->stamp = id == NONE ? 0 : cache->entries[id].stamp;
}

static struct prefix_hash hash_behind(const struct prefix_cache *cache,
                                      const struct prefix_chain *chain, const uint32_t *tokens)
{
    return cache->config.hash_block(chain->hash, tokens, cache->config.block_tokens);
}

/* Moves the chain one cached block on and returns that block; NONE: the chain stays. */
static uint32_t walk(const struct prefix_cache *cache, struct prefix_chain *chain,
                     const uint32_t *tokens, bool *collides)
{
    struct prefix_hash hash = hash_behind(cache, chain, tokens);
    uint32_t id = cache->slots[slot_of(cache, hash)].block;
    *collides = id != NONE && !is_behind(cache, chain, tokens, id);
    if (id == NONE || *collides)
        return NONE;
    move_on(cache, chain, hash, id);
    return id;
}

static uint32_t blocks_to_ask_for(const struct prefix_cache *cache, uint32_t count)
{
    return count ? (count - 1) / cache->config.block_tokens : 0;
}

struct prefix_match prefix_cache_match(const struct prefix_cache *cache, struct prefix_hash root,
                                       const uint32_t *tokens, uint32_t count)
{
    struct prefix_chain chain = prefix_chain_start(root);
    struct prefix_match match = {0};
    uint32_t limit = blocks_to_ask_for(cache, count);
    bool collides;
    for (uint32_t id; match.blocks < limit; match.blocks++) {
        id = walk(cache, &chain, tokens + (size_t)match.blocks * cache->config.block_tokens,
                  &collides);
        if (id == NONE)
            break;
        match.idle += !kv_blocks_held(cache->config.blocks, id) && cache->entries[id].kept == 0;
    }
    return match;
}

uint32_t prefix_cache_lookup(struct prefix_cache *cache, struct prefix_chain *chain,
                             const uint32_t *tokens, uint32_t count, enum kv_hold hold,
                             uint32_t *ids)
{
    ASSERT(chain->length == 0);
    uint32_t limit = blocks_to_ask_for(cache, count), found = 0;
    bool collides = false;
    while (found < limit) {
        uint32_t id =
            walk(cache, chain, tokens + (size_t)found * cache->config.block_tokens, &collides);
        if (id == NONE)
            break;
        ids[found++] = id;
    }
    kv_blocks_share(cache->config.blocks, ids, found, hold);
    for (uint32_t i = 0; i < found; i++)
        eviction_touch(cache->eviction, ids[i]);
    cache->counters.asked += limit;
    cache->counters.hits += found;
    cache->counters.collisions += collides;
    return found;
}

enum prefix_insert prefix_cache_insert(struct prefix_cache *cache, struct prefix_chain *chain,
                                       const uint32_t *tokens, uint32_t block, uint32_t *known)
{
    struct prefix_hash hash = hash_behind(cache, chain, tokens);
    bool whole =
        chain->length == 0 || (chain->stamp && cache->entries[chain->last].stamp == chain->stamp);
    uint32_t id = cache->slots[slot_of(cache, hash)].block;
    if (whole && id == NONE) {
        store(cache, chain, hash, tokens, block);
        move_on(cache, chain, hash, block);
        cache->counters.inserted++;
        return PREFIX_INSERTED;
    }
    if (whole && is_behind(cache, chain, tokens, id)) {
        eviction_touch(cache->eviction, id);
        move_on(cache, chain, hash, id);
        cache->counters.known++;
        *known = id;
        return PREFIX_KNOWN;
    }
    move_on(cache, chain, hash, NONE);
    cache->counters.collisions += whole;
    cache->counters.kept_private++;
    return PREFIX_PRIVATE;
}

/* ---------------------------------------------------------------- figures */

struct prefix_cache_counters prefix_cache_counters(const struct prefix_cache *cache)
{
    return cache->counters;
}

uint32_t prefix_cache_count(const struct prefix_cache *cache)
{
    return cache->count;
}

uint32_t prefix_cache_stuck(const struct prefix_cache *cache)
{
    return cache->stuck;
}
