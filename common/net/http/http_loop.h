/* The inside of a server: its loops (one thread each), their connections, and the loops' side of
 * exchanges. Internal to this folder.
 *
 * Everything belongs to the loop's thread unless a comment says otherwise. Order of locks: an
 * exchange's, then its loop's. */
#ifndef BATON_NET_HTTP_HTTP_LOOP_H
#define BATON_NET_HTTP_HTTP_LOOP_H

#include "common/base/peer_places.h"
#include "common/net/http/http_server.h"
#include "common/net/http/http_socket.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#define HTTP_READ_BYTES 16384
/* Bytes behind a request that is under way are kept. From this many on nothing more is read. */
#define HTTP_MAX_BEHIND_BYTES 16384
/* The body of a refused request that is waited for, to keep the connection. */
#define HTTP_MAX_SKIPPED_BYTES (256u << 10)

struct http_connection;
struct http_arrival;
struct http_door;

/* --- what all loops of a server share (http_server.c) --- */

struct http_service {
    struct http_server_config config; /* with the defaults */
    atomic_bool draining;
    atomic_size_t connections, body_bytes, unsent_bytes;
    atomic_uint_fast64_t accepted, turned_away, closed, made_room, requests, refused, slow, gone;
    bool guarded;               /* config.allowed_hosts holds: the server listens on loopback */
    pthread_mutex_t lock;       /* for `empty`, `places` and `owners` */
    pthread_cond_t empty;       /* connections has become 0 */
    struct peer_places *places; /* places of all connections, by their peers */
    struct map *owners;         /* owner -> bytes of its large bodies under way */
};

/* Takes a place for a connection that has come. Any thread. */
enum peer_place http_service_take_place(struct http_service *service, const struct http_peer *peer);
/* Gives it back, when the connection has ended. Any thread. */
void http_service_give_back_place(struct http_service *service, const struct http_peer *peer);

/* The limit that a new connection is beyond. */
enum http_surplus {
    HTTP_SURPLUS_NONE,
    HTTP_SURPLUS_ALL,     /* the server's */
    HTTP_SURPLUS_ADDRESS, /* its address's */
};

/* Accepts no more connections. The first loop's thread. */
void http_door_stop(struct http_door *door);

/* --- a loop (http_loop.c) --- */

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
    /* The first one is looked at next when room has to be made. */
    TAILQ_HEAD(http_connections, http_connection) connections;
    struct http_connection *dead; /* freed when no function on the stack uses them any more */
    char scratch[HTTP_READ_BYTES];

    pthread_mutex_t lock;               /* guards the fields below */
    struct http_exchange *first, *last; /* exchanges that something was written to */
    struct http_arrival *arrivals;
    bool woken;
};

/* The loop doesn't run yet. STATUS_IO: the system refuses. */
enum status http_loop_create(struct http_service *service, struct http_loop **loop,
                             struct error *err) WARN_UNUSED;
enum status http_loop_start(struct http_loop *loop, struct error *err) WARN_UNUSED;
/* Ends the thread. Any other thread. NULL is fine. */
void http_loop_stop(struct http_loop *loop);
/* Ends the connections and frees, after http_loop_stop. NULL is fine. */
void http_loop_destroy(struct http_loop *loop);

/* Gives the loop a connection that is counted already. A surplus one only gets a refusal. Any
 * thread. */
void http_loop_give(struct http_loop *loop, const struct http_socket *socket,
                    const struct http_peer *peer, enum http_surplus surplus);
/* Queues an exchange, which the loop looks at whenever it is awake. One reference becomes the
 * queue's. Any thread, under the exchange's lock. */
void http_loop_queue(struct http_loop *loop, struct http_exchange *exchange);
/* Wakes the loop. If the server drains, idle connections end at once, others after their answer.
 * Any thread. */
void http_loop_wake(struct http_loop *loop);
/* Deals with what was queued, and frees no connection. Returns whether there was anything. */
bool http_loop_catch_up(struct http_loop *loop);
/* Comes behind each callback: deals with what this thread has queued, and frees the dead. */
void http_loop_settle(struct http_loop *loop);

/* --- a connection (http_connection.c) --- */

enum http_phase {
    PHASE_HEAD, /* -> BODY or BUSY when the head is whole; idle before its first byte */
    PHASE_BODY, /* -> BUSY when the body is whole */
    PHASE_BUSY, /* a handler has the request, or an answer leaves -> HEAD or LINGERING when it has
                   left, SKIPPING if the body hasn't come */
    PHASE_SKIPPING, /* a refusal has left before the body came, and bytes of the body are dropped ->
                       HEAD when it is whole */
    PHASE_LINGERING, /* nothing more is sent; bytes that still come are dropped, so that the answer
                        isn't lost over them -> DEAD */
    PHASE_DEAD,
};

struct http_connection {
    TAILQ_ENTRY(http_connection) link; /* in the loop's list */
    struct http_connection *next;      /* in the list of the dead */
    struct http_loop *loop;
    struct http_socket socket;
    struct http_peer peer;
    struct event readable, writable, timer;
    enum http_phase phase;
    bool reading, writing;  /* waits for these events */
    bool read_wants_write;  /* TLS: receiving waits until something can be sent */
    bool half_closed;       /* by the client */
    bool taking;            /* http_intake_take is further up this stack */
    bool closing;           /* behind this answer */
    bool answered;          /* all of the answer is in `out` */
    uint64_t deadline_us;   /* 0: none */
    uint64_t timer_us;      /* the timer is due then, or before; UINT64_MAX: it isn't set */
    uint64_t idle_since_us; /* if it is idle */
    uint64_t body_begun_us, lingered_bytes, skipped_bytes;
    struct http_scan scan;
    char *head; /* the bytes that have come of it; NULL: none */
    size_t head_capacity;
    struct http_body body;
    struct http_exchange *exchange; /* from its whole head to its end */
    const struct http_route *route;
    struct evbuffer *refusal; /* sent instead of calling a handler, before the body is read */
    char *behind;             /* bytes of further requests that came while one was under way */
    size_t behind_bytes;
    struct evbuffer *out; /* NULL: nothing is to be sent */
};

/* Takes the socket over. A surplus connection only gets a refusal. */
void http_connection_create(struct http_loop *loop, const struct http_socket *socket,
                            const struct http_peer *peer, enum http_surplus surplus);
/* Ends it and its exchange. The memory goes when the loop settles. `hard`: so that the client can
 * tell that something is missing. */
void http_connection_end(struct http_connection *connection, enum http_outcome outcome, bool hard);
/* Ends a connection that has been idle for a second, if there is one, and returns true. Looks at a
 * few only, beginning with those that it hasn't looked at for longest. `of`: only connections of
 * this peer's address; NULL: of any. */
bool http_connection_make_room(struct http_loop *loop, const struct http_peer *of);
/* Ends a connection that is idle, or that waits for the body of a refused request. */
void http_connection_end_if_idle(struct http_connection *connection);
void http_connection_start_reading(struct http_connection *connection);
void http_connection_stop_reading(struct http_connection *connection);
/* Bounds the phase, which ends then. 0: no bound. */
void http_connection_set_deadline(struct http_connection *connection, uint64_t deadline_us);

/* Sends what was written to the exchange, and goes on when all of an answer has left. The
 * connection may be dead afterwards. */
void http_answer_flush(struct http_connection *connection);
void http_answer_say_continue(struct http_connection *connection);
/* Refuses a request that is malformed, too large or too slow, and closes behind the refusal. */
void http_answer_refuse(struct http_connection *connection, const struct http_refusal *why);
/* Refuses a request that is well-formed: keeps the refusal until the head has been dealt with.
 * `allow`: the methods, for a 405, or NULL. */
void http_answer_keep_refusal(struct http_connection *connection, const struct http_refusal *why,
                              const char *allow);
void http_answer_keep_reply(struct http_connection *connection, const struct http_reply *reply);
/* Sends the refusal that was kept. */
void http_answer_send_refusal(struct http_connection *connection);

/* --- requests out of a connection's bytes (http_intake.c) --- */

/* Takes bytes that have come: heads, routes, bodies, and calls of handlers. */
void http_intake_take(struct http_connection *connection, const char *bytes, size_t count);
/* Goes on behind a request, after its answer has left. */
void http_intake_resume(struct http_connection *connection);

/* --- an exchange (http_exchange.c) --- */

enum http_exchange_phase {
    EXCHANGE_WAITING, /* -> STARTED at start; -> ENDED at reply */
    EXCHANGE_STARTED, /* -> ENDED at end */
    EXCHANGE_ENDED,
};

/* The fields above `lock` are set before a handler sees the exchange, or belong to the loop's
 * thread. `lock` guards those below it. */
struct http_exchange {
    atomic_uint references; /* the loop's, its queue's, and one for each owner */
    atomic_uint owners;
    struct http_head head; /* head.bytes belongs to the exchange */
    struct str body;
    /* In the service's sum. The loop's until a handler is called, then under the lock. */
    size_t counted_body_bytes;
    size_t owned_body_bytes; /* the part in its owner's sum */
    uint64_t owner;          /* known if there is such a part */
    struct http_framing framing;
    struct http_peer peer;
    uint64_t arrived_us;
    void *attached; /* NULL: nothing */
    void (*drop_attached)(void *thing);
    struct http_connection *connection; /* NULL: over */
    bool handed_over;                   /* to a handler */
    struct http_exchange *next;         /* in the loop's queue, under the loop's lock */

    pthread_mutex_t lock;
    struct http_loop *loop; /* NULL: over */
    enum http_exchange_phase phase;
    bool chunked; /* the answer */
    bool aborted, abandoned, queued;
    bool followed; /* a further request waits behind this one */
    /* The descriptor of a connection without TLS that has nothing else to send: any thread that
     * answers sends there. Otherwise -1. */
    int direct_fd;
    struct evbuffer *pending; /* not yet the connection's; NULL: nothing was ever written */
    size_t unsent_bytes;      /* in `pending` and in the connection's buffer */
    uint64_t sent_us;         /* when all had been sent without the loop; 0: it hasn't */
    void (*over)(void *context, struct http_exchange *exchange, enum http_outcome outcome);
    void *over_context;
};

/* Reads the head. Takes `bytes` (from malloc) over, also if it fails: STATUS_INVALID with *why. The
 * caller gets the loop's reference. */
enum status http_exchange_create(struct http_connection *connection, char *bytes, size_t count,
                                 struct http_exchange **exchange,
                                 struct http_refusal *why) WARN_UNUSED;
/* Comes right before the handler is called. direct_fd: as in the struct. */
void http_exchange_hand_over(struct http_exchange *exchange, int direct_fd);
/* Notes that further bytes have come, which are read as soon as the answer has left. */
void http_exchange_note_followed(struct http_exchange *exchange);

/* The state of an exchange as the loop finds it. */
struct http_news {
    bool started, ended, aborted, abandoned;
    bool keep_alive; /* the connection, behind the answer */
};
/* Moves what is pending to the end of `out`. */
struct http_news http_exchange_pull(struct http_exchange *exchange, struct evbuffer *out);
/* Notes that left_bytes of the answer are still in the connection's buffer. */
void http_exchange_sent(struct http_exchange *exchange, size_t left_bytes);
/* Counts the bytes of the body that have come. Returns NULL, or the sentence that refuses them: all
 * bodies together are too large, or those of its owner. */
const char *http_exchange_count_body(struct http_exchange *exchange);
/* Ends it: calls the watcher, and drops the loop's reference. */
void http_exchange_finish(struct http_exchange *exchange, enum http_outcome outcome);
/* Drops a reference of the loop or of its queue. */
void http_exchange_release(struct http_exchange *exchange);

#endif
