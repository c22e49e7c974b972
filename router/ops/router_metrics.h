/* The router's figures. Counted by whoever knows (all are atomic), shown at /metrics. */
#ifndef BATON_ROUTER_OPS_ROUTER_METRICS_H
#define BATON_ROUTER_OPS_ROUTER_METRICS_H

#include "common/base/observe/metrics.h"
#include "common/net/http/http_exchange.h"
#include "common/net/http/http_server.h"
#include "router/ops/request_trace.h"
#include "router/planner/cache_event_count.h"
#include "router/planner/request_life.h"
#include "router/reasons.h"
#include "router/served_models.h"

#include <pthread.h>

#define ROUTER_LANES        2
#define ROUTER_CERTIFICATES 4 /* tls, internal-tls, metrics-tls, otlp-tls */

/* With the label model_name. */
struct model_metrics {
    struct counter *requests_by_reason[REASON_COUNT]; /* REASON_NONE: ok; NULL: not of requests */
    struct gauge *requests_by_state[REQUEST_ENDED];
    struct counter *prompt_tokens, *completion_tokens;
    struct counter *prefill_runs;   /* Prefill commands sent */
    struct counter *local_prefills; /* Decode commands without a handle */
    struct counter *retries;        /* prompts computed again after a loss or a refusal */
    struct counter *regives;        /* handles given to another decode worker */
    struct gauge *workers_up[2], *workers_known[2]; /* prefill, decode */
    struct histogram *queue_seconds, *ttft_seconds, *tpot_seconds, *token_1_to_2_seconds,
        *request_seconds;
};

struct router_metrics {
    struct metrics *metrics;
    size_t model_count;
    struct model_metrics models[SERVED_MODELS_MAX];
    struct counter *without_model[REASON_COUNT]; /* requests that ended before a model was known */
    struct counter *dropped; /* messages of older attempts and tokens that came twice */
    struct counter *sessions_lost;
    struct counter *late_messages; /* calls that were opened, and nothing came */
    struct counter *kv_bytes[ROUTER_LANES];
    struct counter *cache_changes[CACHE_CHANGES]; /* what workers told of their prefix caches */
    struct counter *access_lost, *spans_lost; /* lines of the access log; requests without spans */
    /* Watched certificates, and when each ends. */
    struct {
        struct certificates *certificates;
        struct gauge *ends;
    } expiries[ROUTER_CERTIFICATES];
    pthread_mutex_t door_lock;
    const struct http_server *door; /* clients' HTTP; NULL: none, or no more */
    struct gauge *unsent_bytes;     /* of it */
};

enum status router_metrics_create(struct router_metrics *metrics,
                                  const struct served_models *models) WARN_UNUSED;
void router_metrics_destroy(struct router_metrics *metrics);

/* Before the first is rendered; at most ROUTER_CERTIFICATES. `label`: "for=\"tls\"". NULL
 * certificates: nothing to show. */
void router_metrics_watch(struct router_metrics *metrics, struct certificates *certificates,
                          const char *label);
/* Whose figures are shown, too, from now on. NULL: none's; before that server is stopped. Any
 * thread. */
void router_metrics_watch_door(struct router_metrics *metrics, const struct http_server *door);
/* Answers with all figures as they are now, in Prometheus' text. HTTP threads. */
void router_metrics_reply(struct router_metrics *metrics, struct http_exchange *exchange);

#define ROUTER_NO_MODEL SIZE_MAX
/* A request that ended; also one that never got as far as the dispatcher. `model`: index of
 * served_models, or ROUTER_NO_MODEL. */
void router_metrics_ended(struct router_metrics *metrics, size_t model, enum reason reason);
/* Records the times of an answered request. Call once, when its client is told. `tokens`: how many
 * the answer has. */
void router_metrics_answered(struct router_metrics *metrics, size_t model,
                             const struct request_timing *timing, uint32_t tokens);
/* What one message said of a worker's prefix cache. */
void router_metrics_cache(struct router_metrics *metrics, const uint64_t counts[CACHE_CHANGES]);
void router_metrics_pulled(struct router_metrics *metrics, const char *lane, uint64_t bytes);

#endif
