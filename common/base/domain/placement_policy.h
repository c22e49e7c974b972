/* The policies by which a router chooses the workers of a request (router/planner/policy.h). */
#ifndef BATON_BASE_DOMAIN_PLACEMENT_POLICY_H
#define BATON_BASE_DOMAIN_PLACEMENT_POLICY_H

enum placement_policy {
    PLACEMENT_LEAST_TOKENS, /* the least queued work */
    PLACEMENT_RANDOM,
    PLACEMENT_ROUND_ROBIN,
    PLACEMENT_PREFIX,            /* the longest cached prefix, unless loads are far apart */
    PLACEMENT_KV_COST,           /* uncached and active blocks */
    PLACEMENT_PREDICTED_LATENCY, /* gates of affinity and load, then predicted TTFT and TPOT */
    PLACEMENT_GOODPUT,           /* the fewest expected misses, of a pair jointly */
    PLACEMENT_POLICY_COUNT,
};

/* By placement_policy; NULL ends them. */
extern const char *const placement_policy_names[PLACEMENT_POLICY_COUNT + 1];

#endif
