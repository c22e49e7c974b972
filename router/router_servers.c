#include "router/router_servers.h"

#include "common/base/status.h"
#include "common/net/crypto/certificates.h"
#include "common/net/rpc/rpc.h"
#include "proto/descriptors.h"

#include <time.h>

#define STOP_GRACE_US 1000000u /* for statuses to reach clients */
#define MORE_CALLS    1024u    /* of other services: health, registrations */

static const char *const services[] = {GRPC_API_SERVICE, REGISTRY_SERVICE};

static size_t message_limit(const struct router_config *config)
{
    uint64_t with_text = config->max_text_bytes + REQUEST_MORE_BYTES;
    return with_text > REQUEST_MAX_MESSAGE_BYTES ? (size_t)with_text : REQUEST_MAX_MESSAGE_BYTES;
}

static void on_late_message(void *context)
{
    counter_add(((struct router_metrics *)context)->late_messages, 1);
}

/* For workers alone: what clients may be told and may send has nothing to do with it. */
static enum status start_registry(struct router_servers *servers, const struct router_parts *parts,
                                  struct error *err)
{
    const struct router_config *config = parts->config;
    struct rpc_server_config server = {
        .listen = config->registry_listen,
        .tls = parts->internal_tls,
        .max_receive_memory_bytes = config->receive_memory_bytes,
        .max_calls = MORE_CALLS,
        .max_connections = MORE_CALLS,
        .keepalive_us = config->worker_keepalive_us,
        .first_message_us = config->message_timeout_us,
        .late = on_late_message,
        .late_context = parts->metrics,
        .methods = &servers->methods[GRPC_API_METHODS],
        .method_count = 1,
        .services = &services[1],
        .service_count = 1,
        .descriptors = &servers->descriptors[1],
        .descriptor_count = 1,
    };
    return rpc_server_start(parts->runtime, &server, &servers->workers, err);
}

static enum status start_grpc(struct router_servers *servers, const struct router_parts *parts,
                              struct error *err)
{
    const struct router_config *config = parts->config;
    bool apart = *config->registry_listen;
    servers->api = (struct grpc_api){.dispatch = parts->dispatch,
                                     .access = parts->access,
                                     .models = parts->models,
                                     .checks = parts->checks,
                                     .board = parts->board,
                                     .metrics = parts->metrics,
                                     .access_log = parts->views->access,
                                     .default_deadline_us = config->default_deadline_us,
                                     .client_buffer_bytes = config->client_buffer_bytes};
    servers->registry = (struct registry_service){.membership = parts->membership,
                                                  .models = parts->models,
                                                  .board = parts->board,
                                                  .incarnation = parts->incarnation};
    grpc_api_methods(&servers->api, servers->methods);
    servers->methods[GRPC_API_METHODS] = registry_service_method(&servers->registry);
    servers->descriptors[0] = (struct rpc_bytes){baton_descriptors, baton_descriptors_size};
    servers->descriptors[1] = (struct rpc_bytes){worker_descriptors, worker_descriptors_size};
    struct rpc_server_config server = {
        .listen = config->listen,
        .tls = parts->client_tls,
        .keyless = !parts->access,
        .max_message_bytes = message_limit(config),
        .max_queued_bytes = config->client_buffer_bytes,
        .max_receive_memory_bytes = config->receive_memory_bytes,
        .max_queued_total_bytes = config->client_buffers_bytes,
        .max_calls = 2 * (size_t)config->max_requests + MORE_CALLS,
        .max_connections = config->max_connections,
        .keepalive_us = config->client_keepalive_us,
        .first_message_us = config->message_timeout_us,
        .late = on_late_message,
        .late_context = parts->metrics,
        .methods = servers->methods,
        .method_count = GRPC_API_METHODS + !apart,
        .services = services,
        .service_count = 2 - apart,
        .descriptors = servers->descriptors,
        .descriptor_count = 2 - apart,
    };
    TRY(rpc_server_start(parts->runtime, &server, &servers->clients, err));
    return apart ? start_registry(servers, parts, err) : STATUS_OK;
}

static enum status start_figures(struct router_servers *servers, const struct router_parts *parts,
                                 struct error *err)
{
    const struct router_config *config = parts->config;
    servers->admin = (struct admin){.metrics = parts->metrics,
                                    .board = parts->board,
                                    .models = parts->models,
                                    .traces = parts->views->traces,
                                    .recent = parts->views->recent};
    struct http_server_config http = {.listen = config->metrics_listen,
                                      .routes = admin_routes,
                                      .route_count = ADMIN_ROUTES,
                                      .context = &servers->admin,
                                      .certificates = parts->metrics_tls};
    return http_server_start(&http, &servers->figures, err);
}

/* Every body may be as large as its text, escaped, and all that comes with it. */
static size_t body_limit(const struct router_config *config)
{
    return 2 * (size_t)config->max_text_bytes + REQUEST_MORE_BYTES;
}

static enum status start_http_clients(struct router_servers *servers,
                                      const struct router_parts *parts, struct error *err)
{
    const struct router_config *config = parts->config;
    if (!*config->http_listen)
        return STATUS_OK;
    servers->openai = (struct openai_api){.dispatch = parts->dispatch,
                                          .access = parts->access,
                                          .models = parts->models,
                                          .checks = parts->checks,
                                          .metrics = parts->metrics,
                                          .board = parts->board,
                                          .access_log = parts->views->access,
                                          .default_deadline_us = config->default_deadline_us,
                                          .keepalive_us = config->http_keepalive_us,
                                          .max_body_bytes = body_limit(config),
                                          .max_answer_bytes = config->client_buffer_bytes,
                                          .created_s = (uint64_t)time(NULL)};
    struct http_server_config http = {.listen = config->http_listen,
                                      .context = &servers->openai,
                                      .admit = openai_admit,
                                      .certificates = parts->client_tls.certificates,
                                      .refuse = openai_refused,
                                      .cors_origins = config->http_cors_origins,
                                      .keyless = !parts->access,
                                      .threads = config->http_threads,
                                      .max_connections = config->max_connections,
                                      .turns_away = true,
                                      .max_body_bytes = body_limit(config),
                                      .max_bodies_bytes = config->receive_memory_bytes,
                                      .max_unsent_bytes = config->client_buffer_bytes,
                                      .max_all_unsent_bytes = config->client_buffers_bytes,
                                      .stall_us = config->client_linger_us};
    http.routes = openai_routes(parts->access != NULL, &http.route_count);
    TRY(http_server_start(&http, &servers->http_clients, err));
    router_metrics_watch_door(parts->metrics, servers->http_clients);
    return STATUS_OK;
}

enum status router_servers_start(struct router_servers *servers, const struct router_parts *parts,
                                 struct error *err)
{
    TRY(start_grpc(servers, parts, err));
    TRY(start_http_clients(servers, parts, err));
    return start_figures(servers, parts, err);
}

void router_servers_serve(struct router_servers *servers)
{
    rpc_server_set_serving(servers->clients, true);
    if (servers->workers)
        rpc_server_set_serving(servers->workers, true);
}

void router_servers_drain(struct router_servers *servers)
{
    rpc_server_set_serving(servers->clients, false);
}

void router_servers_stop_calls(struct router_servers *servers)
{
    if (servers->clients)
        rpc_server_stop(servers->clients, STOP_GRACE_US);
    if (servers->workers)
        rpc_server_stop(servers->workers, STOP_GRACE_US);
    /* Its exchanges tell the dispatcher when they are over. */
    if (!servers->http_clients)
        return;
    http_server_drain(servers->http_clients, STOP_GRACE_US);
    router_metrics_watch_door(servers->openai.metrics, NULL);
    http_server_stop(servers->http_clients);
}

void router_servers_stop_figures(struct router_servers *servers)
{
    http_server_stop(servers->figures);
}

const char *router_servers_registry_address(const struct router_servers *servers)
{
    return rpc_server_address(servers->workers ? servers->workers : servers->clients);
}

const char *router_servers_http_address(const struct router_servers *servers)
{
    return servers->http_clients ? http_server_address(servers->http_clients) : "";
}
