/* Whether a request that is about to be placed can meet its client's deadline. PURE.
 *
 * The estimate is the least time: its workers do nothing else, its answer is as short as it may be,
 * and steps take what the workers' reports say (cost_fit.h). A request is missed if three quarters
 * of that time are more than it has. A guess never ends a request: with unknown costs, or an answer
 * that may end at any token, only the known part counts. */
#ifndef BATON_ROUTER_PLANNER_DEADLINE_ESTIMATE_H
#define BATON_ROUTER_PLANNER_DEADLINE_ESTIMATE_H

#include "common/base/domain/step_cost.h"

#include <stdbool.h>
#include <stdint.h>

/* The work that is surely left. */
struct deadline_work {
    uint32_t prompt_rows;   /* not cached anywhere; 0: unknown */
    uint32_t answer_tokens; /* at least 1: the first comes with the prompt's last row */
    uint64_t context;       /* tokens before the answer's next one */
};

/* Returns the least time of the work in microseconds: the prompt on one worker, the answer on
 * another one or the same. NULL: the worker's costs are unknown, and its part counts nothing. */
uint64_t deadline_least_us(const struct step_cost *prefill, const struct step_cost *decode,
                           const struct deadline_work *work);

/* Returns how many tokens the answer surely still has, of which `drawn` are there. `has_length`: it
 * can't end before max_tokens. */
uint32_t deadline_least_tokens(bool has_length, uint32_t max_tokens, uint32_t min_tokens,
                               uint32_t drawn);

/* Returns true if the work surely ends after the deadline (UINT64_MAX: none). */
bool deadline_is_missed(uint64_t now_us, uint64_t deadline_us, uint64_t least_us);

#endif
