/* A small HTTP/1.1 server on a thread of its own, for /metrics, /healthz and /status. libevent is known to this folder only.
 *
 * The handler runs on the server's thread, one request at a time: it must not block, and what it reads of other threads must
 * be safe to read (atomics, a mutex held briefly). GET and HEAD only; request lines and headers are bounded (8 KiB), bodies
 * too, and ignored; one request a connection, and a silent connection is closed after 10 s (`silence_s`). Connections beyond the limit, or
 * for which there is no file descriptor, wait outside.
 * Binding anything but loopback logs a warning: there is no TLS and no authentication here.
 */
#ifndef BATON_HTTP_HTTP_SERVER_H
#define BATON_HTTP_HTTP_SERVER_H

#include "common/base/status.h"
#include "common/base/str.h"

#define HTTP_MAX_BODY_BYTES  (4u << 20) /* of a reply */
#define HTTP_MAX_CONNECTIONS 64

struct http_server;

struct http_reply {
    int status;               /* 404 unless the handler sets it */
    const char *content_type; /* static text; "text/plain; charset=utf-8" unless set */
    struct str body;          /* at most HTTP_MAX_BODY_BYTES; a truncated one becomes a 500 */
};

struct http_server_config {
    const char *
        listen; /* "host:port" with a numeric host ("127.0.0.1:0", "[::1]:9090"); port 0: any free one */
    /* `path` without the query, decoded. */
    void (*handle)(void *context, const char *path, struct http_reply *reply);
    void *context;
    int silence_s; /* a connection that says nothing for so long is closed; 0: 10 */
};

/* What `listen` may be: STATUS_INVALID with a sentence if it isn't that. */
enum status http_check_listen(const char *listen, struct error *err) WARN_UNUSED;

enum status http_server_start(const struct http_server_config *config, struct http_server **server,
                              struct error *err) WARN_UNUSED;
/* "127.0.0.1:43211", with the real port. */
const char *http_server_address(const struct http_server *server);
/* Closes everything and joins the thread. NULL is fine. */
void http_server_stop(struct http_server *server);

#endif
