#include "common/cli/router_call.h"

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/ring.h"
#include "common/base/str.h"
#include "common/net/crypto/certificates.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_CAPACITY 8192
#define CALL_BYTES    4096 /* most that a call counts for a message besides its own bytes */
#define METHOD        "/baton.v1.Baton/Generate"

static enum status read_api_key(const char *path, char key[GENERATE_MAX_KEY_BYTES + 1],
                                struct error *err)
{
    size_t size = GENERATE_MAX_KEY_BYTES + 1;
    if (!*path)
        return STATUS_OK;
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(err, STATUS_IO, "--api-key-file %s: %s", path, strerror(errno));
    size_t length = fread(key, 1, size, file);
    fclose(file);
    while (length && length < size && strchr("\r\n", key[length - 1]))
        length--;
    if (length == size)
        return error_set(err, STATUS_LIMIT, "--api-key-file %s holds over %d bytes: is it a key?",
                         path, GENERATE_MAX_KEY_BYTES);
    key[length] = 0;
    if (key[strcspn(key, "\r\n")])
        return error_set(err, STATUS_INVALID,
                         "--api-key-file %s holds several lines, but a key is one", path);
    return *key ? STATUS_OK
                : error_set(err, STATUS_INVALID, "--api-key-file %s holds no key", path);
}

static struct certificates_config config_of(const struct credential_settings *settings)
{
    return (struct certificates_config){.name = "tls",
                                        .paths = {settings->cert, settings->key, settings->ca}};
}

enum status call_credentials_check(const struct credential_settings *settings, struct error *err)
{
    const struct certificates_config config = config_of(settings);
    if (!*settings->ca && (*settings->cert || *settings->key || *settings->name))
        return error_set(err, STATUS_INVALID,
                         "--tls-ca is missing: without it nothing is encrypted");
    return certificates_check_paths(&config, err);
}

enum status call_credentials_open(const struct credential_settings *settings,
                                  struct call_credentials *credentials, struct error *err)
{
    const struct certificates_config config = config_of(settings);
    *credentials = (struct call_credentials){.peer_name = settings->name};
    TRY(call_credentials_check(settings, err));
    TRY(read_api_key(settings->api_key_file, credentials->api_key, err));
    return *settings->ca ? certificates_open(&config, &credentials->certificates, err) : STATUS_OK;
}

void call_credentials_close(struct call_credentials *credentials)
{
    certificates_close(credentials->certificates);
    explicit_bzero(credentials, sizeof *credentials);
}

struct generate_target call_credentials_target(const struct call_credentials *credentials,
                                               const char *server)
{
    return (struct generate_target){
        server, {credentials->certificates, credentials->peer_name}, credentials->api_key};
}

/* --- a Generate call --- */

struct generate_call {
    struct rpc_runtime *runtime;
    struct rpc_channel *channel;
    struct rpc_call *call;
    struct ring *ring;
    bool overflow; /* only the rpc thread's: the handlers of one call run one at a time */
};

static struct generate_event *event_create(size_t size)
{
    struct generate_event *event = calloc(1, sizeof *event + size);
    ASSERT(event);
    event->size = size;
    return event;
}

static void on_message(struct rpc_call *rpc, struct rpc_bytes bytes)
{
    struct generate_call *call = rpc_call_context(rpc);
    if (call->overflow || ring_count(call->ring) >= RING_CAPACITY - 1) { /* the end needs a place */
        call->overflow = true;
        rpc_call_cancel(rpc);
        return;
    }
    struct generate_event *event = event_create(bytes.size);
    memcpy(event->data, bytes.data, bytes.size);
    enum status pushed = ring_push(call->ring, event);
    ASSERT(pushed == STATUS_OK);
}

static void on_closed(struct rpc_call *rpc, const struct rpc_end *end)
{
    struct generate_call *call = rpc_call_context(rpc);
    struct generate_event *event = event_create(0);
    event->ended = true;
    event->code = end->code;
    event->overflow = call->overflow;
    str_copy(event->reason, sizeof event->reason, end->reason);
    str_copy(event->message, sizeof event->message, end->message);
    enum status pushed = ring_push(call->ring, event);
    ASSERT(pushed == STATUS_OK);
}

static enum status send_request(struct rpc_call *rpc, const Baton__V1__GenerateRequest *request,
                                struct error *err)
{
    size_t size = baton__v1__generate_request__get_packed_size(request);
    uint8_t *bytes = malloc(size ? size : 1);
    ASSERT(bytes);
    baton__v1__generate_request__pack(request, bytes);
    enum status status = rpc_call_send(rpc, bytes, size);
    free(bytes);
    rpc_call_half_close(rpc);
    if (status == STATUS_CANCELLED)
        return STATUS_OK; /* the call has ended; its end has the reason */
    return status == STATUS_OK
               ? status
               : error_set(err, status, "the request of %zu bytes is too large", size);
}

static enum status start_call(struct generate_call *call, const struct generate_target *target,
                              uint64_t timeout_us, struct error *err)
{
    char bearer[GENERATE_MAX_KEY_BYTES + sizeof "Bearer "];
    snprintf(bearer, sizeof bearer, "Bearer %s", target->api_key ? target->api_key : "");
    const struct rpc_metadata key = {"authorization", bearer};
    const struct rpc_call_options options = {
        .path = METHOD,
        .handlers = {.message = on_message, .closed = on_closed},
        .context = call,
        .deadline_us = timeout_us,
        .metadata = &key,
        .metadata_count = target->api_key && *target->api_key ? 1 : 0,
    };
    enum status status = rpc_call_start_with(call->channel, &options, &call->call);
    explicit_bzero(bearer, sizeof bearer);
    return status == STATUS_OK ? status
           : status == STATUS_INVALID
               ? error_set(err, status,
                           "the API key holds what no header can: blanks at its ends, "
                           "or something else than printable ASCII")
               : error_set(err, status, "cannot start a call to %s", target->server);
}

enum status generate_call_open(const struct generate_target *target,
                               const Baton__V1__GenerateRequest *request, uint64_t timeout_us,
                               struct generate_call **out, struct error *err)
{
    struct generate_call *call = calloc(1, sizeof *call);
    ASSERT(call);
    const struct rpc_channel_config channel = {
        .tls = target->tls,
        .target = target->server, /* rpc_channel_create checks its length */
        .max_queued_bytes = baton__v1__generate_request__get_packed_size(request) + CALL_BYTES};
    enum status status = ring_create(RING_CAPACITY, &call->ring);
    if (status != STATUS_OK)
        error_set(err, status, "no memory for the answer");
    if (status == STATUS_OK)
        status = rpc_runtime_create(1, &call->runtime, err);
    if (status == STATUS_OK)
        status = rpc_channel_create(call->runtime, &channel, &call->channel, err);
    if (status == STATUS_OK)
        status = start_call(call, target, timeout_us, err);
    if (status == STATUS_OK)
        status = send_request(call->call, request, err);
    if (status != STATUS_OK) {
        generate_call_close(call);
        return status;
    }
    *out = call;
    return STATUS_OK;
}

int generate_call_fd(const struct generate_call *call)
{
    return ring_fd(call->ring);
}

struct generate_event *generate_call_next(struct generate_call *call)
{
    return ring_pop(call->ring);
}

void generate_call_cancel(struct generate_call *call)
{
    rpc_call_cancel(call->call);
}

void generate_call_close(struct generate_call *call)
{
    if (call->call)
        rpc_call_unref(call->call);
    if (call->channel)
        rpc_channel_destroy(call->channel);
    if (call->runtime)
        rpc_runtime_destroy(call->runtime);
    for (void *event; call->ring && (event = ring_pop(call->ring));)
        free(event);
    ring_destroy(call->ring);
    free(call);
}

/* Returns the cause at the end of one of gRPC Core's nested sentences ("failed to connect to all
 * addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: Connection
 * refused"). */
static const char *innermost(const char *message)
{
    for (const char *next; (next = strstr(message, ": "));)
        message = next + 2;
    return message;
}

/* Returns advice for a failed connection. The first comes from a client that speaks TLS to a server
 * without it, the third from the opposite. */
static const char *hint(const char *message)
{
    if (strstr(message, "wrong version number"))
        return "does it speak TLS at all? --tls-ca says that it does";
    if (strstr(message, "certificate verify failed"))
        return "--tls-ca names the CAs that may have signed the router's certificate";
    if (strstr(message, "Socket closed"))
        return "a server listens there: if it speaks TLS, give --tls-ca";
    if (strstr(message, "parsing HTTP/2") || strstr(message, "http1.x"))
        return "something else than gRPC answers there: `baton up` prints the address of gRPC "
               "beside those of HTTP";
    return "`baton status` shows the cluster that runs here";
}

void generate_event_explain(const struct generate_event *event, const char *server,
                            uint64_t timeout_us, bool answered, struct error *why)
{
    bool own = *event->reason; /* the router's own words */
    /* Core's words for a connection that never was. */
    bool reached = answered || (!strstr(event->message, "failed to connect") &&
                                !strstr(event->message, "DNS resolution failed"));
    if (event->code == RPC_OK)
        error_set(why, STATUS_IO, "the answer ended without its last message");
    else if (!own && event->code == RPC_UNAVAILABLE && reached)
        error_set(why, STATUS_UNAVAILABLE, "the connection to the router at %s broke%s: %s", server,
                  answered ? " in the middle of the answer" : "", innermost(event->message));
    else if (!own && event->code == RPC_UNAVAILABLE)
        error_set(why, STATUS_UNAVAILABLE, "cannot reach a router at %s: %s (%s)", server,
                  innermost(event->message), hint(event->message));
    else if (!own && event->code == RPC_DEADLINE_EXCEEDED)
        error_set(
            why, STATUS_TIMEOUT,
            "DEADLINE_EXCEEDED: the answer from %s was not complete within %.6g s (--timeout)",
            server, (double)timeout_us * 1e-6);
    else
        error_set(why, STATUS_IO, "%s%s%s%s: %s%s", rpc_code_name(event->code), own ? " (" : "",
                  event->reason, own ? ")" : "", event->message,
                  strcmp(event->reason, "invalid_api_key") != 0 ? "" : " (--api-key-file FILE)");
}

/* --- figures --- */

void figures_settings_check(const struct figures_settings *settings, struct str *mistakes)
{
    struct error err;
    config_mistake(mistakes, call_credentials_check(&settings->credentials, &err), &err);
    if (!*settings->http)
        return;
    struct http_url url;
    enum status status = http_url_parse(settings->http, &url, &err);
    if (status == STATUS_OK)
        status = http_url_check_tls(&url, settings->http, *settings->credentials.ca != 0, &err);
    config_mistake(mistakes, status, &err);
}

enum status figures_call_open(const struct figures_settings *settings, struct figures_call *call,
                              struct error *err)
{
    *call = (struct figures_call){.file = {0}};
    TRY(call_credentials_open(&settings->credentials, &call->credentials, err));
    call->router = (struct http_remote){.url = settings->http,
                                        .certificates = call->credentials.certificates,
                                        .peer_name = call->credentials.peer_name,
                                        .api_key = call->credentials.api_key};
    if (*settings->http)
        return STATUS_OK;
    TRY(cluster_file_find("--http", &call->file, err));
    cluster_file_note(&call->file, "--http");
    call->router.url = call->file.http;
    return STATUS_OK;
}

void figures_call_close(struct figures_call *call)
{
    call_credentials_close(&call->credentials);
}

int figures_call_run(const struct config_program *program, const struct figures_settings *settings,
                     enum status (*body)(const struct figures_call *call, const void *context,
                                         struct error *err),
                     const void *context)
{
    struct figures_call call;
    struct error err;
    log_init(program->name + strlen("baton "), LOG_WARN);
    enum status status = figures_call_open(settings, &call, &err);
    if (status == STATUS_OK)
        status = body(&call, context, &err);
    figures_call_close(&call);
    if (status == STATUS_OK)
        return 0;
    fprintf(stderr, "%s: %s\n", program->name, err.text);
    return 1;
}
