#include "common/base/json/json_write.h"

#include "common/base/json/json_quote.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_string(struct str *out, const struct json_value *value)
{
    const char *text;
    size_t length;
    if (json_as_string(value, &text, &length, NULL) == STATUS_OK)
        json_quote(out, text, length);
}

static void write_integer(struct str *out, const struct json_value *value)
{
    int64_t small;
    uint64_t large;
    const char *text;
    size_t length;
    if (json_as_i64(value, INT64_MIN, INT64_MAX, &small, NULL) == STATUS_OK)
        str_addf(out, "%" PRId64, small);
    else if (json_as_u64(value, 0, UINT64_MAX, &large, NULL) == STATUS_OK)
        str_addf(out, "%" PRIu64, large);
    else if ((text = json_large_number(value, &length)))
        str_append(out, text, length);
}

/* Writes the shortest text that reads as this number. A number too large to be finite keeps its
 * text. */
static void write_number(struct str *out, const struct json_value *value)
{
    double number;
    char text[40];
    size_t length;
    const char *large = json_large_number(value, &length);
    if (large || json_as_double(value, -DBL_MAX, DBL_MAX, &number, NULL) != STATUS_OK) {
        str_append(out, large ? large : "null", large ? length : strlen("null"));
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    str_add(out, text);
    if (!strpbrk(text, ".e"))
        str_add(out, ".0");
}

/* The parser's depth limit bounds the recursion. */
void json_write(struct str *out, const struct json_value *value)
{
    bool truth = false;
    switch (json_kind(value)) {
    case JSON_NULL: str_add(out, "null"); break;
    case JSON_BOOL:
        str_add(out, json_as_bool(value, &truth, NULL) == STATUS_OK && truth ? "true" : "false");
        break;
    case JSON_INTEGER: write_integer(out, value); break;
    case JSON_NUMBER: write_number(out, value); break;
    case JSON_STRING: write_string(out, value); break;
    case JSON_ARRAY:
        for (size_t i = 0; i < json_count(value); i++) {
            str_add(out, i ? "," : "[");
            json_write(out, json_at(value, i));
        }
        str_add(out, json_count(value) ? "]" : "[]");
        break;
    case JSON_OBJECT: {
        const char *before = "{";
        for (struct json_member m = {0}; json_next(value, &m); before = ",") {
            str_add(out, before);
            json_quote(out, m.key, strlen(m.key));
            str_add(out, ":");
            json_write(out, m.value);
        }
        str_add(out, json_count(value) ? "}" : "{}");
        break;
    }
    }
}
