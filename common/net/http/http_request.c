#include "common/net/http/http_request.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"

#include <stdarg.h>
#include <string.h>

#define MAX_METHOD_BYTES  32
#define MAX_LENGTH_DIGITS 18 /* a Content-Length is a uint64_t */
#define MAX_SIZE_DIGITS   15 /* and a chunk's size */

enum status http_refuse(struct http_refusal *why, int status, const char *code, const char *format,
                        ...)
{
    why->status = status;
    why->code = code;
    va_list args;
    va_start(args, format);
    error_vset(&why->why, STATUS_INVALID, format, args);
    va_end(args);
    return STATUS_INVALID;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* --- the end of a head --- */

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

/* --- a head --- */

static bool is_token_char(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static size_t token_length(const char *text)
{
    size_t length = 0;
    while (is_token_char((unsigned char)text[length]))
        length++;
    return length;
}

static enum http_method method_of(const char *text)
{
    static const struct {
        const char *name;
        enum http_method method;
    } methods[] = {
        {"GET", HTTP_GET}, {"POST", HTTP_POST}, {"HEAD", HTTP_HEAD}, {"OPTIONS", HTTP_OPTIONS}};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(text, methods[i].name))
            return methods[i].method;
    return HTTP_OTHER;
}

static enum status read_version(const char *text, struct http_head *head, struct http_refusal *why)
{
    bool shaped = strlen(text) == 8 && !memcmp(text, "HTTP/", 5) && text[6] == '.' &&
                  text[5] >= '0' && text[5] <= '9' && text[7] >= '0' && text[7] <= '9';
    if (!shaped)
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "the request line must be a method, a target and HTTP/1.1, with one "
                           "blank between each");
    head->is_1_0 = !strcmp(text, "HTTP/1.0");
    if (!head->is_1_0 && strcmp(text, "HTTP/1.1"))
        return http_refuse(why, 505, HTTP_CODE_VERSION, "HTTP/1.1 is spoken here, not %s", text);
    return STATUS_OK;
}

static enum status decode(char *path, struct http_refusal *why)
{
    char *to = path;
    for (const char *from = path; *from; from++) {
        unsigned char c = (unsigned char)*from;
        if (c == '%') {
            int high = hex_digit(from[1]), low = high < 0 ? -1 : hex_digit(from[2]);
            if (low < 0)
                return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                                   "the request's path has a '%%' without two hex digits");
            c = (unsigned char)(high * 16 + low);
            from += 2;
        }
        if (c < 0x20 || c == 0x7f)
            return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                               "the request's path has an escaped control character");
        *to++ = (char)c;
    }
    *to = 0;
    if (!utf8_valid(path, (size_t)(to - path), NULL))
        return http_refuse(why, 400, HTTP_CODE_MALFORMED, "the request's path is not UTF-8");
    return STATUS_OK;
}

/* Cuts `target` in place: "/path?query", "http://host/path?query" (which every server has to take),
 * or "*" if `may_be_star`. Decodes the path. */
static enum status split_target(char *target, bool may_be_star, const char **path,
                                const char **query, struct http_refusal *why)
{
    for (const unsigned char *c = (const unsigned char *)target; *c; c++)
        if (*c <= ' ' || *c >= 0x7f || strchr("\"#<>\\^`{|}", *c)) /* RFC 3986 */
            return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                               "the request's target has the byte 0x%02x, which must be escaped",
                               *c);
    *path = target;
    *query = "";
    if (may_be_star && !strcmp(target, "*"))
        return STATUS_OK;
    size_t scheme = !strncasecmp(target, "http://", 7)    ? 7
                    : !strncasecmp(target, "https://", 8) ? 8
                                                          : 0;
    char *start = scheme ? target + scheme + strcspn(target + scheme, "/?") : target;
    if (*start != '/')
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "the request's target must be a path that begins with '/'");
    char *mark = strchr(start, '?');
    if (mark) {
        *mark = 0;
        *query = mark + 1;
    }
    *path = start;
    return decode(start, why);
}

static enum status read_request_line(char *line, struct http_head *head, struct http_refusal *why)
{
    size_t length = token_length(line);
    if (length == 0 || length > MAX_METHOD_BYTES || line[length] != ' ')
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "the request line must begin with a method, like GET or POST, and one "
                           "blank");
    line[length] = 0;
    head->method = method_of(line);
    char *target = line + length + 1, *version = strchr(target, ' ');
    if (!version || version == target)
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "the request line must be a method, a target and HTTP/1.1, with one "
                           "blank between each");
    *version++ = 0;
    TRY(read_version(version, head, why));
    return split_target(target, head->method == HTTP_OPTIONS, &head->path, &head->query, why);
}

static enum status read_field(char *line, struct http_head *head, struct http_refusal *why)
{
    size_t length = token_length(line);
    if (length == 0 || line[length] != ':')
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "a header field must be a name, a colon right behind it, and a value");
    line[length] = 0;
    for (char *c = line; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c |= 0x20;
    char *value = line + length + 1;
    value += strspn(value, " \t");
    size_t end = strlen(value);
    while (end && (value[end - 1] == ' ' || value[end - 1] == '\t'))
        end--;
    value[end] = 0;
    head->fields[head->field_count++] =
        (struct http_field){(uint16_t)(line - head->bytes), (uint16_t)(value - head->bytes)};
    return STATUS_OK;
}

const char *http_head_field(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->field_count; i++)
        if (!strcmp(head->bytes + head->fields[i].name, name))
            return head->bytes + head->fields[i].value;
    return NULL;
}

static enum status refuse_doubles(const struct http_head *head, struct http_refusal *why)
{
    static const char *const singles[] = {
        "host",          "content-length", "transfer-encoding", "content-type",
        "authorization", "expect",         "x-baton-slo-class"};
    unsigned seen = 0;
    for (size_t i = 0; i < head->field_count; i++)
        for (size_t single = 0; single < sizeof singles / sizeof *singles; single++) {
            if (strcmp(head->bytes + head->fields[i].name, singles[single]))
                continue;
            if (seen & 1u << single)
                return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                                   "the request has more than one header field '%s'",
                                   singles[single]);
            seen |= 1u << single;
        }
    return STATUS_OK;
}

static enum status check_host(const struct http_head *head, struct http_refusal *why)
{
    const char *host = http_head_field(head, "host");
    if (!host && head->is_1_0)
        return STATUS_OK;
    if (!host)
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "the request has no header field 'Host', which HTTP/1.1 demands");
    bool good = *host;
    for (const unsigned char *c = (const unsigned char *)host; *c; c++)
        good &= *c < 0x7f && (is_token_char(*c) || strchr(":[]();,=", *c));
    return good ? STATUS_OK
                : http_refuse(why, 400, HTTP_CODE_MALFORMED,
                              "the header field 'Host' is no host with or without a port");
}

static enum status read_length(const char *text, uint64_t *length, struct http_refusal *why)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || text[digits])
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "the header field 'Content-Length' is no plain number");
    if (digits > MAX_LENGTH_DIGITS)
        return http_refuse(why, 413, HTTP_CODE_BODY_TOO_LARGE,
                           "the header field 'Content-Length' has %zu digits", digits);
    *length = 0;
    for (size_t i = 0; i < digits; i++)
        *length = *length * 10 + (uint64_t)(text[i] - '0');
    return STATUS_OK;
}

/* Finds how the body ends: after a length, after the last chunk, or there is no body. */
static enum status read_framing(struct http_head *head, struct http_refusal *why)
{
    const char *length = http_head_field(head, "content-length");
    const char *coding = http_head_field(head, "transfer-encoding");
    if (coding && length)
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "the request has both 'Content-Length' and 'Transfer-Encoding'");
    if (coding && head->is_1_0)
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "the request has 'Transfer-Encoding', which HTTP/1.0 does not know");
    if (coding && strcasecmp(coding, "chunked"))
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "the only transfer coding that is taken is 'chunked'");
    head->chunked = coding;
    return length ? read_length(length, &head->length, why) : STATUS_OK;
}

/* Returns whether the list `text` names the token, in any case. */
static bool lists(const char *text, const char *token)
{
    size_t length = strlen(token);
    while (*text) {
        text += strspn(text, ", \t");
        size_t item = strcspn(text, ", \t");
        if (item == length && !strncasecmp(text, token, length))
            return true;
        text += item;
    }
    return false;
}

static void read_connection(struct http_head *head)
{
    bool close = false, keep = false;
    for (size_t i = 0; i < head->field_count; i++)
        if (!strcmp(head->bytes + head->fields[i].name, "connection")) {
            close |= lists(head->bytes + head->fields[i].value, "close");
            keep |= lists(head->bytes + head->fields[i].value, "keep-alive");
        }
    head->keep_alive = !close && (keep || !head->is_1_0);
}

enum status http_head_read(char *bytes, size_t count, struct http_head *head,
                           struct http_refusal *why)
{
    head->bytes = bytes;
    head->chunked = false;
    head->length = 0;
    head->field_count = 0;
    char *line = bytes, *end = bytes + count;
    if (*line == '\r')
        line += 2;
    for (bool first = true; line < end && *line != '\r'; first = false) {
        char *cr = memchr(line, '\r', (size_t)(end - line));
        *cr = 0;
        TRY(first ? read_request_line(line, head, why) : read_field(line, head, why));
        line = cr + 2;
    }
    TRY(refuse_doubles(head, why));
    TRY(check_host(head, why));
    TRY(read_framing(head, why));
    read_connection(head);
    const char *expected = http_head_field(head, "expect");
    if (expected && strcasecmp(expected, "100-continue"))
        return http_refuse(why, 417, HTTP_CODE_EXPECTATION,
                           "the only expectation that is met is '100-continue'");
    head->expects_continue = expected && !head->is_1_0 && (head->chunked || head->length);
    return STATUS_OK;
}

/* --- a body --- */

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

enum status http_body_take(struct http_body *body, const char *bytes, size_t count, size_t *used,
                           struct str *payload, struct http_refusal *why)
{
    *used = 0;
    while (*used < count && body->part != BODY_WHOLE) {
        size_t taken = 1;
        switch (body->part) {
        case BODY_BYTES: taken = take_bytes(body, bytes + *used, count - *used, payload); break;
        case BODY_CHUNK_LINE: TRY(take_chunk_line(body, bytes[*used], why)); break;
        case BODY_CHUNK_END:
            if (bytes[*used] != (body->after_cr ? '\n' : '\r'))
                return bad_chunk(why, "no CR LF behind a chunk's bytes");
            if (body->after_cr)
                body->part = BODY_CHUNK_LINE;
            body->after_cr = !body->after_cr;
            break;
        case BODY_TRAILER:
            TRY(http_scan_take(&body->trailer, bytes + *used, count - *used, &taken, why));
            if (body->trailer.bytes > HTTP_MAX_TRAILER_BYTES)
                return bad_chunk(why, "the fields behind it are too many");
            if (body->trailer.whole)
                body->part = BODY_WHOLE;
            break;
        case BODY_WHOLE: break;
        }
        *used += taken;
    }
    return STATUS_OK;
}
