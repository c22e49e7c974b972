/* Chooses the cached block that is worth least. PURE: ids, no blocks. Every operation is O(log n)
 * or better; nothing allocates after eviction_create. Owner: the prefix cache.
 *
 * A block's priority is set when it is stored and each time it is asked for again. Among the
 * offered blocks the lowest priority goes first, of equal ones the one asked for longest ago.
 *
 * lru: priority = the time it was last asked for.
 *
 * lcbfu: priority = age + frequency x weight. The frequency counts how often the block was asked
 * for, the weight grows with the cost of recomputing it. This is the score of Nirvana (Agarwal et
 * al., NSDI'24: "least computationally beneficial and frequently used"). Nirvana's score never
 * forgets, so it ages here as in GreedyDual-Size-Frequency (Cherkasova, HP Labs 1998; Cao and
 * Irani, USITS'97): `age` is the highest priority evicted so far, and newer blocks overtake those
 * that are not asked for any more. The weight is the square root of the cost. A block far behind
 * costs more, but is asked for again less often: at a frequency of 1 the whole cost would keep too
 * many blocks that are never used again (docs/decisions/0013).
 */
#ifndef BATON_ENGINE_SCHED_EVICTION_H
#define BATON_ENGINE_SCHED_EVICTION_H

#include "common/base/domain/model_shape.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum eviction_policy { EVICTION_LCBFU, EVICTION_LRU, EVICTION_POLICIES };
extern const char *const eviction_policies[]; /* names of the setting's choices, then NULL */

#define EVICTION_NONE UINT32_MAX

/* The cost of computing a block, in blocks at position 0. Linear layers cost the same for each row,
 * attention costs a row in proportion to its position. */
struct eviction_cost {
    /* The position (in blocks) at which attention costs as much as all the rest; 0: nothing. */
    double even_blocks;
};
struct eviction_cost eviction_cost_of(const struct model_shape *shape, uint32_t block_tokens);
double eviction_block_cost(const struct eviction_cost *cost, uint32_t position);

struct eviction;

/* STATUS_LIMIT: out of memory. */
enum status eviction_create(uint32_t id_count, enum eviction_policy policy,
                            const struct eviction_cost *cost,
                            struct eviction **eviction) WARN_UNUSED;
void eviction_destroy(struct eviction *eviction);

/* The id has new content, asked for once: the block at `position` (in blocks) of a prompt. It is
 * not offered. */
void eviction_store(struct eviction *eviction, uint32_t id, uint32_t position);
/* The content was asked for again, offered or not. */
void eviction_touch(struct eviction *eviction, uint32_t id);

/* Offered ids may be evicted. It changes nothing to offer an id twice, or to withdraw one that
 * isn't offered. */
void eviction_offer(struct eviction *eviction, uint32_t id);
void eviction_withdraw(struct eviction *eviction, uint32_t id);
/* Takes the offered id that is worth least; EVICTION_NONE: none is offered. */
uint32_t eviction_take(struct eviction *eviction);

#endif
