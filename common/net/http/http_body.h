/* A request's body, taken out of its frame as it comes: so many bytes, or chunks. Pure: keeps no
 * bytes but in `payload`.
 *
 * Chunks are read strictly: a size of hex digits, an extension (unread) behind a semicolon, CR LF
 * everywhere, and behind the last chunk lines that a head might hold (http_scan.h; unread too).
 * Each of these lines is bounded, and so are those at the end together. */
#ifndef BATON_NET_HTTP_HTTP_BODY_H
#define BATON_NET_HTTP_HTTP_BODY_H

#include "common/base/str.h"
#include "common/net/http/http_head.h"

#define HTTP_MAX_CHUNK_LINE_BYTES 256  /* the size and its extension */
#define HTTP_MAX_TRAILER_BYTES    4096 /* fields behind the last chunk, with the ends of lines */

enum http_body_part {
    BODY_BYTES,      /* `left` of them, of the body or of a chunk */
    BODY_CHUNK_LINE, /* -> BODY_BYTES, or BODY_TRAILER behind the last chunk, at its LF */
    BODY_CHUNK_END,  /* the CR LF behind a chunk's bytes -> BODY_CHUNK_LINE */
    BODY_TRAILER,    /* -> BODY_WHOLE at an empty line */
    BODY_WHOLE,
};

struct http_body {
    enum http_body_part part;
    bool chunked;
    bool dropped;                         /* taken out of its frame, and thrown away */
    uint64_t limit_bytes, received_bytes; /* without the frame */
    uint64_t left;
    bool after_cr, in_extension;
    size_t line_bytes, digits;
    struct http_scan trailer;
};

/* STATUS_INVALID: a body is announced that is larger than limit_bytes. */
enum status http_body_begin(struct http_body *body, const struct http_head *head,
                            uint64_t limit_bytes, struct http_refusal *why) WARN_UNUSED;
/* Takes bytes up to the end of the body, at most (body->part is BODY_WHOLE then); *used of them
 * belong to it. Appends to `payload`, whose limit is no less than limit_bytes, unless the body is
 * dropped. */
enum status http_body_take(struct http_body *body, const char *bytes, size_t count, size_t *used,
                           struct str *payload, struct http_refusal *why) WARN_UNUSED;

#endif
