/* What a worker's /metrics shows. The handoffs are counted by the transfer thread as they end; what
 * the step thread knows is read from its snapshot when somebody asks. */
#ifndef BATON_WORKER_WORKER_METRICS_H
#define BATON_WORKER_WORKER_METRICS_H

#include "common/base/domain/worker_info.h"
#include "common/base/observe/metrics.h"
#include "common/kv/transport/kv_transport.h"
#include "common/worker/step_loop.h"

#define WORKER_CERTIFICATES 2 /* internal-tls, metrics-tls */

struct worker_metrics {
    struct metrics *metrics;
    struct gauge *blocks[KV_BLOCK_STATES], *kv_usage, *waiting, *running, *session_up;
    struct gauge *preempted, *swapped_blocks;
    /* Watched certificates, and when each ends. */
    struct {
        struct certificates *certificates;
        struct gauge *ends;
    } expiries[WORKER_CERTIFICATES];
    struct counter *prompt_rows, *decode_rows, *steps;
    struct counter *step_us[STEP_TIMES];
    struct counter *preemptions[STEP_PREEMPTIONS], *dropped_rows;
    struct counter *prefix_asked, *prefix_hits, *prefix_evicted;
    struct counter *handoffs_ok, *handoffs_failed, *released;
    struct counter *bytes_shm, *bytes_tcp, *bytes_local;
    struct counter *stale_messages, *late_hellos;
    struct counter *faults[KV_FAULT_KINDS];
    struct counter *reads_failed[KV_FAILURES]; /* [0] is none */
    struct counter *connections_refused[KV_REFUSALS];
    struct kv_transport_counters seen_transport;
    uint64_t seen_step_us[STEP_TIMES];
    uint64_t seen_preemptions[STEP_PREEMPTIONS], seen_dropped_rows;
    uint64_t seen_asked, seen_hits, seen_evicted;
    uint64_t seen_prompt_rows, seen_decode_rows, seen_steps,
        seen_stale; /* what the counters hold already */
};

void worker_metrics_init(struct worker_metrics *m, enum worker_role role);
/* At start, once the worker knows what it serves. */
void worker_metrics_describe(struct worker_metrics *m, const struct worker_info *info);
void worker_metrics_deinit(struct worker_metrics *m);
/* Shows when they end; at most WORKER_CERTIFICATES. `label`: "for=\"internal-tls\"". NULL
 * certificates: nothing to show. */
void worker_metrics_watch(struct worker_metrics *m, struct certificates *certificates,
                          const char *label);
/* HTTP thread, before it renders. */
void worker_metrics_update(struct worker_metrics *m, const struct step_load *load, bool session_up);
/* Transfer thread. */
void worker_metrics_transport(struct worker_metrics *m,
                              const struct kv_transport_counters *counters);
/* Adds what has come to a total since the last call. */
void worker_metrics_advance(struct counter *counter, uint64_t *seen, uint64_t total);
struct counter *worker_metrics_lane(const struct worker_metrics *m, const char *lane);

#endif
