#include "common/net/http/http_head.h"

#include "common/net/http/http_target.h"

#include <string.h>

#define MAX_METHOD_BYTES  32
#define MAX_LENGTH_DIGITS 18 /* of a Content-Length, so that it is a uint64_t */

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
    return http_target_split(target, head->method == HTTP_OPTIONS, &head->path, &head->query, why);
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
    static const char *const singles[] = {"host",         "content-length", "transfer-encoding",
                                          "content-type", "authorization",  "expect"};
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

/* Where the body ends: by a length, or by chunks, or there is none. */
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

/* Whether the list `text` names the token, in any case. */
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

static enum status read_expectation(struct http_head *head, struct http_refusal *why)
{
    const char *expected = http_head_field(head, "expect");
    if (expected && strcasecmp(expected, "100-continue"))
        return http_refuse(why, 417, HTTP_CODE_EXPECTATION,
                           "the only expectation that is met is '100-continue'");
    head->expects_continue = expected && !head->is_1_0 && (head->chunked || head->length);
    return STATUS_OK;
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
    return read_expectation(head, why);
}
