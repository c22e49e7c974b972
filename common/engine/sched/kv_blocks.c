#include "common/engine/sched/kv_blocks.h"

#include "common/base/assert.h"

#include <stdlib.h>

struct kv_blocks {
    uint32_t block_count;
    uint32_t first_maybe_free; /* no block below is free */
    uint32_t counts[KV_BLOCK_STATES];
    unsigned char states[];
};

const char *kv_block_state_name(enum kv_block_state state)
{
    static const char *const names[] = {"free", "used", "pinned", "landing"};
    return names[state];
}

enum status kv_blocks_create(uint32_t block_count, struct kv_blocks **out)
{
    struct kv_blocks *blocks = calloc(1, sizeof *blocks + block_count);
    if (!blocks)
        return STATUS_LIMIT;
    blocks->block_count = block_count;
    blocks->counts[KV_BLOCK_FREE] = block_count;
    *out = blocks;
    return STATUS_OK;
}

void kv_blocks_destroy(struct kv_blocks *blocks)
{
    free(blocks);
}

static void set_state(struct kv_blocks *blocks, uint32_t id, enum kv_block_state state)
{
    blocks->counts[blocks->states[id]]--;
    blocks->counts[state]++;
    blocks->states[id] = (unsigned char)state;
}

enum status kv_blocks_take(struct kv_blocks *blocks, uint32_t count, enum kv_block_state state,
                           uint32_t *ids)
{
    ASSERT(state != KV_BLOCK_FREE);
    if (blocks->counts[KV_BLOCK_FREE] < count)
        return STATUS_LIMIT;
    uint32_t taken = 0;
    uint32_t id = blocks->first_maybe_free;
    for (; taken < count; id++)
        if (blocks->states[id] == KV_BLOCK_FREE) {
            set_state(blocks, id, state);
            ids[taken++] = id;
        }
    blocks->first_maybe_free = id;
    return STATUS_OK;
}

void kv_blocks_give(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(ids[i] < blocks->block_count && blocks->states[ids[i]] != KV_BLOCK_FREE);
        set_state(blocks, ids[i], KV_BLOCK_FREE);
        if (ids[i] < blocks->first_maybe_free)
            blocks->first_maybe_free = ids[i];
    }
}

void kv_blocks_change(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count,
                      enum kv_block_state state)
{
    ASSERT(state != KV_BLOCK_FREE);
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(ids[i] < blocks->block_count && blocks->states[ids[i]] != KV_BLOCK_FREE);
        set_state(blocks, ids[i], state);
    }
}

uint32_t kv_blocks_count(const struct kv_blocks *blocks, enum kv_block_state state)
{
    return blocks->counts[state];
}
