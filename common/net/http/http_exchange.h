/* One request and its answer: what a handler is given, and what any thread answers through.
 *
 *     static void handle(void *context, struct http_exchange *exchange)          on the loop's thread: it must not block
 *     {
 *         http_exchange_keep(exchange);                                          to answer later, from any thread
 *         give_to_another_thread(exchange);
 *     }
 *     ...
 *     http_exchange_watch(exchange, on_over, request)       tells when the client has gone: cancel then
 *     http_exchange_start(exchange, &head)                  leaves with the first frame, or within 100 ms
 *     http_exchange_write(exchange, frame, length)          each frame is sent at once (TCP_NODELAY)
 *     http_exchange_end(exchange)
 *     http_exchange_drop(exchange)
 *
 * Owner: references are counted; the memory goes with the last of them, also after the server was
 * stopped. Who lets go of the last one that a handler has kept, or keeps none, without an answer
 * that is complete, has broken it off: a 500, or, where the answer had begun, an end of the
 * connection that no client takes for a whole answer.
 *
 * Threads: every function may be called by any thread; the order of one answer's parts is its
 * owner's matter. What is written is sent by whoever writes it, as far as the system takes it at
 * once; the rest, and all of a connection with TLS, is queued to its loop, and bounded: a client
 * that doesn't read makes http_exchange_write fail with STATUS_LIMIT, and nothing of that piece is
 * taken. STATUS_CANCELLED: the client has gone, or the server was stopped. */
#ifndef BATON_NET_HTTP_HTTP_EXCHANGE_H
#define BATON_NET_HTTP_HTTP_EXCHANGE_H

#include "common/net/http/http_head.h"
#include "common/net/http/http_reply.h"

#define HTTP_PEER_BYTES 64

struct http_exchange;

void http_exchange_keep(struct http_exchange *exchange);
void http_exchange_drop(struct http_exchange *exchange);

/* --- the request; what these return lives as long as the exchange --- */

enum http_method http_exchange_method(const struct http_exchange *exchange);
const char *http_exchange_path(const struct http_exchange *exchange);  /* decoded */
const char *http_exchange_query(const struct http_exchange *exchange); /* as it came; "" */
/* `name` in lower case; NULL: it has none. */
const char *http_exchange_header(const struct http_exchange *exchange, const char *name);
/* Whole; empty in the admit hook. */
const struct str *http_exchange_body(const struct http_exchange *exchange);
/* The body, which isn't the exchange's any more, nor counted in the server's limit: str_deinit it.
 * By one thread, once. */
void http_exchange_take_body(struct http_exchange *exchange, struct str *body);
/* Who asks, as "127.0.0.1:43210". */
void http_exchange_peer(const struct http_exchange *exchange, char text[HTTP_PEER_BYTES]);
uint64_t http_exchange_arrived_us(const struct http_exchange *exchange); /* the head was whole */

/* Something of its own that the admit hook leaves for the handler: dropped with the exchange, if
 * nobody took it. One, on the loop's thread. */
void http_exchange_attach(struct http_exchange *exchange, void *thing, void (*drop)(void *thing));
/* NULL: nothing was attached, or it was taken. */
void *http_exchange_take_attached(struct http_exchange *exchange);

/* --- the answer --- */

/* A whole one. The reply's memory stays the caller's. STATUS_INVALID: it is truncated: a 500 goes
 * out in its stead. STATUS_LIMIT: too much waits for all clients together: a 503 goes out. */
enum status http_exchange_reply(struct http_exchange *exchange, const struct http_reply *reply);

/* A whole one of plain text, likewise. */
void http_exchange_reply_text(struct http_exchange *exchange, int status, const char *text);

/* One in pieces, of no known length. */
enum status http_exchange_start(struct http_exchange *exchange,
                                const struct http_reply *head /* without its body */) WARN_UNUSED;
enum status http_exchange_write(struct http_exchange *exchange, const void *bytes,
                                size_t count) WARN_UNUSED;
enum status http_exchange_end(struct http_exchange *exchange);
/* Breaks the answer off: the connection ends, and no client takes that for a whole answer. */
void http_exchange_abort(struct http_exchange *exchange);

/* Whether http_exchange_write of so many bytes would take them now, or the client has left. */
bool http_exchange_has_room(struct http_exchange *exchange, size_t count);
/* Bytes of the answer that the system hasn't taken. */
size_t http_exchange_unsent(struct http_exchange *exchange);

enum http_outcome {
    HTTP_SENT,    /* the whole answer was handed to the system */
    HTTP_GONE,    /* the client closed its connection, or half of it, before that */
    HTTP_STALLED, /* it didn't read in time */
    HTTP_ABORTED, /* by its owner, or without one */
    HTTP_STOPPED, /* the server was */
};
/* Has `over` called when all is over with this exchange: once, on its loop's thread (in
 * http_server_stop where that ends it), which it must not block; it may call what is above. False:
 * it is over already, and `over` will not be called. One watcher. */
bool http_exchange_watch(struct http_exchange *exchange,
                         void (*over)(void *context, struct http_exchange *exchange,
                                      enum http_outcome outcome),
                         void *context) WARN_UNUSED;

#endif
