/* An HTTP/1.1 server: routes, requests whole with their bodies, answers from any thread
 * (http_exchange.h), with or without TLS. For /metrics and /status of every program, and for the
 * public front door. libevent and OpenSSL are known to this folder only.
 *
 * Strict about what a request is (http_head.h), and bounded in everything: connections, heads,
 * bodies (of one, and of all), unsent answers (of one, and of all), and the time that each part may
 * take. Requests that come behind one another on a connection are answered one after the other,
 * each after the answer before it has left. A client that closes its connection, or its half, while
 * its request is under way is gone: the exchange's watcher is told within milliseconds (behind more
 * further requests than are read, within 100 ms; behind more than the system takes, too, when a
 * probe finds it, after 30 s or more).
 *
 * Threads: `threads` loops, each with its connections. Handlers and hooks run on them, at the same
 * time where there are several, and must not block; what they read of other threads must be safe to
 * read. */
#ifndef BATON_NET_HTTP_HTTP_SERVER_H
#define BATON_NET_HTTP_HTTP_SERVER_H

#include "common/base/status.h"
#include "common/net/http/http_exchange.h"
#include "common/net/http/http_route.h"

#define HTTP_MAX_THREADS          16
#define HTTP_MAX_REPLY_BYTES      (4u << 20) /* what a reply's body usually is limited to */
#define HTTP_MAX_CONNECTIONS      64         /* these are defaults, for listeners of figures */
#define HTTP_MAX_BODY_BYTES       8192
#define HTTP_MAX_BODIES_BYTES     (64u << 20)
#define HTTP_MAX_UNSENT_BYTES     (4u << 20)
#define HTTP_MAX_ALL_UNSENT_BYTES (256u << 20)
#define HTTP_FAIR_UNSENT_BYTES                                                                     \
    (64u << 10) /* who has no more may go on when all together have too much */

struct certificates;
struct http_server;

/* What is 0 or NULL has the default. Texts and routes must live as long as the server. */
struct http_server_config {
    const char *
        /* "host:port" with a numeric host ("127.0.0.1:0", "[::1]:9090"); port 0: any free one */
        listen;
    const struct http_route *routes;
    size_t route_count;
    void *context; /* of handlers and hooks */

    /* Before the body is read, of a request that a route takes. False: it is refused with `reply`
     * (which it fills: 401, 429). NULL: all are taken. */
    bool (*admit)(void *context, struct http_exchange *exchange, struct http_reply *reply);
    /* How a refusal is told: fills the body and its type of a reply whose status is set. `exchange`
     * is NULL where there is no request. NULL: its sentence as text. */
    void (*refuse)(void *context, struct http_exchange *exchange,
                   const struct http_refusal *refusal, struct http_reply *reply);

    /* Of pages that a browser may show answers to, divided by commas; "*": all; NULL, "": none.
     * Outlives the server. */
    const char *cors_origins;

    /* TLS by these (certificates.h), which outlive the server; where they hold CAs only clients
     * with a certificate of them are served. NULL: no TLS. */
    struct certificates *certificates;
    bool keyless;           /* it asks nobody for a key: said where other machines reach it */
    unsigned threads;       /* 1 .. HTTP_MAX_THREADS; 1 */
    size_t max_connections; /* HTTP_MAX_CONNECTIONS */
    bool
        /* connections beyond that end one that has been idle for a second; where there is none they
         * get a 503 (with TLS: are closed). Otherwise they wait outside */
        turns_away;
    size_t max_body_bytes;       /* of one request */
    size_t max_bodies_bytes;     /* of all that are under way: 503 */
    size_t max_unsent_bytes;     /* of one answer in pieces */
    size_t max_all_unsent_bytes; /* of all answers */
    uint64_t
        /* from a connection's begin, or the first byte of a later head, to the head's end: 408; 10
         * s */
        head_us;
    uint64_t body_us; /* grace of a body, before it must come at this rate: 408; 10 s */
    uint64_t body_bytes_per_second; /* 1024 */
    uint64_t idle_us;               /* between requests; 60 s */
    uint64_t stall_us;              /* an answer of which the client takes nothing; 30 s */
};

/* Since the start, but `connections`, which is now. */
struct http_figures {
    uint64_t connections, accepted, turned_away;
    uint64_t made_room; /* idle ones that ended so that others could come in */
    uint64_t requests;  /* that a handler got */
    uint64_t refused;   /* by the server itself, or its hooks: heads, routes, sizes, slow ones */
    uint64_t slow;      /* of those, or without an answer: too slow to ask, or to read */
    uint64_t gone;      /* clients that went before their answer was whole */
    uint64_t body_bytes, unsent_bytes; /* now, of all */
};

/* What `listen` may be: STATUS_INVALID with a sentence if it isn't that. */
enum status http_check_listen(const char *listen, struct error *err) WARN_UNUSED;
/* Likewise `cors_origins`. */
enum status http_check_origins(const char *origins, struct error *err) WARN_UNUSED;

enum status http_server_start(const struct http_server_config *config, struct http_server **server,
                              struct error *err) WARN_UNUSED;
/* "127.0.0.1:43211", with the real port. */
const char *http_server_address(const struct http_server *server);
void http_server_figures(const struct http_server *server, struct http_figures *figures);
/* Takes no more connections and no further requests, closes who is idle, and waits until all that
 * is under way is answered, or grace_us have passed. True: all was. One thread, not a loop's, once;
 * http_server_stop comes after it. */
bool http_server_drain(struct http_server *server, uint64_t grace_us);
/* Closes everything and joins the threads. NULL is fine. */
void http_server_stop(struct http_server *server);

#endif
