/* The live calls of one server or channel: to end them all, and to wait for their end. Any
 * thread. */
#ifndef BATON_NET_RPC_GRPC_CALL_SET_H
#define BATON_NET_RPC_GRPC_CALL_SET_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rpc_call;

struct call_set {
    pthread_mutex_t lock;   /* taken before a call's lock, never after */
    pthread_cond_t changed; /* the set became empty, or what its owner waits for happened */
    struct rpc_call *first;
    size_t count;
    bool closed; /* takes no more calls */
};

/* A call's place in its set. */
struct call_link {
    struct rpc_call *previous, *next;
};

void call_set_init(struct call_set *set);
void call_set_deinit(struct call_set *set); /* must be empty */
/* Calls in the set, this one included; 0 when the set is closed. */
size_t call_set_add(struct call_set *set, struct rpc_call *call);
void call_set_remove(struct call_set *set, struct rpc_call *call);
void call_set_close(struct call_set *set);
/* Calls `visit` for each call, with the set locked. */
void call_set_each(struct call_set *set, void (*visit)(void *context, struct rpc_call *call),
                   void *context);
/* Waits for a change until clock_now_us() reaches until_us (UINT64_MAX: for ever); set->lock is
 * held. False: time is up. */
bool call_set_wait(struct call_set *set, uint64_t until_us);

#endif
