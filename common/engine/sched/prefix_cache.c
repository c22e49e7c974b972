#include "common/engine/sched/prefix_cache.h"

#include "common/base/assert.h"
#include "common/engine/sched/prefix_table.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct entry { /* of the block with its index */
    struct prefix_hash hash, parent_hash;
    uint64_t stamp;  /* tells this content from all that the block ever had; 0: nothing is stored */
    uint32_t parent; /* block before it; NONE: it is the first */
    uint32_t children; /* cached blocks that continue it */
    uint32_t kept;     /* of those, how many somebody holds, or one behind them */
    uint32_t position;
};

struct prefix_cache {
    struct prefix_cache_config config;
    struct prefix_table *table;
    struct eviction *eviction;
    struct prefix_events *events;
    uint64_t last_stamp;
    uint32_t count, stuck;
    struct prefix_cache_counters counters;
    uint32_t *tokens;       /* [block_count, block_tokens] */
    struct entry entries[]; /* [block_count] */
};

/* ---------------------------------------------------------------- blocks come and go */

/* Nobody holds it and nothing continues it: it may be evicted. */
static void offer_if_idle(struct prefix_cache *cache, uint32_t id)
{
    if (cache->entries[id].children == 0 && !kv_blocks_held(cache->config.blocks, id))
        eviction_offer(cache->eviction, id);
}

/* Whether the block, or one behind it, is held has changed: so it has for those before it, up to
 * one where another reason stays. */
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

static bool describe(const void *context, uint32_t id, struct prefix_event *event)
{
    const struct prefix_cache *cache = context;
    const struct entry *entry = &cache->entries[id];
    if (!entry->stamp)
        return false;
    *event = (struct prefix_event){.kind = PREFIX_STORED,
                                   .hash = entry->hash,
                                   .parent = entry->parent_hash,
                                   .position = entry->position,
                                   .token_count = cache->config.block_tokens};
    return true;
}

static void note(struct prefix_cache *cache, uint32_t id, enum prefix_event_kind kind)
{
    struct prefix_event event;
    if (!describe(cache, id, &event))
        return;
    event.kind = kind;
    prefix_events_note(cache->events, id, &event);
}

static uint32_t *tokens_of(const struct prefix_cache *cache, uint32_t id)
{
    return cache->tokens + (size_t)id * cache->config.block_tokens;
}

static void store(struct prefix_cache *cache, const struct prefix_chain *chain,
                  struct prefix_hash hash, const uint32_t *tokens, uint32_t id)
{
    uint32_t parent = chain->length ? chain->last : NONE;
    kv_blocks_remember(cache->config.blocks, id);
    prefix_table_put(cache->table, hash, id);
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
    pass_on(cache, id, true); /* its computer holds it */
    cache->count++;
    cache->counters.changes++;
    note(cache, id, PREFIX_STORED);
}

/* It isn't offered (any more), and nothing cached continues it. */
static void forget(struct prefix_cache *cache, uint32_t id)
{
    struct entry *entry = &cache->entries[id];
    ASSERT(entry->stamp && entry->children == 0);
    note(cache, id, PREFIX_REMOVED);
    prefix_table_remove(cache->table, entry->hash);
    kv_blocks_forget(cache->config.blocks, id);
    entry->stamp = 0;
    cache->count--;
    cache->counters.changes++;
    if (entry->parent != NONE) {
        cache->entries[entry->parent].children--;
        offer_if_idle(cache, entry->parent);
    }
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
    cache->tokens = calloc((size_t)block_count * config->block_tokens, sizeof *cache->tokens);
    if (!cache->tokens ||
        prefix_table_create(block_count, config->table_seed, &cache->table) != STATUS_OK ||
        eviction_create(block_count, config->policy, &config->cost, &cache->eviction) !=
            STATUS_OK ||
        prefix_events_create(config->event_capacity, block_count, &cache->events) != STATUS_OK) {
        prefix_cache_destroy(cache);
        return STATUS_LIMIT;
    }
    kv_blocks_watch(config->blocks, on_held, cache);
    *out = cache;
    return STATUS_OK;
}

void prefix_cache_destroy(struct prefix_cache *cache)
{
    if (!cache)
        return;
    if (cache->events) { /* the last that was made: it watches */
        prefix_cache_clear(cache);
        kv_blocks_watch(cache->config.blocks, NULL, NULL);
    }
    prefix_events_destroy(cache->events);
    eviction_destroy(cache->eviction);
    prefix_table_destroy(cache->table);
    free(cache->tokens);
    free(cache);
}

/* ---------------------------------------------------------------- lookup, insert */

struct prefix_chain prefix_chain_start(struct prefix_hash root)
{
    return (struct prefix_chain){.hash = root};
}

/* What comes before is cached, or nothing does. */
static bool is_whole(const struct prefix_cache *cache, const struct prefix_chain *chain)
{
    return chain->length == 0 ||
           (chain->stamp && cache->entries[chain->last].stamp == chain->stamp);
}

/* The block behind `chain` with these tokens, among all that have its name. */
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

/* One block on along what is cached: its id, or NONE and the chain stays. */
static uint32_t walk(const struct prefix_cache *cache, struct prefix_chain *chain,
                     const uint32_t *tokens, bool *collides)
{
    struct prefix_hash hash = hash_behind(cache, chain, tokens);
    uint32_t id = prefix_table_find(cache->table, hash);
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
    bool whole = is_whole(cache, chain);
    uint32_t id = prefix_table_find(cache->table, hash);
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

/* ---------------------------------------------------------------- giving up */

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
    prefix_events_restart(cache->events); /* one `cleared` says it all */
    for (uint32_t id = 0; id < kv_blocks_total(cache->config.blocks); id++) {
        struct entry *entry = &cache->entries[id];
        if (!entry->stamp)
            continue;
        eviction_withdraw(cache->eviction, id);
        prefix_table_remove(cache->table, entry->hash);
        *entry = (struct entry){0};
        kv_blocks_forget(cache->config.blocks, id);
    }
    cache->count = cache->stuck = 0;
    cache->counters.changes++;
}

/* ---------------------------------------------------------------- telling */

uint32_t prefix_cache_read_events(struct prefix_cache *cache, struct prefix_event *events,
                                  uint32_t limit)
{
    uint32_t count = 0;
    while (count < limit && prefix_events_next(cache->events, describe, cache, &events[count]))
        count++;
    return count;
}

void prefix_cache_restart_events(struct prefix_cache *cache)
{
    prefix_events_restart(cache->events);
}

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
