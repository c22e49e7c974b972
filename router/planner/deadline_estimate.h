/* Whether a request that is about to be placed can meet its client's deadline. PURE.
 *
 * Surely late ones are ended.
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

/* Returns true if the work is unlikely to end in time, because of others: with a quarter more than
 * its `likely_us` it has no time left, and alone it would take a tenth less. A request that needs
 * all of its time by itself is no reason to wait. */
bool deadline_is_unlikely(double left_us, double likely_us, double alone_us);

/* The times that a prefill worker has, from now on, for a prompt that another worker reads. */
struct deadline_prompt {
    uint64_t left_us; /* later, the answer is surely late */
    uint64_t due_us;  /* later, it is likely late */
};
/* `left_us`: the client's deadline. The answer takes least_us at least, and likely answer_us. Both
 * results are at least 1. */
struct deadline_prompt deadline_of_prompt(uint64_t left_us, uint64_t least_us, double answer_us);

#endif
