#include "common/net/http/http_exchange.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/fair_queue.h"
#include "common/base/map.h"
#include "common/net/http/http_loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- references --- */

void http_exchange_keep(struct http_exchange *exchange)
{
    atomic_fetch_add(&exchange->references, 1);
    atomic_fetch_add(&exchange->owners, 1);
}

/* Has the loop look at it: now, or with whatever it does next. Under the lock, before it is
 * over. */
static void queue(struct http_exchange *exchange, bool now)
{
    if (!exchange->queued) {
        exchange->queued = true;
        atomic_fetch_add(&exchange->references, 1);
        http_loop_queue(exchange->loop, exchange);
    }
    if (now)
        http_loop_wake(exchange->loop);
}

void http_exchange_drop(struct http_exchange *exchange)
{
    if (atomic_fetch_sub(&exchange->owners, 1) == 1) {
        pthread_mutex_lock(&exchange->lock);
        if (exchange->loop && exchange->phase != EXCHANGE_ENDED) {
            exchange->abandoned = true;
            queue(exchange, true);
        }
        pthread_mutex_unlock(&exchange->lock);
    }
    http_exchange_release(exchange);
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

/* Takes the body out of the sums. Under the lock. */
static void forget_body(struct http_exchange *exchange)
{
    size_t owned = exchange->owned_body_bytes;
    if (exchange->loop)
        atomic_fetch_sub(&exchange->loop->service->body_bytes, exchange->counted_body_bytes);
    if (exchange->loop && owned) {
        struct http_service *service = exchange->loop->service;
        pthread_mutex_lock(&service->lock);
        uintptr_t left = (uintptr_t)map_take(service->owners, exchange->owner) - owned;
        enum status status =
            left ? map_put(service->owners, exchange->owner, (void *)left) : STATUS_OK;
        ASSERT(status == STATUS_OK); /* its place was just given up */
        pthread_mutex_unlock(&service->lock);
    }
    exchange->counted_body_bytes = exchange->owned_body_bytes = 0;
}

void http_exchange_take_body(struct http_exchange *exchange, struct str *body)
{
    *body = exchange->body;
    str_init(&exchange->body, 0);
    pthread_mutex_lock(&exchange->lock);
    forget_body(exchange);
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

/* --- the answer; the static functions run under the lock --- */

static void set_unsent(struct http_exchange *exchange, size_t bytes)
{
    atomic_fetch_sub(&exchange->loop->service->unsent_bytes, exchange->unsent_bytes - bytes);
    exchange->unsent_bytes = bytes;
}

/* Returns whether all has been sent. Sends nothing if the loop has taken a part, which goes
 * first. */
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
        shutdown(socket.fd, SHUT_RDWR); /* the loop finds it so, and ends the connection */
    set_unsent(exchange, evbuffer_get_length(exchange->pending));
    return !exchange->unsent_bytes;
}

/* Sends what is pending on this thread if possible, because waking the loop's costs more than the
 * sending. Otherwise the loop sends. Behind a whole answer the loop has only to tidy up, with
 * whatever it does next, unless a further request waits for that. */
static void deliver(struct http_exchange *exchange)
{
    bool sent = send_directly(exchange), ended = exchange->phase == EXCHANGE_ENDED;
    if (sent && ended)
        exchange->sent_us = clock_now_us();
    if (!sent || ended)
        queue(exchange, !sent || exchange->followed || !exchange->framing.keep_alive);
}

static void add(struct http_exchange *exchange, const void *bytes, size_t count)
{
    if (!exchange->pending)
        exchange->pending = evbuffer_new();
    ASSERT(exchange->pending);
    int failed = evbuffer_add(exchange->pending, bytes, count);
    ASSERT(!failed);
    exchange->unsent_bytes += count;
    atomic_fetch_add(&exchange->loop->service->unsent_bytes, count);
}

static void add_head(struct http_exchange *exchange, const struct http_reply_head *what)
{
    struct str head;
    str_init(&head, HTTP_REPLY_HEAD_BYTES);
    http_reply_write_head(what, &exchange->framing, &head);
    add(exchange, head.data, head.length);
    str_deinit(&head);
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

/* Adds the reply, or a plain sentence instead of one that can't go out. */
static enum status add_reply(struct http_exchange *exchange, const struct http_reply *reply)
{
    bool has_body = may_have_body(reply->status);
    struct http_reply_head head = {reply->status, reply->content_type, &reply->fields,
                                   has_body ? HTTP_LENGTH_KNOWN : HTTP_LENGTH_NONE,
                                   reply->body.length};
    const char *bytes = reply->body.data;
    enum status status = STATUS_OK;
    if (reply->body.truncated) {
        status = STATUS_INVALID;
        head.status = 500;
        bytes = "the reply is too large\n";
    } else if (!has_room(exchange, reply->body.length, SIZE_MAX)) {
        status = STATUS_LIMIT;
        head.status = 503;
        bytes = "too much waits for slow readers: try again later\n";
    }
    if (status != STATUS_OK) {
        has_body = true;
        head = (struct http_reply_head){.status = head.status,
                                        .content_type = "text/plain; charset=utf-8",
                                        .framed = HTTP_LENGTH_KNOWN,
                                        .length = strlen(bytes)};
    }
    add_head(exchange, &head);
    if (has_body && !exchange->framing.head_only)
        add(exchange, bytes, head.length);
    return status;
}

/* A draining server keeps no connection alive. */
static void begin_answer(struct http_exchange *exchange)
{
    ASSERT(exchange->phase == EXCHANGE_WAITING);
    if (atomic_load(&exchange->loop->service->draining))
        exchange->framing.keep_alive = false;
}

enum status http_exchange_reply(struct http_exchange *exchange, const struct http_reply *reply)
{
    pthread_mutex_lock(&exchange->lock);
    enum status status = STATUS_CANCELLED;
    if (exchange->loop) {
        begin_answer(exchange);
        status = add_reply(exchange, reply);
        exchange->phase = EXCHANGE_ENDED;
        deliver(exchange);
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

enum status http_exchange_start(struct http_exchange *exchange, const struct http_reply *reply)
{
    bool has_body = may_have_body(reply->status);
    pthread_mutex_lock(&exchange->lock);
    enum status status = exchange->loop ? STATUS_OK : STATUS_CANCELLED;
    if (exchange->loop) {
        begin_answer(exchange);
        exchange->chunked = has_body && !exchange->framing.is_1_0;
        if (has_body && exchange->framing.is_1_0)
            exchange->framing.keep_alive = false; /* its end is the connection's */
        add_head(exchange,
                 &(struct http_reply_head){.status = reply->status,
                                           .content_type = reply->content_type,
                                           .fields = &reply->fields,
                                           .framed = exchange->chunked ? HTTP_LENGTH_CHUNKED
                                                     : has_body        ? HTTP_LENGTH_TO_THE_END
                                                                       : HTTP_LENGTH_NONE});
        exchange->phase = EXCHANGE_STARTED;
        queue(exchange, false); /* the first piece mostly follows at once */
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
    deliver(exchange);
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
        deliver(exchange);
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
        queue(exchange, true);
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

bool http_exchange_unwatch(struct http_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    bool watched = exchange->loop;
    if (watched)
        exchange->over = NULL;
    pthread_mutex_unlock(&exchange->lock);
    return watched;
}

/* --- for the loop --- */

enum status http_exchange_create(struct http_connection *connection, char *bytes, size_t count,
                                 struct http_exchange **out, struct http_refusal *why)
{
    struct http_service *service = connection->loop->service;
    const char *origins = service->config.cors_origins;
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
                                       .peer = connection->peer,
                                       .arrived_us = clock_now_us(),
                                       .connection = connection,
                                       .direct_fd = -1,
                                       .loop = connection->loop};
    pthread_mutex_init(&exchange->lock, NULL);
    str_init(&exchange->body, service->config.max_body_bytes);
    exchange->framing = (struct http_framing){
        .is_1_0 = head.is_1_0,
        .keep_alive = head.keep_alive && !atomic_load(&service->draining),
        .head_only = head.method == HTTP_HEAD,
        .allow_origin = http_cors_allowed(origins, http_head_field(&exchange->head, "origin")),
        .by_origin = origins && *origins && !http_cors_allows_all(origins)};
    *out = exchange;
    return STATUS_OK;
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

/* Counts the body in its owner's sum, and returns the sum. */
static size_t count_for_owner(struct http_service *service, struct http_exchange *exchange)
{
    size_t sum = 0;
    if (!exchange->owned_body_bytes)
        exchange->owner = service->config.owner(exchange);
    pthread_mutex_lock(&service->lock);
    sum = (uintptr_t)map_get(service->owners, exchange->owner) + exchange->counted_body_bytes -
          exchange->owned_body_bytes;
    enum status status = map_put(service->owners, exchange->owner, (void *)sum);
    ASSERT(status == STATUS_OK); /* one for each connection */
    exchange->owned_body_bytes = exchange->counted_body_bytes;
    pthread_mutex_unlock(&service->lock);
    return sum;
}

const char *http_exchange_count_body(struct http_exchange *exchange)
{
    struct http_service *service = exchange->loop->service;
    size_t most = service->config.max_bodies_bytes, own = 0;
    size_t more = exchange->body.length - exchange->counted_body_bytes;
    exchange->counted_body_bytes += more;
    size_t all = atomic_fetch_add(&service->body_bytes, more) + more;
    if (exchange->counted_body_bytes <= HTTP_FAIR_BODY_BYTES)
        return NULL;
    if (service->config.owner)
        own = count_for_owner(service, exchange);
    if (all > most)
        return "the bodies of all requests together are too large: try again later";
    if (own > exchange->counted_body_bytes && !fair_share_holds(own, all, most))
        return "the bodies of this client's requests together are too large: try again later";
    return NULL;
}

void http_exchange_finish(struct http_exchange *exchange, enum http_outcome outcome)
{
    if (exchange->handed_over)
        exchange->loop->handed_over--;
    pthread_mutex_lock(&exchange->lock);
    set_unsent(exchange, 0);
    forget_body(exchange);
    exchange->loop = NULL;
    void (*over)(void *, struct http_exchange *, enum http_outcome) = exchange->over;
    void *context = exchange->over_context;
    pthread_mutex_unlock(&exchange->lock);
    exchange->connection = NULL;
    if (over)
        over(context, exchange, outcome);
    http_exchange_release(exchange);
}
