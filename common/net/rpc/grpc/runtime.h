/* The rpc threads, and gRPC core's settings that servers and channels share. Each thread polls a
 * completion queue of its own, and a call is bound to one queue. So the handlers of a call run one
 * at a time and in order without a lock. Internal to this folder. */
#ifndef BATON_NET_RPC_GRPC_RUNTIME_H
#define BATON_NET_RPC_GRPC_RUNTIME_H

#include "common/net/rpc/rpc.h"

#include <grpc/grpc.h>

#include <stddef.h>

#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* Goes to gRPC core and comes back through a queue. Embedded in the struct that waits, which must
 * outlive it. */
struct tag {
    void (*run)(struct tag *tag, bool ok); /* on the queue's thread */
    bool failed;                           /* runtime.c: it was put back with ok false */
};

/* Comes before a tag is given away: makes all writes so far visible to the thread that will run it.
 * (gRPC core isn't instrumented, so ThreadSanitizer can't see that hand-over.) */
void tag_publish(struct tag *tag);

/* Between these two calls of one thread, the first tag of `queue` that core completes on this
 * thread is caught instead of waking the queue's thread. A thread that catches a tag of another
 * call puts it back, by way of any call of that queue. */
void tag_catch_begin(grpc_completion_queue *queue);
struct tag *tag_catch_end(grpc_completion_queue *queue, bool *ok); /* NULL: none */
void tag_put_back(struct tag *tag, bool ok, grpc_call *call);

uint32_t rpc_runtime_queue_count(const struct rpc_runtime *runtime);
grpc_completion_queue *rpc_runtime_queue(struct rpc_runtime *runtime, uint32_t index);
grpc_completion_queue *rpc_runtime_next_queue(struct rpc_runtime *runtime); /* round robin */
bool rpc_runtime_on_thread(void); /* returns whether this is an rpc thread */

/* --- settings of core --- */

#define RPC_DEFAULT_BYTES (4u << 20) /* the message and queue limit that a 0 in a config means */

struct channel_args {
    grpc_arg items[24];
    size_t count;
};

void channel_args_add(struct channel_args *args, const char *key, int value);
/* The text and the pointer must live until the args have been used. */
void channel_args_add_string(struct channel_args *args, const char *key, const char *value);
void channel_args_add_pointer(struct channel_args *args, const char *key, void *pointer,
                              const grpc_arg_pointer_vtable *vtable);
/* Adds the message limit and the keepalive, and turns compression and channelz off. 0: the default
 * limit, no keepalive. */
void channel_args_add_common(struct channel_args *args, size_t max_message_bytes,
                             uint64_t keepalive_us);

#endif
