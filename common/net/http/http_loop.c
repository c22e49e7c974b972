#include "common/net/http/http_loop.h"

#include "common/base/assert.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TICK_US 100000

struct http_arrival {
    struct http_arrival *next;
    struct http_socket socket;
    struct http_peer peer;
    enum http_surplus surplus;
};

static _Thread_local struct http_loop *own_loop;

/* --- from other threads --- */

/* Under the lock. */
static void wake_up(struct http_loop *loop)
{
    if (loop->woken || own_loop == loop)
        return;
    loop->woken = true;
    eventfd_write(loop->wake_fd, 1);
}

void http_loop_queue(struct http_loop *loop, struct http_exchange *exchange)
{
    pthread_mutex_lock(&loop->lock);
    exchange->next = NULL;
    if (loop->last)
        loop->last->next = exchange;
    else
        loop->first = exchange;
    loop->last = exchange;
    pthread_mutex_unlock(&loop->lock);
}

void http_loop_give(struct http_loop *loop, const struct http_socket *socket,
                    const struct http_peer *peer, enum http_surplus surplus)
{
    struct http_arrival *arrival = malloc(sizeof *arrival);
    ASSERT(arrival);
    *arrival = (struct http_arrival){.socket = *socket, .peer = *peer, .surplus = surplus};
    pthread_mutex_lock(&loop->lock);
    arrival->next = loop->arrivals;
    loop->arrivals = arrival;
    wake_up(loop);
    pthread_mutex_unlock(&loop->lock);
}

void http_loop_wake(struct http_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    wake_up(loop);
    pthread_mutex_unlock(&loop->lock);
}

/* --- on the loop's thread --- */

static void take_arrivals(struct http_loop *loop, struct http_arrival *arrivals)
{
    while (arrivals) {
        struct http_arrival *arrival = arrivals;
        arrivals = arrival->next;
        enum http_surplus surplus = arrival->surplus;
        if (surplus && http_connection_make_room(
                           loop, surplus == HTTP_SURPLUS_ADDRESS ? &arrival->peer : NULL))
            surplus = HTTP_SURPLUS_NONE;
        atomic_fetch_add(surplus ? &loop->service->turned_away : &loop->service->accepted, 1);
        http_connection_create(loop, &arrival->socket, &arrival->peer, surplus);
        free(arrival);
    }
}

static void look_at_all(struct http_exchange *exchange)
{
    while (exchange) {
        struct http_exchange *next = exchange->next;
        pthread_mutex_lock(&exchange->lock);
        exchange->queued = false;
        pthread_mutex_unlock(&exchange->lock);
        if (exchange->connection)
            http_answer_flush(exchange->connection);
        http_exchange_release(exchange);
        exchange = next;
    }
}

bool http_loop_catch_up(struct http_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    struct http_exchange *exchanges = loop->first;
    struct http_arrival *arrivals = loop->arrivals;
    loop->first = loop->last = NULL;
    loop->arrivals = NULL;
    pthread_mutex_unlock(&loop->lock);
    look_at_all(exchanges); /* an answered connection may make room for an arriving one */
    take_arrivals(loop, arrivals);
    return exchanges || arrivals;
}

static void bury(struct http_loop *loop)
{
    while (loop->dead) {
        struct http_connection *connection = loop->dead;
        loop->dead = connection->next;
        free(connection);
    }
}

/* Ticks while there are answers: parts of them may be queued without a wake-up. */
static void set_ticking(struct http_loop *loop)
{
    static const struct timeval pause = {0, TICK_US};
    bool wanted = loop->handed_over > 0;
    if (wanted == loop->ticks)
        return;
    loop->ticks = wanted;
    if (wanted)
        event_add(loop->tick, &pause);
    else
        event_del(loop->tick);
}

void http_loop_settle(struct http_loop *loop)
{
    while (http_loop_catch_up(loop))
        ;
    bury(loop);
    set_ticking(loop);
}

static void on_wake(evutil_socket_t fd, short events, void *context)
{
    (void)events;
    struct http_loop *loop = context;
    eventfd_t count;
    eventfd_read(fd, &count);
    pthread_mutex_lock(&loop->lock);
    loop->woken = false;
    pthread_mutex_unlock(&loop->lock);
    http_loop_settle(loop);
    if (atomic_load(&loop->service->draining)) {
        if (loop->door)
            http_door_stop(loop->door);
        for (struct http_connection *one = TAILQ_FIRST(&loop->connections), *next; one;
             one = next) {
            next = TAILQ_NEXT(one, link);
            http_connection_end_if_idle(one);
        }
    }
    http_loop_settle(loop);
    if (atomic_load(&loop->stopping))
        event_base_loopbreak(loop->base);
}

static void on_tick(evutil_socket_t fd, short events, void *context)
{
    (void)fd;
    (void)events;
    http_loop_settle(context);
}

static void *serve(void *context)
{
    struct http_loop *loop = context;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE); /* write reports a client that has gone, too */
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    pthread_setname_np(pthread_self(), "http");
    own_loop = loop;
    event_base_dispatch(loop->base);
    return NULL;
}

enum status http_loop_create(struct http_service *service, struct http_loop **out,
                             struct error *err)
{
    struct http_loop *loop = calloc(1, sizeof *loop);
    ASSERT(loop);
    loop->service = service;
    TAILQ_INIT(&loop->connections);
    pthread_mutex_init(&loop->lock, NULL);
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->base = event_base_new();
    if (loop->wake_fd >= 0 && loop->base) {
        loop->wake = event_new(loop->base, loop->wake_fd, EV_READ | EV_PERSIST, on_wake, loop);
        loop->tick = event_new(loop->base, -1, EV_PERSIST, on_tick, loop);
    }
    if (!loop->wake || !loop->tick || event_add(loop->wake, NULL)) {
        http_loop_destroy(loop);
        return error_set(err, STATUS_IO, "cannot set up the HTTP server's events: %s",
                         strerror(errno));
    }
    *out = loop;
    return STATUS_OK;
}

enum status http_loop_start(struct http_loop *loop, struct error *err)
{
    int failed = pthread_create(&loop->thread, NULL, serve, loop);
    if (failed)
        return error_set(err, STATUS_LIMIT, "cannot start the HTTP thread: %s", strerror(failed));
    loop->started = true;
    return STATUS_OK;
}

void http_loop_stop(struct http_loop *loop)
{
    if (!loop || !loop->started)
        return;
    atomic_store(&loop->stopping, true);
    eventfd_write(loop->wake_fd, 1);
    pthread_join(loop->thread, NULL);
    loop->started = false;
}

/* Until nothing is left: connections may come, or be queued, while others end. */
static void end_connections(struct http_loop *loop)
{
    own_loop = loop;
    (void)http_loop_catch_up(loop); /* exchanges with an answer that has been sent are over */
    do {
        while (!TAILQ_EMPTY(&loop->connections))
            http_connection_end(TAILQ_FIRST(&loop->connections), HTTP_STOPPED, false);
    } while (http_loop_catch_up(loop));
    bury(loop);
    own_loop = NULL;
}

void http_loop_destroy(struct http_loop *loop)
{
    if (!loop)
        return;
    end_connections(loop);
    if (loop->wake)
        event_free(loop->wake);
    if (loop->tick)
        event_free(loop->tick);
    if (loop->base)
        event_base_free(loop->base);
    if (loop->wake_fd >= 0)
        close(loop->wake_fd);
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}
