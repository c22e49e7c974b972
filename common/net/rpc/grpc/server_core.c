#include "common/net/rpc/grpc/server_core.h"

#include "common/net/rpc/grpc/call.h"
#include "common/net/rpc/grpc/channel_args.h"
#include "common/net/rpc/grpc/runtime.h"

#include <limits.h>

#define DEFAULT_RECEIVE_BYTES ((size_t)512 << 20)

/* Of one connection. More than there may be calls, so that surplus ones hear of it instead of
 * waiting in their client. */
static int streams_limit(size_t max_calls)
{
    return max_calls < INT_MAX / 2 ? 2 * (int)max_calls : INT_MAX;
}

/* What connections and incoming messages may take. Core checks a message's size when it has all of
 * it, so without this a client that announces 4 GiB may send them. */
static grpc_resource_quota *memory_quota(size_t max_bytes, struct channel_args *args)
{
    grpc_resource_quota *quota = grpc_resource_quota_create("server");
    grpc_resource_quota_resize(quota, max_bytes ? max_bytes : DEFAULT_RECEIVE_BYTES);
    channel_args_add_pointer(args, GRPC_ARG_RESOURCE_QUOTA, quota,
                             grpc_resource_quota_arg_vtable());
    return quota;
}

grpc_server *server_core_create(struct rpc_runtime *runtime,
                                const struct server_core_limits *limits)
{
    struct channel_args args = {0};
    /* What is refused here has no reason of ours: it is for what must not even be read. */
    channel_args_add_common(&args, 2 * limits->max_message_bytes, limits->keepalive_us);
    channel_args_add(&args, GRPC_ARG_MAX_METADATA_SIZE, RPC_MAX_METADATA_BYTES);
    channel_args_add(&args, GRPC_ARG_MAX_CONCURRENT_STREAMS, streams_limit(limits->max_calls));
    channel_args_add(&args, GRPC_ARG_ALLOW_REUSEPORT,
                     0); /* on, two servers share a port silently */
    channel_args_add(&args, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
    if (limits->door)
        tls_door_prepare(limits->door, &args);
    if (limits->door)
        tls_door_prepare(limits->door, &args);
    grpc_resource_quota *quota = memory_quota(limits->max_receive_memory_bytes, &args);
    grpc_channel_args core_args = {args.count, args.items};
    grpc_server *core = grpc_server_create(&core_args, NULL);
    grpc_resource_quota_unref(quota);
    for (uint32_t i = 0; i < rpc_runtime_queue_count(runtime); i++)
        grpc_server_register_completion_queue(core, rpc_runtime_queue(runtime, i), NULL);
    return core;
}
