#include "common/net/http/http_response.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_HTTP "does not speak HTTP"

void http_response_init(struct http_response *response, struct str *payload)
{
    *response = (struct http_response){.payload = payload};
    str_init(&response->head, HTTP_MAX_HEAD_BYTES);
}

void http_response_deinit(struct http_response *response)
{
    str_deinit(&response->head);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Another's words, which may be shown on a terminal: whatever isn't ASCII to be read becomes
 * "?". */
static void make_legible(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

/* "HTTP/1.1 200 OK": the reason may be missing. */
static bool read_status_line(struct http_response *response, const char *line)
{
    if (strncmp(line, "HTTP/1.", 7) != 0 || !is_digit(line[7]) || line[8] != ' ' ||
        !is_digit(line[9]) || !is_digit(line[10]) || !is_digit(line[11]) ||
        (line[12] && line[12] != ' '))
        return false;
    response->status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    str_copy(response->reason, sizeof response->reason, line + 9);
    make_legible(response->reason);
    return response->status >= 100 && response->status <= 599;
}

/* The value of the line's field if it is `name` (lower case): without the blanks in front. */
static const char *value_of(const char *line, const char *name)
{
    for (; *name; line++, name++)
        if ((*line >= 'A' && *line <= 'Z' ? *line | 0x20 : *line) != *name)
            return NULL;
    return *line == ':' ? line + 1 + strspn(line + 1, " \t") : NULL;
}

static bool is_word(const char *value, const char *word)
{
    for (; *word; value++, word++)
        if ((*value >= 'A' && *value <= 'Z' ? *value | 0x20 : *value) != *word)
            return false;
    return !value[strspn(value, " \t")];
}

static bool read_length(const char *value, struct http_response *response, struct http_head *frame)
{
    char digits[24];
    uint64_t length;
    size_t count = strcspn(value, " \t");
    if (count >= sizeof digits || value[count + strspn(value + count, " \t")])
        return false;
    memcpy(digits, value, count);
    digits[count] = 0;
    if (!str_to_u64(digits, 0, INT64_MAX, &length) ||
        (response->counted && !frame->chunked && length != frame->length))
        return false;
    frame->length = length;
    response->counted = true;
    return true;
}

/* A line of the head. False: it leaves in doubt where the answer ends. */
static bool read_field(const char *line, struct http_response *response, struct http_head *frame)
{
    const char *value;
    if ((value = value_of(line, "content-length")))
        return read_length(value, response, frame);
    if (!(value = value_of(line, "transfer-encoding")))
        return true;
    if (frame->chunked || !is_word(value, "chunked"))
        return false;
    return frame->chunked = response->counted = true;
}

static enum status begin_body(struct http_response *response, struct http_head *frame,
                              struct error *err)
{
    struct http_refusal why;
    if (response->status == 204) {
        *frame = (struct http_head){0};
        response->counted = true;
    }
    response->whole = response->status / 100 != 2;
    if (response->whole)
        return STATUS_OK;
    if (frame->chunked)
        frame->length = 0; /* the coding wins */
    if (!response->counted)
        return STATUS_OK;
    if (http_body_begin(&response->body, frame, response->payload->limit, &why) != STATUS_OK)
        return error_set(err, STATUS_LIMIT, "answers with more than %zu bytes",
                         response->payload->limit);
    response->whole = response->body.part == BODY_WHOLE;
    return STATUS_OK;
}

/* The head is whole: lines that end in CR LF, and an empty one. Cuts it into texts. */
static enum status read_head(struct http_response *response, struct error *err)
{
    struct http_head frame = {.chunked = false};
    char *line = response->head.data;
    response->counted = false;
    while (!strncmp(line, "\r\n", 2))
        line += 2;
    for (bool first = true; *line && *line != '\r'; first = false) {
        char *end = strstr(line, "\r\n");
        if (!end)
            break;
        *end = 0;
        if (first && !read_status_line(response, line))
            return error_set(err, STATUS_INVALID, NO_HTTP);
        if (!first && !read_field(line, response, &frame)) {
            make_legible(line);
            return error_set(err, STATUS_INVALID,
                             "answers in a way that leaves open where the answer ends: \"%.60s\"",
                             line);
        }
        line = end + 2;
    }
    if (response->status >= 200) {
        response->has_head = true;
        return begin_body(response, &frame, err);
    }
    if (++response->interim > HTTP_MAX_INTERIM)
        return error_set(err, STATUS_LIMIT, "answers with 1xx again and again");
    response->scan = (struct http_scan){0};
    str_clear(&response->head);
    return STATUS_OK;
}

static enum status take_head(struct http_response *response, const char *bytes, size_t count,
                             size_t *used, struct error *err)
{
    struct http_refusal why;
    enum status status = http_scan_take(&response->scan, bytes, count, used, &why);
    str_append(&response->head, bytes, *used);
    if (status == STATUS_OK)
        return response->scan.whole ? read_head(response, err) : STATUS_OK;
    bool speaks = !strncmp(response->head.data, "HTTP/1.", 7);
    if (speaks && why.status == 431)
        return error_set(err, STATUS_LIMIT, "answers with a head that is too large");
    return error_set(err, STATUS_INVALID, "%s", speaks ? "answers with a broken head" : NO_HTTP);
}

static enum status take_body(struct http_response *response, const char *bytes, size_t count,
                             struct error *err)
{
    struct http_refusal why;
    size_t used;
    if (!response->counted) {
        str_append(response->payload, bytes, count);
    } else if (http_body_take(&response->body, bytes, count, &used, response->payload, &why) !=
               STATUS_OK) {
        if (why.status != 413)
            return error_set(err, STATUS_INVALID, "answers in broken chunks");
        response->payload->truncated = true;
    }
    response->whole = response->counted && response->body.part == BODY_WHOLE;
    return response->payload->truncated
               ? error_set(err, STATUS_LIMIT, "answers with more than %zu bytes",
                           response->payload->limit)
               : STATUS_OK;
}

enum status http_response_take(struct http_response *response, const char *bytes, size_t count,
                               struct error *err)
{
    while (count && !response->whole) {
        size_t used;
        if (response->has_head)
            return take_body(response, bytes, count, err);
        TRY(take_head(response, bytes, count, &used, err));
        bytes += used;
        count -= used;
    }
    return STATUS_OK;
}

enum status http_response_end(struct http_response *response, bool orderly, struct error *err)
{
    if (response->whole || (response->has_head && !response->counted && orderly))
        return STATUS_OK;
    if (!response->has_head && strncmp(response->head.data, "HTTP/1.", 7) != 0)
        return error_set(err, STATUS_INVALID, NO_HTTP);
    return error_set(err, STATUS_UNAVAILABLE, "broke off in the middle of its answer");
}
