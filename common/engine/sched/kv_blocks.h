/* Which KV blocks are free, and what the others are for. PURE: ids only, no memory is touched here.
 *
 * A block has any number of holds, each for one purpose, and the mark "cached": the prefix cache
 * knows what is in it. A block without holds is cached or free; only a free one can be taken. What
 * is held several times, or cached, is read by others: nobody may write into it
 * (kv_blocks_writable).
 *
 * Owner: the step thread (or a simulation). Taken lowest id first, so that one sequence's blocks
 * tend to be neighbours and a handoff merges them into few reads. Nothing allocates after
 * kv_blocks_create. Ending a hold that isn't there, and sharing a free block, are programmer's
 * errors.
 */
#ifndef BATON_ENGINE_SCHED_KV_BLOCKS_H
#define BATON_ENGINE_SCHED_KV_BLOCKS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Why somebody holds a block. */
enum kv_hold {
    KV_HOLD_USED,    /* a sequence that is computed here */
    KV_HOLD_PINNED,  /* a handle names it: another worker may read it */
    KV_HOLD_LANDING, /* reserved for, or the target of, reads from another worker */
    KV_HOLDS
};

/* What a block counts as: by the last of these that is true of it. */
enum kv_block_state {
    KV_BLOCK_FREE,
    KV_BLOCK_CACHED,  /* nobody holds it, the prefix cache may give it up */
    KV_BLOCK_USED,    /* of a sequence that is computed here */
    KV_BLOCK_PINNED,  /* another worker may read it */
    KV_BLOCK_LANDING, /* another worker's bytes arrive, or will */
    KV_BLOCK_STATES
};
const char *kv_block_state_name(enum kv_block_state state); /* "free", ... */

struct kv_blocks;

/* block_count > 0. STATUS_LIMIT: out of memory. */
enum status kv_blocks_create(uint32_t block_count, struct kv_blocks **blocks) WARN_UNUSED;
void kv_blocks_destroy(struct kv_blocks *blocks);

/* All `count` blocks or none, each with one hold: STATUS_LIMIT when fewer are free. */
enum status kv_blocks_take(struct kv_blocks *blocks, uint32_t count, enum kv_hold hold,
                           uint32_t *ids) WARN_UNUSED;
/* One more hold on each; each is held or cached. */
void kv_blocks_share(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count,
                     enum kv_hold hold);
/* One hold of that purpose less on each. */
void kv_blocks_give(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count,
                    enum kv_hold hold);
/* One hold on each goes from one purpose to another. */
void kv_blocks_change(struct kv_blocks *blocks, const uint32_t *ids, uint32_t count,
                      enum kv_hold from, enum kv_hold to);

/* The mark, for the prefix cache alone: remember a held block that isn't marked, forget one that
 * is. */
void kv_blocks_remember(struct kv_blocks *blocks, uint32_t id);
void kv_blocks_forget(struct kv_blocks *blocks, uint32_t id);
/* Tells when a block that is marked gets its first hold, and when it has lost its last. One
 * watcher, or NULL. */
void kv_blocks_watch(struct kv_blocks *blocks, void (*held)(void *context, uint32_t id, bool held),
                     void *context);

bool kv_blocks_held(const struct kv_blocks *blocks, uint32_t id);
bool kv_blocks_cached(const struct kv_blocks *blocks, uint32_t id); /* held or not */
bool kv_blocks_writable(const struct kv_blocks *blocks, uint32_t id);
enum kv_block_state kv_blocks_state(const struct kv_blocks *blocks, uint32_t id);
uint32_t kv_blocks_count(const struct kv_blocks *blocks, enum kv_block_state state);
uint32_t kv_blocks_total(const struct kv_blocks *blocks);

#endif
