/* The retry budget of one model: bounds how many prompts are computed again because of failures, so
 * that a failing cluster isn't given more work than a healthy one. PURE.
 *
 * A token bucket. Each arrival adds a part of a token, and time adds a floor, so that a quiet
 * cluster can retry too. A retry takes a token. If none is left the request waits for one, in its
 * order, until its deadline: the next one comes within 1 s / `per_second`. Failing it at once
 * would turn a short storm into errors, and its client would ask again anyway, at more cost.
 *
 * Each model has its own, because models share no workers: the failures of one must not use up the
 * retries of another. request_life.h (enum life_again) has the retries that cost nothing. */
#ifndef BATON_ROUTER_PLANNER_RETRY_BUDGET_H
#define BATON_ROUTER_PLANNER_RETRY_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct retry_budget_limits {
    uint32_t percent;    /* a part of a token for each arrival */
    uint32_t per_second; /* beside them; not 0 */
    uint32_t most;       /* tokens saved up; not 0 */
};
/* 10 percent, 10 a second, 100 saved up. */
struct retry_budget_limits retry_budget_limits_default(void);

struct retry_budget {
    struct retry_budget_limits limits;
    uint64_t millionths; /* 1000000: one token */
    uint64_t filled_us;
};

/* Starts full. */
void retry_budget_init(struct retry_budget *budget, const struct retry_budget_limits *limits,
                       uint64_t now_us);
void retry_budget_arrived(struct retry_budget *budget);
/* Takes a token. False: none is left. */
bool retry_budget_take(struct retry_budget *budget, uint64_t now_us);
uint32_t retry_budget_left(struct retry_budget *budget, uint64_t now_us);
/* Returns when retry_budget_take turns true, at the latest. */
uint64_t retry_budget_next_us(const struct retry_budget *budget);

#endif
