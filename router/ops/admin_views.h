/* What the admin listener shows of requests, besides /metrics and /status.
 *
 * /           the status page: one file, nothing from elsewhere /traces     JSON: the newest
 * requests, the newest first /trace/ID   JSON: the newest request of that id; 404: not, or no
 * longer, known; ?choice=1 where it asked for several answers: the second /trace      JSON: the
 * newest request of all */
#ifndef BATON_ROUTER_OPS_ADMIN_VIEWS_H
#define BATON_ROUTER_OPS_ADMIN_VIEWS_H

#include "common/net/http/http_server.h"
#include "router/ops/recent_times.h"
#include "router/ops/trace_ring.h"

#define ADMIN_MAX_TRACES 64 /* of /traces */

/* Each answers the exchange, on its loop's thread. */
void admin_views_page(struct http_exchange *exchange);
void admin_views_traces(struct trace_ring *traces, struct http_exchange *exchange);
void admin_views_trace(struct trace_ring *traces, struct http_exchange *exchange);

/* "window": {"seconds": 60, "ttft": {"count": 3, "p50_ms": 1.5, "p99_ms": 2.5}, ...}, without a
 * comma behind it. */
void admin_views_add_window(struct recent_times *recent, struct str *out);

#endif
