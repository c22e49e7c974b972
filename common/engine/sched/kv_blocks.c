#include "common/engine/sched/kv_blocks.h"

#include "common/base/assert.h"

#include <stdlib.h>

#define WORD_BITS 64

struct block {
    uint32_t holds[KV_HOLDS];
    bool cached;
};

struct kv_blocks {
    uint32_t block_count;
    uint32_t first_word; /* words of free_bits below this one are 0 */
    uint32_t counts[KV_BLOCK_STATES];
    void (*watcher)(void *context, uint32_t id, bool held);
    void *watcher_context;
    uint64_t *free_bits; /* [words] bit i of word w: block 64 w + i is free */
    struct block blocks[];
};

const char *kv_block_state_name(enum kv_block_state state)
{
    static const char *const names[] = {"free", "cached", "used", "pinned", "landing"};
    return names[state];
}

enum status kv_blocks_create(uint32_t block_count, struct kv_blocks **out)
{
    ASSERT(block_count > 0);
    size_t words = ((size_t)block_count + WORD_BITS - 1) / WORD_BITS;
    struct kv_blocks *blocks = calloc(1, sizeof *blocks + block_count * sizeof *blocks->blocks);
    uint64_t *free_bits = calloc(words, sizeof *free_bits);
    if (!blocks || !free_bits) {
        free(blocks);
        free(free_bits);
        return STATUS_LIMIT;
    }
    for (uint32_t id = 0; id < block_count; id++)
        free_bits[id / WORD_BITS] |= UINT64_C(1) << id % WORD_BITS;
    blocks->block_count = block_count;
    blocks->counts[KV_BLOCK_FREE] = block_count;
    blocks->free_bits = free_bits;
    *out = blocks;
    return STATUS_OK;
}

void kv_blocks_destroy(struct kv_blocks *blocks)
{
    if (!blocks)
        return;
    free(blocks->free_bits);
    free(blocks);
}

static struct block *block_of(struct kv_blocks *blocks, uint32_t id)
{
    ASSERT(id < blocks->block_count);
    return &blocks->blocks[id];
}

static const struct block *block_at(const struct kv_blocks *blocks, uint32_t id)
{
    ASSERT(id < blocks->block_count);
    return &blocks->blocks[id];
}

static bool is_held(const struct block *block)
{
    return block->holds[KV_HOLD_USED] || block->holds[KV_HOLD_PINNED] ||
           block->holds[KV_HOLD_LANDING];
}

static enum kv_block_state state_of(const struct block *block)
{
    if (block->holds[KV_HOLD_LANDING])
        return KV_BLOCK_LANDING;
    if (block->holds[KV_HOLD_PINNED])
        return KV_BLOCK_PINNED;
    if (block->holds[KV_HOLD_USED])
        return KV_BLOCK_USED;
    return block->cached ? KV_BLOCK_CACHED : KV_BLOCK_FREE;
}

/* The block becomes `now`: adapts the counts and the free bits, calls the watcher. */
static void update(struct kv_blocks *blocks, uint32_t id, const struct block *now)
{
    struct block *block = &blocks->blocks[id];
    enum kv_block_state old_state = state_of(block), new_state = state_of(now);
    bool was_held = is_held(block), held = is_held(now);
    *block = *now;
    blocks->counts[old_state]--;
    blocks->counts[new_state]++;
    uint32_t word = id / WORD_BITS;
    uint64_t bit = UINT64_C(1) << id % WORD_BITS;
    if (new_state == KV_BLOCK_FREE) {
        blocks->free_bits[word] |= bit;
        if (word < blocks->first_word)
            blocks->first_word = word;
    } else {
        blocks->free_bits[word] &= ~bit;
    }
    if (block->cached && was_held != held && blocks->watcher)
        blocks->watcher(blocks->watcher_context, id, held);
}

static void hold(struct kv_blocks *blocks, uint32_t id, enum kv_hold purpose)
{
    struct block now = *block_of(blocks, id);
    ASSERT(purpose < KV_HOLDS && now.holds[purpose] < UINT32_MAX);
    now.holds[purpose]++;
    update(blocks, id, &now);
}

enum status kv_blocks_take(struct kv_blocks *blocks, uint32_t count, enum kv_hold purpose,
                           uint32_t *ids)
{
    if (blocks->counts[KV_BLOCK_FREE] < count)
        return STATUS_LIMIT;
    for (uint32_t taken = 0; taken < count; taken++) {
        while (!blocks->free_bits[blocks->first_word])
            blocks->first_word++;
        uint64_t word = blocks->free_bits[blocks->first_word];
        ids[taken] = blocks->first_word * WORD_BITS + (uint32_t)__builtin_ctzll(word);
        hold(blocks, ids[taken], purpose);
    }
    return STATUS_OK;
}

void kv_blocks_share(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count,
                     enum kv_hold purpose)
{
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(kv_blocks_state(blocks, ids[i]) != KV_BLOCK_FREE);
        hold(blocks, ids[i], purpose);
    }
}

void kv_blocks_give(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count,
                    enum kv_hold purpose)
{
    for (uint32_t i = 0; i < count; i++) {
        struct block now = *block_of(blocks, ids[i]);
        ASSERT(purpose < KV_HOLDS && now.holds[purpose] > 0);
        now.holds[purpose]--;
        update(blocks, ids[i], &now);
    }
}

void kv_blocks_change(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count,
                      enum kv_hold from, enum kv_hold to)
{
    for (uint32_t i = 0; i < count; i++) {
        struct block now = *block_of(blocks, ids[i]);
        ASSERT(from < KV_HOLDS && to < KV_HOLDS && now.holds[from] > 0);
        now.holds[from]--;
        now.holds[to]++;
        update(blocks, ids[i], &now);
    }
}

void kv_blocks_remember(struct kv_blocks *blocks, uint32_t id)
{
    struct block now = *block_of(blocks, id);
    ASSERT(is_held(&now) && !now.cached);
    now.cached = true;
    update(blocks, id, &now);
}

void kv_blocks_forget(struct kv_blocks *blocks, uint32_t id)
{
    struct block now = *block_of(blocks, id);
    ASSERT(now.cached);
    now.cached = false;
    update(blocks, id, &now);
}

void kv_blocks_watch(struct kv_blocks *blocks, void (*watcher)(void *context, uint32_t id, bool),
                     void *context)
{
    blocks->watcher = watcher;
    blocks->watcher_context = context;
}

bool kv_blocks_held(const struct kv_blocks *blocks, uint32_t id)
{
    return is_held(block_at(blocks, id));
}

bool kv_blocks_cached(const struct kv_blocks *blocks, uint32_t id)
{
    return block_at(blocks, id)->cached;
}

bool kv_blocks_writable(const struct kv_blocks *blocks, uint32_t id)
{
    const struct block *block = block_at(blocks, id);
    uint64_t holds = 0;
    for (int i = 0; i < KV_HOLDS; i++)
        holds += block->holds[i];
    return holds == 1 && !block->cached;
}

enum kv_block_state kv_blocks_state(const struct kv_blocks *blocks, uint32_t id)
{
    return state_of(block_at(blocks, id));
}

uint32_t kv_blocks_count(const struct kv_blocks *blocks, enum kv_block_state state)
{
    return blocks->counts[state];
}

uint32_t kv_blocks_total(const struct kv_blocks *blocks)
{
    return blocks->block_count;
}
