/* What sequences take from the prefix cache and give to it. Without a cache
 * (scheduler_config.prefix_cache) nothing is found and nothing remembered. */
#ifndef BATON_ENGINE_SCHED_REUSE_H
#define BATON_ENGINE_SCHED_REUSE_H

#include "common/engine/sched/scheduler_state.h"

/* Blocks that are free or that the cache can give up. */
uint32_t reuse_available(const struct scheduler *s);
/* Evicts until `count` blocks are free; false: there are not so many. */
bool reuse_make_free(struct scheduler *s, uint32_t count);

/* A sequence without blocks that is to be computed from its first row on: what is cached of its
 * prompt. */
struct prefix_match reuse_match(const struct scheduler *s, const struct sequence *sequence);
/* Takes that: blocks and computed rows are the sequence's. Nothing else has blocks of it. */
void reuse_take(struct scheduler *s, struct sequence *sequence);

/* Remembers each block of it that has become whole. Where another block has the same content
 * already, the sequence takes that one instead of its own, unless others were told its ids
 * (hand-off). */
void reuse_remember(struct scheduler *s, struct sequence *sequence);

/* From here on its blocks continue nothing that is cached: others could not be evicted while it
 * runs. */
void reuse_stop(struct sequence *sequence);

#endif
