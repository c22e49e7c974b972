/* The rpc threads: each polls its own completion queue of gRPC core, and a call is bound to one
 * queue, so the handlers of a call run one at a time and in order without a lock. Only
 * common/net/rpc/grpc includes this. */
#ifndef BATON_NET_RPC_GRPC_RUNTIME_H
#define BATON_NET_RPC_GRPC_RUNTIME_H

#include "common/net/rpc/rpc.h"

#include <grpc/grpc.h>

#include <stddef.h>

#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* What is given to gRPC core and comes back through a queue. Embedded in the struct that waits;
 * that struct must outlive it. */
struct tag {
    void (*run)(struct tag *tag, bool ok); /* on the queue's thread */
    bool failed;                           /* runtime.c's, of one that was put back */
};

/* Before a tag is given away: hands what was written so far to the thread that will run it (gRPC
 * core isn't instrumented, so ThreadSanitizer can't see that hand-over itself). */
void tag_publish(struct tag *tag);

/* Between the two, on one thread: the first tag of `queue` that core has done with on this thread
 * is caught, instead of waking the queue's thread for it. Who catches another's puts it back, by
 * way of any call of that queue. */
void tag_catch_begin(grpc_completion_queue *queue);
struct tag *tag_catch_end(grpc_completion_queue *queue, bool *ok); /* NULL: none */
void tag_put_back(struct tag *tag, bool ok, grpc_call *call);

uint32_t rpc_runtime_queue_count(const struct rpc_runtime *runtime);
grpc_completion_queue *rpc_runtime_queue(struct rpc_runtime *runtime, uint32_t index);
grpc_completion_queue *rpc_runtime_next_queue(struct rpc_runtime *runtime); /* round robin */
bool rpc_runtime_on_thread(void); /* is this an rpc thread? */

#endif
