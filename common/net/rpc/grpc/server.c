#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/net/rpc/grpc/acceptors.h"
#include "common/net/rpc/grpc/address.h"
#include "common/net/rpc/grpc/call.h"
#include "common/net/rpc/grpc/health.h"
#include "common/net/rpc/grpc/listener.h"
#include "common/net/rpc/grpc/reflection.h"
#include "common/net/rpc/grpc/runtime.h"
#include "common/net/rpc/grpc/server_core.h"
#include "common/net/rpc/grpc/tls.h"

#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MAX_CALLS     16384
#define DEFAULT_CONNECTIONS   4096
#define LOOK_EVERY_US         1000000 /* for calls that say nothing, at the longest */
#define LAST_BYTES_TIMEOUT_US 500000  /* for connections to close in order once all calls ended */

struct rpc_server {
    struct rpc_runtime *runtime;
    grpc_server *core;
    grpc_server_credentials *plain; /* NULL: connections come in through the door */
    struct tls_door door;
    struct listener *listener;
    char address[300];
    struct send_budget budget;
    uint64_t first_message_us;
    void (*late)(void *context);
    void *late_context;
    struct rpc_method *methods; /* ours, then the built-in ones */
    struct health *health;
    struct reflection *reflection;
    struct tag shutdown_tag;
    struct call_set calls;
    bool shutdown_done; /* guarded by calls.lock; a change wakes calls.changed */
    struct acceptors acceptors;
};

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
    if (server->plain)
        grpc_server_credentials_release(server->plain);
    health_destroy(server->health);
    reflection_destroy(server->reflection);
    call_set_deinit(&server->calls);
    acceptors_deinit(&server->acceptors);
    free(server->methods);
    free(server);
}

/* Core's shutdown, and nothing of the server is out any more. */
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
        rpc_call_finish(call, RPC_UNAVAILABLE, ACCEPTORS_STOPPING_REASON,
                        ACCEPTORS_STOPPING_MESSAGE);
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
    const struct server_core_limits limits = {
        .max_message_bytes = made->acceptors.max_message_bytes,
        .max_calls = made->acceptors.max_calls,
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
    acceptors_stop(&server->acceptors);
    shut_down(server, grace_us);
}
