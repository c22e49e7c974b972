/* Everything that shows requests to people and their tools, fed from one place: the traces, the
 * figures of the last minute, the histograms, the access log, spans. Owner: the router; called by
 * the dispatch thread as a request's life goes on. What is NULL is left out. */
#ifndef BATON_ROUTER_DISPATCH_REQUEST_OBSERVERS_H
#define BATON_ROUTER_DISPATCH_REQUEST_OBSERVERS_H

#include "proto/worker.pb-c.h"
#include "router/dispatch/request.h"
#include "router/ops/access_log.h"
#include "router/ops/otlp.h"
#include "router/ops/router_metrics.h"
#include "router/ops/trace_ring.h"
#include "router/reasons.h"

struct request_observers_config {
    uint32_t trace_requests;      /* how many traces are kept */
    const char *access_log;       /* "off", "stderr" or a path */
    struct http_remote collector; /* of spans; its URL is "": none */
    const struct served_models *models;
    const struct router_metrics *metrics;
};

struct request_observers {
    struct trace_ring *traces;
    struct recent_times *recent;
    struct phase_metrics *phases; /* [of each served model] */
    struct access_log *access;
    struct otlp *otlp;
};

/* Of a router; its parts live until they are closed, which comes after the dispatch thread's
 * end. */
enum status request_observers_open(const struct request_observers_config *config,
                                   struct request_observers *views, struct error *err) WARN_UNUSED;
void request_observers_close(struct request_observers *views);

/* A choice of a call that isn't the first arrives when its turn comes. */
void request_observers_arrived(const struct request_observers *views, struct request *request);
/* Its workers have their commands, or it has its KV handle. */
void request_observers_moved(const struct request_observers *views, struct request *request);
/* One more token is delivered. */
void request_observers_token(const struct request_observers *views, struct request *request,
                             uint64_t now_us);
/* What workers told. */
void request_observers_prefilled(const struct request_observers *views, struct request *request,
                                 const Baton__Worker__V1__Prefilled *prefilled);
void request_observers_pulled(const struct request_observers *views, struct request *request,
                              const Baton__Worker__V1__Pulled *pulled, uint64_t now_us);
/* The one end; also of a request that was refused as soon as it had arrived. */
void request_observers_ended(const struct request_observers *views, struct request *request,
                             enum reason reason, enum finish_reason finish, uint64_t now_us);

#endif
