#include "common/base/json/json.h"

#include "common/base/assert.h"
#include "common/base/file_read.h"
#include "common/base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct json {
    struct json_object *root;
};

static struct json_object *inside(const struct json_value *value)
{
    /* json-c's getters don't write, though they take no const */
    return (struct json_object *)value;
}

static const struct json_value *outside(struct json_object *object)
{
    return (const struct json_value *)object;
}

/* --- the text before json-c ---
 *
 * json-c 0.16 accepts, loses or changes some text. A scan before it handles UTF-8 of surrogates,
 * control bytes, and a NUL in a key (json-c cuts the key there). It counts members, because json-c
 * keeps the last of equal keys. It decodes surrogate pairs, because json-c turns every
 * sixty-fourth into U+FFFD. It marks integers beyond 64 bits, because json-c makes them the
 * largest. */

/* Stands behind an integer beyond 64 bits. It makes the same number a double, and json-c keeps the
 * text of those. */
#define JSON_TEXT_BEYOND "e0"

struct json_text {
    /* the caller's text with JSON_TEXT_BEYOND; surrogate pairs are UTF-8, lone ones U+FFFD */
    char *bytes;
    size_t length;
    size_t member_count; /* in all objects; json-c's document has fewer if keys were equal */
};

struct scan {
    const char *bytes;
    size_t length, at;
    struct json_text *text;
    bool escaped_nul; /* the string just read has one */
};

static void copy(struct scan *scan, size_t count)
{
    memcpy(scan->text->bytes + scan->text->length, scan->bytes + scan->at, count);
    scan->text->length += count;
    scan->at += count;
}

/* Returns the value of \uXXXX at `at`, or UINT32_MAX when there is none. */
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

/* Returns whether json-c would change the integer. */
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

static void json_text_deinit(struct json_text *text)
{
    free(text->bytes);
    *text = (struct json_text){0};
}

static enum status json_text_init(struct json_text *text, const char *bytes, size_t length,
                                  struct error *err)
{
    size_t bad_offset;
    if (!utf8_valid(bytes, length, &bad_offset))
        return error_set(err, STATUS_INVALID, "not JSON: no valid UTF-8 at byte %zu", bad_offset);
    *text = (struct json_text){/* JSON_TEXT_BEYOND lengthens only long numbers */
                               .bytes = malloc(length + length / 8 + 4)};
    ASSERT(text->bytes);
    struct scan scan = {.bytes = bytes, .length = length, .text = text};
    enum status status = scan_all(&scan, err);
    if (status != STATUS_OK)
        json_text_deinit(text);
    return status;
}

/* --- parsing --- */

/* The parser's depth limit bounds the recursion. */
static size_t count_members(const struct json_value *value)
{
    size_t count = 0;
    if (json_kind(value) == JSON_ARRAY) {
        for (size_t i = 0; i < json_count(value); i++)
            count += count_members(json_at(value, i));
    }
    for (struct json_member m = {0}; json_next(value, &m);)
        count += 1 + count_members(m.value);
    return count;
}

static enum status parse_text(const struct json_text *text, int max_depth,
                              struct json_object **root, struct error *err)
{
    struct json_tokener *tokener = json_tokener_new_ex(max_depth);
    ASSERT(tokener);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    *root = json_tokener_parse_ex(tokener, text->bytes, (int)text->length);
    bool whole = json_tokener_get_parse_end(tokener) == text->length;
    bool at_end = json_tokener_get_error(tokener) == json_tokener_continue;
    if (at_end) /* a number must see the end to be one */
        *root = json_tokener_parse_ex(tokener, "", 1);
    enum json_tokener_error code = json_tokener_get_error(tokener);
    enum status status = STATUS_OK;
    if (code != json_tokener_success && at_end)
        status = error_set(err, STATUS_INVALID, "not JSON: the text ends too early");
    else if (code == json_tokener_error_depth)
        status = error_set(err, STATUS_LIMIT, "JSON is nested deeper than %d", max_depth);
    else if (code != json_tokener_success)
        status = error_set(err, STATUS_INVALID, "not JSON: %s at byte %zu",
                           json_tokener_error_desc(code), json_tokener_get_parse_end(tokener));
    else if (!whole)
        status = error_set(err, STATUS_INVALID, "not JSON: more text behind the value");
    json_tokener_free(tokener);
    return status;
}

enum status json_parse(const char *bytes, size_t length, struct json_limits limits,
                       struct json **json, struct error *err)
{
    ASSERT(limits.max_bytes < INT_MAX && limits.max_depth >= 1 && limits.max_depth <= 1000);
    if (length > limits.max_bytes)
        return error_set(err, STATUS_LIMIT, "JSON of %zu bytes is over the limit of %zu", length,
                         limits.max_bytes);
    while (length && memchr(" \t\n\r", bytes[length - 1], 4))
        length--;
    struct json_text text = {0};
    TRY(json_text_init(&text, bytes, length, err));
    struct json_object *root = NULL;
    enum status status = parse_text(&text, limits.max_depth, &root, err);
    if (status == STATUS_OK && count_members(outside(root)) != text.member_count)
        status = error_set(err, STATUS_INVALID, "an object in the JSON has the same key twice");
    json_text_deinit(&text);
    if (status != STATUS_OK) {
        json_object_put(root);
        return status;
    }
    *json = malloc(sizeof **json);
    ASSERT(*json);
    (*json)->root = root;
    return STATUS_OK;
}

static enum status read_whole(int fd, char *bytes, size_t length, struct error *err)
{
    for (size_t at = 0; at < length;) {
        ssize_t got = read(fd, bytes + at, length - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, STATUS_IO, "%s", strerror(errno));
        if (got == 0)
            return error_set(err, STATUS_IO, "the file became shorter while it was read");
        at += (size_t)got;
    }
    return STATUS_OK;
}

static enum status read_open_file(int fd, struct json_limits limits, struct json **json,
                                  struct error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return error_set(err, STATUS_IO, "%s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return error_set(err, STATUS_INVALID, "not a regular file");
    if ((uint64_t)info.st_size > limits.max_bytes)
        return error_set(err, STATUS_LIMIT, "%llu bytes are over the limit of %zu",
                         (unsigned long long)info.st_size, limits.max_bytes);
    size_t length = (size_t)info.st_size;
    char *bytes = malloc(length + 1);
    ASSERT(bytes);
    enum status status = read_whole(fd, bytes, length, err);
    if (status == STATUS_OK && file_is_lfs_pointer(bytes, length))
        status = error_set(err, STATUS_INVALID, FILE_LFS_SENTENCE);
    if (status == STATUS_OK)
        status = json_parse(bytes, length, limits, json, err);
    free(bytes);
    return status;
}

enum status json_read_file(const char *path, struct json_limits limits, struct json **json,
                           struct error *err)
{
    /* O_NONBLOCK: don't wait at a pipe without a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: %s", path,
                         strerror(errno));
    enum status status = read_open_file(fd, limits, json, err);
    close(fd);
    return status == STATUS_OK ? status : error_prefix(err, status, "%s", path);
}

void json_destroy(struct json *json)
{
    if (!json)
        return;
    json_object_put(json->root);
    free(json);
}

const struct json_value *json_root(const struct json *json)
{
    return outside(json->root);
}

/* --- values --- */

const char *json_large_number(const struct json_value *value, size_t *length)
{
    struct json_object *object = inside(value);
    if (json_object_get_type(object) != json_type_double)
        return NULL;
    double number = json_object_get_double(object);
    const char *text = json_object_get_userdata(object); /* json_object_new_double_s */
    if (!text)                                           /* Infinity and NaN, which json-c takes */
        return NULL;
    size_t digits = strspn(text, "-0123456789");
    bool whole = fabs(number) >= 0x1p63 && !strcmp(text + digits, JSON_TEXT_BEYOND);
    if (!whole && isfinite(number))
        return NULL;
    *length = whole ? digits : strlen(text);
    return text;
}

enum json_kind json_kind(const struct json_value *value)
{
    switch (json_object_get_type(inside(value))) {
    case json_type_null: return JSON_NULL;
    case json_type_boolean: return JSON_BOOL;
    case json_type_int: return JSON_INTEGER;
    case json_type_double: {
        size_t length;
        const char *text = json_large_number(value, &length);
        return text && text[length] ? JSON_INTEGER : JSON_NUMBER; /* JSON_TEXT_BEYOND behind it */
    }
    case json_type_string: return JSON_STRING;
    case json_type_array: return JSON_ARRAY;
    case json_type_object: return JSON_OBJECT;
    }
    return JSON_NULL;
}

const char *json_kind_name(const struct json_value *value)
{
    static const char *const names[] = {
        [JSON_NULL] = "null",         [JSON_BOOL] = "true or false", [JSON_INTEGER] = "an integer",
        [JSON_NUMBER] = "a fraction", [JSON_STRING] = "a string",    [JSON_ARRAY] = "an array",
        [JSON_OBJECT] = "an object",
    };
    if (json_kind(value) == JSON_NUMBER) {
        double number = json_object_get_double(inside(value));
        if (number == trunc(number))
            return "a number with a point or an exponent";
    }
    return names[json_kind(value)];
}

static enum status wrong_type(const struct json_value *value, const char *expected,
                              struct error *err)
{
    return error_set(err, STATUS_INVALID, "expected %s, found %s", expected, json_kind_name(value));
}

enum status json_as_bool(const struct json_value *value, bool *out, struct error *err)
{
    if (json_kind(value) != JSON_BOOL)
        return wrong_type(value, "true or false", err);
    *out = json_object_get_boolean(inside(value));
    return STATUS_OK;
}

static int shown(size_t length) /* limits the digits in a sentence */
{
    return length < 40 ? (int)length : 40;
}

enum status json_as_i64(const struct json_value *value, int64_t min, int64_t max, int64_t *out,
                        struct error *err)
{
    if (json_kind(value) != JSON_INTEGER)
        return wrong_type(value, "an integer", err);
    size_t length;
    const char *large = json_large_number(value, &length);
    int64_t number = large ? 0 : json_object_get_int64(inside(value));
    /* Beyond int64 json-c keeps a uint64 and hands out its saturated value. */
    bool beyond = number == INT64_MAX && json_object_get_uint64(inside(value)) > INT64_MAX;
    if (large && *large == '-')
        return error_set(err, STATUS_INVALID, "%.*s is not within %lld..%lld", shown(length), large,
                         (long long)min, (long long)max);
    if (large || beyond)
        return error_set(err, STATUS_INVALID, "the number is over %lld", (long long)max);
    if (number < min || number > max)
        return error_set(err, STATUS_INVALID, "%lld is not within %lld..%lld", (long long)number,
                         (long long)min, (long long)max);
    *out = number;
    return STATUS_OK;
}

enum status json_as_u64(const struct json_value *value, uint64_t min, uint64_t max, uint64_t *out,
                        struct error *err)
{
    if (json_kind(value) != JSON_INTEGER)
        return wrong_type(value, "an integer", err);
    size_t length;
    const char *large = json_large_number(value, &length);
    if (large)
        return error_set(err, STATUS_INVALID, "%.*s is not within %llu..%llu", shown(length), large,
                         (unsigned long long)min, (unsigned long long)max);
    int64_t small = json_object_get_int64(inside(value)); /* INT64_MAX if it is larger */
    uint64_t number = small < 0 ? 0 : json_object_get_uint64(inside(value));
    if (small < 0 || number < min || number > max)
        return error_set(err, STATUS_INVALID, "%s is not within %llu..%llu",
                         json_object_get_string(inside(value)), (unsigned long long)min,
                         (unsigned long long)max);
    *out = number;
    return STATUS_OK;
}

enum status json_as_double(const struct json_value *value, double min, double max, double *out,
                           struct error *err)
{
    if (json_kind(value) != JSON_INTEGER && json_kind(value) != JSON_NUMBER)
        return wrong_type(value, "a number", err);
    double number = json_object_get_double(inside(value));
    if (!isfinite(number) || number < min || number > max)
        return error_set(err, STATUS_INVALID, "%g is not within %g..%g", number, min, max);
    *out = number;
    return STATUS_OK;
}

enum status json_as_string(const struct json_value *value, const char **text, size_t *length,
                           struct error *err)
{
    if (json_kind(value) != JSON_STRING)
        return wrong_type(value, "a string", err);
    const char *data = json_object_get_string(inside(value));
    size_t bytes = (size_t)json_object_get_string_len(inside(value));
    if (!length && strlen(data) != bytes)
        return error_set(err, STATUS_INVALID, "the string has a NUL inside");
    *text = data;
    if (length)
        *length = bytes;
    return STATUS_OK;
}

static enum status get(const struct json_value *object, const char *key,
                       const struct json_value **member, struct error *err)
{
    if (json_kind(object) != JSON_OBJECT)
        return wrong_type(object, "an object", err);
    *member = json_find(object, key);
    return *member ? STATUS_OK : error_set(err, STATUS_NOT_FOUND, "\"%s\" is missing", key);
}

static enum status named(enum status status, const char *key, struct error *err)
{
    return status == STATUS_OK ? status : error_prefix(err, status, "\"%s\"", key);
}

enum status json_get_bool(const struct json_value *object, const char *key, bool *out,
                          struct error *err)
{
    const struct json_value *member;
    TRY(get(object, key, &member, err));
    return named(json_as_bool(member, out, err), key, err);
}

enum status json_get_optional_bool(const struct json_value *object, const char *key, bool *out,
                                   struct error *err)
{
    return json_find(object, key) ? json_get_bool(object, key, out, err) : STATUS_OK;
}

enum status json_get_i64(const struct json_value *object, const char *key, int64_t min, int64_t max,
                         int64_t *out, struct error *err)
{
    const struct json_value *member;
    TRY(get(object, key, &member, err));
    return named(json_as_i64(member, min, max, out, err), key, err);
}

enum status json_get_double(const struct json_value *object, const char *key, double min,
                            double max, double *out, struct error *err)
{
    const struct json_value *member;
    TRY(get(object, key, &member, err));
    return named(json_as_double(member, min, max, out, err), key, err);
}

enum status json_get_string(const struct json_value *object, const char *key, const char **text,
                            size_t *length, struct error *err)
{
    const struct json_value *member;
    TRY(get(object, key, &member, err));
    return named(json_as_string(member, text, length, err), key, err);
}

static enum status get_typed(const struct json_value *object, const char *key, enum json_kind kind,
                             const struct json_value **member, struct error *err)
{
    const struct json_value *found;
    TRY(get(object, key, &found, err));
    if (json_kind(found) != kind)
        return named(wrong_type(found, kind == JSON_ARRAY ? "an array" : "an object", err), key,
                     err);
    *member = found;
    return STATUS_OK;
}

enum status json_get_array(const struct json_value *object, const char *key,
                           const struct json_value **array, struct error *err)
{
    return get_typed(object, key, JSON_ARRAY, array, err);
}

enum status json_get_object(const struct json_value *object, const char *key,
                            const struct json_value **member, struct error *err)
{
    return get_typed(object, key, JSON_OBJECT, member, err);
}

const struct json_value *json_find(const struct json_value *object, const char *key)
{
    struct json_object *member = NULL;
    if (json_kind(object) == JSON_OBJECT)
        json_object_object_get_ex(inside(object), key, &member);
    return outside(member);
}

size_t json_count(const struct json_value *value)
{
    if (json_kind(value) == JSON_ARRAY)
        return json_object_array_length(inside(value));
    if (json_kind(value) == JSON_OBJECT)
        return (size_t)json_object_object_length(inside(value));
    return 0;
}

const struct json_value *json_at(const struct json_value *array, size_t index)
{
    ASSERT(json_kind(array) == JSON_ARRAY && index < json_count(array));
    return outside(json_object_array_get_idx(inside(array), index));
}

bool json_next(const struct json_value *object, struct json_member *member)
{
    if (json_kind(object) != JSON_OBJECT)
        return false;
    const struct lh_entry *entry = member->cursor;
    entry = member->key ? entry->next : json_object_get_object(inside(object))->head;
    if (!entry)
        return false;
    *member = (struct json_member){.key = lh_entry_k(entry),
                                   .value = outside((struct json_object *)lh_entry_v(entry)),
                                   .cursor = entry};
    return true;
}
