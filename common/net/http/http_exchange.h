/* One request and its answer: a handler gets it, and any thread answers through it.
 *
 *     static void handle(void *context, struct http_exchange *exchange)
 *     {                                              the loop's thread: it must not block
 *         http_exchange_keep(exchange);              to answer later, from any thread
 *         give_to_another_thread(exchange);
 *     }
 *     ...
 *     http_exchange_watch(exchange, on_over, request)    reports that the client has gone
 *     http_exchange_start(exchange, &head)           leaves with the first frame, or within 100 ms
 *     http_exchange_write(exchange, frame, length)   each frame is sent at once (TCP_NODELAY)
 *     http_exchange_end(exchange)
 *     http_exchange_drop(exchange)
 *
 * Owner: references are counted. The memory goes with the last of them, also after the server was
 * stopped. Dropping the last one before the answer is complete breaks the answer off: with a 500,
 * or, if it had begun, with an end of the connection that no client takes for a whole answer. A
 * handler that returns without http_exchange_keep drops the last one.
 *
 * Threads: any thread may call every function. The owner sees to the order of one answer's parts. A
 * thread that writes also sends, as far as the system takes the bytes at once. The rest, and all
 * bytes of a connection with TLS, is queued to its loop, and bounded: if a client doesn't read,
 * http_exchange_write fails with STATUS_LIMIT and takes nothing of that piece. STATUS_CANCELLED:
 * the client has gone, or the server was stopped. */
#ifndef BATON_NET_HTTP_HTTP_EXCHANGE_H
#define BATON_NET_HTTP_HTTP_EXCHANGE_H

#include "common/net/http/http_request.h"

#define HTTP_PEER_BYTES 64

struct http_exchange;

void http_exchange_keep(struct http_exchange *exchange);
void http_exchange_drop(struct http_exchange *exchange);

/* --- the request; returned pointers live as long as the exchange --- */

enum http_method http_exchange_method(const struct http_exchange *exchange);
const char *http_exchange_path(const struct http_exchange *exchange);  /* decoded */
const char *http_exchange_query(const struct http_exchange *exchange); /* as it came; "" */
/* `name` in lower case. NULL: there is no such field. */
const char *http_exchange_header(const struct http_exchange *exchange, const char *name);
/* The whole body. Empty in the admit hook. */
const struct str *http_exchange_body(const struct http_exchange *exchange);
/* Moves the body to the caller, which frees it with str_deinit. It no longer counts in the server's
 * limit. One thread, once. */
void http_exchange_take_body(struct http_exchange *exchange, struct str *body);
/* The client's address, as "127.0.0.1:43210". */
void http_exchange_peer(const struct http_exchange *exchange, char text[HTTP_PEER_BYTES]);
uint64_t http_exchange_arrived_us(const struct http_exchange *exchange); /* the head was whole */

/* Attaches a thing that the admit hook leaves for the handler. It is dropped with the exchange if
 * it is never taken. Once, on the loop's thread. */
void http_exchange_attach(struct http_exchange *exchange, void *thing, void (*drop)(void *thing));
/* NULL: nothing was attached, or it was taken. */
void *http_exchange_take_attached(struct http_exchange *exchange);

/* --- the answer --- */

#define HTTP_REPLY_MAX_FIELDS_BYTES 8192 /* all added fields together */

struct http_reply {
    int status;               /* 200 .. 599 */
    const char *content_type; /* static text; NULL: no body */
    struct str fields;        /* whole lines, by http_reply_add_header */
    struct str body;          /* a truncated one becomes a 500 */
};

/* Sets 404, plain text, and an empty body of at most body_limit_bytes. */
void http_reply_init(struct http_reply *reply, size_t body_limit_bytes);
void http_reply_deinit(struct http_reply *reply);
/* Adds a field, except Date, Connection, Content-Length, Transfer-Encoding and Content-Type, which
 * the server writes. Copies the texts. STATUS_INVALID: they aren't one field on the wire.
 * STATUS_LIMIT: there are too many already. Adds nothing then. */
enum status http_reply_add_header(struct http_reply *reply, const char *name, const char *value);

/* Answers whole. The reply's memory stays the caller's. STATUS_INVALID: the reply is truncated, and
 * a 500 goes out instead. STATUS_LIMIT: too much waits for all clients together, and a 503 goes
 * out. */
enum status http_exchange_reply(struct http_exchange *exchange, const struct http_reply *reply);

/* The same, with plain text. */
void http_exchange_reply_text(struct http_exchange *exchange, int status, const char *text);

/* Answers in pieces, of no known length. The body of `head` is ignored. */
enum status http_exchange_start(struct http_exchange *exchange,
                                const struct http_reply *head) WARN_UNUSED;
enum status http_exchange_write(struct http_exchange *exchange, const void *bytes,
                                size_t count) WARN_UNUSED;
enum status http_exchange_end(struct http_exchange *exchange);
/* Breaks the answer off: the connection ends, and no client takes that for a whole answer. */
void http_exchange_abort(struct http_exchange *exchange);

/* Returns whether http_exchange_write would take `count` bytes now, or the client has gone. */
bool http_exchange_has_room(struct http_exchange *exchange, size_t count);
/* Returns the bytes of the answer that the system hasn't taken. */
size_t http_exchange_unsent(struct http_exchange *exchange);

enum http_outcome {
    HTTP_SENT,    /* the whole answer was handed to the system */
    HTTP_GONE,    /* the client closed its connection, or half of it, before that */
    HTTP_STALLED, /* the client didn't read in time */
    HTTP_ABORTED, /* by its owner, or the last owner dropped it */
    HTTP_STOPPED, /* the server was stopped */
};
/* Has `over` called once when the exchange is over, on its loop's thread (in http_server_stop if
 * that ends it). `over` must not block, and may call the functions above. False: it is over
 * already, and `over` will not be called. One watcher. */
bool http_exchange_watch(struct http_exchange *exchange,
                         void (*over)(void *context, struct http_exchange *exchange,
                                      enum http_outcome outcome),
                         void *context) WARN_UNUSED;
/* Takes the watcher away, and returns true. False: the exchange is over, and the watcher was called
 * or is being called. */
bool http_exchange_unwatch(struct http_exchange *exchange) WARN_UNUSED;

/* --- for this folder: the bytes of a reply's head on the wire (http_reply.c) --- */

/* How the answer is framed, which the request decides. */
struct http_framing {
    bool is_1_0;              /* no chunks */
    bool keep_alive;          /* the connection stays */
    bool head_only;           /* the request is a HEAD */
    const char *allow_origin; /* Access-Control-Allow-Origin (http_route.h); NULL: none */
    bool by_origin;           /* pages of other origins get another answer: for caches */
};
enum http_length {
    HTTP_LENGTH_KNOWN,
    HTTP_LENGTH_CHUNKED,
    HTTP_LENGTH_TO_THE_END,
    HTTP_LENGTH_NONE
};

struct http_reply_head {
    int status;
    const char *content_type;
    const struct str *fields; /* NULL: none */
    enum http_length framed;
    size_t length; /* HTTP_LENGTH_KNOWN */
};
#define HTTP_REPLY_HEAD_BYTES (HTTP_REPLY_MAX_FIELDS_BYTES + 1024) /* the longest */
/* Appends the status line and the fields. Any thread. */
void http_reply_write_head(const struct http_reply_head *head, const struct http_framing *framing,
                           struct str *out);

#endif
