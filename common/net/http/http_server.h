/* An HTTP/1.1 server, with or without TLS: routes, whole requests, and answers from any thread
 * (http_exchange.h). Serves the figures of every program and the OpenAI API.
 *
 * Reads requests strictly (http_request.h). Bounds connections, heads, bodies (one, and all
 * together), unsent answers (one, and all together), and the time that each part may take. Requests
 * behind one another on a connection are answered in turn, each after the answer before it has
 * left. A client that closes its connection, or its half, while its request is under way is gone:
 * the exchange's watcher hears of it within milliseconds (behind more further requests than are
 * read, within 100 ms; behind more than the system takes, when a probe finds it, after 30 s or
 * more).
 *
 * Threads: `threads` loops, each with connections of its own. Handlers and hooks run on them, at
 * the same time if there are several loops, and must not block. Data of other threads that they
 * read must be safe to read. */
#ifndef BATON_NET_HTTP_HTTP_SERVER_H
#define BATON_NET_HTTP_HTTP_SERVER_H

#include "common/base/status.h"
#include "common/net/http/http_exchange.h"
#include "common/net/http/http_route.h"

#define HTTP_MAX_THREADS     16
#define HTTP_MAX_REPLY_BYTES (4u << 20) /* the usual limit of a reply's body */
/* The defaults of the limits below, for listeners of figures. */
#define HTTP_MAX_CONNECTIONS      64
#define HTTP_MAX_SURPLUS          64
#define HTTP_MAX_BODY_BYTES       8192
#define HTTP_MAX_BODIES_BYTES     (64u << 20)
#define HTTP_MAX_UNSENT_BYTES     (4u << 20)
#define HTTP_MAX_ALL_UNSENT_BYTES (256u << 20)
/* An answer with at most so many unsent bytes may go on when all together have too many. */
#define HTTP_FAIR_UNSENT_BYTES (64u << 10)
/* A body of at most so many bytes is taken although all together are too large. */
#define HTTP_FAIR_BODY_BYTES (16u << 10)

struct certificates;
struct http_server;

/* 0 and NULL mean the default. Texts and routes must live as long as the server. */
struct http_server_config {
    /* "host:port" with a numeric host: "127.0.0.1:0", "[::1]:9090". Port 0: any free one. */
    const char *listen;
    const struct http_route *routes;
    size_t route_count;
    void *context; /* for handlers and hooks */

    /* Called before the body of a request that has a route is read. False: the request is refused
     * with `reply`, which the hook fills (401, 429). NULL: all are admitted. */
    bool (*admit)(void *context, struct http_exchange *exchange, struct http_reply *reply);
    /* Returns the owner of a request's body, such as a hash of its tenant. One owner's bodies of
     * more than HTTP_FAIR_BODY_BYTES have a share of max_bodies_bytes (fair_share_holds), if it has
     * several. On the loop's thread. NULL: no shares. */
    uint64_t (*owner)(struct http_exchange *exchange);
    /* Words a refusal: fills body and content type of a reply that has its status. `exchange` is
     * NULL if there is no request. `peer` is the client's address, as from http_exchange_peer.
     * NULL: the refusal's sentence as text. */
    void (*refuse)(void *context, struct http_exchange *exchange, const char *peer,
                   const struct http_refusal *refusal, struct http_reply *reply);

    /* The origins of pages that may read answers in a browser (http_check_origins). NULL, "": none.
     * Outlives the server. */
    const char *cors_origins;
    /* Beside this machine's own names, the names by which clients may call a server that listens on
     * loopback (http_check_hosts). Other hosts, and pages of other origins than cors_origins, get a
     * 403: a page in a browser may be behind them. NULL: any name. Outlives the server. */
    const char *allowed_hosts;

    /* TLS with these (certificates.h), which outlive the server. If they hold CAs, clients must
     * show a certificate that one of them has signed. NULL: no TLS. */
    struct certificates *certificates;
    bool keyless;           /* no API key is asked for: logged if other machines reach the server */
    unsigned threads;       /* 1 .. HTTP_MAX_THREADS; default 1 */
    size_t max_connections; /* default HTTP_MAX_CONNECTIONS */
    /* Connections of one address (peer_places.h); default peer_places_default_share. One more ends
     * an idle one of the same address, or gets a 503, or is closed. */
    size_t max_per_address;
    /* Addresses that it doesn't bound (peer_ranges_parse): proxies. NULL: PEER_LOOPBACK. */
    const char *uncounted;
    /* A connection beyond that ends one that has been idle for a second. If there is none, it gets
     * a 503 (with TLS: it is closed). Beyond max_surplus of these (default HTTP_MAX_SURPLUS), and
     * if no descriptor is left, it is closed at once. False: it waits outside. */
    bool turns_away;
    size_t max_surplus;
    size_t max_body_bytes;       /* one request */
    size_t max_bodies_bytes;     /* all requests under way, and beyond an owner's share of them: 503
                                    for larger ones */
    size_t max_unsent_bytes;     /* one answer in pieces */
    size_t max_all_unsent_bytes; /* all answers */
    /* From the begin of a connection, or the first byte of a later head, to the head's end; beyond:
     * 408. Default 10 s. */
    uint64_t head_us;
    /* A body may take body_us, and a second more per body_bytes_per_second; beyond: 408. Default
     * 10 s and 1024. */
    uint64_t body_us, body_bytes_per_second;
    uint64_t idle_us;  /* between requests; default 60 s */
    uint64_t stall_us; /* a client takes nothing of its answer; default 30 s */
};

/* Counted since the start, except the last line and `connections`, which are the state now. */
struct http_figures {
    uint64_t connections, accepted;
    uint64_t turned_away; /* with a 503 */
    uint64_t closed;      /* at once, without one */
    uint64_t made_room;   /* idle connections that ended so that others could come in */
    uint64_t requests;    /* taken by a handler */
    uint64_t refused;     /* by the server or its hooks: heads, routes, sizes, slow ones, floods */
    uint64_t slow;        /* clients that were too slow to ask, or to read */
    uint64_t gone;        /* clients that went before their answer was whole */
    uint64_t body_bytes, unsent_bytes; /* all together */
};

/* Checks a value for `listen`. STATUS_INVALID: the sentence gives the reason. */
enum status http_check_listen(const char *listen, struct error *err) WARN_UNUSED;

enum status http_server_start(const struct http_server_config *config, struct http_server **server,
                              struct error *err) WARN_UNUSED;
/* "127.0.0.1:43211", with the real port. */
const char *http_server_address(const struct http_server *server);
void http_server_figures(const struct http_server *server, struct http_figures *figures);
/* Accepts no more connections and no further requests, closes idle connections, and waits until
 * all that is under way is answered, or grace_us have passed. Returns whether all was answered. One
 * thread that isn't a loop's, once. http_server_stop comes after it. */
bool http_server_drain(struct http_server *server, uint64_t grace_us);
/* Closes everything and joins the threads. NULL is fine. */
void http_server_stop(struct http_server *server);

#endif
