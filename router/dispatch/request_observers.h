/* Feeds everything that shows requests to people and tools: the traces, the figures of the last
 * minute, the histograms, the access log, spans. Owner: the router. Called in turns of the
 * dispatcher. Parts that are NULL are left out. */
#ifndef BATON_ROUTER_DISPATCH_REQUEST_OBSERVERS_H
#define BATON_ROUTER_DISPATCH_REQUEST_OBSERVERS_H

#include "proto/worker.pb-c.h"
#include "router/dispatch/call.h"
#include "router/ops/access_log.h"
#include "router/ops/decision_ring.h"
#include "router/ops/otlp.h"
#include "router/ops/router_metrics.h"
#include "router/ops/trace_ring.h"
#include "router/reasons.h"

struct request_observers_config {
    uint32_t trace_requests;              /* how many traces are kept */
    uint32_t decisions, decision_percent; /* decision_ring_create */
    const char *access_log;               /* "off", "stderr" or a path */
    struct http_remote collector;         /* gets the spans; its URL is "": none */
    const struct served_models *models;
    const struct router_metrics *metrics;
};

struct request_observers {
    struct trace_ring *traces;
    struct decision_ring *decisions;
    struct recent_times *recent;
    struct phase_metrics *phases; /* one for each served model */
    struct slo_books *slo;        /* the metrics' */
    struct access_log *access;
    struct otlp *otlp;
};

/* The parts must be closed after the dispatch thread has ended. */
enum status request_observers_open(const struct request_observers_config *config,
                                   struct request_observers *views, struct error *err) WARN_UNUSED;
void request_observers_close(struct request_observers *views);

/* The first choice of a call arrives with it, another one when it begins. */
void request_observers_arrived(const struct request_observers *views, struct request *request);
/* Call when commands were sent to its workers, or when its KV handle came. */
void request_observers_moved(const struct request_observers *views, struct request *request);
/* One more token is delivered. */
void request_observers_token(const struct request_observers *views, struct request *request,
                             uint64_t now_us);
void request_observers_prefilled(const struct request_observers *views, struct request *request,
                                 const Baton__Worker__V1__Prefilled *prefilled);
void request_observers_pulled(const struct request_observers *views, struct request *request,
                              const Baton__Worker__V1__Pulled *pulled, uint64_t now_us);
/* It ended with `reason` and request->finish, or was refused when it arrived. Once. */
void request_observers_ended(const struct request_observers *views, struct request *request,
                             enum reason reason, uint64_t now_us);

#endif
