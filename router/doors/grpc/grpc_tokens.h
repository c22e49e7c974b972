/* The handlers of Tokenize and Detokenize, which answer at once: text to tokens and back, without a
 * worker. On rpc threads; who calls has been let in when the call opened, and the call's context is
 * its struct grpc_call. */
#ifndef BATON_ROUTER_DOORS_GRPC_GRPC_TOKENS_H
#define BATON_ROUTER_DOORS_GRPC_GRPC_TOKENS_H

#include "common/net/rpc/rpc.h"

/* `bytes`: the message, which nobody has looked at. The call ends with one answer, or with the
 * reason why there is none. */
void grpc_tokens_tokenize(struct rpc_call *call, struct rpc_bytes bytes);
void grpc_tokens_detokenize(struct rpc_call *call, struct rpc_bytes bytes);

#endif
