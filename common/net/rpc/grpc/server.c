#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/peer_places.h"
#include "common/base/str.h"
#include "common/net/rpc/grpc/builtin.h"
#include "common/net/rpc/grpc/call.h"
#include "common/net/rpc/grpc/gate.h"
#include "common/net/rpc/grpc/listener.h"
#include "common/net/rpc/grpc/tls.h"

#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PENALTY_PARTS         16 /* a flood costs its address such a part of its connections */
#define ACCEPTORS_PER_QUEUE   8
#define MAX_PATH_BYTES        256
#define DEFAULT_MAX_CALLS     16384
#define DEFAULT_CONNECTIONS   4096
#define DEFAULT_RECEIVE_BYTES ((size_t)512 << 20)
#define LOOK_EVERY_US         1000000 /* for calls without a message, at the longest */
#define LAST_BYTES_TIMEOUT_US 500000  /* for connections to close in order once all calls ended */
#define DEFAULT_HANDSHAKE_US  10000000
#define DEFAULT_FIRST_CALL_US 60000000
#define DEFAULT_STALL_US      60000000

/* Calls end with these while the server shuts down. */
#define STOPPING_REASON  "shutting_down"
#define STOPPING_MESSAGE "the server is shutting down"

/* Takes the calls of any method that come to a server, and begins or refuses each, on the rpc
 * threads. Some acceptors are out at any time: a call that finds none hangs instead of failing. */
struct acceptors {
    /* Filled in by the server before acceptors_start. */
    const struct rpc_method *methods;
    size_t method_count, builtin_from;
    struct call_set *calls;
    struct send_budget *budget;
    size_t max_message_bytes, max_queued_bytes, max_calls;
    char peer_name[256]; /* "": any that the CA has signed */
    struct gate *gate;   /* NULL: none */
    /* calls->lock guards the first two. A change wakes calls->changed. */
    bool stopping;
    size_t out; /* 0 once core has shut down, and uses none of them any more */
    grpc_server *core;
    struct acceptor *items;
};

/* Waits for one call of any method. */
struct acceptor {
    struct tag tag;
    struct acceptors *of;
    grpc_completion_queue *queue;
    grpc_call *core;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

struct rpc_server {
    struct rpc_runtime *runtime;
    grpc_server *core;
    grpc_server_credentials *plain; /* NULL: connections go through the door */
    struct tls_door door;
    struct rpc_gate gate; /* as the config has it */
    struct listener *listener;
    char address[300];
    struct send_budget budget;
    uint64_t first_message_us;
    void (*late)(void *context);
    void *late_context;
    struct rpc_method *methods; /* ours, then the built-in ones */
    struct builtin_streams streams;
    struct health *health;
    struct reflection *reflection;
    struct tag shutdown_tag;
    struct call_set calls;
    bool shutdown_done; /* guarded by calls.lock; a change wakes calls.changed */
    struct acceptors acceptors;
};

/* --- calls that come --- */

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

/* Takes the acceptor's call. `method` NULL: there is none of that name. *crowded: the client's
 * address has its share of calls already. */
static struct rpc_call *take_call(struct acceptor *acceptor, const struct rpc_method *method,
                                  bool *crowded)
{
    struct acceptors *of = acceptor->of;
    struct rpc_call *call = call_create(acceptor->core, acceptor->queue, true);
    call->set = of->calls;
    call->max_message_bytes = of->max_message_bytes;
    call->max_queued_bytes = of->max_queued_bytes;
    call->budget = of->budget;
    gpr_timespec deadline = acceptor->details.deadline;
    if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type))) {
        double left_us =
            gpr_timespec_to_micros(gpr_time_sub(deadline, gpr_now(deadline.clock_type)));
        if (left_us <= 1e15) { /* thirty years are as good as none */
            call->allowed_us = left_us > 0 ? (uint64_t)left_us : 0;
            call->deadline_us = clock_now_us() + call->allowed_us;
        }
    }
    headers_read(&call->received_headers, &acceptor->metadata);
    /* Core names a connection by the descriptor that it was given, unless it speaks TLS. */
    char *peer = grpc_call_get_peer(acceptor->core);
    uint64_t fd;
    if (strncmp(peer, "fd:", 3) || !str_to_u64(peer + 3, 0, INT_MAX, &fd))
        address_from_core(peer, call->peer, sizeof call->peer);
    else if (of->gate)
        *crowded = gate_peer(of->gate, (int)fd, call->peer, sizeof call->peer);
    else
        listener_peer((int)fd, call->peer, sizeof call->peer);
    gpr_free(peer);
    if (method) {
        call->handlers = method->handlers;
        call->client_streams = method->client_streams;
        call->builtin = method >= of->methods + of->builtin_from;
    }
    return call;
}

/* Ends a call that gets no handlers. */
static void refuse(struct rpc_call *call, enum rpc_code code, const char *reason,
                   const char *message)
{
    call->handlers = (struct rpc_handlers){0};
    call_begin_server(call, NULL);
    rpc_call_finish(call, code, reason, message);
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
    grpc_slice name = acceptor->details.method;
    snprintf(path, sizeof path, "%.*s", (int)GRPC_SLICE_LENGTH(name),
             (const char *)GRPC_SLICE_START_PTR(name));
    const struct rpc_method *method = NULL;
    for (size_t i = 0; i < of->method_count && !method; i++)
        if (!strcmp(of->methods[i].path, path))
            method = &of->methods[i];
    bool stranger = *of->peer_name && !tls_peer_has_name(acceptor->core, of->peer_name);
    bool crowded = false;
    struct rpc_call *call = take_call(acceptor, method, &crowded);
    acceptor_clear(acceptor);
    /* Calls of an address beyond its share, which are over and not cleared away yet, keep no other
     * address out. */
    size_t most = crowded || !of->gate ? of->max_calls : 2 * of->max_calls;
    bool full = call_set_add(of->calls, call) > most;
    pthread_mutex_lock(&of->calls->lock);
    bool stopping = of->stopping;
    pthread_mutex_unlock(&of->calls->lock);
    acceptor_request(acceptor);
    if (stopping) {
        refuse(call, RPC_UNAVAILABLE, STOPPING_REASON, STOPPING_MESSAGE);
    } else if (full) {
        refuse(call, RPC_RESOURCE_EXHAUSTED, "too_many_calls",
               "the server's limit of calls at once is reached");
    } else if (crowded) {
        refuse(call, RPC_RESOURCE_EXHAUSTED, "too_many_calls",
               "the limit of calls at once of one address is reached");
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

static void acceptors_start(struct acceptors *acceptors, grpc_server *core,
                            struct rpc_runtime *runtime)
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

/* Makes core's half of a server, with limits that core keeps by itself: what breaks them isn't even
 * read. The server refuses less than that, with a reason, so core lets in twice as much. */
static grpc_server *create_core(struct rpc_server *server, const struct rpc_server_config *config)
{
    struct channel_args args = {0};
    size_t max_calls = server->acceptors.max_calls;
    channel_args_add_common(&args, 2 * server->acceptors.max_message_bytes, config->keepalive_us);
    channel_args_add(&args, GRPC_ARG_MAX_METADATA_SIZE, RPC_MAX_METADATA_BYTES);
    /* Per connection. More than there may be calls, so that surplus ones are refused instead of
     * waiting in their client. */
    channel_args_add(&args, GRPC_ARG_MAX_CONCURRENT_STREAMS,
                     max_calls < INT_MAX / 2 ? 2 * (int)max_calls : INT_MAX);
    channel_args_add(&args, GRPC_ARG_ALLOW_REUSEPORT, 0); /* no port shared silently */
    channel_args_add(&args, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
    if (config->tls.certificates && !config->gate.on)
        tls_door_prepare(&server->door, &args);
    /* Core checks a message's size when it has all of it. Without this quota a client that
     * announces 4 GiB may send them. */
    grpc_resource_quota *quota = grpc_resource_quota_create("server");
    grpc_resource_quota_resize(quota, config->max_receive_memory_bytes
                                          ? config->max_receive_memory_bytes
                                          : DEFAULT_RECEIVE_BYTES);
    channel_args_add_pointer(&args, GRPC_ARG_RESOURCE_QUOTA, quota,
                             grpc_resource_quota_arg_vtable());
    grpc_channel_args core_args = {args.count, args.items};
    grpc_server *core = grpc_server_create(&core_args, NULL);
    grpc_resource_quota_unref(quota);
    for (uint32_t i = 0; i < rpc_runtime_queue_count(server->runtime); i++)
        grpc_server_register_completion_queue(core, rpc_runtime_queue(server->runtime, i), NULL);
    return core;
}

static void enter_core(void *context, int fd)
{
    struct rpc_server *server = context;
    grpc_server_add_channel_from_fd(server->core, fd, server->plain);
}

static void on_connection(void *context, int fd)
{
    struct rpc_server *server = context;
    if (server->acceptors.gate)
        gate_take(server->acceptors.gate, fd);
    else if (server->plain)
        enter_core(server, fd);
    else
        tls_door_enter(&server->door, fd);
}

static void end_if_silent(void *context, struct rpc_call *call)
{
    struct rpc_server *server = context;
    if (!call_is_silent(call, clock_now_us(), server->first_message_us))
        return;
    if (server->late) /* before the end, so that it is counted when the client sees it */
        server->late(server->late_context);
    call_end_silent(call, server->first_message_us);
}

/* A call without a message holds a place of max_calls. */
static void end_silent_calls(void *context)
{
    struct rpc_server *server = context;
    call_set_each(&server->calls, end_if_silent, server);
}

static void on_gate_ended(void *context, enum frame_gate_end end)
{
    struct rpc_server *server = context;
    if (server->gate.ended)
        server->gate.ended(server->gate.context, end);
}

static enum status open_gate(struct rpc_server *server, const struct rpc_server_config *config,
                             struct error *err)
{
    const struct rpc_gate *asked = &config->gate;
    size_t all = config->max_connections ? config->max_connections : DEFAULT_CONNECTIONS;
    uint32_t threads = rpc_runtime_queue_count(server->runtime);
    uint64_t handshake_us = asked->handshake_us ? asked->handshake_us : DEFAULT_HANDSHAKE_US;
    uint64_t first_call_us = asked->first_call_us ? asked->first_call_us : DEFAULT_FIRST_CALL_US;
    struct gate_config gate = {.threads = threads,
                               .certificates = config->tls.certificates,
                               .limits = {.header_block_bytes = 2 * RPC_MAX_METADATA_BYTES,
                                          .streams = GATE_MAX_STREAMS,
                                          .handshake_us = handshake_us,
                                          .first_call_us = first_call_us,
                                          .idle_us = asked->idle_us},
                               .stall_us = asked->stall_us ? asked->stall_us : DEFAULT_STALL_US,
                               .enter = enter_core,
                               .ended = on_gate_ended,
                               .context = server};
    ASSERT(!config->tls.peer_name); /* the gate checks that a CA has signed, no names */
    server->gate = *asked;
    /* Refused calls are calls, too, until their client has read that. */
    size_t calls = server->acceptors.max_calls;
    gate.calls_share = asked->address_calls ? asked->address_calls : (calls + 1) / 2;
    gate.penalty_places = (asked->address_connections + PENALTY_PARTS - 1) / PENALTY_PARTS;
    gate.penalty_us = asked->penalty_us;
    gate.calls_most = gate.calls_share + (gate.calls_share + 1) / 2;
    struct peer_ranges uncounted = {.count = 0};
    if (asked->uncounted)
        TRY(peer_ranges_parse(asked->uncounted, &uncounted, err));
    size_t receive =
        config->max_receive_memory_bytes ? config->max_receive_memory_bytes : DEFAULT_RECEIVE_BYTES;
    gate.uploads_most =
        (asked->upload_bytes ? asked->upload_bytes : receive) / GATE_UPLOAD_UNIT_BYTES;
    enum status status = peer_places_create(
        SIZE_MAX / 2, gate.calls_share, SIZE_MAX / 2 - gate.calls_share, &uncounted, &gate.calls);
    if (status == STATUS_OK)
        status = peer_places_create(SIZE_MAX / 2, SIZE_MAX / 2, 0, &uncounted, &gate.uploads);
    if (status == STATUS_OK && asked->address_connections)
        status = peer_places_create(all, asked->address_connections, 0, &uncounted, &gate.places);
    if (status == STATUS_OK)
        return gate_open(&gate, &server->acceptors.gate, err);
    peer_places_destroy(gate.calls);
    peer_places_destroy(gate.uploads);
    return error_set(err, status, "no memory for %zu connections", all);
}

/* Prepares the way of connections into core: through the gate, with TLS of core's, or without. */
static enum status secure(struct rpc_server *server, const struct rpc_server_config *config,
                          struct error *err)
{
    const struct rpc_tls *tls = &config->tls;
    if (!tls->certificates || config->gate.on)
        server->plain = grpc_insecure_server_credentials_create();
    if (config->gate.on)
        return open_gate(server, config, err);
    if (server->plain)
        return STATUS_OK;
    if (!str_copy(server->acceptors.peer_name, sizeof server->acceptors.peer_name,
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
    uint64_t quarter_us = (config->first_message_us + 3) / 4;
    const struct listener_config listener = {
        .max_connections = config->max_connections ? config->max_connections : DEFAULT_CONNECTIONS,
        .accepted = on_connection,
        .tick = end_silent_calls,
        .tick_us = quarter_us < LOOK_EVERY_US ? quarter_us : LOOK_EVERY_US,
        .context = server};
    enum status status = listener_open(&address, &listener, &server->listener, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "can't listen on %s", config->listen);
    snprintf(server->address, sizeof server->address, address.bracketed ? "[%s]:%d" : "%s:%d",
             address.host, listener_port(server->listener));
    if (!config->tls.certificates && !address_is_loopback(&address))
        log_warn("rpc_server", "msg=\"listening beyond loopback without TLS%s\" address=%s",
                 config->keyless ? " and without API keys: any machine that reaches it may ask"
                                 : "",
                 server->address);
    return STATUS_OK;
}

static void add_methods(struct rpc_server *server, const struct rpc_server_config *config)
{
    size_t own = config->method_count, count = own + HEALTH_METHODS + REFLECTION_METHODS;
    server->methods = calloc(count, sizeof *server->methods);
    ASSERT(server->methods);
    if (own)
        memcpy(server->methods, config->methods, own * sizeof *server->methods);
    health_methods(server->health, server->methods + own);
    reflection_methods(server->reflection, server->methods + own + HEALTH_METHODS);
    server->acceptors.methods = server->methods;
    server->acceptors.method_count = count;
    server->acceptors.builtin_from = own;
}

static void server_free(struct rpc_server *server)
{
    grpc_server_destroy(server->core);
    gate_close(server->acceptors.gate, LAST_BYTES_TIMEOUT_US);
    if (server->plain)
        grpc_server_credentials_release(server->plain);
    health_destroy(server->health);
    reflection_destroy(server->reflection);
    call_set_deinit(&server->calls);
    free(server->acceptors.items);
    free(server->methods);
    free(server);
}

/* Waits for core's shutdown, and until no call and no acceptor of the server is out. */
static void wait_for_shutdown(struct rpc_server *server, uint64_t grace_us)
{
    uint64_t until_us = clock_now_us() + (grace_us < UINT32_MAX ? grace_us : UINT32_MAX);
    bool cancelled = false;
    pthread_mutex_lock(&server->calls.lock);
    while (!server->shutdown_done || server->calls.count || server->acceptors.out) {
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

/* Core wants this end also for a server that never started. */
static void shut_down(struct rpc_server *server, uint64_t grace_us)
{
    /* Before core's end: it must get no more descriptors. */
    listener_close(server->listener);
    if (server->acceptors.gate)
        gate_shut(server->acceptors.gate);
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
    made->budget.limit_bytes =
        config->max_queued_total_bytes ? config->max_queued_total_bytes : SIZE_MAX / 2;
    made->acceptors = (struct acceptors){
        .calls = &made->calls,
        .budget = &made->budget,
        .max_message_bytes =
            config->max_message_bytes ? config->max_message_bytes : RPC_DEFAULT_BYTES,
        .max_queued_bytes = config->max_queued_bytes ? config->max_queued_bytes : RPC_DEFAULT_BYTES,
        .max_calls = config->max_calls ? config->max_calls : DEFAULT_MAX_CALLS,
    };
    made->first_message_us = config->first_message_us;
    made->late = config->late;
    made->late_context = config->late_context;
    made->shutdown_tag.run = on_shutdown;
    call_set_init(&made->calls);
    made->core = create_core(made, config);
    made->health = health_create(config->services, config->service_count, &made->streams);
    made->reflection = reflection_create(config, &made->streams);
    add_methods(made, config);
    enum status status = secure(made, config, err);
    if (status == STATUS_OK)
        status = listen_on(made, config, err);
    if (status == STATUS_OK) {
        grpc_server_start(made->core);
        acceptors_start(&made->acceptors, made->core, runtime);
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
    server->acceptors.stopping = true; /* calls that come from now on are refused */
    pthread_mutex_unlock(&server->calls.lock);
    shut_down(server, grace_us);
}
