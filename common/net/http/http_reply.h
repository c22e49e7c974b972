/* What is answered: whole replies, and the bytes that a reply's head is on the wire. */
#ifndef BATON_NET_HTTP_HTTP_REPLY_H
#define BATON_NET_HTTP_HTTP_REPLY_H

#include "common/base/status.h"
#include "common/base/str.h"

#include <stdbool.h>

#define HTTP_REPLY_MAX_FIELDS_BYTES 8192 /* of all that are added */

struct http_reply {
    int status;               /* 200 .. 599 */
    const char *content_type; /* static text; NULL: no body */
    struct str fields;        /* whole lines: http_reply_add_header */
    struct str body;          /* the owner's; a truncated one becomes a 500 */
};

/* 404, plain text, an empty body of at most body_limit_bytes. */
void http_reply_init(struct http_reply *reply, size_t body_limit_bytes);
void http_reply_deinit(struct http_reply *reply);
/* Not Date, Connection, Content-Length, Transfer-Encoding, Content-Type, which the server writes.
 * The texts are copied. STATUS_INVALID: it would be no field, or more than one, on the wire;
 * STATUS_LIMIT: there are too many already. Nothing is added then. */
enum status http_reply_add_header(struct http_reply *reply, const char *name, const char *value);

/* How an answer is framed, by what the request was. */
struct http_framing {
    bool is_1_0;              /* no chunks */
    bool keep_alive;          /* the connection stays */
    bool head_only;           /* to HEAD */
    const char *allow_origin; /* of a browser's page that may read it: http_cors.h; NULL: none */
    bool by_origin;           /* another page's answer is another: for caches */
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
#define HTTP_REPLY_HEAD_BYTES (HTTP_REPLY_MAX_FIELDS_BYTES + 1024) /* of the longest */
/* Appends the status line and the fields. Any thread. */
void http_reply_write_head(const struct http_reply_head *head, const struct http_framing *framing,
                           struct str *out);

#endif
