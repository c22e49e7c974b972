/* Any bytes as JSON text. The target walks an accepted text completely. Each of its strings, quoted
 * again, reads as itself. */
#include "common/base/json/json.h"
#include "common/base/json/json_quote.h"
#include "common/base/str.h"
#include "common/base/utf8.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

#define MAX_DEPTH 32

static void check_quote(const char *text, size_t length)
{
    struct str quoted;
    str_init(&quoted, 8 * length + 16);
    json_quote(&quoted, text, length);
    FUZZ_CHECK(!quoted.truncated);
    struct json *json;
    struct error err;
    struct json_limits limits = {.max_bytes = quoted.length, .max_depth = 1};
    FUZZ_CHECK(json_parse(quoted.data, quoted.length, limits, &json, &err) == STATUS_OK);
    const char *again;
    size_t again_length;
    FUZZ_CHECK(json_as_string(json_root(json), &again, &again_length, &err) == STATUS_OK);
    FUZZ_CHECK(again_length == length && !memcmp(again, text, length));
    json_destroy(json);
    str_deinit(&quoted);
}

/* Every getter takes every value: it gives one in its bounds, or a sentence. */
static void check_getters(const struct json_value *value)
{
    struct error err;
    bool flag;
    int64_t integer = 0;
    double number = 0;
    const char *text;
    size_t length;
    if (json_as_bool(value, &flag, &err) != STATUS_OK)
        fuzz_check_sentence(err.text);
    if (json_as_i64(value, -7, 1000, &integer, &err) != STATUS_OK)
        fuzz_check_sentence(err.text);
    FUZZ_CHECK(integer >= -7 && integer <= 1000);
    if (json_as_double(value, -1e9, 1e9, &number, &err) != STATUS_OK)
        fuzz_check_sentence(err.text);
    FUZZ_CHECK(isfinite(number) && number >= -1e9 && number <= 1e9);
    if (json_as_string(value, &text, NULL, &err) != STATUS_OK)
        fuzz_check_sentence(err.text);
    if (json_as_string(value, &text, &length, &err) != STATUS_OK) {
        fuzz_check_sentence(err.text);
        return;
    }
    FUZZ_CHECK(utf8_valid(text, length, NULL) && !text[length]);
    check_quote(text, length);
}

static void walk(const struct json_value *value, int depth)
{
    FUZZ_CHECK(depth <= MAX_DEPTH);
    check_getters(value);
    FUZZ_CHECK(*json_kind_name(value));
    size_t members = 0;
    if (json_kind(value) == JSON_ARRAY)
        for (size_t i = 0; i < json_count(value); i++)
            walk(json_at(value, i), depth + 1);
    for (struct json_member m = {0}; json_next(value, &m); members++) {
        FUZZ_CHECK(json_find(value, m.key) == m.value);
        walk(m.value, depth + 1);
    }
    FUZZ_CHECK(json_kind(value) != JSON_OBJECT || members == json_count(value));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json *json;
    struct error err;
    struct json_limits limits = {.max_bytes = 1 << 16, .max_depth = MAX_DEPTH};
    if (json_parse((const char *)data, size, limits, &json, &err) == STATUS_OK) {
        FUZZ_CHECK(size <= limits.max_bytes);
        walk(json_root(json), 0);
        json_destroy(json);
    } else {
        fuzz_check_sentence(err.text);
    }
    return 0;
}
