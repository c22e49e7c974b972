/* The inside of an exchange, and what its loop does with it. Internal to this folder.
 *
 * `lock` guards what is written below it; the rest is set before a handler sees the exchange, or
 * belongs to the loop's thread. Order of locks: an exchange's, then its loop's. */
#ifndef BATON_NET_HTTP_HTTP_EXCHANGE_STATE_H
#define BATON_NET_HTTP_HTTP_EXCHANGE_STATE_H

#include "common/net/http/http_exchange.h"
#include "common/net/http/http_loop.h"

#include <event2/buffer.h>
#include <pthread.h>
#include <stdatomic.h>

struct http_connection;

enum http_exchange_phase {
    EXCHANGE_WAITING, /* -> STARTED at start; -> ENDED at reply */
    EXCHANGE_STARTED, /* -> ENDED at end */
    EXCHANGE_ENDED,
};

struct http_exchange {
    atomic_uint references; /* the loop's, its queue's, and one for each owner */
    atomic_uint owners;
    struct http_head head; /* of head.bytes, which are the exchange's */
    struct str body;
    size_t
        /* in the service's sum; the loop's until a handler is called, then under the lock */
        counted_body_bytes;
    struct http_framing framing;
    struct http_peer peer;
    uint64_t arrived_us;
    void *attached; /* NULL: nothing */
    void (*drop_attached)(void *thing);
    struct http_connection *connection; /* the loop's; NULL: over */
    bool handed_over;                   /* to a handler; the loop's */
    struct http_exchange *next;         /* in the loop's queue, under the loop's lock */

    pthread_mutex_t lock;
    struct http_loop *loop; /* NULL: over */
    enum http_exchange_phase phase;
    bool chunked; /* the answer */
    bool aborted, abandoned, queued;
    bool followed; /* a further request waits behind this one */
    /* of a connection without TLS, which has nothing else to send: whoever answers sends; else
     * -1 */
    int direct_fd;
    struct evbuffer *pending; /* not yet the connection's; NULL: nothing was ever written */
    size_t unsent_bytes;      /* of it, and in the connection's buffer */
    uint64_t sent_us;         /* when all had gone without the loop; 0: not so */
    void (*over)(void *context, struct http_exchange *exchange, enum http_outcome outcome);
    void *over_context;
};

/* Takes `bytes` (malloc) over, also where it fails: STATUS_INVALID with *why. The reference is the
 * loop's. */
enum status http_exchange_create(struct http_loop *loop, struct http_connection *connection,
                                 char *bytes, size_t count, const struct http_peer *peer,
                                 struct http_exchange **exchange,
                                 struct http_refusal *why) WARN_UNUSED;

/* Has the loop look at it. Under the lock, before it is over. */
void http_exchange_post(struct http_exchange *exchange);
/* The same, with whatever the loop does next: what follows at once goes with it. */
void http_exchange_post_lazily(struct http_exchange *exchange);
/* Sends what is pending, on this thread where that goes, for to wake the loop's costs more than the
 * sending; else the loop does. Under the lock, before it is over. */
void http_exchange_deliver(struct http_exchange *exchange);

/* A handler is about to have it. Whoever answers may send to `direct_fd`; -1: only the loop may. */
void http_exchange_hand_over(struct http_exchange *exchange, int direct_fd);
/* Further bytes have come: they are read as soon as the answer has left. */
void http_exchange_note_followed(struct http_exchange *exchange);

/* What the loop finds when it looks. */
struct http_news {
    bool started, ended, aborted, abandoned;
    bool keep_alive; /* the connection, behind the answer */
};
/* Moves what is pending to the end of `out`. */
struct http_news http_exchange_pull(struct http_exchange *exchange, struct evbuffer *out);
/* What of it all is still in `out`. */
void http_exchange_sent(struct http_exchange *exchange, size_t left_bytes);
/* Counts the body, as far as it has come. False: all together have too much. */
bool http_exchange_count_body(struct http_exchange *exchange);
/* Over: the watcher is told, and the loop's reference is gone. */
void http_exchange_finish(struct http_exchange *exchange, enum http_outcome outcome);
/* Of the queue's reference, too. */
void http_exchange_release(struct http_exchange *exchange);

#endif
