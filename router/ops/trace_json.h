/* A request's trace as JSON, for GET /trace/ID and /traces. PURE. Times are milliseconds from the
 * request's arrival. */
#ifndef BATON_ROUTER_OPS_TRACE_JSON_H
#define BATON_ROUTER_OPS_TRACE_JSON_H

#include "common/base/str.h"
#include "router/ops/request_trace.h"

/* One object. `now_us`: of the clock of its times; `unix_us`: the same moment since 1970. */
void trace_json(const struct request_trace *trace, uint64_t now_us, uint64_t unix_us,
                struct str *out);

#endif
