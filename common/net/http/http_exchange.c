#include "common/net/http/http_exchange_state.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/net/http/http_cors.h"
#include "common/net/http/http_service.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum status http_exchange_create(struct http_loop *loop, struct http_connection *connection,
                                 char *bytes, size_t count, const struct http_peer *peer,
                                 struct http_exchange **out, struct http_refusal *why)
{
    struct http_exchange *exchange = malloc(sizeof *exchange);
    ASSERT(exchange);
    enum status status = http_head_read(bytes, count, &exchange->head, why);
    if (status != STATUS_OK) {
        free(bytes);
        free(exchange);
        return status;
    }
    struct http_head head = exchange->head;
    *exchange = (struct http_exchange){.references = 1,
                                       .head = head,
                                       .peer = *peer,
                                       .arrived_us = clock_now_us(),
                                       .connection = connection,
                                       .direct_fd = -1,
                                       .loop = loop};
    pthread_mutex_init(&exchange->lock, NULL);
    str_init(&exchange->body, loop->service->config.max_body_bytes);
    exchange->framing = (struct http_framing){
        head.is_1_0, head.keep_alive && !atomic_load(&loop->service->draining),
        head.method == HTTP_HEAD,
        http_cors_allowed(loop->service->config.cors_origins,
                          http_exchange_header(exchange, "origin")),
        http_cors_by_origin(loop->service->config.cors_origins)};
    *out = exchange;
    return STATUS_OK;
}

void http_exchange_release(struct http_exchange *exchange)
{
    if (atomic_fetch_sub(&exchange->references, 1) > 1)
        return;
    if (exchange->attached)
        exchange->drop_attached(exchange->attached);
    if (exchange->pending)
        evbuffer_free(exchange->pending);
    pthread_mutex_destroy(&exchange->lock);
    str_deinit(&exchange->body);
    free(exchange->head.bytes);
    free(exchange);
}

/* --- references --- */

void http_exchange_keep(struct http_exchange *exchange)
{
    atomic_fetch_add(&exchange->references, 1);
    atomic_fetch_add(&exchange->owners, 1);
}

static void queue(struct http_exchange *exchange, bool soon)
{
    if (!exchange->queued) {
        exchange->queued = true;
        atomic_fetch_add(&exchange->references, 1);
        http_loop_queue(exchange->loop, exchange);
    }
    if (soon)
        http_loop_wake(exchange->loop);
}

void http_exchange_post(struct http_exchange *exchange)
{
    queue(exchange, true);
}

/* Under the lock. */
static void set_unsent(struct http_exchange *exchange, size_t bytes)
{
    atomic_fetch_sub(&exchange->loop->service->unsent_bytes, exchange->unsent_bytes - bytes);
    exchange->unsent_bytes = bytes;
}

void http_exchange_post_lazily(struct http_exchange *exchange)
{
    queue(exchange, false);
}

/* Whether all has gone. Not where the loop has taken some of it, which goes first. */
static bool send_directly(struct http_exchange *exchange)
{
    struct http_socket socket = {.fd = exchange->direct_fd};
    if (socket.fd < 0 || !exchange->pending ||
        evbuffer_get_length(exchange->pending) != exchange->unsent_bytes)
        return false;
    enum http_io done = HTTP_IO_DONE;
    while (done == HTTP_IO_DONE && evbuffer_get_length(exchange->pending) > 0)
        done = http_socket_send(&socket, exchange->pending);
    if (done == HTTP_IO_CLOSED)
        shutdown(socket.fd, SHUT_RDWR); /* so that the loop, whose it is to end, finds it so */
    set_unsent(exchange, evbuffer_get_length(exchange->pending));
    return !exchange->unsent_bytes;
}

/* Behind a whole answer the loop has only to tidy up, with whatever it does next, unless somebody
 * waits for that. */
void http_exchange_deliver(struct http_exchange *exchange)
{
    bool sent = send_directly(exchange), ended = exchange->phase == EXCHANGE_ENDED;
    if (sent && ended)
        exchange->sent_us = clock_now_us();
    if (!sent || ended)
        queue(exchange, !sent || exchange->followed || !exchange->framing.keep_alive);
}

void http_exchange_hand_over(struct http_exchange *exchange, int direct_fd)
{
    exchange->loop->handed_over++;
    exchange->handed_over = true;
    pthread_mutex_lock(&exchange->lock);
    exchange->direct_fd = direct_fd;
    pthread_mutex_unlock(&exchange->lock);
}

void http_exchange_note_followed(struct http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->followed = true;
    pthread_mutex_unlock(&exchange->lock);
}

void http_exchange_drop(struct http_exchange *exchange)
{
    if (atomic_fetch_sub(&exchange->owners, 1) == 1) {
        pthread_mutex_lock(&exchange->lock);
        if (exchange->loop && exchange->phase != EXCHANGE_ENDED) {
            exchange->abandoned = true;
            http_exchange_post(exchange);
        }
        pthread_mutex_unlock(&exchange->lock);
    }
    http_exchange_release(exchange);
}

/* --- the request --- */

enum http_method http_exchange_method(const struct http_exchange *exchange)
{
    return exchange->head.method;
}

const char *http_exchange_path(const struct http_exchange *exchange)
{
    return exchange->head.path;
}

const char *http_exchange_query(const struct http_exchange *exchange)
{
    return exchange->head.query;
}

const char *http_exchange_header(const struct http_exchange *exchange, const char *name)
{
    return http_head_field(&exchange->head, name);
}

const struct str *http_exchange_body(const struct http_exchange *exchange)
{
    return &exchange->body;
}

void http_exchange_take_body(struct http_exchange *exchange, struct str *body)
{
    *body = exchange->body;
    str_init(&exchange->body, 0);
    pthread_mutex_lock(&exchange->lock);
    if (exchange->loop)
        atomic_fetch_sub(&exchange->loop->service->body_bytes, exchange->counted_body_bytes);
    exchange->counted_body_bytes = 0;
    pthread_mutex_unlock(&exchange->lock);
}

void http_exchange_peer(const struct http_exchange *exchange, char text[HTTP_PEER_BYTES])
{
    http_peer_name(&exchange->peer, text, HTTP_PEER_BYTES);
}

uint64_t http_exchange_arrived_us(const struct http_exchange *exchange)
{
    return exchange->arrived_us;
}

void http_exchange_attach(struct http_exchange *exchange, void *thing, void (*drop)(void *thing))
{
    ASSERT(!exchange->attached);
    exchange->attached = thing;
    exchange->drop_attached = drop;
}

void *http_exchange_take_attached(struct http_exchange *exchange)
{
    void *thing = exchange->attached;
    exchange->attached = NULL;
    return thing;
}

bool http_exchange_watch(struct http_exchange *exchange,
                         void (*over)(void *context, struct http_exchange *exchange,
                                      enum http_outcome outcome),
                         void *context)
{
    pthread_mutex_lock(&exchange->lock);
    bool watched = exchange->loop;
    if (watched) {
        exchange->over = over;
        exchange->over_context = context;
    }
    pthread_mutex_unlock(&exchange->lock);
    return watched;
}

/* --- for the loop --- */

struct http_news http_exchange_pull(struct http_exchange *exchange, struct evbuffer *out)
{
    pthread_mutex_lock(&exchange->lock);
    if (exchange->pending && !exchange->aborted)
        evbuffer_add_buffer(out, exchange->pending);
    struct http_news news = {exchange->phase != EXCHANGE_WAITING, exchange->phase == EXCHANGE_ENDED,
                             exchange->aborted, exchange->abandoned, exchange->framing.keep_alive};
    pthread_mutex_unlock(&exchange->lock);
    return news;
}

void http_exchange_sent(struct http_exchange *exchange, size_t left_bytes)
{
    pthread_mutex_lock(&exchange->lock);
    size_t pending = exchange->pending ? evbuffer_get_length(exchange->pending) : 0;
    if (left_bytes + pending < exchange->unsent_bytes)
        set_unsent(exchange, left_bytes + pending);
    pthread_mutex_unlock(&exchange->lock);
}

bool http_exchange_count_body(struct http_exchange *exchange)
{
    struct http_service *service = exchange->loop->service;
    size_t more = exchange->body.length - exchange->counted_body_bytes;
    exchange->counted_body_bytes += more;
    return atomic_fetch_add(&service->body_bytes, more) + more <= service->config.max_bodies_bytes;
}

void http_exchange_finish(struct http_exchange *exchange, enum http_outcome outcome)
{
    if (exchange->handed_over)
        exchange->loop->handed_over--;
    pthread_mutex_lock(&exchange->lock);
    set_unsent(exchange, 0);
    atomic_fetch_sub(&exchange->loop->service->body_bytes, exchange->counted_body_bytes);
    exchange->counted_body_bytes = 0;
    exchange->loop = NULL;
    void (*over)(void *, struct http_exchange *, enum http_outcome) = exchange->over;
    void *context = exchange->over_context;
    pthread_mutex_unlock(&exchange->lock);
    exchange->connection = NULL;
    if (over)
        over(context, exchange, outcome);
    http_exchange_release(exchange);
}
