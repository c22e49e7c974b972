/* Core's half of a server: made with the limits that core itself keeps, so that what breaks them is
 * not even read. */
#ifndef BATON_NET_RPC_GRPC_SERVER_CORE_H
#define BATON_NET_RPC_GRPC_SERVER_CORE_H

#include "common/net/rpc/grpc/tls.h"
#include "common/net/rpc/rpc.h"

#include <grpc/grpc.h>

/* The server's own, which it refuses with a reason: core lets in twice as much of both, so that it
 * gets to. */
struct server_core_limits {
    size_t max_message_bytes, max_calls;
    size_t max_receive_memory_bytes; /* 0: a default */
    uint64_t keepalive_us;           /* 0: none */
    struct tls_door *door;           /* to be prepared; NULL: in the clear */
};

/* Listens nowhere yet; its calls come to the runtime's queues. The caller shuts it down, then
 * destroys it. */
grpc_server *server_core_create(struct rpc_runtime *runtime,
                                const struct server_core_limits *limits);

#endif
