#include "common/net/rpc/rpc.h"

#include "common/net/rpc/message.h"

const char *rpc_code_name(enum rpc_code code)
{
    switch (code) {
    case RPC_OK: return "OK";
    case RPC_CANCELLED: return "CANCELLED";
    case RPC_UNKNOWN: return "UNKNOWN";
    case RPC_INVALID_ARGUMENT: return "INVALID_ARGUMENT";
    case RPC_DEADLINE_EXCEEDED: return "DEADLINE_EXCEEDED";
    case RPC_NOT_FOUND: return "NOT_FOUND";
    case RPC_ALREADY_EXISTS: return "ALREADY_EXISTS";
    case RPC_PERMISSION_DENIED: return "PERMISSION_DENIED";
    case RPC_RESOURCE_EXHAUSTED: return "RESOURCE_EXHAUSTED";
    case RPC_FAILED_PRECONDITION: return "FAILED_PRECONDITION";
    case RPC_ABORTED: return "ABORTED";
    case RPC_OUT_OF_RANGE: return "OUT_OF_RANGE";
    case RPC_UNIMPLEMENTED: return "UNIMPLEMENTED";
    case RPC_INTERNAL: return "INTERNAL";
    case RPC_UNAVAILABLE: return "UNAVAILABLE";
    case RPC_DATA_LOSS: return "DATA_LOSS";
    case RPC_UNAUTHENTICATED: return "UNAUTHENTICATED";
    }
    return "UNKNOWN";
}

static void pack(void *target, const void *source)
{
    protobuf_c_message_pack(source, target);
}

enum status rpc_call_send_message(struct rpc_call *call, const ProtobufCMessage *message)
{
    return rpc_call_send_packed(call, protobuf_c_message_get_packed_size(message), pack, message);
}
