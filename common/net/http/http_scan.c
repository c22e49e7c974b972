#include "common/net/http/http_scan.h"

static enum status end_line(struct http_scan *scan, struct http_refusal *why)
{
    scan->after_cr = false;
    if (scan->line_bytes == 0 && scan->lines == 0) {
        /* RFC 9112, 2.2: an empty line in front of a request is to be ignored, once. */
        if (scan->bytes > 2)
            return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                               "the request begins with empty lines instead of a request line");
        return STATUS_OK;
    }
    if (scan->line_bytes == 0) {
        scan->whole = true;
        return STATUS_OK;
    }
    scan->line_bytes = 0;
    if (++scan->lines > HTTP_MAX_FIELDS + 1)
        return http_refuse(why, 431, HTTP_CODE_HEAD_TOO_LARGE,
                           "the request has more than %d header fields", HTTP_MAX_FIELDS);
    return STATUS_OK;
}

static enum status check_text(struct http_scan *scan, unsigned char c, struct http_refusal *why)
{
    if (c == '\n')
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "a line of the request's head ends in LF alone: end lines in CR LF");
    if ((c < 0x20 && c != '\t') || c == 0x7f)
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "the request's head has the control byte 0x%02x", c);
    if (scan->line_bytes == 0 && scan->lines > 0 && (c == ' ' || c == '\t'))
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "a line of the request's head continues the one before it: write each "
                           "header field in one line");
    if (scan->line_bytes == HTTP_MAX_LINE_BYTES && scan->lines == 0)
        return http_refuse(why, 414, HTTP_CODE_TARGET_TOO_LONG,
                           "the request line is longer than %d bytes", HTTP_MAX_LINE_BYTES);
    if (scan->line_bytes == HTTP_MAX_LINE_BYTES)
        return http_refuse(why, 431, HTTP_CODE_HEAD_TOO_LARGE,
                           "a header field is longer than %d bytes", HTTP_MAX_LINE_BYTES);
    scan->line_bytes++;
    return STATUS_OK;
}

static enum status take_byte(struct http_scan *scan, unsigned char c, struct http_refusal *why)
{
    if (scan->bytes == HTTP_MAX_HEAD_BYTES)
        return http_refuse(why, 431, HTTP_CODE_HEAD_TOO_LARGE,
                           "the request line and the header fields have more than %d bytes",
                           HTTP_MAX_HEAD_BYTES);
    if (scan->after_cr && c != '\n')
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "the request's head has a CR that no LF follows");
    scan->bytes++;
    if (scan->after_cr)
        return end_line(scan, why);
    if (c == '\r') {
        scan->after_cr = true;
        return STATUS_OK;
    }
    return check_text(scan, c, why);
}

enum status http_scan_take(struct http_scan *scan, const char *bytes, size_t count, size_t *used,
                           struct http_refusal *why)
{
    *used = 0;
    while (*used < count && !scan->whole) {
        TRY(take_byte(scan, (unsigned char)bytes[*used], why));
        ++*used;
    }
    return STATUS_OK;
}
