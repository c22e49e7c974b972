#include "common/net/rpc/message.h"

static void pack(void *target, const void *source)
{
    protobuf_c_message_pack(source, target);
}

enum status rpc_call_send_message(struct rpc_call *call, const ProtobufCMessage *message)
{
    return rpc_call_send_packed(call, protobuf_c_message_get_packed_size(message), pack, message);
}
