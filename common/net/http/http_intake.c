#include "common/net/http/http_loop.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_HEAD_BYTES 512
/* Bytes that are dropped behind an answer, before the connection is closed. */
#define MAX_LINGER_BYTES (64u << 20)

/* --- a whole request --- */

static void handle(struct http_connection *connection)
{
    struct http_service *service = connection->loop->service;
    struct http_exchange *exchange = connection->exchange;
    connection->phase = PHASE_BUSY;
    http_connection_set_deadline(connection, 0);
    if (connection->refusal) {
        http_answer_send_refusal(connection);
        return;
    }
    FAILPOINT("http.request");
    atomic_fetch_add(&service->requests, 1);
    http_exchange_keep(exchange);
    bool direct =
        !connection->socket.tls && !(connection->out && evbuffer_get_length(connection->out) > 0);
    http_exchange_hand_over(exchange, direct ? connection->socket.fd : -1);
    connection->route->handle(service->config.context, exchange);
    http_exchange_drop(exchange);
    http_answer_flush(connection);
}

/* --- head --- */

static void refuse_route(struct http_connection *connection, unsigned allowed)
{
    struct http_refusal why;
    char allow[HTTP_ALLOW_BYTES];
    if (!allowed) {
        const struct http_server_config *config = &connection->loop->service->config;
        const char *path = connection->exchange->head.path;
        const char *meant = http_route_meant(config->routes, config->route_count, path);
        (void)http_refuse(&why, 404, HTTP_CODE_NOT_FOUND, "there is no '%.128s' here%s%.64s%s",
                          path, meant ? ": did you mean '" : "", meant ? meant : "",
                          meant ? "'?" : "");
        http_answer_keep_refusal(connection, &why, NULL);
        return;
    }
    http_route_allow(allowed, allow);
    (void)http_refuse(&why, 405, HTTP_CODE_METHOD, "'%.128s' takes only %s",
                      connection->exchange->head.path, allow);
    http_answer_keep_refusal(connection, &why, allow);
}

/* A handler, whatever the path: a browser asks whether a page may send a request. */
static void answer_preflight(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct http_reply reply;
    const char *wanted = http_exchange_header(exchange, "access-control-request-headers");
    http_reply_init(&reply, 0);
    reply.status = 204;
    reply.content_type = NULL;
    (void)http_reply_add_header(&reply, "Access-Control-Allow-Methods", "GET, POST");
    /* All fields that the client wants to set: OpenAI's package has some of its own. Too many are
     * not allowed. */
    if (wanted)
        (void)http_reply_add_header(&reply, "Access-Control-Allow-Headers", wanted);
    (void)http_reply_add_header(&reply, "Access-Control-Max-Age", "600");
    (void)http_exchange_reply(exchange, &reply);
    http_reply_deinit(&reply);
}

/* Refuses a request that a page in a browser may be behind: one for a host that isn't this
 * machine's, or by a page of such a host. False: it is refused. */
static bool check_names(struct http_connection *connection)
{
    const struct http_server_config *config = &connection->loop->service->config;
    const struct http_head *head = &connection->exchange->head;
    const char *host = http_head_field(head, "host"); /* browsers always send one */
    const char *origin = http_head_field(head, "origin");
    struct http_refusal why;
    if (host && !http_host_is_own(host, config->allowed_hosts))
        (void)http_refuse(&why, 403, HTTP_CODE_HOST,
                          "the host '%.100s' is not a name of this machine: a server on loopback "
                          "answers only to localhost and loopback addresses, because a web page "
                          "may have chosen the name; the setting allowed-hosts lets it answer to "
                          "others",
                          host);
    else if (origin && !http_origin_is_own(origin, config->allowed_hosts, config->cors_origins))
        (void)http_refuse(
            &why, 403, HTTP_CODE_ORIGIN,
            "pages of '%.100s' may not ask: a server on loopback answers only to "
            "pages of this machine%s",
            origin,
            config->cors_origins ? "; the setting http-cors-origins lets it answer to others" : "");
    else
        return true;
    http_answer_keep_refusal(connection, &why, NULL);
    return false;
}

static bool check_type(struct http_connection *connection)
{
    const struct http_head *head = &connection->exchange->head;
    const char *type = http_head_field(head, "content-type");
    struct http_refusal why;
    if (!(connection->route->methods & HTTP_TAKES_JSON) || head->method != HTTP_POST ||
        http_is_json(type))
        return true;
    (void)http_refuse(&why, 415, HTTP_CODE_TYPE,
                      "the body must be JSON and say so, with the header field 'Content-Type: "
                      "application/json'; found %s%.60s%s",
                      type ? "'" : "none", type ? type : "", type ? "'" : "");
    http_answer_keep_refusal(connection, &why, NULL);
    return false;
}

static void choose_route(struct http_connection *connection)
{
    const struct http_server_config *config = &connection->loop->service->config;
    const struct http_head *head = &connection->exchange->head;
    static const struct http_route preflight = {"*", HTTP_OPTIONS, answer_preflight};
    unsigned allowed;
    if (connection->loop->service->guarded && !check_names(connection))
        return;
    if (connection->exchange->framing.allow_origin && head->method == HTTP_OPTIONS &&
        http_head_field(head, "access-control-request-method")) {
        connection->route = &preflight; /* it comes without a key: its body is dropped */
        connection->body.dropped = true;
        return;
    }
    connection->route =
        http_route_find(config->routes, config->route_count, head->method, head->path, &allowed);
    if (!connection->route) {
        refuse_route(connection, allowed);
        return;
    }
    if (!check_type(connection) || !config->admit)
        return;
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    if (!config->admit(config->context, connection->exchange, &reply))
        http_answer_keep_reply(connection, &reply);
    http_reply_deinit(&reply);
}

static void begin_body(struct http_connection *connection)
{
    const struct http_head *head = &connection->exchange->head;
    if (connection->refusal) {
        connection->body.dropped = true;
        http_answer_send_refusal(connection);
        return;
    }
    connection->phase = PHASE_BODY;
    connection->body_begun_us = clock_now_us();
    http_connection_set_deadline(connection, connection->body_begun_us +
                                                 connection->loop->service->config.body_us);
    if (head->expects_continue)
        http_answer_say_continue(connection);
}

static void begin_request(struct http_connection *connection)
{
    struct http_refusal why;
    char *bytes = connection->head;
    size_t count = connection->scan.bytes;
    connection->head = NULL;
    connection->scan = (struct http_scan){0};
    if (http_exchange_create(connection, bytes, count, &connection->exchange, &why) != STATUS_OK ||
        http_body_begin(&connection->body, &connection->exchange->head,
                        connection->loop->service->config.max_body_bytes, &why) != STATUS_OK) {
        http_answer_refuse(connection, &why);
        return;
    }
    choose_route(connection);
    if (connection->body.part == BODY_WHOLE)
        handle(connection);
    else
        begin_body(connection);
}

static void keep_head(struct http_connection *connection, const char *bytes, size_t count)
{
    size_t length = connection->scan.bytes; /* with these */
    if (!connection->head)
        http_connection_set_deadline(connection,
                                     clock_now_us() + connection->loop->service->config.head_us);
    if (!connection->head || length > connection->head_capacity) {
        size_t capacity = connection->head ? connection->head_capacity : FIRST_HEAD_BYTES;
        while (capacity < length)
            capacity *= 2;
        connection->head = realloc(connection->head, capacity);
        ASSERT(connection->head);
        connection->head_capacity = capacity;
    }
    memcpy(connection->head + length - count, bytes, count);
}

static size_t take_head(struct http_connection *connection, const char *bytes, size_t count)
{
    struct http_refusal why;
    size_t used;
    enum status status = http_scan_take(&connection->scan, bytes, count, &used, &why);
    if (status != STATUS_OK) {
        http_answer_refuse(connection, &why);
        return count;
    }
    keep_head(connection, bytes, used);
    if (connection->scan.whole)
        begin_request(connection);
    return used;
}

/* --- body --- */

static size_t take_body(struct http_connection *connection, const char *bytes, size_t count)
{
    const struct http_server_config *config = &connection->loop->service->config;
    struct http_body *body = &connection->body;
    struct http_refusal why;
    size_t used;
    if (http_body_take(body, bytes, count, &used, &connection->exchange->body, &why) != STATUS_OK) {
        http_answer_refuse(connection, &why);
        return count;
    }
    const char *too_large = http_exchange_count_body(connection->exchange);
    if (too_large) {
        (void)http_refuse(&why, 503, HTTP_CODE_NO_ROOM, "%s", too_large);
        http_answer_refuse(connection, &why);
        return count;
    }
    http_connection_set_deadline(connection, connection->body_begun_us + config->body_us +
                                                 body->received_bytes * 1000000u /
                                                     config->body_bytes_per_second);
    if (body->part == BODY_WHOLE)
        handle(connection);
    return used;
}

/* The answer has left. */
static size_t skip_body(struct http_connection *connection, const char *bytes, size_t count)
{
    struct http_refusal why;
    size_t used;
    enum status status = http_body_take(&connection->body, bytes, count, &used, NULL, &why);
    connection->skipped_bytes += used;
    if (status != STATUS_OK || connection->skipped_bytes > 2 * HTTP_MAX_SKIPPED_BYTES) {
        http_connection_end_if_idle(connection); /* malformed, or with frames without end */
        return count;
    }
    if (connection->body.part == BODY_WHOLE) {
        connection->skipped_bytes = 0;
        connection->phase = PHASE_HEAD;
        connection->idle_since_us = clock_now_us();
        http_connection_set_deadline(connection, connection->idle_since_us +
                                                     connection->loop->service->config.idle_us);
    }
    return used;
}

/* --- bytes --- */

static size_t keep_behind(struct http_connection *connection, const char *bytes, size_t count)
{
    if (connection->closing)
        return count;
    size_t length = connection->behind_bytes + count;
    connection->behind = realloc(connection->behind, length);
    ASSERT(connection->behind);
    memcpy(connection->behind + connection->behind_bytes, bytes, count);
    connection->behind_bytes = length;
    if (connection->exchange)
        http_exchange_note_followed(connection->exchange);
    if (length >= HTTP_MAX_BEHIND_BYTES)
        http_connection_stop_reading(connection);
    return count;
}

void http_intake_take(struct http_connection *connection, const char *bytes, size_t count)
{
    connection->taking = true;
    while (count > 0 && connection->phase != PHASE_DEAD) {
        size_t used = count;
        switch (connection->phase) {
        case PHASE_HEAD: used = take_head(connection, bytes, count); break;
        case PHASE_BODY: used = take_body(connection, bytes, count); break;
        case PHASE_BUSY: used = keep_behind(connection, bytes, count); break;
        case PHASE_SKIPPING: used = skip_body(connection, bytes, count); break;
        case PHASE_LINGERING:
            connection->lingered_bytes += count;
            if (connection->lingered_bytes > MAX_LINGER_BYTES)
                http_connection_end(connection, HTTP_SENT, false);
            break;
        case PHASE_DEAD: break;
        }
        bytes += used;
        count -= used;
    }
    connection->taking = false;
}

void http_intake_resume(struct http_connection *connection)
{
    if (connection->taking) /* it goes on with the bytes that it has */
        return;
    char *bytes = connection->behind;
    size_t count = connection->behind_bytes;
    connection->behind = NULL;
    connection->behind_bytes = 0;
    http_intake_take(connection, bytes, count);
    free(bytes);
    if (connection->phase != PHASE_DEAD && connection->behind_bytes < HTTP_MAX_BEHIND_BYTES)
        http_connection_start_reading(connection);
}
