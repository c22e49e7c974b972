/* Which cached block is worth least. PURE: ids, no blocks. Every operation is O(log n) or better,
 * nothing allocates after eviction_create. Owner: the prefix cache.
 *
 * A block's priority is set when it is stored and each time it is asked for again; among those that
 * are offered, the one with the lowest goes first, and of equal ones the one that was asked for
 * longest ago.
 *
 * lru    priority = when it was last asked for. lcbfu  priority = age + frequency x weight: how
 * often the block was asked for, and what recomputing it costs. That is the score
 *          of Nirvana (Agarwal et al., NSDI'24: "least computationally beneficial and frequently used"), which never forgets; so it
 *          ages as in GreedyDual-Size-Frequency (Cherkasova, HP Labs 1998; Cao and Irani, USITS'97): `age` is the highest priority
 *          that was evicted so far, and what isn't asked for any more is overtaken.
 *          The weight is the square root of the cost. A block far behind costs more, and is asked for again less often: its
 *          frequency of 1 says little yet, and the whole cost would keep too much that nobody wants (docs/decisions).
 */
#ifndef BATON_ENGINE_SCHED_EVICTION_H
#define BATON_ENGINE_SCHED_EVICTION_H

#include "common/base/domain/model_shape.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum eviction_policy { EVICTION_LCBFU, EVICTION_LRU, EVICTION_POLICIES };
extern const char *const eviction_policies[]; /* their names, and NULL: choices of a setting */

#define EVICTION_NONE UINT32_MAX

/* What computing a block costs, in blocks at position 0: linear layers cost each row the same,
 * attention costs a row as much as there is before it. */
struct eviction_cost {
    /* Position at which attention costs as much as all the rest; 0: it costs nothing. */
    double even_blocks;
};
struct eviction_cost eviction_cost_of(const struct model_shape *shape, uint32_t block_tokens);
double eviction_block_cost(const struct eviction_cost *cost, uint32_t position);

struct eviction;

enum status eviction_create(uint32_t id_count, enum eviction_policy policy,
                            const struct eviction_cost *cost,
                            struct eviction **eviction) WARN_UNUSED;
void eviction_destroy(struct eviction *eviction);

/* The id has new content, asked for once: the block at `position` (in blocks) of a prompt. It isn't
 * offered. */
void eviction_store(struct eviction *eviction, uint32_t id, uint32_t position);
/* It was asked for again; offered or not. */
void eviction_touch(struct eviction *eviction, uint32_t id);

/* Offered ids may be evicted. Offering one that is offered, or withdrawing one that isn't, changes
 * nothing. */
void eviction_offer(struct eviction *eviction, uint32_t id);
void eviction_withdraw(struct eviction *eviction, uint32_t id);
/* Takes the offered id that is worth least; EVICTION_NONE where none is offered. */
uint32_t eviction_take(struct eviction *eviction);

#endif
