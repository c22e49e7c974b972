/* Which KV blocks are free, and what the others are for. PURE: ids only, no memory is touched here.
 * Owner: the step thread (or a simulation). Taken lowest id first, so that one sequence's blocks tend to be neighbours and a
 * handoff merges them into few reads. Giving back a free block is a programmer's error.
 */
#ifndef BATON_ENGINE_SCHED_KV_BLOCKS_H
#define BATON_ENGINE_SCHED_KV_BLOCKS_H

#include "common/base/status.h"

#include <stdint.h>

enum kv_block_state {
    KV_BLOCK_FREE,
    KV_BLOCK_USED,    /* of a sequence that is computed here */
    KV_BLOCK_PINNED,  /* a handle names it: another worker may read it */
    KV_BLOCK_LANDING, /* reserved for, or the target of, reads from another worker */
    KV_BLOCK_STATES
};
const char *kv_block_state_name(enum kv_block_state state);

struct kv_blocks;

enum status kv_blocks_create(uint32_t block_count, struct kv_blocks **blocks) WARN_UNUSED;
void kv_blocks_destroy(struct kv_blocks *blocks);

/* All `count` blocks or none: STATUS_LIMIT when fewer are free. `state` is not FREE. */
enum status kv_blocks_take(struct kv_blocks *blocks, uint32_t count, enum kv_block_state state,
                           uint32_t *ids) WARN_UNUSED;
void kv_blocks_give(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count);
/* From one state that is not FREE to another. */
void kv_blocks_change(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count,
                      enum kv_block_state state);

uint32_t kv_blocks_count(const struct kv_blocks *blocks, enum kv_block_state state);

#endif
