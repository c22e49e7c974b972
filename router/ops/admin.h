/* The router's admin listener: routes for an http_server with a struct admin as its context.
 *
 *     /            the status page: one file that loads nothing from elsewhere
 *     /metrics     Prometheus text
 *     /healthz     200 "ok", or 503 "draining"
 *     /status      JSON: models, requests by state, workers, and workers that were refused
 *                  (common/cli/cluster_status.h reads it)
 *     /traces      JSON: the newest requests, the newest first
 *     /trace/ID    JSON: the newest request of that id, or 404; ?choice=1 is its second answer
 *     /trace       JSON: the newest request
 *     /decisions/ID  JSON: the sampled placement decisions about the request of that id, perhaps
 *                  none (decision_ring.h); ?choice=1 is about its second answer
 *     /decisions   JSON: those about the request of the newest sampled decision
 *
 * An ID is the request's, or that of its OpenAI answer (chatcmpl-ID). */
#ifndef BATON_ROUTER_OPS_ADMIN_H
#define BATON_ROUTER_OPS_ADMIN_H

#include "common/net/http/http_server.h"
#include "router/ops/decision_ring.h"
#include "router/ops/router_metrics.h"
#include "router/ops/status_board.h"
#include "router/ops/trace_ring.h"

struct admin {
    struct router_metrics *metrics;
    struct status_board *board;
    const struct served_models *models;
    struct trace_ring *traces;
    struct decision_ring *decisions;
    struct recent_times *recent;
};

#define ADMIN_MAX_TRACES 64 /* in /traces */
#define ADMIN_ROUTES     9
extern const struct http_route admin_routes[ADMIN_ROUTES];

#endif
