#include "router/router_config.h"

#include "common/base/assert.h"
#include "common/base/descriptors.h"
#include "common/base/domain/placement_policy.h"
#include "common/base/peer_places.h"
#include "common/net/http/http_server.h"
#include "common/net/http/http_url.h"
#include "common/net/rpc/rpc.h"
#include "router/planner/worker_state.h"

#define MORE_REGISTRATIONS      768 /* connections at registry-listen beyond max-workers */
#define SESSION_DESCRIPTORS     2   /* a session, and one that ends meanwhile */
#define DESCRIPTORS_OF_A_THREAD 3   /* its events, and what wakes it; gates have their own */

_Static_assert(ROUTER_MAX_WORKERS == 4096, "max-workers follows");

static const char *const off_on[] = {"off", "on", NULL};
static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};

static enum status check_http_listen(const char *listen, struct error *err)
{
    return *listen ? http_check_listen(listen, err) : STATUS_OK;
}

static enum status check_otlp_endpoint(const char *endpoint, struct error *err)
{
    return *endpoint ? http_check_url(endpoint, err) : STATUS_OK;
}

#define AT(field) CONFIG_AT(struct router_config, field)
static const struct config_setting settings[] = {
    {"listen", CONFIG_STRING, AT(listen), "127.0.0.1:0", .value = "HOST:PORT",
     .help = "Address of the gRPC server, for clients and for workers that register",
     .check = rpc_check_listen},
    {"http-listen", CONFIG_STRING, AT(http_listen), "", .value = "HOST:PORT",
     .help = "Address of the OpenAI-compatible HTTP server, for clients; empty: none",
     .check = check_http_listen},
    {"http-threads", CONFIG_U64, AT(http_threads), "2", "1", "16",
     .help = "Threads that read HTTP requests and tokenize them"},
    {"http-cors-origins", CONFIG_STRING, AT(http_cors_origins), "", .value = "ORIGIN,...",
     .help = "Pages with scripts that a browser lets ask over HTTP, like https://app.example; *: "
             "all; empty: none",
     .check = http_check_origins},
    {"allowed-hosts", CONFIG_STRING, AT(allowed_hosts), "", .value = "NAME,...",
     .help = "Names by which browsers and others may call http-listen (without api-keys) and "
             "metrics-listen where they are on loopback, besides localhost and loopback addresses; "
             "*: all",
     .check = http_check_hosts},
    {"http-keepalive", CONFIG_DURATION, AT(http_keepalive_us), "15s", "0", "1h",
     .help = "A stream over HTTP gets a comment after so long a silence, so that no proxy takes it "
             "for dead; 0: never"},
    {"metrics-listen", CONFIG_STRING, AT(metrics_listen), "127.0.0.1:0", .value = "HOST:PORT",
     .help = "Address of /metrics, /healthz, /status, /traces and the status page",
     .check = http_check_listen},
    TLS_SETTINGS_ROWS(struct router_config, metrics_tls, "metrics-tls",
                      "readers of metrics-listen"),
    {"registry-listen", CONFIG_STRING, AT(registry_listen), "", .value = "HOST:PORT",
     .help = "Address at which workers register, apart from clients; empty: --listen. Needed with "
             "--internal-tls-cert",
     .check = rpc_check_listen},
    TLS_SETTINGS_ROWS(struct router_config, tls, "tls", "clients, of gRPC and HTTP"),
    LINK_TLS_ROWS(struct router_config, internal_tls),
    {"api-keys", CONFIG_STRING, AT(api_keys), "", .value = "FILE",
     .help = "Keys of clients, hashed, with their limits (baton key new makes lines of it): every "
             "call needs one; empty: no call does"},
    {"insecure-registry", CONFIG_BOOL, AT(insecure_registry), "false",
     .help = "With api-keys: take registrations beyond loopback without internal-tls-cert, so that "
             "any process that reaches registry-listen may become a worker"},
    {"model", CONFIG_STRING, AT(models), .required = true, .value = "[NAME=]DIR,...",
     .help = "Folder of each model with config.json, generation_config.json and tokenizer.json; no "
             "weights are read",
     .repeats = ',', .check = model_list_check},
    {"model-name", CONFIG_STRING, AT(model_name), "", .value = "NAME",
     .help = "Name that clients use, of the only model; empty: the folder's name"},
    {"ready-fd", CONFIG_U64, AT(ready_fd), "0", "0", "1048576",
     .help = "File descriptor for one line of JSON once the router serves; 0: none"},
    {"max-requests", CONFIG_U64, AT(max_requests), "4096", "1", "1000000",
     .help = "Requests at once, each choice of one counted; one more is refused as overloaded"},
    {"max-queue", CONFIG_U64, AT(max_queue), "1024", "1", "1000000",
     .help = "Requests of a model that wait for a worker; one more is refused as overloaded"},
    {"max-connections", CONFIG_U64, AT(max_connections), "4096", "1", "60000",
     .help =
         "Connections of clients and workers at once, of each door, as far as the limit of open "
         "files reaches. One more is closed at once, over HTTP if no idle one can make room"},
    {"max-connections-per-address", CONFIG_U64, AT(max_per_address), "0", "0", "60000",
     .help = "Connections of one address at once, of each door (IPv6: of one /64); 0: a quarter of "
             "max-connections"},
    {"proxy-addresses", CONFIG_STRING, AT(proxy_addresses), PEER_LOOPBACK,
     .value = "ADDRESS[/BITS],...",
     .help = "Addresses that max-connections-per-address does not bound: proxies, which bring the "
             "connections of many clients, and this machine; empty: none",
     .check = peer_ranges_check},
    {"max-text", CONFIG_BYTES, AT(max_text_bytes), "4MiB", "1KiB", "256MiB",
     .help = "Text of one request"},
    {"default-deadline", CONFIG_DURATION, AT(default_deadline_us), "10m", "0", "24h",
     .help = "Deadline of requests that come without one; 0: none"},
    {"retries", CONFIG_U64, AT(retries), "2", "0", "10",
     .help = "Prefills of one request after the first, and workers that may be lost under it, "
             "before it ends; counted anew after 64 more tokens"},
    {"retry-budget", CONFIG_U64, AT(retry_percent), "10", "0", "100", .unit = "percent",
     .help = "Prompts that may be computed again after failures, in percent of a model's requests, "
             "beside 10 a second; more of them wait"},
    {"breaker-failures", CONFIG_U64, AT(breaker_failures), "3", "0", "1000",
     .help = "A worker, or a pair of workers, that fails so many requests in a row gets no others "
             "for a while, if there are other workers; 0: never"},
    {"step-timeout", CONFIG_DURATION, AT(step_timeout_us), "10s", "0", "1h",
     .help = "A worker hangs if a step of it takes so long, and 20 times as long as usual: its "
             "requests go to other workers; 0: never"},
    {"token-timeout", CONFIG_DURATION, AT(token_timeout_us), "1m", "0", "24h",
     .help = "A request goes to other workers if the one that owes it a token says nothing of it "
             "for so long, and has no queue; 0: never"},
    {"unconfirmed-tokens", CONFIG_U64, AT(unconfirmed_tokens), "0", "0", "1000000000",
     .unit = "tokens",
     .help = "Prompt tokens on their way to one decode worker; 0: half of its pool"},
    {"max-workers", CONFIG_U64, AT(max_workers), "256", "1", "4096",
     .help = "Workers of both roles; each needs an open file or two"},
    {"worker-wait", CONFIG_DURATION, AT(worker_wait_us), "3s", "0", "10m",
     .help = "A request for which no worker is there ends as unavailable after this"},
    {"local-prefill-wait", CONFIG_DURATION, AT(local_prefill_wait_us), "1s", "0", "10m",
     .help =
         "Decode workers compute the prompts where all prefill workers have been away this long, "
         "by goodput some also beside prefill workers; worker-wait or more: never"},
    {"worker-ttl", CONFIG_DURATION, AT(worker_ttl_us), "10s", "1s", "10m",
     .help = "A worker that is not heard of and has no session is forgotten after this"},
    {"worker-keepalive", CONFIG_DURATION, AT(worker_keepalive_us), "2s", "0", "10m",
     .help = "A silent session to a worker counts as lost after this and 2 s; 0: never"},
    {"client-keepalive", CONFIG_DURATION, AT(client_keepalive_us), "30s", "0", "1h",
     .help = "A silent client counts as gone after this and 2 s; 0: never"},
    {"client-handshake", CONFIG_DURATION, AT(client_handshake_us), "10s", "100ms", "10m",
     .help = "The beginning of a gRPC connection (TLS, HTTP/2's first frames), and the headers of "
             "each call, must be here so soon"},
    {"client-idle", CONFIG_DURATION, AT(client_idle_us), "5m", "0", "24h",
     .help = "A gRPC connection without a call ends in order after this; 0: never"},
    {"client-buffer", CONFIG_BYTES, AT(client_buffer_bytes), "4MiB", "4KiB", "1GiB",
     .help = "Unsent bytes of one call; a reader that is slower is cut off"},
    {"client-buffers", CONFIG_BYTES, AT(client_buffers_bytes), "256MiB", "64KiB", "1TiB",
     .help = "Unsent bytes of all calls together; beyond that readers with over 64 KiB unsent are "
             "cut off"},
    {"receive-memory", CONFIG_BYTES, AT(receive_memory_bytes), "512MiB", "16MiB", "1TiB",
     .help =
         "Memory of connections and of requests on their way in; beyond that calls are cut off"},
    {"message-timeout", CONFIG_DURATION, AT(message_timeout_us), "60s", "50ms", "1h",
     .help = "The message of a call, a request's or a registration's, must be here so soon"},
    {"client-linger", CONFIG_DURATION, AT(client_linger_us), "60s", "1s", "1h",
     .help = "An answer must be read so soon after its end"},
    {"drain-timeout", CONFIG_DURATION, AT(drain_timeout_us), "30s", "0", "24h",
     .help = "After SIGTERM running requests may go on for so long; a second signal ends them"},
    {"rpc-threads", CONFIG_U64, AT(rpc_threads), "2", "1", "64",
     .help = "Threads that read and write calls, and tokenize"},
    {"placement-policy", CONFIG_ENUM, AT(placement_policy), "auto",
     .choices = placement_policy_names, .help = PLACEMENT_POLICY_HELP},
    {"prefix-index-blocks", CONFIG_U64, AT(prefix_index_blocks), "1048576", "0", "67108864",
     .help = "Cached KV blocks of workers that the router remembers, to place prompts where they "
             "are; about 75 bytes each; 0: none"},
    {"mixed-numerics", CONFIG_BOOL, AT(mixed_numerics), "false",
     .help = "Let workers of different numerics hand KV over to each other, such as GPUs to CPUs. "
             "Answers then depend on which worker computed what; on the router and all workers"},
    {"force-local-prefill", CONFIG_BOOL, AT(force_local_prefill), "false",
     .help = "Compute every prompt on the decode worker, although there are prefill workers"},
    {"reasoning", CONFIG_ENUM, AT(reasoning), "on", .choices = off_on,
     .help = "Whether a chat's reasoning is apart, in reasoning_content; off: content has it, with "
             "its tags"},
    {"slo-class", CONFIG_STRING, AT(slo_class), "", .value = "ROW",
     .help = "SLO class: name=chat,ttft=400ms,tpot=40ms,p=90,priority=normal; itl=, e2e= and "
             "offline are words, too, and the next name= begins another class; 32 classes at most; "
             "empty: no objectives",
     .repeats = SLO_ROWS_JOINT},
    {"slo-default", CONFIG_STRING, AT(slo_default), "", .value = "NAME",
     .help = "SLO class of requests that name none; empty: the only class, of several none"},
    {"trace-requests", CONFIG_U64, AT(trace_requests), "10000", "0", "1000000",
     .help = "Newest requests of which baton trace and the status page know, about 2.5 KB each"},
    {"decision-sample", CONFIG_U64, AT(decision_percent), "10", "0", "100",
     .help = "Percent of the requests with placement decisions that are kept for baton explain"},
    {"decisions", CONFIG_U64, AT(decisions), "1000", "0", "100000",
     .help = "Newest sampled decisions that are kept, about 2.5 KB each"},
    {"access-log", CONFIG_STRING, AT(access_log), "off", .value = "WHERE",
     .help = "A line at each request's end: off, stderr, or a file, which SIGHUP opens again"},
    {"otlp-endpoint", CONFIG_STRING, AT(otlp_endpoint), "", .value = "HOST:PORT",
     .help = "Spans of requests go there, to /v1/traces, as OpenTelemetry's JSON over HTTP; "
             "https:// before it, or otlp-tls-ca: over TLS; empty: nowhere",
     .check = check_otlp_endpoint},
    TLS_CLIENT_SETTINGS_ROWS(struct router_config, otlp_tls, "otlp-tls", "the collector"),
    {"log-level", CONFIG_ENUM, AT(log_level), "info", .choices = log_levels,
     .help = "Least level that is logged"},
};

static enum status check_otlp(const struct router_config *config, struct error *err)
{
    struct http_url url;
    if (!*config->otlp_endpoint)
        return STATUS_OK;
    TRY(http_url_parse(config->otlp_endpoint, &url, err));
    return http_url_check_tls(&url, config->otlp_endpoint,
                              *config->otlp_tls.ca || *config->otlp_tls.cert, err);
}

const char *router_config_registry(const struct router_config *config)
{
    return *config->registry_listen ? config->registry_listen : config->listen;
}

bool router_config_registry_is_open(const struct router_config *config)
{
    return *config->api_keys && !*config->internal_tls.cert;
}

/* A worker is sent prompts, and writes answers. So keys are worth nothing where a stranger may
 * register. */
static enum status check_registry(const struct router_config *config, struct error *err)
{
    const char *listen = router_config_registry(config);
    if (!router_config_registry_is_open(config) || config->insecure_registry ||
        rpc_listens_on_loopback(listen))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "clients need keys (--api-keys), but any process that reaches %.60s may "
                     "register as a worker, is sent prompts and writes answers: give router and "
                     "workers --internal-tls-cert, -key and -ca (docs/operations/security.md), or "
                     "set --registry-listen to an address of loopback, or accept that with "
                     "--insecure-registry",
                     listen);
}

static void check(const void *given, struct str *mistakes)
{
    const struct router_config *config = given;
    struct error err;
    config_mistake(mistakes, tls_settings_check(&config->tls, "tls", &err), &err);
    config_mistake(mistakes, tls_settings_check(&config->metrics_tls, "metrics-tls", &err), &err);
    config_mistake(mistakes, link_tls_check(&config->internal_tls, &err), &err);
    if (*config->internal_tls.cert && !*config->registry_listen)
        config_mistake(mistakes,
                       error_set(&err, STATUS_INVALID,
                                 "--registry-listen is missing: with --internal-tls-cert workers "
                                 "register at an address of their own, apart from clients"),
                       &err);
    config_mistake(mistakes, check_registry(config, &err), &err);
    config_mistake(mistakes, tls_client_settings_check(&config->otlp_tls, "otlp-tls", &err), &err);
    config_mistake(mistakes, check_otlp(config, &err), &err);
}

static void check_texts(const void *given, struct str *mistakes)
{
    const struct router_config *config = given;
    struct slo_classes classes;
    (void)slo_classes_parse(config->slo_class, config->slo_default, &classes, mistakes);
}

const struct config_program router_program = {
    .name = "baton-router",
    .summary =
        "Takes requests over gRPC, places each on a prefill and a decode worker, and streams "
        "the answer.\n"
        "Workers register with it, each for one of its models. SIGTERM drains; a second one stops "
        "at once.",
    .settings = settings,
    .setting_count = sizeof settings / sizeof *settings,
    .check = check,
    .check_texts = check_texts,
};

struct router_room router_room_divide(const struct router_config *config, uint64_t open_files)
{
    enum { HTTP, GRPC, REGISTRY, FIGURES, WORKERS, KINDS };
    bool apart = *config->registry_listen, http = *config->http_listen;
    bool guarded = apart && !*config->internal_tls.cert; /* registrations pass a gate, too */
    uint64_t threads = config->rpc_threads + (uint64_t)(http ? config->http_threads : 0);
    uint64_t gates = (1 + (uint64_t)guarded) * config->rpc_threads;
    uint64_t own =
        ROUTER_OWN_DESCRIPTORS + DESCRIPTORS_OF_A_THREAD * threads + RPC_GATE_DESCRIPTORS * gates;
    struct descriptor_use uses[KINDS] = {
        [HTTP] = {.wanted = http ? config->max_connections + HTTP_MAX_SURPLUS : 0, .each = 1},
        [GRPC] = {.wanted = config->max_connections, .each = RPC_CONNECTION_DESCRIPTORS},
        [REGISTRY] = {.wanted = apart ? config->max_workers + MORE_REGISTRATIONS : 0,
                      .each = guarded ? RPC_CONNECTION_DESCRIPTORS : 1},
        [FIGURES] = {.wanted = HTTP_MAX_CONNECTIONS, .each = 1},
        [WORKERS] = {.wanted = config->max_workers, .each = SESSION_DESCRIPTORS}};
    struct router_room room = {.open_files = open_files, .own = own};
    room.needed = descriptors_divide(open_files, own, uses, KINDS);
    size_t asked = uses[HTTP].places;
    size_t surplus = asked / 5 < HTTP_MAX_SURPLUS ? asked / 5 : HTTP_MAX_SURPLUS;
    room.http_connections =
        asked - surplus < config->max_connections ? asked - surplus : config->max_connections;
    room.http_surplus = asked - room.http_connections;
    room.grpc_connections = uses[GRPC].places;
    room.registrations = uses[REGISTRY].places;
    room.figures_connections = uses[FIGURES].places;
    room.workers = uses[WORKERS].places;
    uint64_t each = RPC_CONNECTION_DESCRIPTORS + http;
    uint64_t others = room.needed - each * config->max_connections;
    room.fitting = open_files > others ? (open_files - others) / each : 0;
    return room;
}

struct router_config router_config_default(void)
{
    struct router_config config = {.ready_fd = 0};
    struct config_result result;
    struct str mistakes;
    char *argv[] = {"baton-router", "--model", "."};
    str_init(&mistakes, 4096);
    enum status status = config_load(&router_program, 3, argv, &config, &result, &mistakes);
    ASSERT(status == STATUS_OK);
    str_deinit(&mistakes);
    return config;
}
