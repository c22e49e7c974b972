#include "common/net/rpc/grpc/health.h"

#include "common/base/arena.h"
#include "common/base/assert.h"
#include "common/net/rpc/message.h"
#include "proto/health.pb-c.h"
#include "proto/proto_unpack.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WATCHES   1024
#define REQUEST_BYTES 4096 /* a service's name fits many times */

#define STATE(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

struct watch {
    struct watch *previous, *next;
    struct health *health;
    struct rpc_call *call; /* valid until its closed handler, which takes the watch out first */
};

struct health {
    const char *const *services;
    size_t service_count;
    pthread_mutex_t lock; /* of all below; taken before a call's lock */
    bool serving;
    struct watch *watches; /* of known services */
    size_t watch_count;
};

struct health *health_create(const char *const *services, size_t service_count)
{
    struct health *health = calloc(1, sizeof *health);
    ASSERT(health);
    health->services = services;
    health->service_count = service_count;
    pthread_mutex_init(&health->lock, NULL);
    return health;
}

void health_destroy(struct health *health)
{
    ASSERT(!health->watches);
    pthread_mutex_destroy(&health->lock);
    free(health);
}

static bool known(const struct health *health, const char *service)
{
    bool found = !*service; /* "" is the server as a whole */
    for (size_t i = 0; i < health->service_count && !found; i++)
        found = !strcmp(health->services[i], service);
    return found;
}

/* The request's service is known? False after the call was finished because the request can't be
 * read. */
static bool read_request(const struct health *health, struct rpc_call *call, struct rpc_bytes bytes,
                         bool *is_known)
{
    struct arena arena;
    arena_init(&arena, REQUEST_BYTES);
    ProtobufCMessage *message;
    struct error err;
    enum status status = proto_unpack(&grpc__health__v1__health_check_request__descriptor,
                                      bytes.data, bytes.size, &arena, &message, &err);
    if (status == STATUS_OK)
        *is_known = known(health, ((Grpc__Health__V1__HealthCheckRequest *)message)->service);
    else
        rpc_call_finish(call, RPC_INVALID_ARGUMENT, "malformed_request", err.text);
    arena_deinit(&arena);
    return status == STATUS_OK;
}

/* A client that doesn't even read this little is cut off. */
static void send_state(struct rpc_call *call, int state)
{
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)state;
    if (rpc_call_send_message(call, &response.base) == STATUS_LIMIT)
        rpc_call_cancel(call);
}

static int state_of(const struct health *health)
{
    return health->serving ? STATE(SERVING) : STATE(NOT_SERVING);
}

static void open_call(struct rpc_call *call, void *service)
{
    rpc_call_set_context(call, service);
}

static void on_check(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct health *health = rpc_call_context(call);
    bool is_known;
    if (!read_request(health, call, bytes, &is_known))
        return;
    if (!is_known) {
        rpc_call_finish(call, RPC_NOT_FOUND, "unknown_service", "unknown service");
        return;
    }
    pthread_mutex_lock(&health->lock);
    int state = state_of(health);
    pthread_mutex_unlock(&health->lock);
    send_state(call, state);
    rpc_call_finish(call, RPC_OK, NULL, NULL);
}

static void open_watch(struct rpc_call *call, void *service)
{
    struct watch *watch = calloc(1, sizeof *watch);
    ASSERT(watch);
    watch->health = service;
    rpc_call_set_context(call, watch);
}

static void on_watch(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct watch *watch = rpc_call_context(call);
    struct health *health = watch->health;
    bool is_known;
    if (!read_request(health, call, bytes, &is_known))
        return;
    /* stays open: the protocol allows that the service appears later; ours are fixed */
    if (!is_known) {
        send_state(call, STATE(SERVICE_UNKNOWN));
        return;
    }
    pthread_mutex_lock(&health->lock);
    if (health->watch_count < MAX_WATCHES) {
        watch->call = call;
        watch->next = health->watches;
        if (watch->next)
            watch->next->previous = watch;
        health->watches = watch;
        health->watch_count++;
        send_state(call, state_of(health));
    } else {
        rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "too_many_watches",
                        "too many health watches");
    }
    pthread_mutex_unlock(&health->lock);
}

static void on_watch_closed(struct rpc_call *call, const struct rpc_end *end)
{
    (void)end;
    struct watch *watch = rpc_call_context(call);
    struct health *health = watch->health;
    pthread_mutex_lock(&health->lock);
    if (watch->call) {
        if (watch->previous)
            watch->previous->next = watch->next;
        else
            health->watches = watch->next;
        if (watch->next)
            watch->next->previous = watch->previous;
        health->watch_count--;
    }
    pthread_mutex_unlock(&health->lock);
    free(watch);
}

void health_methods(struct health *health, struct rpc_method methods[HEALTH_METHODS])
{
    methods[0] = (struct rpc_method){.path = "/grpc.health.v1.Health/Check",
                                     .handlers = {.open = open_call, .message = on_check},
                                     .service = health};
    methods[1] = (struct rpc_method){
        .path = "/grpc.health.v1.Health/Watch",
        .handlers = {.open = open_watch, .message = on_watch, .closed = on_watch_closed},
        .service = health};
}

void health_set_serving(struct health *health, bool serving)
{
    pthread_mutex_lock(&health->lock);
    bool changed = health->serving != serving;
    health->serving = serving;
    for (struct watch *watch = health->watches; watch && changed; watch = watch->next)
        send_state(watch->call, state_of(health));
    pthread_mutex_unlock(&health->lock);
}
