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
    PLACEMENT_GOODPUT,           /* the fewest expected misses, of a pair jointly; without SLO
                                  * classes the least predicted TTFT, then TPOT */
    PLACEMENT_POLICY_COUNT,
    PLACEMENT_AUTO = PLACEMENT_POLICY_COUNT, /* a setting's value, no policy */
};

/* By placement_policy, and "auto"; NULL ends them. */
extern const char *const placement_policy_names[PLACEMENT_POLICY_COUNT + 2];
/* Help of the setting, for all programs that have it. */
#define PLACEMENT_POLICY_HELP                                                                      \
    "The rule by which the router chooses the workers of a request. auto: goodput; without SLO "   \
    "classes it takes the least predicted TTFT, then TPOT"

/* Returns the policy of a setting: PLACEMENT_AUTO is goodput. */
static inline enum placement_policy placement_policy_of(int setting)
{
    return setting != PLACEMENT_AUTO ? (enum placement_policy)setting : PLACEMENT_GOODPUT;
}

#endif
