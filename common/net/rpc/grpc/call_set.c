#include "common/net/rpc/grpc/call_set.h"

#include "common/base/assert.h"
#include "common/net/rpc/grpc/call.h"

#include <errno.h>
#include <time.h>

void call_set_init(struct call_set *set)
{
    *set = (struct call_set){0};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&set->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&set->lock, NULL);
}

void call_set_deinit(struct call_set *set)
{
    ASSERT(!set->count);
    pthread_cond_destroy(&set->changed);
    pthread_mutex_destroy(&set->lock);
}

size_t call_set_add(struct call_set *set, struct rpc_call *call)
{
    pthread_mutex_lock(&set->lock);
    size_t count = 0;
    if (!set->closed) {
        call->link = (struct call_link){NULL, set->first};
        if (set->first)
            set->first->link.previous = call;
        set->first = call;
        count = ++set->count;
    }
    pthread_mutex_unlock(&set->lock);
    return count;
}

void call_set_remove(struct call_set *set, struct rpc_call *call)
{
    pthread_mutex_lock(&set->lock);
    if (call->link.previous)
        call->link.previous->link.next = call->link.next;
    else
        set->first = call->link.next;
    if (call->link.next)
        call->link.next->link.previous = call->link.previous;
    if (!--set->count)
        pthread_cond_broadcast(&set->changed);
    pthread_mutex_unlock(&set->lock);
}

void call_set_close(struct call_set *set)
{
    pthread_mutex_lock(&set->lock);
    set->closed = true;
    pthread_mutex_unlock(&set->lock);
}

void call_set_each(struct call_set *set, void (*visit)(void *context, struct rpc_call *call),
                   void *context)
{
    pthread_mutex_lock(&set->lock);
    for (struct rpc_call *call = set->first; call; call = call->link.next)
        visit(context, call);
    pthread_mutex_unlock(&set->lock);
}

bool call_set_wait(struct call_set *set, uint64_t until_us)
{
    if (until_us == UINT64_MAX) {
        pthread_cond_wait(&set->changed, &set->lock);
        return true;
    }
    struct timespec until = {.tv_sec = (time_t)(until_us / 1000000u),
                             .tv_nsec = (long)(until_us % 1000000u) * 1000};
    return pthread_cond_timedwait(&set->changed, &set->lock, &until) != ETIMEDOUT;
}
