/* What an answer must look like, as a request asks for it: read before the request is taken. Both
 * doors call this. Whether it can be kept is found out when the request has its place and its key's
 * tokens (constraint_checks.h), or is known from before. Workers compile it for themselves: what
 * travels is its source. Any thread. */
#ifndef BATON_ROUTER_DOORS_REQUEST_CONSTRAINT_H
#define BATON_ROUTER_DOORS_REQUEST_CONSTRAINT_H

#include "common/base/domain/constraint_source.h"
#include "router/dispatch/constraint_checks.h"
#include "router/request_parse.h"

/* *source: the caller's, to be freed; NULL where the message asks for nothing. INVALID_CONSTRAINT
 * for what is none, or is remembered to be refused. `checks` NULL: nothing is remembered. */
enum reason request_constraint_read(struct constraint_checks *checks,
                                    const Baton__V1__Constraint *message,
                                    const struct request_model *model,
                                    struct constraint_source **source,
                                    struct error *err) WARN_UNUSED;

#endif
