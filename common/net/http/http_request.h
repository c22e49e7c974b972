/* Reads a request strictly (RFC 9112): its head, and then its body. A request that two readers
 * might understand differently is refused, so that nothing between a client and this server can
 * make them see different requests. Pure.
 *
 * Order: http_scan_take finds the head's end as bytes come, http_head_read reads the whole head,
 * http_body_take takes the body out of its frame. */
#ifndef BATON_NET_HTTP_HTTP_REQUEST_H
#define BATON_NET_HTTP_HTTP_REQUEST_H

#include "common/base/status.h"
#include "common/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- refusals --- */

/* The reason why a request isn't served, as the client gets it. */
struct http_refusal {
    int status;       /* 400 .. 505 */
    const char *code; /* stable, lower case with underscores: "malformed_request"; static text */
    struct error why; /* a sentence for the author of the client */
};

#define HTTP_CODE_MALFORMED       "malformed_request"  /* 400: no HTTP/1.1, or ambiguous */
#define HTTP_CODE_HOST            "host_not_allowed"   /* 403: a page may have chosen the name */
#define HTTP_CODE_ORIGIN          "origin_not_allowed" /* 403: a page asks */
#define HTTP_CODE_TYPE            "unsupported_media_type" /* 415: the body isn't JSON */
#define HTTP_CODE_TARGET_TOO_LONG "uri_too_long"           /* 414 */
#define HTTP_CODE_HEAD_TOO_LARGE  "headers_too_large"      /* 431 */
#define HTTP_CODE_BODY_TOO_LARGE  "body_too_large"         /* 413 */
#define HTTP_CODE_EXPECTATION     "expectation_failed"     /* 417 */
#define HTTP_CODE_VERSION         "http_version"           /* 505 */
#define HTTP_CODE_SLOW            "request_timeout"        /* 408 */
#define HTTP_CODE_NOT_FOUND       "not_found"              /* 404 */
#define HTTP_CODE_METHOD          "method_not_allowed"     /* 405 */
#define HTTP_CODE_NO_ROOM         "overloaded"           /* 503: bodies of all requests together */
#define HTTP_CODE_TOO_MANY        "too_many_connections" /* 503 */
#define HTTP_CODE_INTERNAL        "internal_error"       /* 500 */

/* Fills *why and returns STATUS_INVALID, so that `return http_refuse(...)` reads well. `code` is
 * static text. */
enum status http_refuse(struct http_refusal *why, int status, const char *code, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));

/* --- the end of a head --- */

#define HTTP_MAX_HEAD_BYTES 16384 /* request line, all fields and the ends of lines */
#define HTTP_MAX_LINE_BYTES 8192  /* one line, without its end */
#define HTTP_MAX_FIELDS     100

/* {0} begins a head. */
struct http_scan {
    size_t bytes, line_bytes;
    size_t lines; /* ended lines, without an empty one in front */
    bool after_cr;
    bool whole; /* the head has ended */
};

/* Reads bytes as they come, up to the end of the head. *used: how many belong to it. Keeps none.
 * Accepts lines that end in CR LF, with an empty one at the end. STATUS_INVALID: the byte behind
 * the *used can't stand there, with the reason in *why. Refuses a line that ends in LF
 * or CR alone, control bytes, a line that continues the one before, and what is over the limits
 * above. */
enum status http_scan_take(struct http_scan *scan, const char *bytes, size_t count, size_t *used,
                           struct http_refusal *why) WARN_UNUSED;

/* --- a head --- */

/* Bits, so that a route can name several. */
enum http_method {
    HTTP_GET = 1,
    HTTP_HEAD = 2,
    HTTP_POST = 4,
    HTTP_OPTIONS = 8,
    HTTP_OTHER = 16, /* a method that no route takes */
};

/* Offsets into the head's bytes. The texts there end in NUL. */
struct http_field {
    uint16_t name;  /* in lower case */
    uint16_t value; /* without blanks around it */
};

struct http_head {
    char *bytes; /* the caller's; http_head_read has cut them into texts */
    enum http_method method;
    const char *path;  /* decoded, valid UTF-8 without control characters, "/..." or "*" */
    const char *query; /* as it came, behind the '?'; "" if there is none */
    bool is_1_0;
    bool keep_alive; /* the client wants to keep the connection */
    bool expects_continue;
    bool chunked;
    uint64_t length; /* announced bytes of the body; 0 with chunked */
    size_t field_count;
    struct http_field fields[HTTP_MAX_FIELDS];
};

/* Reads the `count` bytes that http_scan_take counted as a whole head. Changes them, and *head
 * points into them. STATUS_INVALID: the reason is in *why. Refuses
 * - an invalid method or version;
 * - a target that isn't "/path?query", "http://host/path?query", or "*" with OPTIONS; in a path,
 *   escapes that aren't two hex digits, make a control character or aren't valid UTF-8 together (a
 *   path isn't normalized: "/a/../b" is another path than "/b");
 * - blanks before a colon, and names that aren't tokens;
 * - more than one Host, Content-Length, Transfer-Encoding, Content-Type, Authorization or Expect,
 *   equal or not, and no Host in HTTP/1.1;
 * - a length that isn't a plain number, a length beside a transfer coding, and codings other than
 *   one `chunked`;
 * - expectations other than 100-continue. */
enum status http_head_read(char *bytes, size_t count, struct http_head *head,
                           struct http_refusal *why) WARN_UNUSED;
/* Returns the value of the first field of this name (lower case), or NULL. */
const char *http_head_field(const struct http_head *head, const char *name);

/* --- a body --- */

#define HTTP_MAX_CHUNK_LINE_BYTES 256  /* the size and its extension */
#define HTTP_MAX_TRAILER_BYTES    4096 /* fields behind the last chunk, with the ends of lines */

enum http_body_part {
    BODY_BYTES,      /* `left` bytes of the body or of a chunk */
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

/* STATUS_INVALID: the head announces a body that is larger than limit_bytes. */
enum status http_body_begin(struct http_body *body, const struct http_head *head,
                            uint64_t limit_bytes, struct http_refusal *why) WARN_UNUSED;
/* Takes bytes up to the end of the body; body->part is BODY_WHOLE then. *used: how many belong to
 * it. Appends the payload to `payload` unless the body is dropped; the limit of `payload` is no
 * less than limit_bytes. STATUS_INVALID: *why. Chunks are read strictly: a size of hex digits, an
 * extension (ignored) behind a semicolon, CR LF everywhere, and a trailer (ignored) of lines that a
 * head might hold. */
enum status http_body_take(struct http_body *body, const char *bytes, size_t count, size_t *used,
                           struct str *payload, struct http_refusal *why) WARN_UNUSED;

#endif
