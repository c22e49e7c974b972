#include "common/net/http/http_body.h"

#include "common/base/assert.h"

#define MAX_SIZE_DIGITS 15 /* so that a chunk's size is a uint64_t */

static enum status too_large(struct http_refusal *why, uint64_t limit_bytes)
{
    return http_refuse(why, 413, HTTP_CODE_BODY_TOO_LARGE,
                       "the request's body is larger than %llu bytes",
                       (unsigned long long)limit_bytes);
}

enum status http_body_begin(struct http_body *body, const struct http_head *head,
                            uint64_t limit_bytes, struct http_refusal *why)
{
    *body = (struct http_body){
        .part = head->chunked  ? BODY_CHUNK_LINE
                : head->length ? BODY_BYTES
                               : BODY_WHOLE,
        .chunked = head->chunked,
        .limit_bytes = limit_bytes,
        .left = head->length,
    };
    return head->length > limit_bytes ? too_large(why, limit_bytes) : STATUS_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum status bad_chunk(struct http_refusal *why, const char *what)
{
    return http_refuse(why, 400, HTTP_CODE_MALFORMED, "the request's body is not in chunks: %s",
                       what);
}

static enum status end_chunk_line(struct http_body *body, struct http_refusal *why)
{
    if (body->digits == 0)
        return bad_chunk(why, "a line has no size");
    if (body->left > body->limit_bytes - body->received_bytes)
        return too_large(why, body->limit_bytes);
    body->part = body->left ? BODY_BYTES : BODY_TRAILER;
    body->line_bytes = body->digits = 0;
    body->after_cr = body->in_extension = false;
    /* The trailer is lines of fields, as behind a request line. */
    body->trailer = (struct http_scan){.lines = 1};
    return STATUS_OK;
}

static enum status take_chunk_line(struct http_body *body, char c, struct http_refusal *why)
{
    if (++body->line_bytes > HTTP_MAX_CHUNK_LINE_BYTES)
        return bad_chunk(why, "the line of a size is too long");
    if (body->after_cr)
        return c == '\n' ? end_chunk_line(body, why) : bad_chunk(why, "a CR that no LF follows");
    if (c == '\r') {
        body->after_cr = true;
        return STATUS_OK;
    }
    if (body->in_extension)
        return (unsigned char)c < 0x20 && c != '\t' ? bad_chunk(why, "a control byte in a line")
                                                    : STATUS_OK;
    if (c == ';') {
        body->in_extension = true;
        return STATUS_OK;
    }
    int digit = hex_digit(c);
    if (digit < 0)
        return bad_chunk(why, "a size is not of hex digits");
    if (++body->digits > MAX_SIZE_DIGITS)
        return bad_chunk(why, "a size has too many digits");
    body->left = body->left * 16 + (uint64_t)digit;
    return STATUS_OK;
}

static enum status take_chunk_end(struct http_body *body, char c, struct http_refusal *why)
{
    if (c != (body->after_cr ? '\n' : '\r'))
        return bad_chunk(why, "no CR LF behind a chunk's bytes");
    if (body->after_cr)
        body->part = BODY_CHUNK_LINE;
    body->after_cr = !body->after_cr;
    return STATUS_OK;
}

static size_t take_bytes(struct http_body *body, const char *bytes, size_t count,
                         struct str *payload)
{
    size_t taken = body->left < count ? (size_t)body->left : count;
    if (!body->dropped) {
        str_append(payload, bytes, taken);
        ASSERT(!payload->truncated);
    }
    body->received_bytes += taken;
    body->left -= taken;
    if (body->left == 0)
        body->part = body->chunked ? BODY_CHUNK_END : BODY_WHOLE;
    return taken;
}

static enum status take_trailer(struct http_body *body, const char *bytes, size_t count,
                                size_t *taken, struct http_refusal *why)
{
    TRY(http_scan_take(&body->trailer, bytes, count, taken, why));
    if (body->trailer.bytes > HTTP_MAX_TRAILER_BYTES)
        return bad_chunk(why, "the fields behind it are too many");
    if (body->trailer.whole)
        body->part = BODY_WHOLE;
    return STATUS_OK;
}

enum status http_body_take(struct http_body *body, const char *bytes, size_t count, size_t *used,
                           struct str *payload, struct http_refusal *why)
{
    *used = 0;
    while (*used < count && body->part != BODY_WHOLE) {
        size_t taken = 1;
        switch (body->part) {
        case BODY_BYTES: taken = take_bytes(body, bytes + *used, count - *used, payload); break;
        case BODY_CHUNK_LINE: TRY(take_chunk_line(body, bytes[*used], why)); break;
        case BODY_CHUNK_END: TRY(take_chunk_end(body, bytes[*used], why)); break;
        case BODY_TRAILER:
            TRY(take_trailer(body, bytes + *used, count - *used, &taken, why));
            break;
        case BODY_WHOLE: break;
        }
        *used += taken;
    }
    return STATUS_OK;
}
