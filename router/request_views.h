/* Everything that shows requests to people and their tools, fed from one place: the traces, the figures of the last minute, the
 * histograms, the access log, spans. Owner: the router; called by the dispatch thread as a request's life goes on. What is NULL is left
 * out. */
#ifndef BATON_ROUTER_REQUEST_VIEWS_H
#define BATON_ROUTER_REQUEST_VIEWS_H

#include "proto/worker.pb-c.h"
#include "router/access_log.h"
#include "router/otlp.h"
#include "router/phase_metrics.h"
#include "router/reasons.h"
#include "router/recent_times.h"
#include "router/request.h"
#include "router/router_metrics.h"
#include "router/trace_ring.h"

struct request_views_config {
    uint32_t trace_requests;      /* how many traces are kept */
    const char *access_log;       /* "off", "stderr" or a path */
    struct http_remote collector; /* of spans; its URL is "": none */
    const struct served_models *models;
    const struct router_metrics *metrics;
};

struct request_views {
    struct trace_ring *traces;
    struct recent_times *recent;
    struct phase_metrics *phases; /* [of each served model] */
    struct access_log *access;
    struct otlp *otlp;
};

/* Of a router; its parts live until they are closed, which comes after the dispatch thread's end. */
enum status request_views_open(const struct request_views_config *config,
                               struct request_views *views, struct error *err) WARN_UNUSED;
void request_views_close(struct request_views *views);

/* A choice of a call that isn't the first arrives when its turn comes. */
void request_views_arrived(const struct request_views *views, struct request *request);
/* Its workers have their commands, or it has its KV handle. */
void request_views_moved(const struct request_views *views, struct request *request);
/* One more token is delivered. */
void request_views_token(const struct request_views *views, struct request *request,
                         uint64_t now_us);
/* What workers told. */
void request_views_prefilled(const struct request_views *views, struct request *request,
                             const Baton__Worker__V1__Prefilled *prefilled);
void request_views_pulled(const struct request_views *views, struct request *request,
                          const Baton__Worker__V1__Pulled *pulled, uint64_t now_us);
/* The one end; also of a request that was refused as soon as it had arrived. */
void request_views_ended(const struct request_views *views, struct request *request,
                         enum reason reason, enum finish_reason finish, uint64_t now_us);

#endif
