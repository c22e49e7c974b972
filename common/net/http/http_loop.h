/* One thread of a server with its connections: waits for sockets, for what other threads write to
 * exchanges, and for the time that things may take. Internal to this folder. What isn't said to be
 * for any thread belongs to the loop's. */
#ifndef BATON_NET_HTTP_HTTP_LOOP_H
#define BATON_NET_HTTP_HTTP_LOOP_H

#include "common/net/http/http_peer.h"
#include "common/net/http/http_socket.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#define HTTP_READ_BYTES 16384

struct http_service;
struct http_exchange;
struct http_connection;
struct http_arrival;
struct http_door;

struct http_loop {
    struct http_service *service;
    struct http_door *door; /* NULL: another loop has it */
    struct event_base *base;
    pthread_t thread;
    bool started;
    int wake_fd;
    struct event *wake, *tick;
    bool ticks;
    unsigned handed_over; /* exchanges that a handler has had, and that aren't over */
    atomic_bool stopping;
    TAILQ_HEAD(http_connections, http_connection)
    connections;                  /* who is looked at next to make room is first */
    struct http_connection *dead; /* to be freed when nobody on this stack can know them any more */
    char scratch[HTTP_READ_BYTES];

    pthread_mutex_t lock;               /* of what follows */
    struct http_exchange *first, *last; /* that something was written to */
    struct http_arrival *arrivals;
    bool woken;
};

/* The loop doesn't run yet. STATUS_IO: the system refuses. */
enum status http_loop_create(struct http_service *service, struct http_loop **loop,
                             struct error *err) WARN_UNUSED;
enum status http_loop_start(struct http_loop *loop, struct error *err) WARN_UNUSED;
/* Any thread but the loop's: ends the thread. NULL is fine. */
void http_loop_stop(struct http_loop *loop);
/* After that: ends the connections, and frees. NULL is fine. */
void http_loop_destroy(struct http_loop *loop);

/* Any thread: a connection for this loop, which is counted already. A surplus one is only told
 * so. */
void http_loop_give(struct http_loop *loop, const struct http_socket *socket,
                    const struct http_peer *peer, bool surplus);
/* Any thread, under the exchange's lock: it is to be looked at, whenever the loop is awake. The
 * reference is the queue's. */
void http_loop_queue(struct http_loop *loop, struct http_exchange *exchange);
/* Any thread: now. Where the server drains, idle connections end, others behind their answers. */
void http_loop_wake(struct http_loop *loop);
/* Deals with what was queued; nobody is buried. Whether there was anything. */
bool http_loop_catch_up(struct http_loop *loop);
/* Behind each callback: deals with what was posted on this thread, and buries the dead. */
void http_loop_settle(struct http_loop *loop);

#endif
