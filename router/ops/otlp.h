/* Sends the spans of ended requests to an OpenTelemetry collector, by POST to /v1/traces of its URL
 * (OTLP, JSON over HTTP; source: opentelemetry-proto, ExportTraceServiceRequest).
 *
 * Never waits: its own thread takes traces from a bounded queue, and sends up to OTLP_MAX_BATCH in
 * one post. If the collector is slow or away, traces are dropped and counted. It never tries twice.
 * The dispatcher calls otlp_ended in its turns; one thread stops it. */
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

/* The collector's certificates and name must outlive it. STATUS_INVALID: `collector` is invalid. */
enum status otlp_start(const struct http_remote *collector, struct counter *dropped,
                       struct otlp **otlp, struct error *err) WARN_UNUSED;
/* Sends the waiting traces in one more post at most. Takes 2 * OTLP_TIMEOUT_US at most, even if the
 * collector or a name server hangs. `otlp` may be NULL. */
void otlp_stop(struct otlp *otlp);

void otlp_ended(struct otlp *otlp, const struct request_trace *trace);

/* --- the body of a post. PURE --- */

struct trace_parent {
    uint64_t trace_high, trace_low, span;
};

/* Parses a traceparent header (W3C Trace Context) of version 00, or of a later version that begins
 * like it. False: invalid, and nothing is written. */
bool trace_parent_parse(const char *header, struct trace_parent *parent);

/* Appends the spans of one request, each followed by a comma: a span of the request, and below it
 * `queue`, and for each attempt `prefill`, `handoff` and `decode`. A part that isn't known has no
 * span. `seed`: a random number for this request, from which its ids come. `offset_us`: from the
 * trace's clock to the time since 1970. */
void otlp_json_spans(const struct request_trace *trace, uint64_t seed, int64_t offset_us,
                     struct str *out);
/* The text before and after the spans. */
void otlp_json_begin(struct str *out);
void otlp_json_end(struct str *out);

#endif
