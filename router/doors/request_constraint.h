/* The shape that an answer must have (a constraint), as a request asks for it. Both doors read it
 * before the request is submitted. Whether it can be kept is remembered from an earlier request, or
 * found out once the call runs (constraint_checks.h). Workers compile it themselves: its source
 * travels. Any thread. */
#ifndef BATON_ROUTER_DOORS_REQUEST_CONSTRAINT_H
#define BATON_ROUTER_DOORS_REQUEST_CONSTRAINT_H

#include "common/base/domain/constraint_source.h"
#include "common/base/str.h"
#include "proto/baton.pb-c.h"
#include "router/dispatch/constraint_checks.h"
#include "router/request_parse.h"

/* Sets *source, which the caller frees; NULL: the message asks for none. REASON_INVALID_CONSTRAINT:
 * it is not a constraint, or `checks` remembers that it can't be kept. `checks` NULL: nothing is
 * remembered. */
enum reason request_constraint_read(struct constraint_checks *checks,
                                    const Baton__V1__Constraint *message,
                                    const struct request_model *model,
                                    struct constraint_source **source,
                                    struct error *err) WARN_UNUSED;

/* Writes the constraint "tool_calls" as the JSON that workers compile
 * (common/language/constrain/constraint.h). PURE. */
void tool_calls_write(const Baton__V1__ToolCalls *calls, struct str *text);

#endif
