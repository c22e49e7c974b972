#include "common/base/json/json_text.h"

#include "common/base/assert.h"
#include "common/base/json/json.h"
#include "common/base/utf8.h"

#include <stdlib.h>
#include <string.h>

struct scan {
    const char *bytes;
    size_t length, at;
    struct json_text *text;
    bool escaped_nul; /* in the string just read */
};

static void copy(struct scan *scan, size_t count)
{
    memcpy(scan->text->bytes + scan->text->length, scan->bytes + scan->at, count);
    scan->text->length += count;
    scan->at += count;
}

/* The value of \uXXXX at `at`, or UINT32_MAX when there is none. */
static uint32_t escape_at(const struct scan *scan, size_t at)
{
    if (at > scan->length || scan->length - at < 6 || memcmp(scan->bytes + at, "\\u", 2) != 0)
        return UINT32_MAX;
    uint32_t code = 0;
    for (size_t i = at + 2; i < at + 6; i++) {
        unsigned char c = (unsigned char)scan->bytes[i], lower = c | 0x20;
        bool digit = c >= '0' && c <= '9';
        if (!digit && (lower < 'a' || lower > 'f'))
            return UINT32_MAX;
        code = code << 4 | (uint32_t)(digit ? c - '0' : lower - 'a' + 10);
    }
    return code;
}

static void scan_escape(struct scan *scan)
{
    uint32_t high = escape_at(scan, scan->at), low = escape_at(scan, scan->at + 6);
    if (high < 0xD800 || high > 0xDFFF) {
        scan->escaped_nul |= high == 0;
        copy(scan, scan->length - scan->at < 2 ? 1 : 2); /* the rest is plain characters */
        return;
    }
    bool pair = high < 0xDC00 && low >= 0xDC00 && low <= 0xDFFF;
    uint32_t code = pair ? 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00) : 0xFFFD;
    scan->text->length += utf8_put(code, scan->text->bytes + scan->text->length);
    scan->at += pair ? 12 : 6;
}

static enum status scan_string(struct scan *scan, struct error *err)
{
    scan->escaped_nul = false;
    copy(scan, 1);
    while (scan->at < scan->length && scan->bytes[scan->at] != '"') {
        unsigned char c = (unsigned char)scan->bytes[scan->at];
        if (c < 0x20)
            return error_set(err, STATUS_INVALID,
                             "not JSON: a control byte inside a string at byte %zu", scan->at);
        if (c == '\\')
            scan_escape(scan);
        else
            copy(scan, 1);
    }
    if (scan->at < scan->length)
        copy(scan, 1);
    return STATUS_OK;
}

/* Whether json-c would make another one of it. */
static bool is_beyond(const char *digits, size_t count, bool negative)
{
    static const char least[] = "9223372036854775808", most[] = "18446744073709551615";
    const char *bound = negative ? least : most;
    size_t length = strlen(bound);
    return count > length || (count == length && memcmp(digits, bound, count) > 0);
}

static void scan_number(struct scan *scan)
{
    const char *begin = scan->bytes + scan->at;
    size_t count = 0;
    while (count < scan->length - scan->at && begin[count] &&
           strchr("+-.0123456789Ee", begin[count]))
        count++;
    bool negative = *begin == '-', whole = count > negative && begin[negative] != '0';
    for (size_t i = negative; i < count; i++)
        whole &= begin[i] >= '0' && begin[i] <= '9';
    copy(scan, count);
    if (!whole || !is_beyond(begin + negative, count - negative, negative))
        return;
    memcpy(scan->text->bytes + scan->text->length, JSON_TEXT_BEYOND, strlen(JSON_TEXT_BEYOND));
    scan->text->length += strlen(JSON_TEXT_BEYOND);
}

static enum status scan_all(struct scan *scan, struct error *err)
{
    size_t containers = 0;
    while (scan->at < scan->length) {
        char c = scan->bytes[scan->at];
        if (c == '"') {
            TRY(scan_string(scan, err));
            continue;
        }
        if (c == '-' || (c >= '0' && c <= '9')) {
            scan_number(scan);
            continue;
        }
        if (c == ':' && scan->escaped_nul)
            return error_set(err, STATUS_INVALID, "the key before byte %zu has a NUL inside",
                             scan->at);
        if ((unsigned char)c < 0x20 && c != '\t' && c != '\n' && c != '\r')
            return error_set(err, STATUS_INVALID, "not JSON: a control byte at byte %zu", scan->at);
        scan->text->member_count += c == ':';
        containers += c == '[' || c == '{';
        if (containers > JSON_LIMIT_CONTAINERS)
            return error_set(err, STATUS_LIMIT, "JSON of more than %u arrays and objects",
                             JSON_LIMIT_CONTAINERS);
        copy(scan, 1);
    }
    return STATUS_OK;
}

enum status json_text_init(struct json_text *text, const char *bytes, size_t length,
                           struct error *err)
{
    size_t bad_offset;
    if (!utf8_valid(bytes, length, &bad_offset))
        return error_set(err, STATUS_INVALID, "not JSON: no valid UTF-8 at byte %zu", bad_offset);
    *text = (struct json_text){
        .bytes = malloc(length + length / 8 + 4)}; /* numbers that grow are long */
    ASSERT(text->bytes);
    struct scan scan = {.bytes = bytes, .length = length, .text = text};
    enum status status = scan_all(&scan, err);
    if (status != STATUS_OK)
        json_text_deinit(text);
    return status;
}

void json_text_deinit(struct json_text *text)
{
    free(text->bytes);
    *text = (struct json_text){0};
}
