/* For rpc tests: records what happens to one side of a call, and waits for it. */
#ifndef BATON_TESTS_RPC_PROBE_H
#define BATON_TESTS_RPC_PROBE_H

#include "common/net/rpc/rpc.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define PROBE_LIMIT_S 30

struct probe {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t opened, messages, half_closed, closed;
    struct rpc_call *call; /* from the last open, with a reference */
    char last[256];        /* last message, NUL-terminated, cut */
    size_t last_size;
    struct rpc_end end; /* its strings are below */
    char reason[64], sentence[2048];
};

static inline void probe_init(struct probe *probe)
{
    *probe = (struct probe){0};
    pthread_mutex_init(&probe->lock, NULL);
    pthread_cond_init(&probe->changed, NULL);
}

static inline void probe_deinit(struct probe *probe)
{
    if (probe->call)
        rpc_call_unref(probe->call);
    pthread_cond_destroy(&probe->changed);
    pthread_mutex_destroy(&probe->lock);
}

static inline void probe_count(struct probe *probe, size_t *counter)
{
    pthread_mutex_lock(&probe->lock);
    ++*counter;
    pthread_cond_broadcast(&probe->changed);
    pthread_mutex_unlock(&probe->lock);
}

static inline void probe_open(struct probe *probe, struct rpc_call *call)
{
    pthread_mutex_lock(&probe->lock);
    if (probe->call)
        rpc_call_unref(probe->call);
    rpc_call_ref(call);
    probe->call = call;
    pthread_mutex_unlock(&probe->lock);
    probe_count(probe, &probe->opened);
}

static inline void probe_message(struct probe *probe, struct rpc_bytes bytes)
{
    pthread_mutex_lock(&probe->lock);
    size_t kept = bytes.size < sizeof probe->last ? bytes.size : sizeof probe->last - 1;
    memcpy(probe->last, bytes.data, kept);
    probe->last[kept] = 0;
    probe->last_size = bytes.size;
    pthread_mutex_unlock(&probe->lock);
    probe_count(probe, &probe->messages);
}

static inline void probe_closed(struct probe *probe, const struct rpc_end *end)
{
    pthread_mutex_lock(&probe->lock);
    snprintf(probe->reason, sizeof probe->reason, "%s", end->reason);
    snprintf(probe->sentence, sizeof probe->sentence, "%s", end->message);
    probe->end = (struct rpc_end){end->code, probe->reason, probe->sentence, end->refused};
    pthread_mutex_unlock(&probe->lock);
    probe_count(probe, &probe->closed);
}

/* Waits until *counter (of this probe) is at least `wanted`; fails the test after PROBE_LIMIT_S. */
static inline void probe_wait(struct probe *probe, const size_t *counter, size_t wanted)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PROBE_LIMIT_S;
    int failure = 0;
    pthread_mutex_lock(&probe->lock);
    while (*counter < wanted && !failure)
        failure = pthread_cond_timedwait(&probe->changed, &probe->lock, &until);
    size_t seen = *counter;
    pthread_mutex_unlock(&probe->lock);
    if (seen < wanted)
        fail_msg("waited for %zu, saw %zu", wanted, seen);
}

/* --- a client; the context of its call is a probe --- */
static inline void probe_on_message(struct rpc_call *call, struct rpc_bytes bytes)
{
    probe_message(rpc_call_context(call), bytes);
}

static inline void probe_on_closed(struct rpc_call *call, const struct rpc_end *end)
{
    probe_closed(rpc_call_context(call), end);
}

static const struct rpc_handlers probe_handlers = {.message = probe_on_message,
                                                   .closed = probe_on_closed};

static inline struct rpc_call *probe_start(struct probe *probe, struct rpc_channel *channel,
                                           const char *path, uint64_t deadline_us)
{
    struct rpc_call *call;
    assert_int_equal(
        rpc_call_start(channel, path, &probe_handlers, probe, deadline_us, false, &call),
        STATUS_OK);
    return call;
}

/* One request message, then the whole call to its end. */
static inline void probe_unary(struct probe *probe, struct rpc_channel *channel, const char *path,
                               const void *data, size_t size)
{
    struct rpc_call *call = probe_start(probe, channel, path, 20000000);
    enum status sent = rpc_call_send(call, data, size);
    assert_true(sent == STATUS_OK || sent == STATUS_CANCELLED); /* a refusal may be faster */
    rpc_call_half_close(call);
    probe_wait(probe, &probe->closed, 1);
    rpc_call_unref(call);
}

#endif
