/* A request's head, read strictly (RFC 9112): whatever two readers might understand differently is
 * refused, so that nothing between a client and us can be made to see another request than we do.
 * Pure.
 *
 * Refused: what http_scan.h refuses; an invalid method, target or version; blanks before a colon;
 * names that are no tokens; more than one Host, Content-Length, Transfer-Encoding, Content-Type,
 * Authorization or Expect, equal or not; a length that is no plain number; a length beside a
 * transfer coding; any coding but one `chunked`; no Host in HTTP/1.1; an expectation but
 * 100-continue. */
#ifndef BATON_NET_HTTP_HTTP_HEAD_H
#define BATON_NET_HTTP_HTTP_HEAD_H

#include "common/net/http/http_scan.h"

#include <stdint.h>

/* Bits, so that a route can name several. */
enum http_method {
    HTTP_GET = 1,
    HTTP_HEAD = 2,
    HTTP_POST = 4,
    HTTP_OPTIONS = 8,
    HTTP_OTHER = 16, /* a method all the same: no route takes it */
};

/* Offsets into the head's bytes, of texts that end in NUL there. */
struct http_field {
    uint16_t name;  /* in lower case */
    uint16_t value; /* without blanks around it */
};

struct http_head {
    char *bytes; /* the caller's, which http_head_read has cut into texts */
    enum http_method method;
    const char *path;  /* decoded, valid UTF-8 without control characters, "/..." or "*" */
    const char *query; /* as it came, behind the '?'; "" where there is none */
    bool is_1_0;
    bool keep_alive; /* the client wants to */
    bool expects_continue;
    bool chunked;
    uint64_t length; /* of the body, as announced; 0 with chunked */
    size_t field_count;
    struct http_field fields[HTTP_MAX_FIELDS];
};

/* Reads the `count` bytes that http_scan_take counted as a whole head; changes them, and points
 * into them. STATUS_INVALID: *why. */
enum status http_head_read(char *bytes, size_t count, struct http_head *head,
                           struct http_refusal *why) WARN_UNUSED;
/* The first field of this name (lower case), or NULL. */
const char *http_head_field(const struct http_head *head, const char *name);

#endif
