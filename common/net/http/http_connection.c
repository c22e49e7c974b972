#include "common/net/http/http_loop.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdlib.h>
#include <string.h>

#define MOD                "http"
#define READS_AT_ONCE      4 /* then other connections get their turn */
#define LINGER_US          2000000u
#define DRAINING_LINGER_US 250000u
#define LOOKED_AT_FOR_ROOM 64
#define IDLE_ENOUGH_US     1000000u /* to make room for another connection */
#define BLIND_LOOK_US      100000
#define TIMER_LATE_US      5000 /* libevent's coarse clock may be this far behind ours */

/* --- time --- */

/* Returns whether unread bytes may hide the end of the connection. */
static bool is_blind(const struct http_connection *connection)
{
    return connection->phase == PHASE_BUSY && !connection->reading && !connection->half_closed;
}

/* Most deadlines are put off long before they come. A timer that is due earlier stays as it is, and
 * is set anew when it has come. */
static void set_timer(struct http_connection *connection)
{
    uint64_t due_us = connection->deadline_us ? connection->deadline_us : UINT64_MAX;
    uint64_t look_us = is_blind(connection) ? clock_now_us() + BLIND_LOOK_US : UINT64_MAX;
    due_us = due_us < look_us ? due_us : look_us;
    if (due_us >= connection->timer_us || connection->phase == PHASE_DEAD)
        return;
    uint64_t now_us = clock_now_us();
    uint64_t wait_us = (due_us > now_us ? due_us - now_us : 0) + TIMER_LATE_US;
    struct timeval wait = {(time_t)(wait_us / 1000000u), (suseconds_t)(wait_us % 1000000u)};
    event_add(&connection->timer, &wait);
    connection->timer_us = due_us;
}

void http_connection_set_deadline(struct http_connection *connection, uint64_t deadline_us)
{
    connection->deadline_us = deadline_us;
    if (deadline_us)
        set_timer(connection);
}

/* --- waiting for events --- */

void http_connection_start_reading(struct http_connection *connection)
{
    if (connection->reading || connection->half_closed)
        return;
    connection->reading = true;
    event_add(&connection->readable, NULL);
    if (connection->socket.tls) /* OpenSSL may hold bytes that the system doesn't know of */
        event_active(&connection->readable, EV_READ, 0);
}

void http_connection_stop_reading(struct http_connection *connection)
{
    if (connection->reading)
        event_del(&connection->readable);
    connection->reading = false;
    set_timer(connection);
}

static void wait_writable(struct http_connection *connection)
{
    if (!connection->writing)
        event_add(&connection->writable, NULL);
    connection->writing = true;
}

static struct evbuffer *out_of(struct http_connection *connection)
{
    if (!connection->out)
        connection->out = evbuffer_new();
    ASSERT(connection->out);
    return connection->out;
}

/* --- sending --- */

/* Nothing more is sent. Waits a while for the client to close. */
static void linger(struct http_connection *connection)
{
    http_socket_shut(&connection->socket);
    if (connection->half_closed) {
        http_connection_end(connection, HTTP_SENT, false);
        return;
    }
    connection->phase = PHASE_LINGERING;
    bool hurry = atomic_load(&connection->loop->service->draining);
    http_connection_set_deadline(connection,
                                 clock_now_us() + (hurry ? DRAINING_LINGER_US : LINGER_US));
    http_connection_start_reading(connection);
}

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
    connection->out = NULL; /* an idle connection holds no buffers */
    if (connection->closing || atomic_load(&service->draining)) {
        connection->closing = true;
        linger(connection);
        return;
    }
    bool skips = connection->body.part != BODY_WHOLE; /* a refusal didn't wait for it */
    connection->phase = skips ? PHASE_SKIPPING : PHASE_HEAD;
    connection->idle_since_us = sent_us ? sent_us : clock_now_us();
    http_connection_set_deadline(connection,
                                 connection->idle_since_us +
                                     (skips ? service->config.body_us : service->config.idle_us));
    http_intake_resume(connection);
}

/* Sends as much as the system takes. False: the connection is dead. */
static bool send_out(struct http_connection *connection, bool *progressed)
{
    *progressed = false;
    while (evbuffer_get_length(connection->out) > 0)
        switch (http_socket_send(&connection->socket, connection->out)) {
        case HTTP_IO_DONE: *progressed = true; break;
        case HTTP_IO_WAIT_WRITE: wait_writable(connection); return true;
        case HTTP_IO_WAIT_READ: return true;
        case HTTP_IO_FLOOD: /* isn't told here */
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

/* Returns whether the connection can go on behind a refusal of its request. A client that waits for
 * 100 Continue may send its body all the same, or not. */
static bool may_skip_body(const struct http_connection *connection)
{
    const struct http_body *body = &connection->body;
    return body->part == BODY_WHOLE ||
           (body->left <= HTTP_MAX_SKIPPED_BYTES && !connection->exchange->head.expects_continue);
}

void http_answer_keep_reply(struct http_connection *connection, const struct http_reply *reply)
{
    struct str head;
    struct http_framing framing = {.keep_alive = false};
    atomic_fetch_add(&connection->loop->service->refused, 1);
    if (connection->exchange)
        framing = connection->exchange->framing;
    framing.keep_alive &= !connection->closing && may_skip_body(connection);
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
    char peer[HTTP_PEER_BYTES];
    http_peer_name(&connection->peer, peer, sizeof peer);
    if (config->refuse)
        config->refuse(config->context, connection->exchange, peer, why, &reply);
    else
        str_addf(&reply.body, "%s\n", why->why.text);
    http_answer_keep_reply(connection, &reply);
    http_reply_deinit(&reply);
}

void http_answer_send_refusal(struct http_connection *connection)
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
    http_answer_send_refusal(connection);
}

/* --- answers of exchanges --- */

/* The last owner dropped the exchange, and nothing was sent. */
static void answer_dropped(struct http_connection *connection)
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
    http_answer_send_refusal(connection);
}

void http_answer_flush(struct http_connection *connection)
{
    if (connection->phase == PHASE_BUSY && connection->exchange && !connection->answered) {
        struct http_news news = http_exchange_pull(connection->exchange, out_of(connection));
        if (news.abandoned && !news.started) {
            answer_dropped(connection);
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

/* --- events --- */

/* The client has closed its connection, or its half of it. It may still read if its whole answer is
 * on the way. Otherwise it is gone. */
static void on_closed(struct http_connection *connection)
{
    connection->half_closed = connection->closing = true;
    http_connection_stop_reading(connection);
    if (connection->phase == PHASE_BUSY)
        http_answer_flush(connection);
    if (connection->phase != PHASE_BUSY || !connection->answered)
        http_connection_end(connection, HTTP_GONE, false);
}

static void read_some(struct http_connection *connection)
{
    struct http_loop *loop = connection->loop;
    char peer[HTTP_PEER_BYTES];
    for (int i = 0; i < READS_AT_ONCE && connection->reading; i++) {
        size_t count;
        switch (
            http_socket_receive(&connection->socket, loop->scratch, sizeof loop->scratch, &count)) {
        case HTTP_IO_DONE: http_intake_take(connection, loop->scratch, count); break;
        case HTTP_IO_WAIT_READ: return;
        case HTTP_IO_WAIT_WRITE:
            connection->read_wants_write = true;
            wait_writable(connection);
            return;
        case HTTP_IO_CLOSED: on_closed(connection); return;
        case HTTP_IO_FLOOD:
            http_peer_name(&connection->peer, peer, sizeof peer);
            log_warn_limited(
                MOD, "peer=%s msg=\"connection ended: too many TLS messages beside its bytes\"",
                peer);
            atomic_fetch_add(&loop->service->refused, 1);
            http_connection_end(connection, HTTP_GONE, true);
            return;
        }
        if (!connection->socket.tls && count < sizeof loop->scratch)
            return;
    }
    if (connection->reading && connection->socket.tls)
        event_active(&connection->readable, EV_READ, 0);
}

static void on_readable(evutil_socket_t fd, short events, void *context)
{
    (void)fd;
    (void)events;
    struct http_connection *connection = context;
    (void)http_loop_catch_up(connection->loop); /* the answer before this may have left */
    read_some(connection);
    if (connection->socket.tls) /* sending may have waited for something to receive */
        http_answer_flush(connection);
    http_loop_settle(connection->loop);
}

static void on_writable(evutil_socket_t fd, short events, void *context)
{
    (void)fd;
    (void)events;
    struct http_connection *connection = context;
    connection->writing = false;
    if (connection->read_wants_write) {
        connection->read_wants_write = false;
        read_some(connection);
    }
    http_answer_flush(connection);
    http_loop_settle(connection->loop);
}

/* --- timeouts --- */

static bool is_idle(const struct http_connection *connection)
{
    return connection->phase == PHASE_HEAD && !connection->head;
}

static void time_out(struct http_connection *connection)
{
    struct http_service *service = connection->loop->service;
    struct http_refusal why;
    if (is_idle(connection) || connection->phase == PHASE_LINGERING ||
        connection->phase == PHASE_SKIPPING) {
        http_connection_end(connection, HTTP_SENT, false);
        return;
    }
    atomic_fetch_add(&service->slow, 1);
    if (connection->phase == PHASE_BUSY) {
        http_connection_end(connection, HTTP_STALLED, true);
        return;
    }
    (void)http_refuse(&why, 408, HTTP_CODE_SLOW, "the request's %s did not come in time",
                      connection->phase == PHASE_HEAD ? "head" : "body");
    http_answer_refuse(connection, &why);
}

static bool is_late(const struct http_connection *connection)
{
    return connection->deadline_us && clock_now_us() >= connection->deadline_us;
}

/* Bytes that have come, and room to send, count before the time. If the process was stopped, the
 * loop finds more of both than it handles before it comes to its timers. */
static void on_timer(evutil_socket_t fd, short events, void *context)
{
    (void)fd;
    (void)events;
    struct http_connection *connection = context;
    connection->timer_us = UINT64_MAX;
    if (is_late(connection)) {
        (void)http_loop_catch_up(connection->loop);
        read_some(connection);
        if (connection->phase != PHASE_DEAD)
            http_answer_flush(connection);
    }
    if (is_blind(connection) && http_socket_is_gone(&connection->socket))
        on_closed(connection);
    else if (connection->phase != PHASE_DEAD && is_late(connection))
        time_out(connection);
    set_timer(connection);
    http_loop_settle(connection->loop);
}

/* --- life --- */

void http_connection_create(struct http_loop *loop, const struct http_socket *socket,
                            const struct http_peer *peer, enum http_surplus surplus)
{
    struct http_connection *connection = malloc(sizeof *connection);
    ASSERT(connection);
    uint64_t now_us = clock_now_us();
    *connection = (struct http_connection){
        .loop = loop,
        .socket = *socket,
        .peer = *peer,
        .idle_since_us = now_us,
        .timer_us = UINT64_MAX,
        .body = {.part = BODY_WHOLE},
    };
    TAILQ_INSERT_TAIL(&loop->connections, connection, link);
    event_assign(&connection->readable, loop->base, socket->fd, EV_READ | EV_PERSIST, on_readable,
                 connection);
    event_assign(&connection->writable, loop->base, socket->fd, EV_WRITE, on_writable, connection);
    evtimer_assign(&connection->timer, loop->base, on_timer, connection);
    http_connection_set_deadline(connection, now_us + loop->service->config.head_us);
    http_connection_start_reading(connection);
    if (surplus) {
        struct http_refusal why;
        (void)http_refuse(&why, 503, HTTP_CODE_TOO_MANY,
                          "all connections%s are taken: try again shortly",
                          surplus == HTTP_SURPLUS_ADDRESS ? " that one address may have" : "");
        http_answer_refuse(connection, &why);
    }
}

void http_connection_end(struct http_connection *connection, enum http_outcome outcome, bool hard)
{
    struct http_service *service = connection->loop->service;
    if (connection->phase == PHASE_DEAD)
        return;
    connection->phase = PHASE_DEAD;
    http_connection_stop_reading(connection);
    event_del(&connection->writable);
    event_del(&connection->timer);
    if (connection->exchange && outcome == HTTP_GONE)
        atomic_fetch_add(&service->gone, 1);
    if (connection->exchange)
        http_exchange_finish(connection->exchange, outcome);
    connection->exchange = NULL;
    free(connection->head);
    free(connection->behind);
    connection->head = connection->behind = NULL;
    if (connection->refusal)
        evbuffer_free(connection->refusal);
    if (connection->out)
        evbuffer_free(connection->out);
    connection->refusal = connection->out = NULL;
    http_socket_close(&connection->socket, hard);
    TAILQ_REMOVE(&connection->loop->connections, connection, link);
    connection->next = connection->loop->dead;
    connection->loop->dead = connection;
    http_service_give_back_place(service, &connection->peer);
    if (atomic_fetch_sub(&service->connections, 1) == 1) {
        pthread_mutex_lock(&service->lock);
        pthread_cond_broadcast(&service->empty);
        pthread_mutex_unlock(&service->lock);
    }
}

/* --- room --- */

/* A connection that isn't idle for long enough goes to the end of the line: it is looked at again
 * after all others. */
bool http_connection_make_room(struct http_loop *loop, const struct http_peer *of)
{
    uint64_t now_us = clock_now_us();
    struct http_connection *last = TAILQ_LAST(&loop->connections, http_connections);
    for (int i = 0; last && i < LOOKED_AT_FOR_ROOM; i++) {
        struct http_connection *first = TAILQ_FIRST(&loop->connections);
        if (is_idle(first) && now_us - first->idle_since_us >= IDLE_ENOUGH_US &&
            (!of || peer_places_same(&first->peer.address.any, &of->address.any))) {
            atomic_fetch_add(&loop->service->made_room, 1);
            http_connection_end(first, HTTP_SENT, false);
            return true;
        }
        TAILQ_REMOVE(&loop->connections, first, link);
        TAILQ_INSERT_TAIL(&loop->connections, first, link);
        if (first == last)
            return false;
    }
    return false;
}

void http_connection_end_if_idle(struct http_connection *connection)
{
    if (is_idle(connection) || connection->phase == PHASE_SKIPPING)
        linger(connection);
}
