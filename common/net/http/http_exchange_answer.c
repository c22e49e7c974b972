#include "common/base/assert.h"
#include "common/net/http/http_exchange_state.h"
#include "common/net/http/http_service.h"

#include <stdio.h>
#include <string.h>

/* --- under the lock --- */

static struct evbuffer *pending_of(struct http_exchange *exchange)
{
    if (!exchange->pending)
        exchange->pending = evbuffer_new();
    ASSERT(exchange->pending);
    return exchange->pending;
}

static void add(struct http_exchange *exchange, const void *bytes, size_t count)
{
    int failed = evbuffer_add(pending_of(exchange), bytes, count);
    ASSERT(!failed);
    exchange->unsent_bytes += count;
    atomic_fetch_add(&exchange->loop->service->unsent_bytes, count);
}

/* What a handler says before it is answered can't be kept alive for longer than the server. */
static void look_at_draining(struct http_exchange *exchange)
{
    if (atomic_load(&exchange->loop->service->draining))
        exchange->framing.keep_alive = false;
}

static bool has_room(const struct http_exchange *exchange, size_t count, size_t limit_bytes)
{
    const struct http_service *service = exchange->loop->service;
    size_t mine = exchange->unsent_bytes;
    if (count > limit_bytes || mine > limit_bytes - count)
        return false;
    size_t all = atomic_load(&service->unsent_bytes);
    return mine + count <= HTTP_FAIR_UNSENT_BYTES ||
           (count <= service->config.max_all_unsent_bytes &&
            all <= service->config.max_all_unsent_bytes - count);
}

static bool may_have_body(int status)
{
    return status != 204 && status != 304;
}

/* A plain sentence in the stead of a reply that can't go out. */
static void add_substitute(struct http_exchange *exchange, int status, const char *sentence)
{
    struct str head;
    str_init(&head, HTTP_REPLY_HEAD_BYTES);
    struct http_reply_head what = {.status = status,
                                   .content_type = "text/plain; charset=utf-8",
                                   .framed = HTTP_LENGTH_KNOWN,
                                   .length = strlen(sentence)};
    http_reply_write_head(&what, &exchange->framing, &head);
    add(exchange, head.data, head.length);
    if (!exchange->framing.head_only)
        add(exchange, sentence, strlen(sentence));
    str_deinit(&head);
}

static enum status add_reply(struct http_exchange *exchange, const struct http_reply *reply)
{
    struct str head;
    str_init(&head, HTTP_REPLY_HEAD_BYTES);
    bool has_body = may_have_body(reply->status);
    struct http_reply_head what = {reply->status, reply->content_type, &reply->fields,
                                   has_body ? HTTP_LENGTH_KNOWN : HTTP_LENGTH_NONE,
                                   reply->body.length};
    enum status status = reply->body.truncated                              ? STATUS_INVALID
                         : has_room(exchange, reply->body.length, SIZE_MAX) ? STATUS_OK
                                                                            : STATUS_LIMIT;
    http_reply_write_head(&what, &exchange->framing, &head);
    if (status == STATUS_INVALID) {
        add_substitute(exchange, 500, "the reply is too large\n");
    } else if (status == STATUS_LIMIT) {
        add_substitute(exchange, 503, "too much waits for slow readers: try again later\n");
    } else {
        add(exchange, head.data, head.length);
        if (has_body && !exchange->framing.head_only)
            add(exchange, reply->body.data, reply->body.length);
    }
    str_deinit(&head);
    return status;
}

/* --- the public ones --- */

enum status http_exchange_reply(struct http_exchange *exchange, const struct http_reply *reply)
{
    pthread_mutex_lock(&exchange->lock);
    enum status status = STATUS_CANCELLED;
    if (exchange->loop) {
        ASSERT(exchange->phase == EXCHANGE_WAITING);
        look_at_draining(exchange);
        status = add_reply(exchange, reply);
        exchange->phase = EXCHANGE_ENDED;
        http_exchange_deliver(exchange);
    }
    pthread_mutex_unlock(&exchange->lock);
    return status;
}

void http_exchange_reply_text(struct http_exchange *exchange, int status, const char *text)
{
    struct http_reply reply;
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    reply.status = status;
    str_add(&reply.body, text);
    (void)http_exchange_reply(exchange, &reply);
    http_reply_deinit(&reply);
}

static void start(struct http_exchange *exchange, const struct http_reply *reply)
{
    struct str head;
    str_init(&head, HTTP_REPLY_HEAD_BYTES);
    look_at_draining(exchange);
    bool has_body = may_have_body(reply->status);
    exchange->chunked = has_body && !exchange->framing.is_1_0;
    if (has_body && exchange->framing.is_1_0)
        exchange->framing.keep_alive = false; /* its end is the connection's */
    struct http_reply_head what = {.status = reply->status,
                                   .content_type = reply->content_type,
                                   .fields = &reply->fields,
                                   .framed = exchange->chunked ? HTTP_LENGTH_CHUNKED
                                             : has_body        ? HTTP_LENGTH_TO_THE_END
                                                               : HTTP_LENGTH_NONE};
    http_reply_write_head(&what, &exchange->framing, &head);
    add(exchange, head.data, head.length);
    exchange->phase = EXCHANGE_STARTED;
    http_exchange_post_lazily(exchange);
    str_deinit(&head);
}

enum status http_exchange_start(struct http_exchange *exchange, const struct http_reply *head)
{
    pthread_mutex_lock(&exchange->lock);
    enum status status = STATUS_CANCELLED;
    if (exchange->loop) {
        ASSERT(exchange->phase == EXCHANGE_WAITING);
        start(exchange, head);
        status = STATUS_OK;
    }
    pthread_mutex_unlock(&exchange->lock);
    return status;
}

static void add_piece(struct http_exchange *exchange, const void *bytes, size_t count)
{
    char size[24];
    if (exchange->framing.head_only)
        return;
    if (exchange->chunked)
        add(exchange, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", count));
    add(exchange, bytes, count);
    if (exchange->chunked)
        add(exchange, "\r\n", 2);
    http_exchange_deliver(exchange);
}

enum status http_exchange_write(struct http_exchange *exchange, const void *bytes, size_t count)
{
    pthread_mutex_lock(&exchange->lock);
    enum status status = STATUS_OK;
    if (!exchange->loop || exchange->aborted) {
        status = STATUS_CANCELLED;
    } else {
        ASSERT(exchange->phase == EXCHANGE_STARTED);
        if (!has_room(exchange, count, exchange->loop->service->config.max_unsent_bytes))
            status = STATUS_LIMIT;
        else if (count > 0) /* a piece of no bytes would be the end */
            add_piece(exchange, bytes, count);
    }
    pthread_mutex_unlock(&exchange->lock);
    return status;
}

enum status http_exchange_end(struct http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    enum status status = STATUS_CANCELLED;
    if (exchange->loop && !exchange->aborted) {
        ASSERT(exchange->phase == EXCHANGE_STARTED);
        if (exchange->chunked && !exchange->framing.head_only)
            add(exchange, "0\r\n\r\n", 5);
        exchange->phase = EXCHANGE_ENDED;
        http_exchange_deliver(exchange);
        status = STATUS_OK;
    }
    pthread_mutex_unlock(&exchange->lock);
    return status;
}

void http_exchange_abort(struct http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    if (exchange->loop && exchange->phase != EXCHANGE_ENDED) {
        exchange->aborted = true;
        http_exchange_post(exchange);
    }
    pthread_mutex_unlock(&exchange->lock);
}

bool http_exchange_has_room(struct http_exchange *exchange, size_t count)
{
    pthread_mutex_lock(&exchange->lock);
    bool room = !exchange->loop || exchange->aborted ||
                has_room(exchange, count, exchange->loop->service->config.max_unsent_bytes);
    pthread_mutex_unlock(&exchange->lock);
    return room;
}

size_t http_exchange_unsent(struct http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    size_t unsent = exchange->unsent_bytes;
    pthread_mutex_unlock(&exchange->lock);
    return unsent;
}
