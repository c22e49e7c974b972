#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/rpc/grpc/address.h"
#include "common/rpc/grpc/call.h"
#include "common/rpc/grpc/health.h"
#include "common/rpc/grpc/listener.h"
#include "common/rpc/grpc/reflection.h"
#include "common/rpc/grpc/runtime.h"
#include "common/rpc/grpc/server_core.h"
#include "common/rpc/grpc/tls.h"

#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MAX_CALLS     16384
#define DEFAULT_CONNECTIONS   4096
#define ACCEPTORS_PER_QUEUE   8
#define MAX_PATH_BYTES        256
#define LOOK_EVERY_US         1000000 /* for calls that say nothing, at the longest */
#define LAST_BYTES_TIMEOUT_US 500000  /* for connections to close in order once all calls ended */
#define STOPPING_REASON       "shutting_down"
#define STOPPING_MESSAGE      "the server is shutting down"

/* Waits for one call of any method. Always some are out: a call that finds none hangs instead of failing. */
struct acceptor {
    struct tag tag;
    struct rpc_server *server;
    grpc_completion_queue *queue;
    grpc_call *core;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

struct rpc_server {
    struct rpc_runtime *runtime;
    grpc_server *core;
    grpc_server_credentials *plain; /* NULL: connections come in through the door */
    struct tls_door door;
    char peer_name[256]; /* "": any that the CA has signed */
    struct listener *listener;
    char address[300];
    size_t max_message_bytes, max_queued_bytes, max_calls;
    struct send_budget budget;
    uint64_t first_message_us;
    void (*late)(void *context);
    void *late_context;
    struct rpc_method *methods; /* ours, then the built-in ones */
    size_t method_count, builtin_from;
    struct health *health;
    struct reflection *reflection;
    struct tag shutdown_tag;
    struct call_set calls;
    /* Guarded by calls.lock; a change wakes calls.changed. */
    bool stopping, shutdown_done;
    size_t acceptors_out;
    struct acceptor *acceptors;
    size_t acceptor_count;
};

static void acceptor_request(struct acceptor *acceptor)
{
    grpc_call_details_init(&acceptor->details);
    grpc_metadata_array_init(&acceptor->metadata);
    acceptor->core = NULL;
    tag_publish(&acceptor->tag);
    grpc_call_error failure = grpc_server_request_call(
        acceptor->server->core, &acceptor->core, &acceptor->details, &acceptor->metadata,
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

static const struct rpc_method *find_method(const struct rpc_server *server, const char *path)
{
    for (size_t i = 0; i < server->method_count; i++)
        if (!strcmp(server->methods[i].path, path))
            return &server->methods[i];
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
    struct rpc_server *server = acceptor->server;
    struct rpc_call *call = call_create(acceptor->core, acceptor->queue, true);
    call->set = &server->calls;
    call->max_message_bytes = server->max_message_bytes;
    call->max_queued_bytes = server->max_queued_bytes;
    call->budget = &server->budget;
    set_deadline(call, acceptor->details.deadline);
    headers_read(&call->received_headers, &acceptor->metadata);
    name_peer(acceptor->core, call);
    if (method) {
        call->handlers = method->handlers;
        call->client_streams = method->client_streams;
        call->builtin = method >= server->methods + server->builtin_from;
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

static bool is_stranger(const struct rpc_server *server, grpc_call *core)
{
    return *server->peer_name && !tls_peer_has_name(core, server->peer_name);
}

static void on_accepted(struct tag *tag, bool ok)
{
    struct acceptor *acceptor = CONTAINER_OF(tag, struct acceptor, tag);
    struct rpc_server *server = acceptor->server;
    if (!ok) { /* the server is shutting down */
        acceptor_clear(acceptor);
        pthread_mutex_lock(&server->calls.lock);
        server->acceptors_out--;
        pthread_cond_broadcast(&server->calls.changed);
        pthread_mutex_unlock(&server->calls.lock);
        return;
    }
    char path[MAX_PATH_BYTES];
    copy_path(acceptor->details.method, path);
    const struct rpc_method *method = find_method(server, path);
    bool stranger = is_stranger(server, acceptor->core);
    struct rpc_call *call = take_call(acceptor, method);
    acceptor_clear(acceptor);
    bool full = call_set_add(&server->calls, call) > server->max_calls;
    pthread_mutex_lock(&server->calls.lock);
    bool stopping = server->stopping;
    pthread_mutex_unlock(&server->calls.lock);
    acceptor_request(acceptor);
    if (stopping) {
        refuse(call, RPC_UNAVAILABLE, STOPPING_REASON, STOPPING_MESSAGE);
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

static void on_shutdown(struct tag *tag, bool ok)
{
    (void)ok;
    struct rpc_server *server = CONTAINER_OF(tag, struct rpc_server, shutdown_tag);
    pthread_mutex_lock(&server->calls.lock);
    server->shutdown_done = true;
    pthread_cond_broadcast(&server->calls.changed);
    pthread_mutex_unlock(&server->calls.lock);
}

/* --- start --- */

static void on_connection(void *context, int fd)
{
    struct rpc_server *server = context;
    if (server->plain)
        grpc_server_add_channel_from_fd(server->core, fd, server->plain);
    else
        tls_door_enter(&server->door, fd);
}

static void end_if_silent(void *context, struct rpc_call *call)
{
    struct rpc_server *server = context;
    if (!call_is_silent(call, clock_now_us(), server->first_message_us))
        return;
    if (server->late) /* first: whoever hears of the end finds it counted */
        server->late(server->late_context);
    call_end_silent(call, server->first_message_us);
}

/* Whoever opens a call and says nothing holds a place of max_calls. */
static void end_silent_calls(void *context)
{
    struct rpc_server *server = context;
    call_set_each(&server->calls, end_if_silent, server);
}

static uint64_t look_every_us(const struct rpc_server_config *config)
{
    uint64_t quarter_us = (config->first_message_us + 3) / 4;
    return quarter_us < LOOK_EVERY_US ? quarter_us : LOOK_EVERY_US;
}

/* How connections are taken in: through TLS, or in the clear. */
static enum status secure(struct rpc_server *server, const struct rpc_server_config *config,
                          struct error *err)
{
    const struct rpc_tls *tls = &config->tls;
    if (!tls->certificates) {
        server->plain = grpc_insecure_server_credentials_create();
        return STATUS_OK;
    }
    if (!str_copy(server->peer_name, sizeof server->peer_name,
                  tls->peer_name ? tls->peer_name : ""))
        return error_set(err, STATUS_INVALID, "the name of peers' certificates is too long");
    server->door.certificates = tls->certificates;
    return tls_door_open(&server->door, server->core, err);
}

static enum status listen_on(struct rpc_server *server, const struct rpc_server_config *config,
                             struct error *err)
{
    struct address address;
    TRY(address_parse(config->listen, &address, err));
    const struct listener_config listener = {
        .max_connections = config->max_connections ? config->max_connections : DEFAULT_CONNECTIONS,
        .accepted = on_connection,
        .tick = end_silent_calls,
        .tick_us = look_every_us(config),
        .context = server};
    enum status status = listener_open(&address, &listener, &server->listener, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "can't listen on %s", config->listen);
    snprintf(server->address, sizeof server->address, address.bracketed ? "[%s]:%d" : "%s:%d",
             address.host, listener_port(server->listener));
    if (server->plain && !address_is_loopback(&address))
        log_warn("rpc_server", "msg=\"listening beyond loopback without TLS%s\" address=%s",
                 config->keyless ? " and without API keys: who reaches it may ask" : "",
                 server->address);
    return STATUS_OK;
}

static void add_methods(struct rpc_server *server, const struct rpc_server_config *config)
{
    server->builtin_from = config->method_count;
    server->method_count = config->method_count + HEALTH_METHODS + REFLECTION_METHODS;
    server->methods = calloc(server->method_count, sizeof *server->methods);
    ASSERT(server->methods);
    if (config->method_count)
        memcpy(server->methods, config->methods, config->method_count * sizeof *server->methods);
    health_methods(server->health, server->methods + server->builtin_from);
    reflection_methods(server->reflection, server->methods + server->builtin_from + HEALTH_METHODS);
}

static void post_acceptors(struct rpc_server *server)
{
    server->acceptor_count = rpc_runtime_queue_count(server->runtime) * ACCEPTORS_PER_QUEUE;
    server->acceptors = calloc(server->acceptor_count, sizeof *server->acceptors);
    ASSERT(server->acceptors);
    server->acceptors_out = server->acceptor_count;
    for (size_t i = 0; i < server->acceptor_count; i++) {
        struct acceptor *acceptor = &server->acceptors[i];
        acceptor->tag.run = on_accepted;
        acceptor->server = server;
        acceptor->queue = rpc_runtime_queue(server->runtime, (uint32_t)(i / ACCEPTORS_PER_QUEUE));
        acceptor_request(acceptor);
    }
}

static void server_free(struct rpc_server *server)
{
    grpc_server_destroy(server->core);
    if (server->plain)
        grpc_server_credentials_release(server->plain);
    health_destroy(server->health);
    reflection_destroy(server->reflection);
    call_set_deinit(&server->calls);
    free(server->acceptors);
    free(server->methods);
    free(server);
}

/* Core's shutdown, and nothing of the server is out any more. */
static void wait_for_shutdown(struct rpc_server *server, uint64_t grace_us)
{
    uint64_t until_us = clock_now_us() + (grace_us < UINT32_MAX ? grace_us : UINT32_MAX);
    bool cancelled = false;
    pthread_mutex_lock(&server->calls.lock);
    while (!server->shutdown_done || server->calls.count || server->acceptors_out) {
        uint64_t now_us = clock_now_us();
        if (!server->calls.count && until_us > now_us + LAST_BYTES_TIMEOUT_US)
            until_us = now_us + LAST_BYTES_TIMEOUT_US;
        if (call_set_wait(&server->calls, cancelled ? UINT64_MAX : until_us))
            continue;
        cancelled = true;
        pthread_mutex_unlock(&server->calls.lock);
        grpc_server_cancel_all_calls(server->core);
        pthread_mutex_lock(&server->calls.lock);
    }
    pthread_mutex_unlock(&server->calls.lock);
}

static void end_builtin(void *unused, struct rpc_call *call)
{
    (void)unused;
    if (call->builtin)
        rpc_call_finish(call, RPC_UNAVAILABLE, STOPPING_REASON, STOPPING_MESSAGE);
}

/* Core wants this end for a server that never started, too. */
static void shut_down(struct rpc_server *server, uint64_t grace_us)
{
    listener_close(server->listener); /* before core's end: it must be handed nothing any more */
    tag_publish(&server->shutdown_tag);
    grpc_server_shutdown_and_notify(server->core, rpc_runtime_queue(server->runtime, 0),
                                    &server->shutdown_tag);
    call_set_each(&server->calls, end_builtin, NULL);
    wait_for_shutdown(server, grace_us);
    server_free(server);
}

enum status rpc_server_start(struct rpc_runtime *runtime, const struct rpc_server_config *config,
                             struct rpc_server **server, struct error *err)
{
    struct rpc_server *made = calloc(1, sizeof *made);
    ASSERT(made);
    made->runtime = runtime;
    made->max_message_bytes =
        config->max_message_bytes ? config->max_message_bytes : RPC_DEFAULT_BYTES;
    made->budget.limit_bytes =
        config->max_queued_total_bytes ? config->max_queued_total_bytes : SIZE_MAX / 2;
    made->max_queued_bytes =
        config->max_queued_bytes ? config->max_queued_bytes : RPC_DEFAULT_BYTES;
    made->max_calls = config->max_calls ? config->max_calls : DEFAULT_MAX_CALLS;
    made->first_message_us = config->first_message_us;
    made->late = config->late;
    made->late_context = config->late_context;
    made->shutdown_tag.run = on_shutdown;
    call_set_init(&made->calls);
    const struct server_core_limits limits = {
        .max_message_bytes = made->max_message_bytes,
        .max_calls = made->max_calls,
        .max_receive_memory_bytes = config->max_receive_memory_bytes,
        .keepalive_us = config->keepalive_us,
        .door = config->tls.certificates ? &made->door : NULL,
    };
    made->core = server_core_create(runtime, &limits);
    made->health = health_create(config->services, config->service_count);
    made->reflection = reflection_create(config);
    add_methods(made, config);
    enum status status = secure(made, config, err);
    if (status == STATUS_OK)
        status = listen_on(made, config, err);
    if (status == STATUS_OK) {
        grpc_server_start(made->core);
        post_acceptors(made);
        status = listener_start(made->listener, err);
    }
    if (status == STATUS_OK) {
        *server = made;
        return STATUS_OK;
    }
    shut_down(made, 0);
    return status;
}

const char *rpc_server_address(const struct rpc_server *server)
{
    return server->address;
}

void rpc_server_set_serving(struct rpc_server *server, bool serving)
{
    health_set_serving(server->health, serving);
}

void rpc_server_stop(struct rpc_server *server, uint64_t grace_us)
{
    ASSERT(!rpc_runtime_on_thread());
    health_set_serving(server->health, false);
    pthread_mutex_lock(&server->calls.lock);
    server->stopping = true;
    pthread_mutex_unlock(&server->calls.lock);
    shut_down(server, grace_us);
}
