/* An answer of a server, read as it comes: head, then a body that is counted, in chunks, or ends
 * with the connection. Pure.
 *
 * Heads are bounded and read as strictly as a request's lines (http_scan.h); of their fields only
 * those that say how long the body is are looked at. Answers of 300 and more are whole with their
 * heads; those that come before the answer (1xx) are passed over, HTTP_MAX_INTERIM of them. */
#ifndef BATON_NET_HTTP_HTTP_RESPONSE_H
#define BATON_NET_HTTP_HTTP_RESPONSE_H

#include "common/net/http/http_body.h"

#define HTTP_MAX_INTERIM 8

struct http_response {
    struct http_scan scan;
    unsigned interim; /* answers of 1xx so far */
    struct str head, *payload;
    bool has_head, counted, whole;
    int status;      /* 200 .. 599, once there is a head */
    char reason[64]; /* its words, as shown to people: "404 Not Found" */
    struct http_body body;
};

/* `payload` gets the body; its limit bounds it. */
void http_response_init(struct http_response *response, struct str *payload);
void http_response_deinit(struct http_response *response);
/* Takes what has come; nothing more is wanted once response->whole. STATUS_INVALID: this is no
 * HTTP; STATUS_LIMIT: head or body are too large. Sentences are a clause for behind a server's
 * name: "does not speak HTTP: ...". */
enum status http_response_take(struct http_response *response, const char *bytes, size_t count,
                               struct error *err) WARN_UNUSED;
/* The connection has ended. `orderly`: the other end has said so, nobody has cut it.
 * STATUS_INVALID: no HTTP; STATUS_UNAVAILABLE: in the middle. */
enum status http_response_end(struct http_response *response, bool orderly,
                              struct error *err) WARN_UNUSED;

#endif
