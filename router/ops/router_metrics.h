/* The router's figures, for /metrics and the status page. Any thread may count (all figures are
 * atomic) and read. */
#ifndef BATON_ROUTER_OPS_ROUTER_METRICS_H
#define BATON_ROUTER_OPS_ROUTER_METRICS_H

#include "common/base/domain/sampling.h"
#include "common/base/domain/worker_info.h"
#include "common/base/observe/metrics.h"
#include "common/net/http/http_exchange.h"
#include "common/net/http/http_server.h"
#include "common/net/rpc/frame_gate.h"
#include "router/ops/request_trace.h"
#include "router/ops/slo_books.h"
#include "router/planner/prefix_index.h"
#include "router/planner/request_life.h"
#include "router/reasons.h"
#include "router/served_models.h"

#include <pthread.h>

#define ROUTER_LANES        4
#define ROUTER_CERTIFICATES 4 /* tls, internal-tls, metrics-tls, otlp-tls */

/* Their label is model_name. */
struct model_metrics {
    struct counter
        *requests_by_reason[REASON_COUNT]; /* [REASON_NONE]: ok; NULL: registrations only */
    struct gauge *requests_by_state[REQUEST_ENDED];
    struct counter *prompt_tokens, *completion_tokens;
    struct counter *prefill_runs;   /* Prefill commands sent */
    struct counter *local_prefills; /* Decode commands without a handle */
    struct counter *retries;        /* prompts computed again after a loss or a refusal */
    struct counter *regives;        /* handles given to another decode worker */
    struct counter *moves;          /* prompts computed again because their worker left in order */
    struct counter *retries_held;   /* retries that had to wait for the budget */
    struct gauge *retry_budget;     /* retries that it has left */
    struct gauge *workers_up[2], *workers_known[2]; /* prefill, decode; as are: */
    struct gauge *workers_kept_out[2], *workers_hung[2];
    struct gauge *pairs_kept_out;
    struct gauge *tenants, *tenants_waiting, *tenant_share; /* placement_tenants_here */
    struct histogram *queue_seconds, *ttft_seconds, *tpot_seconds, *token_1_to_2_seconds,
        *request_seconds;
    struct histogram *ttft_to_predicted, *tpot_to_predicted; /* measured / predicted */
};

struct router_metrics {
    struct metrics *metrics;
    size_t model_count;
    struct model_metrics models[SERVED_MODELS_MAX];
    struct slo_books *slo;                       /* NULL: there are no classes */
    struct counter *without_model[REASON_COUNT]; /* requests that ended before a model was known */
    struct counter *dropped; /* messages of old attempts, and tokens received twice */
    struct counter *sessions_lost;
    struct counter *membership_changes; /* a worker joined, left or lapsed, or its session did */
    struct counter *hangs;              /* times that a worker's step didn't end in time */
    struct counter *late_messages;      /* calls that got no message in time */
    /* gRPC connections that the router ended; [FRAME_GATE_NONE]: NULL. */
    struct counter *connections_ended[FRAME_GATE_ENDS];
    struct counter *kv_bytes[ROUTER_LANES];
    struct histogram *step_seconds[2]; /* prefill and decode workers */
    /* The prefix index, as it was last shown. */
    struct prefix_index_figures prefix_seen;
    struct counter *cache_changes[PREFIX_REMOVED + 1]; /* events of workers' prefix caches */
    struct counter *cache_gaps, *cache_restarts, *prefix_evicted, *prefix_promised;
    struct gauge *prefix_pairs, *prefix_names, *prefix_promises, *prefix_workers;
    struct counter *access_lost, *spans_lost; /* lines of the access log; requests' spans */
    /* Watched certificates, and the end of each in seconds since 1970. */
    struct {
        struct certificates *certificates;
        struct gauge *ends;
    } expiries[ROUTER_CERTIFICATES];
    pthread_mutex_t door_lock;
    const struct http_server *door; /* the HTTP server for clients; NULL: none, or stopped */
    struct gauge *unsent_bytes;     /* `door`'s */
};

enum status router_metrics_create(struct router_metrics *metrics,
                                  const struct served_models *models) WARN_UNUSED;
void router_metrics_destroy(struct router_metrics *metrics);

/* Shows the end of `certificates` (NULL: nothing to show). Call before the first reply, at most
 * ROUTER_CERTIFICATES times. `label`: "for=\"tls\"". */
void router_metrics_watch(struct router_metrics *metrics, struct certificates *certificates,
                          const char *label);
/* Shows the figures of `door` from now on. NULL: none; call so before that server stops. */
void router_metrics_watch_door(struct router_metrics *metrics, const struct http_server *door);
/* Answers with the current figures, as Prometheus text. On HTTP threads. */
void router_metrics_reply(struct router_metrics *metrics, struct http_exchange *exchange);

#define ROUTER_NO_MODEL SIZE_MAX
/* Counts a request that ended, in the dispatcher or before. `model`: index of served_models, or
 * ROUTER_NO_MODEL. */
void router_metrics_ended(struct router_metrics *metrics, size_t model, enum reason reason);
/* Records the times of an answered request, and how well they were predicted. Call once, when its
 * client gets the end. `tokens`: in the answer. */
void router_metrics_answered(struct router_metrics *metrics, size_t model,
                             const struct request_timing *timing, uint32_t tokens,
                             const struct slo_prediction *predicted);
/* Shows the figures of the prefix index. In turns of the dispatcher only. */
void router_metrics_prefix(struct router_metrics *metrics,
                           const struct prefix_index_figures *figures);
void router_metrics_pulled(struct router_metrics *metrics, const char *lane, uint64_t bytes);
/* Counts a step that a worker of this role reported. */
void router_metrics_step(struct router_metrics *metrics, enum worker_role role, uint64_t took_us);

/* --- histograms of one model: the phases and tokens of its requests --- */
#define PHASE_FINISHES (FINISH_CONTEXT + 1)

/* Named as in vLLM where the meaning is the same. */
struct phase_metrics {
    struct histogram *inter_token_seconds, *prefill_seconds, *decode_seconds, *handoff_seconds;
    struct histogram *prompt_tokens, *generation_tokens;
    struct counter *answered[PHASE_FINISHES]; /* by enum finish_reason; [FINISH_NONE]: NULL */
};

/* `model`: its served name. */
void phase_metrics_create(struct phase_metrics *phases, struct metrics *metrics, const char *model);
/* Counts a token after the first. `gap_us`: the time since the one before. */
void phase_metrics_token(struct phase_metrics *phases, uint64_t gap_us);
/* Counts an answered request. */
void phase_metrics_answered(struct phase_metrics *phases, const struct request_trace *trace,
                            enum finish_reason finish);

/* --- the times of requests that ended in the last minute --- */
/* A histogram can't give them: its buckets are too wide, and cover the router's whole life. If more
 * requests ended than there are places, the newest are kept. Any thread. */
#define RECENT_TIMES_CAPACITY  8192
#define RECENT_TIMES_WINDOW_US 60000000u

enum recent_kind { RECENT_QUEUE, RECENT_TTFT, RECENT_TPOT, RECENT_REQUEST, RECENT_KINDS };
const char *recent_kind_name(enum recent_kind kind); /* "queue", "ttft", "tpot", "e2e" */

struct recent_sample {
    uint64_t ended_us;
    double us[RECENT_KINDS]; /* below 0: unknown */
};

struct recent_figure {
    size_t count;
    double p50_us, p99_us; /* 0 if `count` is 0 */
};

struct recent_times;

enum status recent_times_create(struct recent_times **times) WARN_UNUSED;
void recent_times_destroy(struct recent_times *times);

void recent_times_note(struct recent_times *times, const struct recent_sample *sample);
/* Figures of the requests that ended within the window before now_us. False: no memory. */
bool recent_times_read(struct recent_times *times, uint64_t now_us,
                       struct recent_figure figures[RECENT_KINDS]);

#endif
