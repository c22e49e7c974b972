/* Many POSTs at once to one server, on the caller's thread, by libcurl: answers in pieces.
 * Connections are kept and used again. The cost of an event doesn't grow with the number of open
 * exchanges. Each look-up of a name takes a thread for a moment.
 *
 * Refuses what http_client.h refuses. Owner: one thread. */
#ifndef BATON_NET_HTTP_HTTP_STREAMS_H
#define BATON_NET_HTTP_HTTP_STREAMS_H

#include "common/net/http/http_client.h"

struct http_streams;

struct http_stream_handlers {
    /* Bytes of the body of an answer with this status (200, 429, ...). Must not post. */
    void (*bytes)(void *context, int status, const char *bytes, size_t count);
    /* The exchange is over, once. STATUS_OK: the whole answer came, with any `status`. Otherwise it
     * fails as http_get does, with a sentence; `status` is 0 without an answer's head. May post. */
    void (*ended)(void *context, int status, enum status outcome, const struct error *err);
};

struct http_stream_post {
    const char *path;                  /* percent-encoded */
    const struct http_header *headers; /* besides Content-Type: application/json; copied */
    size_t header_count;
    const struct str *body; /* lives until the exchange is over */
    uint64_t timeout_us;
    void *context; /* for the handlers */
};

/* `remote` and all that it points to outlive it. STATUS_INVALID: http_remote_check. STATUS_IO: the
 * system gives no descriptors. */
enum status http_streams_open(const struct http_remote *remote,
                              const struct http_stream_handlers *handlers,
                              struct http_streams **streams, struct error *err) WARN_UNUSED;
/* Starts an exchange. No handler is called in it. `path` is copied. */
enum status http_streams_post(struct http_streams *streams, const struct http_stream_post *post,
                              struct error *err) WARN_UNUSED;
/* Returns a descriptor for poll(): readable means that http_streams_run has something to do. */
int http_streams_fd(const struct http_streams *streams);
/* Does what can be done without waiting, and calls handlers. */
void http_streams_run(struct http_streams *streams);
/* Cuts off open exchanges without their `ended`. */
void http_streams_close(struct http_streams *streams);

#endif
