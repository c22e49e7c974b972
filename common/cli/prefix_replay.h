/* A trace of prompts played against a prefix cache, to see how much of them it would have had. The
 * blocks and the cache are those of the workers (common/engine/sched); prompts come one after the
 * other, each is computed whole and leaves its blocks behind, answers are not played. */
#ifndef BATON_CLI_PREFIX_REPLAY_H
#define BATON_CLI_PREFIX_REPLAY_H

#include "common/cli/prefix_trace.h"
#include "common/engine/sched/eviction.h"

struct prefix_replay_config {
    uint32_t capacity_tokens; /* of the whole pool; at least a block */
    uint32_t block_tokens;    /* divides PREFIX_TRACE_BLOCK_TOKENS */
    /* Position at which attention costs as much as the rest of a row; 0: it is free. */
    uint32_t even_tokens;
    enum eviction_policy policy;
};

struct prefix_replay_result {
    uint64_t hit_tokens;
    double cost, saved_cost; /* of all prompts, of the hits; in rows at position 0 */
    uint64_t evicted_blocks;
    uint32_t too_long; /* prompts that don't fit the pool, and count as misses */
};

enum status prefix_replay(const struct prefix_trace *trace,
                          const struct prefix_replay_config *config,
                          struct prefix_replay_result *result, struct error *err) WARN_UNUSED;
/* What a cache that never forgets would have had: counted from the ids alone. capacity_tokens and
 * policy don't count. */
enum status prefix_replay_unlimited(const struct prefix_trace *trace,
                                    const struct prefix_replay_config *config,
                                    struct prefix_replay_result *result,
                                    struct error *err) WARN_UNUSED;

#endif
