/* The books of the KV blocks: which are free, and what the others are for. PURE: ids only; no KV
 * byte is touched here.
 *
 * A block has any number of holds, each for one purpose, and the mark "cached": the prefix cache
 * knows its content. A block without holds is cached or free. Only a free block can be taken. A
 * block with several holds, or with the mark, has other readers: it must not be written
 * (kv_blocks_writable).
 *
 * Blocks are taken lowest id first. So one sequence's blocks tend to be neighbours, and a handoff
 * merges them into few reads. Nothing allocates after kv_blocks_create. It is an ASSERT to end a
 * hold that doesn't exist, or to share a free block. Owner: the step thread (or a simulation).
 */
#ifndef BATON_ENGINE_SCHED_KV_BLOCKS_H
#define BATON_ENGINE_SCHED_KV_BLOCKS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The purpose of a hold. */
enum kv_hold {
    KV_HOLD_USED,    /* a sequence that is computed here */
    KV_HOLD_PINNED,  /* a handle names it: another worker may read it */
    KV_HOLD_LANDING, /* reserved for reads from another worker, or their target */
    KV_HOLDS
};

/* A block has the highest state that applies. */
enum kv_block_state {
    KV_BLOCK_FREE,
    KV_BLOCK_CACHED,  /* no holds; the prefix cache may give it up */
    KV_BLOCK_USED,    /* a sequence that is computed here has it */
    KV_BLOCK_PINNED,  /* another worker may read it */
    KV_BLOCK_LANDING, /* another worker's bytes arrive, or will */
    KV_BLOCK_STATES
};
const char *kv_block_state_name(enum kv_block_state state); /* "free", ... */

struct kv_blocks;

/* block_count > 0. STATUS_LIMIT: out of memory. */
enum status kv_blocks_create(uint32_t block_count, struct kv_blocks **blocks) WARN_UNUSED;
void kv_blocks_destroy(struct kv_blocks *blocks);

/* Takes all `count` blocks or none, each with one hold. STATUS_LIMIT: fewer are free. */
enum status kv_blocks_take(struct kv_blocks *blocks, uint32_t count, enum kv_hold hold,
                           uint32_t *ids) WARN_UNUSED;
/* Adds one hold to each block. Each has a hold already, or is cached. */
void kv_blocks_share(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count,
                     enum kv_hold hold);
/* Ends one hold of that purpose on each block. */
void kv_blocks_give(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count,
                    enum kv_hold hold);
/* Changes the purpose of one hold on each block. */
void kv_blocks_change(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count,
                      enum kv_hold from, enum kv_hold to);

/* For the prefix cache alone: sets the mark of a held block that has none, removes a mark. */
void kv_blocks_remember(struct kv_blocks *blocks, uint32_t id);
void kv_blocks_forget(struct kv_blocks *blocks, uint32_t id);
/* Calls `held` when a marked block gets its first hold (true) and has lost its last (false). There
 * is one watcher; NULL: none. */
void kv_blocks_watch(struct kv_blocks *blocks, void (*held)(void *context, uint32_t id, bool held),
                     void *context);

bool kv_blocks_held(const struct kv_blocks *blocks, uint32_t id);
bool kv_blocks_cached(const struct kv_blocks *blocks, uint32_t id); /* held or not */
bool kv_blocks_writable(const struct kv_blocks *blocks, uint32_t id);
enum kv_block_state kv_blocks_state(const struct kv_blocks *blocks, uint32_t id);
uint32_t kv_blocks_count(const struct kv_blocks *blocks, enum kv_block_state state);
uint32_t kv_blocks_total(const struct kv_blocks *blocks);

#endif
