/* Does a worker that joined fit the others of its model? Only says so in the log, at most a line of
 * each kind: who is paired with whom is the planner's, request by request. Owner: the dispatch
 * thread. */
#ifndef BATON_ROUTER_DISPATCH_WORKER_MISMATCH_H
#define BATON_ROUTER_DISPATCH_WORKER_MISMATCH_H

#include "router/dispatch/workers.h"

/* Warns where its KV fits no worker of the other role, and where another serves other weights under
 * the same name. `joined` is one of `workers`. */
void worker_mismatch_warn(const struct workers *workers, const struct worker *joined);

#endif
