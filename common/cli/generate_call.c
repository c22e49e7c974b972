#include "common/cli/generate_call.h"

#include "common/base/assert.h"
#include "common/base/ring.h"
#include "common/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_CAPACITY 8192
#define CALL_BYTES    4096 /* what a call counts for a message besides its own bytes, at most */
#define METHOD        "/baton.v1.Baton/Generate"

struct generate_call {
    struct rpc_runtime *runtime;
    struct rpc_channel *channel;
    struct rpc_call *call;
    struct ring *ring;
    bool overflow; /* rpc thread only: the handlers of one call run one at a time */
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
    /* The last place is for the end. */
    if (call->overflow || ring_count(call->ring) >= RING_CAPACITY - 1) {
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
        return STATUS_OK; /* the call has ended already: its end tells why */
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
        .target = target->server, /* which says what is too long */
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

/* Core's sentences nest from the outside in ("failed to connect to all addresses; last error:
 * UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused"): the last part
 * is the cause. */
static const char *innermost(const char *message)
{
    for (const char *next; (next = strstr(message, ": "));)
        message = next + 2;
    return message;
}

/* Core's words for a connection that never was. */
static bool never_reached(const char *message)
{
    return strstr(message, "failed to connect") || strstr(message, "DNS resolution failed");
}

/* What to look at. The first two are what becomes of a client that speaks TLS to who doesn't, and
 * the other way round. */
static const char *hint(const char *message)
{
    if (strstr(message, "wrong version number"))
        return "does it speak TLS at all? --tls-ca says that it does";
    if (strstr(message, "certificate verify failed"))
        return "--tls-ca names who may have signed the router's certificate";
    if (strstr(message, "Socket closed"))
        return "somebody listens there: if it speaks TLS, give --tls-ca";
    if (strstr(message, "parsing HTTP/2") || strstr(message, "http1.x"))
        return "something else than gRPC answers there: `baton up` prints the address of gRPC "
               "beside "
               "those of HTTP";
    return "`baton status` shows the cluster that runs here";
}

void generate_event_explain(const struct generate_event *event, const char *server,
                            uint64_t timeout_us, bool answered, struct error *why)
{
    bool own = *event->reason; /* the router's own words */
    if (event->code == RPC_OK)
        error_set(why, STATUS_IO, "the answer ended without its last message");
    else if (!own && event->code == RPC_UNAVAILABLE && (answered || !never_reached(event->message)))
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
