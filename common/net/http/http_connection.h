/* One connection: its socket's events, what it has taken and what it has to send, and its end.
 * Requests are taken out of its bytes by http_intake.h, answers leave by http_answer.h. Belongs to
 * its loop's thread. Internal to this folder. */
#ifndef BATON_NET_HTTP_HTTP_CONNECTION_H
#define BATON_NET_HTTP_HTTP_CONNECTION_H

#include "common/net/http/http_body.h"
#include "common/net/http/http_loop.h"
#include "common/net/http/http_route.h"

enum http_phase {
    PHASE_HEAD, /* -> BODY or BUSY when it is whole; idle before its first byte */
    PHASE_BODY, /* -> BUSY when it is whole */
    /* a handler has the request, or an answer leaves -> HEAD or LINGERING when that has left */
    PHASE_BUSY,
    /* nothing more is sent; what still comes is dropped, so that the answer isn't lost over it ->
     * DEAD */
    PHASE_LINGERING,
    PHASE_DEAD,
};

struct http_connection {
    TAILQ_ENTRY(http_connection) link; /* in the loop's list */
    struct http_connection *next;      /* of the dead */
    struct http_loop *loop;
    struct http_socket socket;
    struct http_peer peer;
    struct event readable, writable, timer;
    enum http_phase phase;
    bool reading, writing;  /* the events are waited for */
    bool read_wants_write;  /* TLS: what comes waits for what goes */
    bool half_closed;       /* by the client */
    bool taking;            /* requests are being taken out of bytes, further up this stack */
    bool closing;           /* behind this answer */
    bool answered;          /* all of the answer is in `out` */
    uint64_t deadline_us;   /* 0: none */
    uint64_t timer_us;      /* when the timer is due, or before; UINT64_MAX: it isn't set */
    uint64_t idle_since_us; /* where it is idle */
    uint64_t body_begun_us, lingered_bytes;
    struct http_scan scan;
    char *head; /* as far as it has come; NULL: nothing has */
    size_t head_capacity;
    struct http_body body;
    struct http_exchange *exchange; /* from its whole head to its end */
    const struct http_route *route;
    struct evbuffer *refusal; /* what is told in a handler's stead when the body has come */
    char *behind;             /* further requests, that came while one was under way */
    size_t behind_bytes;
    struct evbuffer *out; /* NULL: nothing is to be sent */
};

/* Who comes though all connections are taken has the place of one that has been idle for so long,
 * and is surplus where there is none. */
#define HTTP_IDLE_ENOUGH_US 1000000u
/* One of this loop's that has been idle for that long ends: true. Only a few are looked at, those
 * that weren't lately first. */
bool http_connection_make_room(struct http_loop *loop);

/* The socket is the connection's from now on. A surplus one is told that it is. */
void http_connection_create(struct http_loop *loop, const struct http_socket *socket,
                            const struct http_peer *peer, bool surplus);
/* Over, also for its exchange; it is freed when the loop settles. `hard`: so that the client knows
 * that something is missing. */
void http_connection_end(struct http_connection *connection, enum http_outcome outcome, bool hard);
/* Nothing more is sent: waits for the client to close, for a while. */
void http_connection_linger(struct http_connection *connection);

void http_connection_start_reading(struct http_connection *connection);
void http_connection_stop_reading(struct http_connection *connection);
void http_connection_wait_writable(struct http_connection *connection);

/* Until when the phase may take, which ends then; 0: as long as it wants. */
void http_connection_set_deadline(struct http_connection *connection, uint64_t deadline_us);
/* The server drains: who is idle is told to go. */
void http_connection_end_if_idle(struct http_connection *connection);

#endif
