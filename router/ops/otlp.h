/* Sends the spans of requests that have ended to a collector of OpenTelemetry, by POST to
 * /v1/traces of its URL (OTLP, JSON).
 *
 * Never waits: traces go through a bounded queue to a thread of its own, which sends up to
 * OTLP_MAX_BATCH at once. Where the collector is slow or away they are dropped, and counted; there
 * is no second try. The dispatch thread gives, one thread closes. */
#ifndef BATON_ROUTER_OPS_OTLP_H
#define BATON_ROUTER_OPS_OTLP_H

#include "common/base/observe/metrics.h"
#include "common/base/status.h"
#include "common/net/http/http_client.h"
#include "router/ops/request_trace.h"

#define OTLP_MAX_WAITING    2048
#define OTLP_MAX_BATCH      64
#define OTLP_MAX_POST_BYTES (4u << 20)
#define OTLP_TIMEOUT_US     5000000u

struct otlp;

/* The collector's certificates and name outlive it. STATUS_INVALID: it can't be called so. */
enum status otlp_start(const struct http_remote *collector, struct counter *dropped,
                       struct otlp **otlp, struct error *err) WARN_UNUSED;
/* Sends what waits, in one more post at most: takes 2 * OTLP_TIMEOUT_US at most, whatever the
 * collector and the name servers do. NULL is fine. */
void otlp_stop(struct otlp *otlp);

void otlp_ended(struct otlp *otlp, const struct request_trace *trace);

#endif
