/* GET /metrics, /healthz and /status of the router. */
#ifndef BATON_ROUTER_OPS_ADMIN_H
#define BATON_ROUTER_OPS_ADMIN_H

#include "common/net/http/http_server.h"
#include "router/ops/recent_times.h"
#include "router/ops/router_metrics.h"
#include "router/ops/status_board.h"
#include "router/ops/trace_ring.h"
#include "router/served_models.h"

struct admin {
    struct router_metrics *metrics;
    struct status_board *board;
    const struct served_models *models;
    struct trace_ring *traces;
    struct recent_times *recent;
};

/* What an http_server serves whose context is a struct admin. /metrics  Prometheus text /healthz
 * 200 "ok", or 503 "draining" /status   JSON: models, requests by state, workers, and who was
 * refused (common/cli/cluster_status.h reads it) /         the status page: one file, nothing from
 * elsewhere /traces, /trace, /trace/ID   JSON (admin_views.h) */
#define ADMIN_ROUTES 7
extern const struct http_route admin_routes[ADMIN_ROUTES];

#endif
