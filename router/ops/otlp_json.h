/* A request's trace as spans of OpenTelemetry: OTLP, JSON over HTTP (opentelemetry-proto,
 * ExportTraceServiceRequest). PURE.
 *
 * One span for the request, and below it `queue`, and for each attempt `prefill`, `handoff` and
 * `decode`. What was not told has no span. */
#ifndef BATON_ROUTER_OPS_OTLP_JSON_H
#define BATON_ROUTER_OPS_OTLP_JSON_H

#include "common/base/str.h"
#include "router/ops/request_trace.h"

#include <stdbool.h>

struct trace_parent {
    uint64_t trace_high, trace_low, span;
};

/* A traceparent header (W3C Trace Context), of version 00 or a later one that begins like it.
 * False: not one, and nothing is written. */
bool trace_parent_parse(const char *header, struct trace_parent *parent);

/* Appends the spans of one request, each with a comma behind it. `seed`: random, of this request
 * alone: its ids come from it. `offset_us`: from the trace's clock to 1970's. */
void otlp_json_spans(const struct request_trace *trace, uint64_t seed, int64_t offset_us,
                     struct str *out);
/* Around them. */
void otlp_json_begin(struct str *out);
void otlp_json_end(struct str *out);

#endif
