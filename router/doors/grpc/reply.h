/* Sends answers to clients by gRPC: deltas, ends, and the messages around them. Runs on any thread
 * that owns the call. */
#ifndef BATON_ROUTER_DOORS_GRPC_REPLY_H
#define BATON_ROUTER_DOORS_GRPC_REPLY_H

#include "common/net/rpc/rpc.h"
#include "router/dispatch/call.h"

#include <protobuf-c/protobuf-c.h>

/* Makes a client of the dispatcher of a Generate, or of a GenerateOnce (call->once). */
struct call_client reply_client(struct rpc_call *call);

/* Ends a call that is answered at once, with its one message and OK. ANSWER_TOO_LARGE, with the
 * sizes: more than `limit_bytes` would wait to be sent. */
void reply_answer(struct rpc_call *call, const ProtobufCMessage *message, size_t limit_bytes);

/* Ends a call: OK for REASON_NONE, without a sentence. */
void reply_status(struct rpc_call *call, enum reason reason, const char *sentence);
/* Ends a call as reply_status does. retry_after_s: sent as trailing metadata `retry-after`; 0: not
 * sent, since waiting doesn't help. */
void reply_refusal(struct rpc_call *call, enum reason reason, const char *sentence,
                   uint32_t retry_after_s);

#endif
