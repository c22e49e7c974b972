#include "router/planner/retry_budget.h"

#define TOKEN 1000000u /* in millionths */

struct retry_budget_limits retry_budget_limits_default(void)
{
    return (struct retry_budget_limits){.percent = 10, .per_second = 10, .most = 100};
}

static void add(struct retry_budget *budget, uint64_t millionths)
{
    uint64_t most = (uint64_t)budget->limits.most * TOKEN;
    budget->millionths =
        millionths > most - budget->millionths ? most : budget->millionths + millionths;
}

void retry_budget_init(struct retry_budget *budget, const struct retry_budget_limits *limits,
                       uint64_t now_us)
{
    *budget = (struct retry_budget){
        .limits = *limits, .millionths = (uint64_t)limits->most * TOKEN, .filled_us = now_us};
}

void retry_budget_arrived(struct retry_budget *budget)
{
    add(budget, (uint64_t)budget->limits.percent * (TOKEN / 100));
}

static void fill(struct retry_budget *budget, uint64_t now_us)
{
    if (now_us <= budget->filled_us)
        return;
    /* A microsecond brings per_second millionths. */
    uint64_t past_us = now_us - budget->filled_us;
    uint64_t full_us = (uint64_t)budget->limits.most * TOKEN / budget->limits.per_second + 1;
    add(budget, (past_us < full_us ? past_us : full_us) * budget->limits.per_second);
    budget->filled_us = now_us;
}

bool retry_budget_take(struct retry_budget *budget, uint64_t now_us)
{
    fill(budget, now_us);
    if (budget->millionths < TOKEN)
        return false;
    budget->millionths -= TOKEN;
    return true;
}

uint32_t retry_budget_left(struct retry_budget *budget, uint64_t now_us)
{
    fill(budget, now_us);
    return (uint32_t)(budget->millionths / TOKEN);
}

uint64_t retry_budget_next_us(const struct retry_budget *budget)
{
    if (budget->millionths >= TOKEN)
        return budget->filled_us;
    uint64_t per_second = budget->limits.per_second;
    return budget->filled_us + (TOKEN - budget->millionths + per_second - 1) / per_second;
}
