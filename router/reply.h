/* What clients are sent: a request's deltas, its end, and the messages around them. Any thread that owns the request. */
#ifndef BATON_ROUTER_REPLY_H
#define BATON_ROUTER_REPLY_H

#include "router/request.h"

#include <protobuf-c/protobuf-c.h>

/* Sends what came free since the last time (Generate only). STATUS_LIMIT: the client doesn't read; STATUS_CANCELLED: it left. */
enum status reply_delta(struct request *request) WARN_UNUSED;

/* The answer is complete: the rest of it, Finished, Usage, Timing; all but the status. STATUS_LIMIT: it doesn't fit any more. */
enum status reply_finished(struct request *request, enum finish_reason finish) WARN_UNUSED;

/* Ends a call that is answered at once: its one message and OK, or ANSWER_TOO_LARGE, with the sizes, where that doesn't fit:
 * `limit_bytes` may wait to be sent. */
void reply_answer(struct rpc_call *call, const ProtobufCMessage *message, size_t limit_bytes);

/* Ends a call: OK for REASON_NONE, which has no sentence. */
void reply_status(struct rpc_call *call, enum reason reason, const char *sentence);

#endif
