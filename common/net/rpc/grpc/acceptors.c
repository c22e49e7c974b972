#include "common/net/rpc/grpc/acceptors.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/str.h"
#include "common/net/rpc/grpc/address.h"
#include "common/net/rpc/grpc/listener.h"
#include "common/net/rpc/grpc/tls.h"

#include <grpc/support/alloc.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCEPTORS_PER_QUEUE 8
#define MAX_PATH_BYTES      256

/* Waits for one call of any method. */
struct acceptor {
    struct tag tag;
    struct acceptors *of;
    grpc_completion_queue *queue;
    grpc_call *core;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

static void acceptor_request(struct acceptor *acceptor)
{
    grpc_call_details_init(&acceptor->details);
    grpc_metadata_array_init(&acceptor->metadata);
    acceptor->core = NULL;
    tag_publish(&acceptor->tag);
    grpc_call_error failure = grpc_server_request_call(
        acceptor->of->core, &acceptor->core, &acceptor->details, &acceptor->metadata,
        acceptor->queue, acceptor->queue, &acceptor->tag);
    ASSERT(failure == GRPC_CALL_OK);
}

static void acceptor_clear(struct acceptor *acceptor)
{
    grpc_call_details_destroy(&acceptor->details);
    grpc_metadata_array_destroy(&acceptor->metadata);
}

static void set_deadline(struct rpc_call *call, gpr_timespec deadline)
{
    if (!gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)))
        return;
    double left_us = gpr_timespec_to_micros(gpr_time_sub(deadline, gpr_now(deadline.clock_type)));
    if (left_us > 1e15) /* thirty years: as good as none */
        return;
    call->allowed_us = left_us > 0 ? (uint64_t)left_us : 0;
    call->deadline_us = clock_now_us() + call->allowed_us;
}

static const struct rpc_method *find_method(const struct acceptors *of, const char *path)
{
    for (size_t i = 0; i < of->method_count; i++)
        if (!strcmp(of->methods[i].path, path))
            return &of->methods[i];
    return NULL;
}

static void copy_path(grpc_slice slice, char path[MAX_PATH_BYTES])
{
    size_t length = GRPC_SLICE_LENGTH(slice);
    length = length < MAX_PATH_BYTES ? length : MAX_PATH_BYTES - 1;
    memcpy(path, GRPC_SLICE_START_PTR(slice), length);
    path[length] = 0;
}

/* Core names a connection that it was handed by its descriptor, unless it speaks TLS. */
static void name_peer(grpc_call *core, struct rpc_call *call)
{
    char *peer = grpc_call_get_peer(core);
    uint64_t fd;
    if (!strncmp(peer, "fd:", 3) && str_to_u64(peer + 3, 0, INT_MAX, &fd))
        listener_peer((int)fd, call->peer, sizeof call->peer);
    else
        address_from_core(peer, call->peer, sizeof call->peer);
    gpr_free(peer);
}

/* The call of an acceptor that has one, with its method (NULL: none of that name). */
static struct rpc_call *take_call(struct acceptor *acceptor, const struct rpc_method *method)
{
    struct acceptors *of = acceptor->of;
    struct rpc_call *call = call_create(acceptor->core, acceptor->queue, true);
    call->set = of->calls;
    call->max_message_bytes = of->max_message_bytes;
    call->max_queued_bytes = of->max_queued_bytes;
    call->budget = of->budget;
    set_deadline(call, acceptor->details.deadline);
    headers_read(&call->received_headers, &acceptor->metadata);
    name_peer(acceptor->core, call);
    if (method) {
        call->handlers = method->handlers;
        call->client_streams = method->client_streams;
        call->builtin = method >= of->methods + of->builtin_from;
    }
    return call;
}

/* A call without handlers that only ends. */
static void refuse(struct rpc_call *call, enum rpc_code code, const char *reason,
                   const char *message)
{
    call->handlers = (struct rpc_handlers){0};
    call_begin_server(call, NULL);
    rpc_call_finish(call, code, reason, message);
}

static bool is_stranger(const struct acceptors *of, grpc_call *core)
{
    return *of->peer_name && !tls_peer_has_name(core, of->peer_name);
}

static void on_accepted(struct tag *tag, bool ok)
{
    struct acceptor *acceptor = CONTAINER_OF(tag, struct acceptor, tag);
    struct acceptors *of = acceptor->of;
    if (!ok) { /* the server is shutting down */
        acceptor_clear(acceptor);
        pthread_mutex_lock(&of->calls->lock);
        of->out--;
        pthread_cond_broadcast(&of->calls->changed);
        pthread_mutex_unlock(&of->calls->lock);
        return;
    }
    char path[MAX_PATH_BYTES];
    copy_path(acceptor->details.method, path);
    const struct rpc_method *method = find_method(of, path);
    bool stranger = is_stranger(of, acceptor->core);
    struct rpc_call *call = take_call(acceptor, method);
    acceptor_clear(acceptor);
    bool full = call_set_add(of->calls, call) > of->max_calls;
    pthread_mutex_lock(&of->calls->lock);
    bool stopping = of->stopping;
    pthread_mutex_unlock(&of->calls->lock);
    acceptor_request(acceptor);
    if (stopping) {
        refuse(call, RPC_UNAVAILABLE, ACCEPTORS_STOPPING_REASON, ACCEPTORS_STOPPING_MESSAGE);
    } else if (full) {
        refuse(call, RPC_RESOURCE_EXHAUSTED, "too_many_calls",
               "the server's limit of calls at once is reached");
    } else if (stranger) {
        refuse(call, RPC_UNAUTHENTICATED, "wrong_peer",
               "the certificate of this client is another's than may call here");
    } else if (!method) {
        char message[MAX_PATH_BYTES + 32];
        snprintf(message, sizeof message, "unknown method %s", path);
        refuse(call, RPC_UNIMPLEMENTED, "unknown_method", message);
    } else {
        call_begin_server(call, method->service);
    }
}

void acceptors_start(struct acceptors *acceptors, grpc_server *core, struct rpc_runtime *runtime)
{
    size_t count = rpc_runtime_queue_count(runtime) * ACCEPTORS_PER_QUEUE;
    acceptors->core = core;
    acceptors->items = calloc(count, sizeof *acceptors->items);
    ASSERT(acceptors->items);
    acceptors->out = count;
    for (size_t i = 0; i < count; i++) {
        struct acceptor *acceptor = &acceptors->items[i];
        acceptor->tag.run = on_accepted;
        acceptor->of = acceptors;
        acceptor->queue = rpc_runtime_queue(runtime, (uint32_t)(i / ACCEPTORS_PER_QUEUE));
        acceptor_request(acceptor);
    }
}

void acceptors_stop(struct acceptors *acceptors)
{
    pthread_mutex_lock(&acceptors->calls->lock);
    acceptors->stopping = true;
    pthread_mutex_unlock(&acceptors->calls->lock);
}

void acceptors_deinit(struct acceptors *acceptors)
{
    free(acceptors->items);
}
