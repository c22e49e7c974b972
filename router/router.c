#include "router/router.h"

#include "common/base/log.h"
#include "common/base/rng.h"
#include "proto/descriptors.h"
#include "router/admin.h"
#include "router/dispatch.h"
#include "router/grpc_api.h"
#include "router/openai/openai_api.h"
#include "router/registry_service.h"
#include "router/request_constraint.h"
#include "router/request_views.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STOP_GRACE_US 1000000u /* for statuses to reach clients */
#define MORE_CALLS    1024u    /* of other services: health, registrations */

struct router {
    uint64_t incarnation;
    struct router_config config;
    struct served_models models;
    struct router_metrics metrics;
    struct status_board board;
    struct request_views views;
    struct rpc_tls client_tls, internal_tls; /* of clients' connections, of those to workers */
    struct certificates *metrics_tls;        /* NULL: its listener speaks no TLS */
    struct access *access;
    struct membership *membership;
    struct rpc_runtime *runtime;
    struct dispatch *dispatch;
    struct constraint_checks *checks;
    struct grpc_api api;
    struct registry_service registry;
    struct admin admin;
    struct rpc_method methods[GRPC_API_METHODS + 1];
    struct rpc_bytes descriptors[2];
    struct rpc_server *server;
    struct rpc_server *registry_server; /* NULL: `server` takes registrations */
    struct http_server *http;
    struct openai_api openai;
    struct http_server *front; /* of clients; NULL: none was asked for */
};

static const char *const services[] = {GRPC_API_SERVICE, REGISTRY_SERVICE};

static void on_membership_changed(void *context)
{
    const struct router *router = context;
    dispatch_membership_changed(router->dispatch);
}

/* What clients show, and what the cluster's own processes do. */
static enum status open_access(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    if (*config->internal_tls.cert && !*config->registry_listen)
        return error_set(
            err, STATUS_INVALID,
            "--registry-listen is missing: with --internal-tls-cert workers register at "
            "an address of their own, apart from clients");
    TRY(tls_settings_open(&config->tls, "tls", &router->client_tls.certificates, err));
    TRY(tls_settings_open(&config->metrics_tls, "metrics-tls", &router->metrics_tls, err));
    TRY(link_tls_open(&config->internal_tls, &router->internal_tls, err));
    router_metrics_watch(&router->metrics, router->client_tls.certificates, "for=\"tls\"");
    router_metrics_watch(&router->metrics, router->internal_tls.certificates,
                         "for=\"internal-tls\"");
    router_metrics_watch(&router->metrics, router->metrics_tls, "for=\"metrics-tls\"");
    TRY(access_open(config->api_keys, 0, &router->access, err));
    if (router->access && !*config->registry_listen)
        log_warn("router",
                 "msg=\"clients need keys, but anybody who reaches them may register as a "
                 "worker: set registry-listen\"");
    return STATUS_OK;
}

static void close_access(struct router *router)
{
    access_close(router->access);
    link_tls_close(&router->internal_tls);
    link_tls_close(&router->client_tls);
    certificates_close(router->metrics_tls);
}

static enum status start_dispatch(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    struct dispatch_config dispatch = {
        .runtime = router->runtime,
        .membership = router->membership,
        .metrics = &router->metrics,
        .board = &router->board,
        .views = router->views,
        .models = &router->models,
        .checks = router->checks,
        .max_requests = config->max_requests,
        .max_queue = config->max_queue,
        .limits = request_limits_default(),
        .unconfirmed_tokens = config->unconfirmed_tokens,
        .force_local_prefill = config->force_local_prefill,
        .linger_us = config->client_linger_us,
        .tls = router->internal_tls,
        .keepalive_us = config->worker_keepalive_us,
        .incarnation = router->incarnation,
    };
    dispatch.limits.runs = dispatch.limits.losses = config->retries + 1;
    dispatch.limits.no_worker_us = config->worker_wait_us;
    /* Without a place a request ends after worker-wait: what would come later is meant never to come. */
    dispatch.limits.local_us = config->local_prefill_wait_us < config->worker_wait_us
                                   ? config->local_prefill_wait_us
                                   : UINT64_MAX;
    return dispatch_start(&dispatch, &router->dispatch, err);
}

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
static enum status start_registry(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    struct rpc_server_config server = {
        .listen = config->registry_listen,
        .tls = router->internal_tls,
        .max_receive_memory_bytes = config->receive_memory_bytes,
        .max_calls = MORE_CALLS,
        .max_connections = MORE_CALLS,
        .keepalive_us = config->worker_keepalive_us,
        .first_message_us = config->message_timeout_us,
        .late = on_late_message,
        .late_context = &router->metrics,
        .methods = &router->methods[GRPC_API_METHODS],
        .method_count = 1,
        .services = &services[1],
        .service_count = 1,
        .descriptors = &router->descriptors[1],
        .descriptor_count = 1,
    };
    return rpc_server_start(router->runtime, &server, &router->registry_server, err);
}

static enum status start_server(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    bool apart = *config->registry_listen;
    router->api = (struct grpc_api){.dispatch = router->dispatch,
                                    .access = router->access,
                                    .models = &router->models,
                                    .checks = router->checks,
                                    .board = &router->board,
                                    .metrics = &router->metrics,
                                    .access_log = router->views.access,
                                    .default_deadline_us = config->default_deadline_us,
                                    .client_buffer_bytes = config->client_buffer_bytes};
    router->registry = (struct registry_service){.membership = router->membership,
                                                 .models = &router->models,
                                                 .board = &router->board,
                                                 .incarnation = router->incarnation};
    grpc_api_methods(&router->api, router->methods);
    router->methods[GRPC_API_METHODS] = registry_service_method(&router->registry);
    router->descriptors[0] = (struct rpc_bytes){baton_descriptors, baton_descriptors_size};
    router->descriptors[1] = (struct rpc_bytes){worker_descriptors, worker_descriptors_size};
    struct rpc_server_config server = {
        .listen = config->listen,
        .tls = router->client_tls,
        .max_message_bytes = message_limit(config),
        .max_queued_bytes = config->client_buffer_bytes,
        .max_receive_memory_bytes = config->receive_memory_bytes,
        .max_queued_total_bytes = config->client_buffers_bytes,
        .max_calls = (size_t)config->max_requests + MORE_CALLS,
        .max_connections = config->max_connections,
        .keepalive_us = config->client_keepalive_us,
        .first_message_us = config->message_timeout_us,
        .late = on_late_message,
        .late_context = &router->metrics,
        .methods = router->methods,
        .method_count = GRPC_API_METHODS + !apart,
        .services = services,
        .service_count = 2 - apart,
        .descriptors = router->descriptors,
        .descriptor_count = 2 - apart,
    };
    TRY(rpc_server_start(router->runtime, &server, &router->server, err));
    return apart ? start_registry(router, err) : STATUS_OK;
}

static enum status start_http(struct router *router, struct error *err)
{
    router->admin = (struct admin){.metrics = &router->metrics,
                                   .board = &router->board,
                                   .models = &router->models,
                                   .traces = router->views.traces,
                                   .recent = router->views.recent};
    struct http_server_config http = {.listen = router->config.metrics_listen,
                                      .routes = admin_routes,
                                      .route_count = ADMIN_ROUTES,
                                      .context = &router->admin,
                                      .certificates = router->metrics_tls};
    return http_server_start(&http, &router->http, err);
}

/* Every body may be as large as its text, escaped, and all that comes with it. */
static size_t body_limit(const struct router_config *config)
{
    return 2 * (size_t)config->max_text_bytes + REQUEST_MORE_BYTES;
}

static enum status start_front(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    if (!*config->http_listen)
        return STATUS_OK;
    router->openai = (struct openai_api){.dispatch = router->dispatch,
                                         .access = router->access,
                                         .models = &router->models,
                                         .checks = router->checks,
                                         .metrics = &router->metrics,
                                         .board = &router->board,
                                         .access_log = router->views.access,
                                         .default_deadline_us = config->default_deadline_us,
                                         .keepalive_us = config->http_keepalive_us,
                                         .max_body_bytes = body_limit(config),
                                         .max_answer_bytes = config->client_buffer_bytes,
                                         .created_s = (uint64_t)time(NULL)};
    struct http_server_config http = {.listen = config->http_listen,
                                      .context = &router->openai,
                                      .admit = openai_admit,
                                      .certificates = router->client_tls.certificates,
                                      .refuse = openai_refused,
                                      .threads = config->http_threads,
                                      .max_connections = config->max_connections,
                                      .turns_away = true,
                                      .max_body_bytes = body_limit(config),
                                      .max_bodies_bytes = config->receive_memory_bytes,
                                      .max_unsent_bytes = config->client_buffer_bytes,
                                      .max_all_unsent_bytes = config->client_buffers_bytes,
                                      .stall_us = config->client_linger_us};
    http.routes = openai_routes(&http.route_count);
    return http_server_start(&http, &router->front, err);
}

static void stop_dispatch(struct router *router)
{
    dispatch_stop(router->dispatch);
    if (router->server)
        rpc_server_stop(router->server, STOP_GRACE_US);
    if (router->registry_server)
        rpc_server_stop(router->registry_server, STOP_GRACE_US);
    /* Its exchanges tell the dispatcher when they are over. */
    if (router->front)
        http_server_drain(router->front, STOP_GRACE_US);
    http_server_stop(router->front);
    dispatch_destroy(router->dispatch);
}

static enum status open_models(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    struct model_list list;
    TRY(model_list_parse(config->models, &list, err));
    TRY(model_list_name(&list, config->model_name, err));
    TRY(served_models_open(&list, &router->models, err));
    for (size_t i = 0; i < router->models.count; i++) {
        struct served_model *model = &router->models.items[i];
        model->limits.max_text_bytes = config->max_text_bytes;
        log_info("router", "model=%s context=%u vocab=%u tokenizer=%d chat=%d msg=\"model read\"",
                 model->name, model->limits.context, model->limits.vocab,
                 model->limits.has_tokenizer, model->chat != NULL);
    }
    return STATUS_OK;
}

static enum status open_views(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    const struct request_views_config views = {.trace_requests = config->trace_requests,
                                               .access_log = config->access_log,
                                               .otlp_endpoint = config->otlp_endpoint,
                                               .models = &router->models,
                                               .metrics = &router->metrics};
    return request_views_open(&views, &router->views, err);
}

static void say_serving(const struct router *router)
{
    log_info("router",
             "models=%zu address=%s registry=%s http=%s metrics=%s tls=%d internal_tls=%d "
             "api_keys=%d msg=\"serving\"",
             router->models.count, rpc_server_address(router->server),
             router_registry_address(router), router_http_address(router),
             http_server_address(router->http), router->client_tls.certificates != NULL,
             router->internal_tls.certificates != NULL, router->access != NULL);
}

enum status router_start(const struct router_config *config, struct router **out, struct error *err)
{
    struct router *router = calloc(1, sizeof *router);
    if (!router)
        return error_set(err, STATUS_LIMIT, "out of memory");
    router->config = *config;
    router->incarnation = rng_entropy() | 1;     /* never 0 */
    router->checks = constraint_checks_create(); /* without it workers say what they refuse */
    struct membership_config membership = {.limit = ROUTER_MAX_WORKERS,
                                           .ttl_us = config->worker_ttl_us,
                                           .changed = on_membership_changed,
                                           .context = router};
    enum status status = open_models(router, err);
    if (status != STATUS_OK)
        goto fail_router;
    status = router_metrics_create(&router->metrics, &router->models);
    if (status != STATUS_OK) {
        error_set(err, status, "no memory for the router's figures");
        goto fail_models;
    }
    status_board_init(&router->board);
    status = open_access(router, err);
    if (status != STATUS_OK)
        goto fail_metrics;
    status = open_views(router, err);
    if (status != STATUS_OK)
        goto fail_metrics;
    status = membership_create(&membership, &router->membership);
    if (status != STATUS_OK) {
        error_set(err, status, "no memory for the list of workers");
        goto fail_views;
    }
    status = rpc_runtime_create(config->rpc_threads, &router->runtime, err);
    if (status != STATUS_OK)
        goto fail_membership;
    status = start_dispatch(router, err);
    if (status != STATUS_OK)
        goto fail_runtime;
    status = start_server(router, err);
    if (status != STATUS_OK)
        goto fail_dispatch;
    status = start_front(router, err);
    if (status != STATUS_OK)
        goto fail_dispatch;
    status = start_http(router, err);
    if (status != STATUS_OK)
        goto fail_dispatch;
    rpc_server_set_serving(router->server, true);
    if (router->registry_server)
        rpc_server_set_serving(router->registry_server, true);
    say_serving(router);
    *out = router;
    return STATUS_OK;

fail_dispatch:
    stop_dispatch(router);
fail_runtime:
    rpc_runtime_destroy(router->runtime);
fail_membership:
    membership_destroy(router->membership);
fail_views:
    request_views_close(&router->views);
fail_metrics:
    close_access(router);
    status_board_deinit(&router->board);
    router_metrics_destroy(&router->metrics);
fail_models:
    served_models_close(&router->models);
fail_router:
    constraint_checks_destroy(router->checks);
    free(router);
    return status;
}

const char *router_address(const struct router *router)
{
    return rpc_server_address(router->server);
}

const char *router_registry_address(const struct router *router)
{
    return rpc_server_address(router->registry_server ? router->registry_server : router->server);
}

const char *router_http_address(const struct router *router)
{
    return router->front ? http_server_address(router->front) : "";
}

const char *router_metrics_address(const struct router *router)
{
    return http_server_address(router->http);
}

const struct router_metrics *router_figures(const struct router *router)
{
    return &router->metrics;
}

void router_drain(struct router *router)
{
    rpc_server_set_serving(router->server, false);
    dispatch_drain(router->dispatch);
}

bool router_has_log_file(const struct router *router)
{
    return router->views.access && strcmp(router->config.access_log, "stderr");
}

void router_reopen_logs(struct router *router)
{
    if (router->views.access)
        access_log_reopen(router->views.access);
}

int router_idle_fd(const struct router *router)
{
    return dispatch_idle_fd(router->dispatch);
}

void router_stop(struct router *router)
{
    rpc_server_set_serving(router->server, false);
    stop_dispatch(router);
    http_server_stop(router->http);
    rpc_runtime_destroy(router->runtime);
    membership_destroy(router->membership);
    request_views_close(&router->views);
    close_access(router);
    status_board_deinit(&router->board);
    router_metrics_destroy(&router->metrics);
    served_models_close(&router->models);
    constraint_checks_destroy(router->checks);
    free(router);
}
