#include "common/net/http/http_connection.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/net/http/http_answer.h"
#include "common/net/http/http_exchange_state.h"
#include "common/net/http/http_intake.h"
#include "common/net/http/http_service.h"

#include <stdlib.h>

#define READS_AT_ONCE      4 /* then it is other connections' turn */
#define LINGER_US          2000000u
#define DRAINING_LINGER_US 250000u
#define LOOKED_AT_FOR_ROOM 64
#define BLIND_LOOK_US      100000
#define TIMER_LATE_US      5000 /* by which libevent's clock, a coarse one, may be behind ours */

/* --- time --- */

/* Bytes of it wait unread, so that its end isn't seen behind them. */
static bool is_blind(const struct http_connection *connection)
{
    return connection->phase == PHASE_BUSY && !connection->reading && !connection->half_closed;
}

/* Most deadlines are put off long before they come: a timer that is due before is left as it is,
 * and set anew when it has come. */
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

/* --- events --- */

void http_connection_start_reading(struct http_connection *connection)
{
    if (connection->reading || connection->half_closed)
        return;
    connection->reading = true;
    event_add(&connection->readable, NULL);
    if (connection->socket.tls) /* it may hold bytes that the system doesn't know of */
        event_active(&connection->readable, EV_READ, 0);
}

void http_connection_stop_reading(struct http_connection *connection)
{
    if (connection->reading)
        event_del(&connection->readable);
    connection->reading = false;
    set_timer(connection);
}

void http_connection_wait_writable(struct http_connection *connection)
{
    if (!connection->writing)
        event_add(&connection->writable, NULL);
    connection->writing = true;
}

/* The client has closed its connection, or its half of it. Who has the whole answer on its way may
 * still read it; anybody else is gone. */
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
    for (int i = 0; i < READS_AT_ONCE && connection->reading; i++) {
        size_t count;
        switch (
            http_socket_receive(&connection->socket, loop->scratch, sizeof loop->scratch, &count)) {
        case HTTP_IO_DONE: http_intake_take(connection, loop->scratch, count); break;
        case HTTP_IO_WAIT_READ: return;
        case HTTP_IO_WAIT_WRITE:
            connection->read_wants_write = true;
            http_connection_wait_writable(connection);
            return;
        case HTTP_IO_CLOSED: on_closed(connection); return;
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
    if (connection->socket.tls) /* what goes may have waited for what comes */
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

/* --- what takes too long --- */

static bool is_idle(const struct http_connection *connection)
{
    return connection->phase == PHASE_HEAD && !connection->head;
}

static void time_out(struct http_connection *connection)
{
    struct http_service *service = connection->loop->service;
    struct http_refusal why;
    if (is_idle(connection) || connection->phase == PHASE_LINGERING) {
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

static void on_timer(evutil_socket_t fd, short events, void *context)
{
    (void)fd;
    (void)events;
    struct http_connection *connection = context;
    connection->timer_us = UINT64_MAX;
    if (is_blind(connection) && http_socket_is_gone(&connection->socket))
        on_closed(connection);
    else if (connection->deadline_us && clock_now_us() >= connection->deadline_us)
        time_out(connection);
    set_timer(connection);
    http_loop_settle(connection->loop);
}

/* --- life --- */

static void turn_away(struct http_connection *connection)
{
    struct http_refusal why;
    (void)http_refuse(&why, 503, HTTP_CODE_TOO_MANY,
                      "all connections are taken: try again shortly");
    http_answer_refuse(connection, &why);
}

void http_connection_create(struct http_loop *loop, const struct http_socket *socket,
                            const struct http_peer *peer, bool surplus)
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
    };
    TAILQ_INSERT_TAIL(&loop->connections, connection, link);
    event_assign(&connection->readable, loop->base, socket->fd, EV_READ | EV_PERSIST, on_readable,
                 connection);
    event_assign(&connection->writable, loop->base, socket->fd, EV_WRITE, on_writable, connection);
    evtimer_assign(&connection->timer, loop->base, on_timer, connection);
    http_connection_set_deadline(connection, now_us + loop->service->config.head_us);
    http_connection_start_reading(connection);
    if (surplus)
        turn_away(connection);
}

static void move_to_dead(struct http_connection *connection)
{
    TAILQ_REMOVE(&connection->loop->connections, connection, link);
    connection->next = connection->loop->dead;
    connection->loop->dead = connection;
}

static void count_out(struct http_service *service)
{
    if (atomic_fetch_sub(&service->connections, 1) > 1)
        return;
    pthread_mutex_lock(&service->lock);
    pthread_cond_broadcast(&service->empty);
    pthread_mutex_unlock(&service->lock);
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
    move_to_dead(connection);
    count_out(service);
}

void http_connection_linger(struct http_connection *connection)
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

/* --- room --- */

/* Who isn't idle, or isn't for long, goes to the end of the line: all have their turn before
 * anybody is looked at again. */
bool http_connection_make_room(struct http_loop *loop)
{
    uint64_t now_us = clock_now_us();
    struct http_connection *last = TAILQ_LAST(&loop->connections, http_connections);
    for (int i = 0; last && i < LOOKED_AT_FOR_ROOM; i++) {
        struct http_connection *first = TAILQ_FIRST(&loop->connections);
        if (is_idle(first) && now_us - first->idle_since_us >= HTTP_IDLE_ENOUGH_US) {
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
    if (is_idle(connection))
        http_connection_linger(connection);
}
