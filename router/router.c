#include "router/router.h"

#include "common/base/log.h"
#include "common/base/rng.h"
#include "router/dispatch/dispatch.h"
#include "router/dispatch/request_observers.h"
#include "router/doors/request_constraint.h"
#include "router/router_servers.h"

#include <stdlib.h>
#include <string.h>

struct router {
    uint64_t incarnation;
    struct router_config config;
    struct served_models models;
    struct router_metrics metrics;
    struct status_board board;
    struct request_observers views;
    struct rpc_tls client_tls, internal_tls; /* of clients' connections, of those to workers */
    struct certificates *metrics_tls;        /* NULL: its listener speaks no TLS */
    struct certificates *otlp_tls;           /* for the collector; NULL: none are shown or named */
    struct access *access;
    struct membership *membership;
    struct rpc_runtime *runtime;
    struct dispatch *dispatch;
    struct constraint_checks *checks;
    struct router_servers servers;
};

static void on_membership_changed(void *context)
{
    const struct router *router = context;
    dispatch_membership_changed(router->dispatch);
}

/* What clients show, and what the cluster's own processes do. */
static enum status open_access(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    TRY(tls_settings_open(&config->tls, "tls", &router->client_tls.certificates, err));
    TRY(tls_settings_open(&config->metrics_tls, "metrics-tls", &router->metrics_tls, err));
    TRY(tls_client_settings_open(&config->otlp_tls, "otlp-tls", &router->otlp_tls, err));
    TRY(link_tls_open(&config->internal_tls, &router->internal_tls, err));
    router_metrics_watch(&router->metrics, router->client_tls.certificates, "for=\"tls\"");
    router_metrics_watch(&router->metrics, router->internal_tls.certificates,
                         "for=\"internal-tls\"");
    router_metrics_watch(&router->metrics, router->metrics_tls, "for=\"metrics-tls\"");
    if (*config->otlp_tls.cert)
        router_metrics_watch(&router->metrics, router->otlp_tls, "for=\"otlp-tls\"");
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
    certificates_close(router->otlp_tls);
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
    /* Without a place a request ends after worker-wait: what would come later is meant never to
     * come. */
    dispatch.limits.local_us = config->local_prefill_wait_us < config->worker_wait_us
                                   ? config->local_prefill_wait_us
                                   : UINT64_MAX;
    return dispatch_start(&dispatch, &router->dispatch, err);
}

static enum status start_servers(struct router *router, struct error *err)
{
    const struct router_parts parts = {.config = &router->config,
                                       .models = &router->models,
                                       .metrics = &router->metrics,
                                       .board = &router->board,
                                       .views = &router->views,
                                       .checks = router->checks,
                                       .access = router->access,
                                       .membership = router->membership,
                                       .dispatch = router->dispatch,
                                       .runtime = router->runtime,
                                       .client_tls = router->client_tls,
                                       .internal_tls = router->internal_tls,
                                       .metrics_tls = router->metrics_tls,
                                       .incarnation = router->incarnation};
    return router_servers_start(&router->servers, &parts, err);
}

static void stop_dispatch(struct router *router)
{
    dispatch_stop(router->dispatch);
    router_servers_stop_calls(&router->servers);
    dispatch_destroy(router->dispatch);
    router_servers_stop_figures(&router->servers);
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
    const struct request_observers_config views = {
        .trace_requests = config->trace_requests,
        .access_log = config->access_log,
        .collector = {.url = config->otlp_endpoint,
                      .certificates = router->otlp_tls,
                      .peer_name = config->otlp_tls.name},
        .models = &router->models,
        .metrics = &router->metrics};
    return request_observers_open(&views, &router->views, err);
}

static void say_serving(const struct router *router)
{
    log_info("router",
             "models=%zu address=%s registry=%s http=%s metrics=%s tls=%d internal_tls=%d "
             "api_keys=%d msg=\"serving\"",
             router->models.count, rpc_server_address(router->servers.clients),
             router_registry_address(router), router_http_address(router),
             http_server_address(router->servers.figures), router->client_tls.certificates != NULL,
             router->internal_tls.certificates != NULL, router->access != NULL);
}

/* What is there before anything runs, in the order in which each part needs the ones before. */
static enum status open_parts(struct router *router, struct error *err)
{
    struct membership_config membership = {.limit = ROUTER_MAX_WORKERS,
                                           .ttl_us = router->config.worker_ttl_us,
                                           .changed = on_membership_changed,
                                           .context = router};
    enum status status = open_models(router, err);
    if (status != STATUS_OK)
        return status;
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
    if (status == STATUS_OK)
        return STATUS_OK;
    error_set(err, status, "no memory for the list of workers");

    request_observers_close(&router->views);
fail_metrics:
    close_access(router);
    status_board_deinit(&router->board);
    router_metrics_destroy(&router->metrics);
fail_models:
    served_models_close(&router->models);
    return status;
}

static void close_parts(struct router *router)
{
    membership_destroy(router->membership);
    request_observers_close(&router->views);
    close_access(router);
    status_board_deinit(&router->board);
    router_metrics_destroy(&router->metrics);
    served_models_close(&router->models);
}

static enum status start_threads(struct router *router, struct error *err)
{
    enum status status = rpc_runtime_create(router->config.rpc_threads, &router->runtime, err);
    if (status != STATUS_OK)
        return status;
    status = start_dispatch(router, err);
    if (status != STATUS_OK)
        goto fail_runtime;
    status = start_servers(router, err);
    if (status == STATUS_OK)
        return STATUS_OK;

    stop_dispatch(router);
fail_runtime:
    rpc_runtime_destroy(router->runtime);
    return status;
}

enum status router_start(const struct router_config *config, struct router **out, struct error *err)
{
    struct router *router = calloc(1, sizeof *router);
    if (!router)
        return error_set(err, STATUS_LIMIT, "out of memory");
    router->config = *config;
    router->incarnation = rng_entropy() | 1;     /* never 0 */
    router->checks = constraint_checks_create(); /* without it workers say what they refuse */
    enum status status = open_parts(router, err);
    if (status != STATUS_OK)
        goto fail_router;
    status = start_threads(router, err);
    if (status != STATUS_OK)
        goto fail_parts;
    router_servers_serve(&router->servers);
    say_serving(router);
    *out = router;
    return STATUS_OK;

fail_parts:
    close_parts(router);
fail_router:
    constraint_checks_destroy(router->checks);
    free(router);
    return status;
}

const char *router_address(const struct router *router)
{
    return rpc_server_address(router->servers.clients);
}

const char *router_registry_address(const struct router *router)
{
    return router_servers_registry_address(&router->servers);
}

const char *router_http_address(const struct router *router)
{
    return router_servers_http_address(&router->servers);
}

const char *router_metrics_address(const struct router *router)
{
    return http_server_address(router->servers.figures);
}

const struct router_metrics *router_figures(const struct router *router)
{
    return &router->metrics;
}

void router_drain(struct router *router)
{
    router_servers_drain(&router->servers);
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
    router_servers_drain(&router->servers);
    stop_dispatch(router);
    rpc_runtime_destroy(router->runtime);
    close_parts(router);
    constraint_checks_destroy(router->checks);
    free(router);
}
