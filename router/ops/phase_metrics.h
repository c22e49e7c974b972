/* The router's histograms of what requests spent their time and tokens on, with the names that vLLM
 * has where the meaning is the same. Of one model; counted by the dispatch thread, shown at
 * /metrics. */
#ifndef BATON_ROUTER_OPS_PHASE_METRICS_H
#define BATON_ROUTER_OPS_PHASE_METRICS_H

#include "common/base/domain/sampling.h"
#include "common/base/observe/metrics.h"
#include "router/ops/request_trace.h"

#define PHASE_FINISHES (FINISH_CONTEXT + 1)

struct phase_metrics {
    struct histogram *inter_token_seconds, *prefill_seconds, *decode_seconds, *handoff_seconds;
    struct histogram *prompt_tokens, *generation_tokens;
    struct counter *answered[PHASE_FINISHES]; /* by enum finish_reason; [FINISH_NONE]: NULL */
};

/* `model`: the name that clients use. */
void phase_metrics_create(struct phase_metrics *phases, struct metrics *metrics, const char *model);
/* A token after the first, and the time since the one before it. */
void phase_metrics_token(struct phase_metrics *phases, uint64_t gap_us);
/* A request that was answered. */
void phase_metrics_answered(struct phase_metrics *phases, const struct request_trace *trace,
                            enum finish_reason finish);

#endif
