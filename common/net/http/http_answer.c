#include "common/net/http/http_answer.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/http/http_exchange_state.h"
#include "common/net/http/http_intake.h"
#include "common/net/http/http_service.h"

#include <string.h>

#define MOD "http"

static struct evbuffer *out_of(struct http_connection *connection)
{
    if (!connection->out)
        connection->out = evbuffer_new();
    ASSERT(connection->out);
    return connection->out;
}

bool http_answer_waits(const struct http_connection *connection)
{
    return connection->out && evbuffer_get_length(connection->out) > 0;
}

/* --- sending --- */

static void finish(struct http_connection *connection)
{
    struct http_service *service = connection->loop->service;
    uint64_t sent_us = connection->exchange ? connection->exchange->sent_us : 0;
    if (connection->exchange)
        http_exchange_finish(connection->exchange, HTTP_SENT);
    connection->exchange = NULL;
    connection->answered = false;
    if (connection->out)
        evbuffer_free(connection->out);
    connection->out = NULL; /* who is idle holds nothing */
    if (connection->closing || atomic_load(&service->draining)) {
        connection->closing = true;
        http_connection_linger(connection);
        return;
    }
    connection->phase = PHASE_HEAD;
    connection->idle_since_us = sent_us ? sent_us : clock_now_us();
    http_connection_set_deadline(connection, connection->idle_since_us + service->config.idle_us);
    http_intake_resume(connection);
}

/* As much as goes. False: the connection is dead. */
static bool send_out(struct http_connection *connection, bool *progressed)
{
    *progressed = false;
    while (evbuffer_get_length(connection->out) > 0)
        switch (http_socket_send(&connection->socket, connection->out)) {
        case HTTP_IO_DONE: *progressed = true; break;
        case HTTP_IO_WAIT_WRITE: http_connection_wait_writable(connection); return true;
        case HTTP_IO_WAIT_READ: return true;
        case HTTP_IO_CLOSED: http_connection_end(connection, HTTP_GONE, false); return false;
        }
    return true;
}

static void send_and_go_on(struct http_connection *connection)
{
    bool progressed;
    if (!connection->out || !send_out(connection, &progressed))
        return;
    size_t left = evbuffer_get_length(connection->out);
    if (connection->exchange)
        http_exchange_sent(connection->exchange, left);
    if (connection->phase != PHASE_BUSY)
        return;
    if (left == 0)
        http_connection_set_deadline(connection, 0);
    else if (progressed || !connection->deadline_us)
        http_connection_set_deadline(connection,
                                     clock_now_us() + connection->loop->service->config.stall_us);
    if (left == 0 && connection->answered)
        finish(connection);
}

/* --- refusals --- */

static void make_refusal(struct http_connection *connection, const struct http_reply *reply)
{
    struct str head;
    struct http_framing framing = {.keep_alive = false};
    if (connection->exchange)
        framing = connection->exchange->framing;
    framing.keep_alive &= !connection->closing;
    connection->closing = !framing.keep_alive;
    struct http_reply_head what = {reply->status, reply->content_type, &reply->fields,
                                   HTTP_LENGTH_KNOWN, reply->body.length};
    str_init(&head, HTTP_REPLY_HEAD_BYTES);
    http_reply_write_head(&what, &framing, &head);
    connection->refusal = evbuffer_new();
    ASSERT(connection->refusal);
    evbuffer_add(connection->refusal, head.data, head.length);
    if (!framing.head_only)
        evbuffer_add(connection->refusal, reply->body.data, reply->body.length);
    str_deinit(&head);
}

void http_answer_keep_reply(struct http_connection *connection, const struct http_reply *reply)
{
    atomic_fetch_add(&connection->loop->service->refused, 1);
    make_refusal(connection, reply);
}

void http_answer_keep_refusal(struct http_connection *connection, const struct http_refusal *why,
                              const char *allow)
{
    const struct http_server_config *config = &connection->loop->service->config;
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    reply.status = why->status;
    if (allow)
        (void)http_reply_add_header(&reply, "Allow", allow);
    if (why->status == 503)
        (void)http_reply_add_header(&reply, "Retry-After", "1");
    if (config->refuse)
        config->refuse(config->context, connection->exchange, why, &reply);
    else
        str_addf(&reply.body, "%s\n", why->why.text);
    http_answer_keep_reply(connection, &reply);
    http_reply_deinit(&reply);
}

void http_answer_tell_refusal(struct http_connection *connection)
{
    evbuffer_add_buffer(out_of(connection), connection->refusal);
    evbuffer_free(connection->refusal);
    connection->refusal = NULL;
    connection->phase = PHASE_BUSY;
    http_connection_set_deadline(connection, 0);
    connection->answered = true;
    send_and_go_on(connection);
}

void http_answer_refuse(struct http_connection *connection, const struct http_refusal *why)
{
    connection->closing = true;
    if (connection->refusal)
        evbuffer_free(connection->refusal);
    connection->refusal = NULL;
    http_answer_keep_refusal(connection, why, NULL);
    http_answer_tell_refusal(connection);
}

/* --- exchanges --- */

/* Nobody is left who could answer, and nothing was sent. */
static void answer_for_nobody(struct http_connection *connection)
{
    struct http_refusal why;
    char path[160];
    log_error_limited(MOD, "path=%s msg=\"a request was dropped without an answer\"",
                      log_quote(connection->exchange->head.path, path, sizeof path));
    (void)http_refuse(&why, 500, HTTP_CODE_INTERNAL, "the server dropped the request");
    connection->closing = true;
    http_answer_keep_refusal(connection, &why, NULL);
    http_exchange_finish(connection->exchange, HTTP_ABORTED);
    connection->exchange = NULL;
    http_answer_tell_refusal(connection);
}

void http_answer_flush(struct http_connection *connection)
{
    if (connection->phase == PHASE_BUSY && connection->exchange && !connection->answered) {
        struct http_news news = http_exchange_pull(connection->exchange, out_of(connection));
        if (news.abandoned && !news.started) {
            answer_for_nobody(connection);
            return;
        }
        if (news.aborted || (news.abandoned && !news.ended)) {
            http_connection_end(connection, HTTP_ABORTED, true);
            return;
        }
        connection->answered = news.ended;
        connection->closing |= news.ended && !news.keep_alive;
    }
    if (connection->phase == PHASE_BUSY || connection->phase == PHASE_BODY)
        send_and_go_on(connection);
}

void http_answer_say_continue(struct http_connection *connection)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    evbuffer_add(out_of(connection), go_on, sizeof go_on - 1);
    send_and_go_on(connection);
}
