#include "common/net/http/http_exchange.h"

#include "common/base/assert.h"
#include "common/base/clock.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

void http_reply_init(struct http_reply *reply, size_t body_limit_bytes)
{
    *reply = (struct http_reply){.status = 404, .content_type = "text/plain; charset=utf-8"};
    str_init(&reply->body, body_limit_bytes);
}

void http_reply_deinit(struct http_reply *reply)
{
    str_deinit(&reply->body);
    if (reply->fields.data)
        str_deinit(&reply->fields);
}

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return status < 400 ? "OK" : "Error";
}

/* Returns the date of this second, made once. */
static const char *date(void)
{
    static _Thread_local time_t made;
    static _Thread_local char text[40];
    time_t now = (time_t)(clock_unix_us() / 1000000u);
    if (now != made) {
        struct tm utc;
        gmtime_r(&now, &utc);
        strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
        made = now;
    }
    return text;
}

static bool is_clean(const char *text, bool is_name)
{
    if (is_name && !*text)
        return false;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if ((*c < 0x20 && *c != '\t') || *c == 0x7f ||
            (is_name && (*c <= ' ' || *c == ':' || *c > 0x7e)))
            return false;
    return true;
}

static void add_field(struct str *out, const char *name, const char *value)
{
    str_add(out, name);
    str_append(out, ": ", 2);
    str_add(out, value);
    str_append(out, "\r\n", 2);
}

enum status http_reply_add_header(struct http_reply *reply, const char *name, const char *value)
{
    if (!is_clean(name, true) || !is_clean(value, false))
        return STATUS_INVALID;
    if (!reply->fields.data)
        str_init(&reply->fields, HTTP_REPLY_MAX_FIELDS_BYTES);
    if (strlen(name) + strlen(value) + 4 > reply->fields.limit - reply->fields.length)
        return STATUS_LIMIT;
    add_field(&reply->fields, name, value);
    return STATUS_OK;
}

void http_reply_write_head(const struct http_reply_head *head, const struct http_framing *framing,
                           struct str *out)
{
    str_addf(out, "HTTP/1.1 %d %s\r\n", head->status, reason_of(head->status));
    add_field(out, "Date", date());
    if (head->content_type)
        add_field(out, "Content-Type", head->content_type);
    if (head->framed == HTTP_LENGTH_KNOWN)
        str_addf(out, "Content-Length: %zu\r\n", head->length);
    if (head->framed == HTTP_LENGTH_CHUNKED)
        add_field(out, "Transfer-Encoding", "chunked");
    if (!framing->keep_alive)
        add_field(out, "Connection", "close");
    else if (framing->is_1_0)
        add_field(out, "Connection", "keep-alive");
    if (framing->allow_origin) {
        add_field(out, "Access-Control-Allow-Origin", framing->allow_origin);
        add_field(out, "Access-Control-Expose-Headers",
                  "x-request-id, x-should-retry, retry-after");
    }
    if (framing->by_origin)
        add_field(out, "Vary", "Origin");
    if (head->fields && head->fields->data)
        str_append(out, head->fields->data, head->fields->length);
    str_append(out, "\r\n", 2);
    ASSERT(!out->truncated);
}
