/* Takes the calls that come to a server, of any method, and begins or refuses each. Always some
 * acceptors are out: a call that finds none hangs instead of failing. They run on the rpc
 * threads. */
#ifndef BATON_NET_RPC_GRPC_ACCEPTORS_H
#define BATON_NET_RPC_GRPC_ACCEPTORS_H

#include "common/net/rpc/grpc/call.h"
#include "common/net/rpc/grpc/call_set.h"
#include "common/net/rpc/grpc/runtime.h"

/* What calls end with that come while the server shuts down. */
#define ACCEPTORS_STOPPING_REASON  "shutting_down"
#define ACCEPTORS_STOPPING_MESSAGE "the server is shutting down"

struct acceptor;

struct acceptors {
    /* The server's, filled in by it before acceptors_start. */
    const struct rpc_method *methods;
    size_t method_count, builtin_from;
    struct call_set *calls;
    struct send_budget *budget;
    size_t max_message_bytes, max_queued_bytes, max_calls;
    char peer_name[256]; /* "": any that the CA has signed */
    /* Ours. The first two guarded by calls->lock; a change wakes calls->changed. */
    bool stopping;
    size_t out; /* 0 once core has shut down, and nothing of them is used any more */
    grpc_server *core;
    struct acceptor *items;
};

void acceptors_start(struct acceptors *acceptors, grpc_server *core, struct rpc_runtime *runtime);
/* Calls that come from now on are refused. */
void acceptors_stop(struct acceptors *acceptors);
/* After none is out. Also of such as never started. */
void acceptors_deinit(struct acceptors *acceptors);

#endif
