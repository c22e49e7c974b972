#include "common/net/http/http_server.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/net/http/http_door.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

struct http_server {
    struct http_service service;
    struct http_loop *loops[HTTP_MAX_THREADS];
    struct http_door door;
};

enum status http_check_listen(const char *listen, struct error *err)
{
    struct http_peer peer;
    socklen_t length;
    return http_peer_parse(listen, &peer, &length, err);
}

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

static void set_defaults(struct http_server_config *config)
{
    config->threads = (unsigned)or_default(config->threads, 1);
    config->max_connections = or_default(config->max_connections, HTTP_MAX_CONNECTIONS);
    config->max_body_bytes = or_default(config->max_body_bytes, HTTP_MAX_BODY_BYTES);
    config->max_bodies_bytes = or_default(config->max_bodies_bytes, HTTP_MAX_BODIES_BYTES);
    config->max_unsent_bytes = or_default(config->max_unsent_bytes, HTTP_MAX_UNSENT_BYTES);
    config->max_all_unsent_bytes =
        or_default(config->max_all_unsent_bytes, HTTP_MAX_ALL_UNSENT_BYTES);
    config->head_us = or_default(config->head_us, 10000000);
    config->body_us = or_default(config->body_us, 10000000);
    config->body_bytes_per_second = or_default(config->body_bytes_per_second, 1024);
    config->idle_us = or_default(config->idle_us, 60000000);
    config->stall_us = or_default(config->stall_us, 30000000);
    ASSERT(config->threads <= HTTP_MAX_THREADS);
}

static void init_service(struct http_service *service, const struct http_server_config *config)
{
    pthread_condattr_t monotonic;
    service->config = *config;
    set_defaults(&service->config);
    pthread_mutex_init(&service->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&service->empty, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static enum status start(struct http_server *server, struct error *err)
{
    unsigned threads = server->service.config.threads;
    for (unsigned i = 0; i < threads; i++)
        TRY(http_loop_create(&server->service, &server->loops[i], err));
    TRY(http_door_open(&server->door, &server->service, server->loops, err));
    server->loops[0]->door = &server->door;
    for (unsigned i = 0; i < threads; i++)
        TRY(http_loop_start(server->loops[i], err));
    return STATUS_OK;
}

enum status http_server_start(const struct http_server_config *config, struct http_server **out,
                              struct error *err)
{
    struct http_server *server = calloc(1, sizeof *server);
    ASSERT(server);
    init_service(&server->service, config);
    enum status status = start(server, err);
    if (status == STATUS_OK)
        *out = server;
    else
        http_server_stop(server);
    return status;
}

const char *http_server_address(const struct http_server *server)
{
    return server->door.address;
}

void http_server_figures(const struct http_server *server, struct http_figures *figures)
{
    const struct http_service *service = &server->service;
    *figures = (struct http_figures){.connections = atomic_load(&service->connections),
                                     .accepted = atomic_load(&service->accepted),
                                     .turned_away = atomic_load(&service->turned_away),
                                     .made_room = atomic_load(&service->made_room),
                                     .requests = atomic_load(&service->requests),
                                     .refused = atomic_load(&service->refused),
                                     .slow = atomic_load(&service->slow),
                                     .gone = atomic_load(&service->gone),
                                     .body_bytes = atomic_load(&service->body_bytes),
                                     .unsent_bytes = atomic_load(&service->unsent_bytes)};
}

bool http_server_drain(struct http_server *server, uint64_t grace_us)
{
    struct http_service *service = &server->service;
    uint64_t end_us = clock_now_us() + grace_us;
    struct timespec end = {(time_t)(end_us / 1000000u), (long)(end_us % 1000000u) * 1000};
    atomic_store(&service->draining, true);
    for (unsigned i = 0; i < service->config.threads; i++)
        http_loop_wake(server->loops[i]);
    int late = 0;
    pthread_mutex_lock(&service->lock);
    while (atomic_load(&service->connections) && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&service->empty, &service->lock, &end);
    pthread_mutex_unlock(&service->lock);
    return atomic_load(&service->connections) == 0;
}

void http_server_stop(struct http_server *server)
{
    if (!server)
        return;
    /* The first loop's thread uses the door, and gives connections to the others. */
    for (unsigned i = 0; i < server->service.config.threads; i++)
        http_loop_stop(server->loops[i]);
    http_door_close(&server->door);
    for (unsigned i = 0; i < server->service.config.threads; i++)
        http_loop_destroy(server->loops[i]);
    pthread_mutex_destroy(&server->service.lock);
    pthread_cond_destroy(&server->service.empty);
    free(server);
}
