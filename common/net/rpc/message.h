/* Sends protobuf-c messages on calls, packed once, into the transport's memory.
 * proto/proto_unpack.h unpacks incoming ones. */
#ifndef BATON_NET_RPC_MESSAGE_H
#define BATON_NET_RPC_MESSAGE_H

#include "common/net/rpc/rpc.h"

#include <protobuf-c/protobuf-c.h>

/* `rpc_call_send_message(call, &response.base)`. Fails as rpc_call_send does; the message stays the
 * caller's. */
enum status rpc_call_send_message(struct rpc_call *call,
                                  const ProtobufCMessage *message) WARN_UNUSED;

#endif
