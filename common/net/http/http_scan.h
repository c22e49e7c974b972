/* Finds where a request's head ends, byte by byte as it comes in, and refuses at the first byte
 * what no head may hold: a line that ends in LF alone or CR alone, control bytes, a line that
 * continues the one before, too many or too long lines. Pure: keeps no bytes.
 *
 * What it lets through is lines that end in CR LF, and an empty one at the end; http_head.h reads
 * them. */
#ifndef BATON_NET_HTTP_HTTP_SCAN_H
#define BATON_NET_HTTP_HTTP_SCAN_H

#include "common/net/http/http_refusal.h"

#include <stdbool.h>
#include <stddef.h>

#define HTTP_MAX_HEAD_BYTES 16384 /* of the request line and all fields, with the ends of lines */
#define HTTP_MAX_LINE_BYTES 8192  /* of one line, without its end */
#define HTTP_MAX_FIELDS     100

/* {0} begins a head. */
struct http_scan {
    size_t bytes, line_bytes, lines; /* lines: that have ended, without an empty one in front */
    bool after_cr, whole;
};

/* Reads bytes up to the end of the head, at most; *used of them belong to it. scan->whole: it has
 * ended. STATUS_INVALID: *why says what the byte behind the *used is not allowed for. */
enum status http_scan_take(struct http_scan *scan, const char *bytes, size_t count, size_t *used,
                           struct http_refusal *why) WARN_UNUSED;

#endif
