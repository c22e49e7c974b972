/* What clients are sent by gRPC: a request's deltas, its end, and the messages around them. Any
 * thread that owns the request. */
#ifndef BATON_ROUTER_DOORS_GRPC_REPLY_H
#define BATON_ROUTER_DOORS_GRPC_REPLY_H

#include "common/net/rpc/rpc.h"
#include "router/dispatch/request.h"

#include <protobuf-c/protobuf-c.h>

/* A call of Generate, or of GenerateOnce (request->once), as the client of its request. */
struct request_client reply_client(struct rpc_call *call);

/* Ends a call that is answered at once: its one message and OK, or ANSWER_TOO_LARGE, with the
 * sizes, where that doesn't fit: `limit_bytes` may wait to be sent. */
void reply_answer(struct rpc_call *call, const ProtobufCMessage *message, size_t limit_bytes);

/* Ends a call: OK for REASON_NONE, which has no sentence. */
void reply_status(struct rpc_call *call, enum reason reason, const char *sentence);
/* The same, with the trailing metadata `retry-after` where waiting so many seconds helps. */
void reply_refusal(struct rpc_call *call, enum reason reason, const char *sentence,
                   uint32_t retry_after_s);

#endif
