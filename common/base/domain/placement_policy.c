#include "common/base/domain/placement_policy.h"

#include <stddef.h>

const char *const placement_policy_names[PLACEMENT_POLICY_COUNT + 2] = {
    [PLACEMENT_LEAST_TOKENS] = "least-tokens", [PLACEMENT_RANDOM] = "random",
    [PLACEMENT_ROUND_ROBIN] = "round-robin",   [PLACEMENT_PREFIX] = "prefix",
    [PLACEMENT_KV_COST] = "kv-cost",           [PLACEMENT_PREDICTED_LATENCY] = "predicted-latency",
    [PLACEMENT_GOODPUT] = "goodput",           [PLACEMENT_AUTO] = "auto",
};
