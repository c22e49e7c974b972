#include "router/router.h"

#include "common/base/descriptors.h"
#include "common/base/log.h"
#include "common/base/peer_places.h"
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/net/crypto/certificates.h"
#include "proto/descriptors.h"
#include "router/dispatch/dispatch.h"
#include "router/dispatch/request_observers.h"
#include "router/doors/body_readers.h"
#include "router/doors/grpc/grpc_api.h"
#include "router/doors/grpc/registry_service.h"
#include "router/doors/openai/openai_api.h"
#include "router/doors/request_constraint.h"
#include "router/ops/admin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STOP_GRACE_US    1000000u  /* for statuses to reach clients */
#define FLOOD_PENALTY_US 10000000u /* see rpc.h: penalty_us */
#define MORE_CALLS       1024u     /* for other services: health, registrations */

static const char *const services[] = {GRPC_API_SERVICE, REGISTRY_SERVICE};

struct router {
    uint64_t incarnation;
    struct router_config config;
    struct router_room room;
    struct slo_classes slo;
    struct served_models models;
    struct router_metrics metrics;
    struct status_board board;
    struct request_observers views;
    struct rpc_tls client_tls, internal_tls; /* for clients, for workers */
    struct certificates *metrics_tls;        /* NULL: its listener uses no TLS */
    struct certificates *otlp_tls;           /* for the collector; NULL: none are set */
    struct access *access;                   /* NULL: no call needs a key */
    struct membership *membership;
    struct rpc_runtime *runtime;
    struct dispatch *dispatch;
    struct body_readers *readers;     /* threads for large requests */
    struct constraint_checks *checks; /* NULL: workers refuse invalid constraints instead */

    /* Listeners and what they serve. */
    struct grpc_api api;
    struct registry_service registry;
    struct openai_api openai;
    struct admin admin;
    struct rpc_method methods[GRPC_API_METHODS + 1];
    struct rpc_bytes descriptors[2];
    struct rpc_server *clients;
    struct rpc_server *workers;       /* NULL: `clients` takes registrations */
    struct http_server *http_clients; /* NULL: no http-listen */
    struct http_server *figures;
};

/* ------------------------------------------------------------------- parts that have no threads */

static void on_membership_changed(void *context)
{
    const struct router *router = context;
    counter_add(router->metrics.membership_changes, 1);
    dispatch_membership_changed(router->dispatch);
}

/* The program's check has passed the classes; a test's own settings have not been checked. */
static enum status open_classes(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    struct str mistakes;
    str_init(&mistakes, sizeof err->text);
    bool good = slo_classes_parse(config->slo_class, config->slo_default, &router->slo, &mistakes);
    enum status status = good ? STATUS_OK : error_set(err, STATUS_INVALID, "%s", mistakes.data);
    str_deinit(&mistakes);
    for (uint32_t i = 0; good && i < router->slo.count; i++) {
        const struct slo_class *class = &router->slo.items[i];
        log_info("router",
                 "slo_class=%s ttft_us=%" PRIu64 " tpot_us=%" PRIu64 " itl_us=%" PRIu64
                 " e2e_us=%" PRIu64 " percentile=%g priority=%s default=%d msg=\"SLO class\"",
                 class->name, class->objective.ttft_us, class->objective.tpot_us,
                 class->objective.itl_us, class->objective.e2e_us, class->percentile,
                 priority_names[class->priority], i == router->slo.standard);
    }
    return status;
}

static enum status open_models(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    struct model_list list;
    TRY(open_classes(router, err));
    TRY(model_list_parse(config->models, &list, err));
    TRY(model_list_name(&list, config->model_name, err));
    TRY(served_models_open(&list, &router->models, err));
    for (size_t i = 0; i < router->models.count; i++) {
        struct served_model *model = &router->models.items[i];
        model->limits.max_text_bytes = config->max_text_bytes;
        model->limits.slo = &router->slo;
        log_info("router", "model=%s context=%u vocab=%u tokenizer=%d chat=%d msg=\"model read\"",
                 model->name, model->limits.context, model->limits.vocab,
                 model->limits.has_tokenizer, model->chat != NULL);
    }
    return STATUS_OK;
}

/* Opens the certificates and the keys of clients. */
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
    TRY(access_open(config->api_keys, 0, &router->slo, &router->access, err));
    if (router_config_registry_is_open(config))
        log_warn("router",
                 "registry=%s msg=\"clients need keys, but any process that reaches this address "
                 "may register as a worker: set internal-tls-cert\"",
                 router_config_registry(config));
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

static enum status open_views(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    const struct request_observers_config views = {
        .trace_requests = config->trace_requests,
        .decisions = config->decisions,
        .decision_percent = config->decision_percent,
        .access_log = config->access_log,
        .collector = {.url = config->otlp_endpoint,
                      .certificates = router->otlp_tls,
                      .peer_name = config->otlp_tls.name},
        .models = &router->models,
        .metrics = &router->metrics};
    return request_observers_open(&views, &router->views, err);
}

/* Opens the parts without threads, in the order in which they need each other. */
static enum status open_parts(struct router *router, struct error *err)
{
    struct membership_config membership = {.limit = router->room.workers,
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

/* ------------------------------------------------------------------------------------ listeners */

static void on_late_message(void *context)
{
    counter_add(((struct router_metrics *)context)->late_messages, 1);
}

static void on_connection_ended(void *context, enum frame_gate_end end)
{
    counter_add(((struct router_metrics *)context)->connections_ended[end], 1);
}

static struct rpc_gate gate_of(struct router *router)
{
    const struct router_config *config = &router->config;
    size_t share = config->max_per_address
                       ? config->max_per_address
                       : peer_places_default_share(router->room.grpc_connections);
    return (struct rpc_gate){.on = true,
                             .address_connections = share,
                             .penalty_us = FLOOD_PENALTY_US,
                             .uncounted = config->proxy_addresses,
                             .handshake_us = config->client_handshake_us,
                             .idle_us = config->client_idle_us,
                             .ended = on_connection_ended,
                             .context = &router->metrics};
}

/* The server for registrations only. An address has no share of its connections and calls, and a
 * worker may be silent. */
static enum status start_registry(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    size_t calls = config->max_workers + MORE_CALLS; /* all may register at once */
    struct rpc_server_config server = {
        .listen = config->registry_listen,
        .tls = router->internal_tls,
        .max_receive_memory_bytes = config->receive_memory_bytes,
        .max_calls = calls,
        .max_connections = router->room.registrations,
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
    /* With certificates on both sides no stranger gets as far as HTTP/2. */
    if (!server.tls.certificates) {
        server.gate = gate_of(router);
        server.gate.address_connections = 0;
        server.gate.address_calls = calls;
        server.gate.idle_us = 0;
    }
    return rpc_server_start(router->runtime, &server, &router->workers, err);
}

/* Returns the most bytes of a client's gRPC message. */
static size_t most_message_bytes(const struct router_config *config)
{
    size_t with_text = (size_t)config->max_text_bytes + REQUEST_MORE_BYTES;
    return with_text > REQUEST_MAX_MESSAGE_BYTES ? with_text : REQUEST_MAX_MESSAGE_BYTES;
}

static enum status start_grpc(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    bool apart = *config->registry_listen;
    router->api = (struct grpc_api){.dispatch = router->dispatch,
                                    .access = router->access,
                                    .models = &router->models,
                                    .checks = router->checks,
                                    .readers = router->readers,
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
        .gate = gate_of(router),
        .keyless = !router->access,
        .max_message_bytes = most_message_bytes(config),
        .max_queued_bytes = config->client_buffer_bytes,
        .max_receive_memory_bytes = config->receive_memory_bytes,
        .max_queued_total_bytes = config->client_buffers_bytes,
        .max_calls = 2 * (size_t)config->max_requests + MORE_CALLS,
        .max_connections = router->room.grpc_connections,
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
    TRY(rpc_server_start(router->runtime, &server, &router->clients, err));
    return apart ? start_registry(router, err) : STATUS_OK;
}

static enum status start_figures(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    router->admin = (struct admin){.metrics = &router->metrics,
                                   .board = &router->board,
                                   .models = &router->models,
                                   .traces = router->views.traces,
                                   .decisions = router->views.decisions,
                                   .recent = router->views.recent};
    struct http_server_config http = {.listen = config->metrics_listen,
                                      .routes = admin_routes,
                                      .route_count = ADMIN_ROUTES,
                                      .context = &router->admin,
                                      .max_connections = router->room.figures_connections,
                                      .allowed_hosts = config->allowed_hosts,
                                      .uncounted = config->proxy_addresses,
                                      .certificates = router->metrics_tls};
    return http_server_start(&http, &router->figures, err);
}

static enum status start_http_clients(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    /* A body has the longest text, escaped, and the rest of the request. */
    size_t body_bytes = 2 * (size_t)config->max_text_bytes + REQUEST_MORE_BYTES;
    if (!*config->http_listen)
        return STATUS_OK;
    router->openai = (struct openai_api){.dispatch = router->dispatch,
                                         .access = router->access,
                                         .models = &router->models,
                                         .checks = router->checks,
                                         .readers = router->readers,
                                         .metrics = &router->metrics,
                                         .board = &router->board,
                                         .access_log = router->views.access,
                                         .default_deadline_us = config->default_deadline_us,
                                         .reasoning = config->reasoning,
                                         .keepalive_us = config->http_keepalive_us,
                                         .max_body_bytes = body_bytes,
                                         .max_answer_bytes = config->client_buffer_bytes,
                                         .created_s = (uint64_t)time(NULL)};
    struct http_server_config http = {
        .listen = config->http_listen,
        .context = &router->openai,
        .admit = openai_admit,
        .owner = openai_owner,
        .certificates = router->client_tls.certificates,
        .refuse = openai_refused,
        .cors_origins = config->http_cors_origins,
        .allowed_hosts = router->access ? NULL : config->allowed_hosts,
        .keyless = !router->access,
        .threads = config->http_threads,
        .max_connections = router->room.http_connections,
        .max_surplus = router->room.http_surplus + !router->room.http_surplus,
        .max_per_address = config->max_per_address,
        .uncounted = config->proxy_addresses,
        .turns_away = true,
        .max_body_bytes = body_bytes,
        .max_bodies_bytes = config->receive_memory_bytes,
        .max_unsent_bytes = config->client_buffer_bytes,
        .max_all_unsent_bytes = config->client_buffers_bytes,
        .stall_us = config->client_linger_us};
    snprintf(router->openai.status_page, sizeof router->openai.status_page, "%s://%s/",
             router->metrics_tls ? "https" : "http", router_metrics_address(router));
    http.routes = openai_routes(router->access != NULL, &http.route_count);
    TRY(http_server_start(&http, &router->http_clients, err));
    router_metrics_watch_door(&router->metrics, router->http_clients);
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------- dispatch */

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
        .retry_percent = config->retry_percent,
        .breaker_failures = config->breaker_failures,
        .step_timeout_us = config->step_timeout_us,
        .policy = placement_policy_of(config->placement_policy),
        .prefix_limit = config->prefix_index_blocks,
        .force_local_prefill = config->force_local_prefill,
        .mixed_numerics = config->mixed_numerics,
        .linger_us = config->client_linger_us,
        .tls = router->internal_tls,
        .keepalive_us = config->worker_keepalive_us,
        .incarnation = router->incarnation,
    };
    dispatch.limits.runs = dispatch.limits.losses = config->retries + 1;
    dispatch.limits.silence_us = config->token_timeout_us;
    dispatch.limits.bind_late = dispatch.policy == PLACEMENT_GOODPUT;
    dispatch.limits.no_worker_us = config->worker_wait_us;
    /* A request without a worker ends after worker-wait, so a later local prefill never comes. */
    dispatch.limits.local_us = config->local_prefill_wait_us < config->worker_wait_us
                                   ? config->local_prefill_wait_us
                                   : UINT64_MAX;
    return dispatch_start(&dispatch, &router->dispatch, err);
}

static void stop_dispatch(struct router *router)
{
    dispatch_stop(router->dispatch);
    /* Statuses get a moment to reach clients, and every call leaves the dispatcher. */
    if (router->clients)
        rpc_server_stop(router->clients, STOP_GRACE_US);
    if (router->workers)
        rpc_server_stop(router->workers, STOP_GRACE_US);
    if (router->http_clients) {
        http_server_drain(router->http_clients, STOP_GRACE_US);
        router_metrics_watch_door(&router->metrics, NULL);
        http_server_stop(router->http_clients);
    }
    body_readers_stop(router->readers); /* they may still submit */
    dispatch_destroy(router->dispatch);
    http_server_stop(router->figures); /* last, so that figures are there to the end */
}

static enum status start_threads(struct router *router, struct error *err)
{
    const struct router_config *config = &router->config;
    size_t copies = body_readers_share(config->receive_memory_bytes, most_message_bytes(config));
    enum status status = rpc_runtime_create(config->rpc_threads, &router->runtime, err);
    if (status != STATUS_OK)
        return status;
    status = start_dispatch(router, err);
    if (status != STATUS_OK)
        goto fail_runtime;
    status = body_readers_start(config->http_threads, copies, &router->readers, err);
    if (status == STATUS_OK)
        status = start_grpc(router, err);
    if (status == STATUS_OK)
        status = start_figures(router, err);
    if (status == STATUS_OK)
        status = start_http_clients(router, err);
    if (status == STATUS_OK)
        return STATUS_OK;

    stop_dispatch(router);
fail_runtime:
    rpc_runtime_destroy(router->runtime);
    return status;
}

/* Divides the descriptors, and warns where they aren't enough for the settings. */
static struct router_room take_room(const struct router_config *config)
{
    struct router_room room = router_room_divide(config, 0);
    char fitting[64] = "";
    room = router_room_divide(config, descriptors_raise(room.needed));
    if (room.open_files >= room.needed)
        return room;
    if (room.fitting)
        snprintf(fitting, sizeof fitting, ", or set max-connections to %" PRIu64, room.fitting);
    log_warn("router",
             "open_files=%" PRIu64 " max_connections=%u needed=%" PRIu64
             " http_connections=%zu grpc_connections=%zu registrations=%zu workers=%zu "
             "msg=\"the hard limit of open files is too low for max-connections: the doors let in "
             "fewer; raise it to %" PRIu64
             " (ulimit -Hn, LimitNOFILE=, docker --ulimit nofile)%s\"",
             room.open_files, config->max_connections, room.needed, room.http_connections,
             room.grpc_connections, room.registrations, room.workers, room.needed, fitting);
    return room;
}

enum status router_start(const struct router_config *config, struct router **out, struct error *err)
{
    struct router *router = calloc(1, sizeof *router);
    if (!router)
        return error_set(err, STATUS_LIMIT, "out of memory");
    router->config = *config;
    router->room = take_room(config);
    router->incarnation = rng_entropy() | 1; /* never 0 */
    router->checks = constraint_checks_create();
    enum status status = open_parts(router, err);
    if (status != STATUS_OK)
        goto fail_router;
    status = start_threads(router, err);
    if (status != STATUS_OK)
        goto fail_parts;
    rpc_server_set_serving(router->clients, true); /* health was NOT_SERVING until now */
    if (router->workers)
        rpc_server_set_serving(router->workers, true);
    size_t connections =
        router->http_clients ? router->room.http_connections : router->room.grpc_connections;
    size_t per_address =
        config->max_per_address ? config->max_per_address : peer_places_default_share(connections);
    log_info("router",
             "models=%zu address=%s registry=%s http=%s metrics=%s tls=%d internal_tls=%d "
             "api_keys=%d connections=%zu per_address=%zu not_counted=\"%s\" msg=\"serving\"",
             router->models.count, router_address(router), router_registry_address(router),
             router_http_address(router), router_metrics_address(router),
             router->client_tls.certificates != NULL, router->internal_tls.certificates != NULL,
             router->access != NULL, connections, per_address, config->proxy_addresses);
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
    return rpc_server_address(router->clients);
}

const char *router_registry_address(const struct router *router)
{
    return rpc_server_address(router->workers ? router->workers : router->clients);
}

const char *router_http_address(const struct router *router)
{
    return router->http_clients ? http_server_address(router->http_clients) : "";
}

const char *router_metrics_address(const struct router *router)
{
    return http_server_address(router->figures);
}

const struct router_metrics *router_figures(const struct router *router)
{
    return &router->metrics;
}

void router_drain(struct router *router)
{
    rpc_server_set_serving(router->clients, false);
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
    rpc_server_set_serving(router->clients, false);
    stop_dispatch(router);
    rpc_runtime_destroy(router->runtime);
    close_parts(router);
    constraint_checks_destroy(router->checks);
    free(router);
}
