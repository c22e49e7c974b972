/* Costs of the workers that could take a request, by the placement policy. PURE: a function of its
 * arguments; draws come from the caller's generator.
 *
 * A search (route_policy.h) asks in three steps. policy_look gives each worker of a list a cost by
 * itself, by which a long list is cut down. policy_compare replaces the costs of the ones that are
 * left by costs among each other, for policies with gates and ranges. The cost of a pair is the sum
 * of its workers' costs, unless the policy scores pairs jointly (policy_score). The least cost
 * wins; equal costs go to the least queued work, then to the longest unused worker.
 *
 * - random, round-robin (the longest unused worker).
 * - prefix: the most cached tokens, then the fewest requests; only the fewest requests where loads
 *   are far apart (cache_aware of SGLang's gateway).
 * - kv-cost: uncached blocks to compute, and active blocks (Dynamo's router). A softmax of the
 *   costs, divided by their range, where there is a temperature.
 * - predicted-latency: workers that hold the prefix come first, unless their TTFT is much longer;
 *   then workers that are predicted to attain; then the best sum of TTFT and TPOT, each divided by
 *   its range (llm-d's latency scorer, with its defaults). One in a hundred ignores a gate.
 * - goodput: goodput.h. Without SLO classes: the least predicted TTFT, then TPOT. Times that
 *   predictions don't tell apart are equal, and a worker of unknown cost is as good as the best
 *   known one: equal workers share the load. A decode worker computes a prompt beside pairs only
 *   where that is clearly sooner, and while prompts take little of its answers' time.
 *
 * In a pair, only the prefill worker's cache counts, and TPOT only for the decode worker, as the
 * three systems above have it. */
#ifndef BATON_ROUTER_PLANNER_POLICY_H
#define BATON_ROUTER_PLANNER_POLICY_H

#include "common/base/domain/placement_policy.h"
#include "common/base/rng.h"
#include "router/planner/decision_log.h"
#include "router/planner/goodput.h"
#include "router/planner/prefix_index.h"
#include "router/planner/prompt_names.h"

#define POLICY_MOST 16 /* workers that are compared with each other */
/* Placements of goodput that go to the longest unused workers instead: a worker that looks slow
 * must be looked at again. */
#define POLICY_EXPLORE 0.01

/* The settings of the policies that others have, for comparisons. All zeros: each at its best. */
struct policy_tuning {
    /* kv-cost: the softmax's. predicted-latency: draws in proportion to score ^ (1 / temperature);
     * 1 is llm-d's default. 0: the least cost. */
    double temperature;
    bool packs; /* predicted-latency: the least headroom that attains, which is llm-d's default */
};

/* A request, and all that its choice depends on besides the workers. */
struct policy_ask {
    enum placement_policy policy;
    struct policy_tuning tuning;
    bool has_classes;       /* there are SLO classes */
    uint64_t prompt_tokens; /* to compute */
    /* predicted-latency, goodput. NULL: nothing is predicted, as least-tokens. */
    const struct goodput_request *request;
    const struct goodput_config *goodput;
    const struct goodput_pool *pool;
    /* Its last match was for this prompt. NULL: no prefix is known. */
    const struct prefix_index *prefixes;
    const struct prefix_names *names; /* [name_kinds] */
    size_t name_kinds;
    const struct prefix_holder *holders; /* [holder_count], the longest prefixes first */
    size_t holder_count;
    bool explores; /* `policy` stands in for goodput this time */
    /* The reader of a handle: its holder (NULL: gone), and when its prompt will be computed. */
    const struct candidate *holder;
    double ready_us;
};

enum policy_stage {
    POLICY_PREFILL, /* computes the prompt, in a pair */
    POLICY_DECODE,  /* draws the answer, in a pair or as the reader of a handle */
    POLICY_ALONE,   /* computes the prompt, and draws the answer */
};

/* Compared in this order. */
struct policy_cost {
    double first, second, third;
};

/* A worker that could take the request. */
struct policy_item {
    const struct candidate *worker;
    uint64_t cached_tokens;  /* in its cache, if it would compute the prompt */
    uint64_t evicted_tokens; /* make room for the rest of the prompt there */
    double ttft_us, tpot_us; /* predicted; 0: not by this policy, or not at this stage */
    double prefill_us;       /* predicted, of the prompt's own rows; 0: as above */
    bool known;              /* the worker's costs are learnt */
    struct policy_cost cost;
};

/* Fills *item in. `rng` NULL: draws are all equal. */
void policy_look(const struct policy_ask *ask, enum policy_stage stage,
                 const struct candidate *worker, struct rng *rng, struct policy_item *item);
/* True: costs among each other matter. */
bool policy_compares(const struct policy_ask *ask);
/* `count` <= POLICY_MOST. `pair`: for POLICY_ALONE, the best prefill worker. NULL: none. */
void policy_compare(const struct policy_ask *ask, enum policy_stage stage,
                    struct policy_item *const *items, size_t count, const struct policy_item *pair,
                    struct rng *rng);

/* True: decode workers that could compute the prompt themselves are candidates beside pairs. */
bool policy_mixes(const struct policy_ask *ask);
/* True: pairs are scored jointly. */
bool policy_is_joint(const struct policy_ask *ask);
/* Scores a choice jointly. `prefill`, `decode`: as `way` needs them. Fills in *choice, except for
 * the keys; NULL: only the cost is wanted. */
struct policy_cost policy_score(const struct policy_ask *ask, enum predict_way way,
                                const struct policy_item *prefill, const struct policy_item *decode,
                                struct decision_alternative *choice);

#endif
