#include "common/language/chat/json_values.h"

#include "common/base/arena.h"

#include <float.h>
#include <string.h>

static enum status make(const struct json_values *values, const struct json_value *json, int depth,
                        struct value *out, struct error *err);

static enum status full(struct error *err)
{
    return error_set(err, STATUS_LIMIT, "the request takes too much memory");
}

static enum status make_string(const struct json_values *values, const char *text, size_t length,
                               struct value *out, struct error *err)
{
    if (values->copies && !(text = arena_copy(values->arena, text, length + 1)))
        return full(err);
    *out = value_string(text, length, true);
    return STATUS_OK;
}

static enum status make_list(const struct json_values *values, const struct json_value *json,
                             int depth, struct value *out, struct error *err)
{
    struct value_sequence *list = value_sequence_make(values->arena, "list", json_count(json));
    if (!list)
        return full(err);
    for (; list->count < json_count(json); list->count++) {
        enum status status =
            make(values, json_at(json, list->count), depth + 1, &list->items[list->count], err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "[%zu]", list->count);
    }
    *out = value_sequence(VALUE_LIST, list);
    return STATUS_OK;
}

static enum status make_dict(const struct json_values *values, const struct json_value *json,
                             int depth, struct value *out, struct error *err)
{
    struct value_dict *dict = value_dict_make(values->arena, json_count(json));
    if (!dict)
        return full(err);
    for (struct json_member m = {0}; json_next(json, &m);) {
        struct value key, value;
        TRY(make_string(values, m.key, strlen(m.key), &key, err));
        enum status status = make(values, m.value, depth + 1, &value, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"%.40s\"", m.key);
        if (!value_dict_add(values->arena, dict, key, value))
            return full(err);
    }
    *out = value_dict(dict);
    return STATUS_OK;
}

static enum status make(const struct json_values *values, const struct json_value *json, int depth,
                        struct value *out, struct error *err)
{
    const char *text;
    size_t length;
    bool boolean;
    int64_t integer;
    double real;
    if (depth > JSON_VALUES_LIMIT_DEPTH)
        return error_set(err, STATUS_LIMIT, "nested deeper than %d", JSON_VALUES_LIMIT_DEPTH);
    switch (json_kind(json)) {
    case JSON_BOOL:
        TRY(json_as_bool(json, &boolean, err));
        *out = value_bool(boolean);
        return STATUS_OK;
    case JSON_INTEGER: /* a template may ask for its negative, which the smallest has not */
        TRY(json_as_i64(json, INT64_MIN + 1, INT64_MAX, &integer, err));
        *out = value_int(integer);
        return STATUS_OK;
    case JSON_NUMBER:
        TRY(json_as_double(json, -DBL_MAX, DBL_MAX, &real, err));
        *out = value_float(real);
        return STATUS_OK;
    case JSON_STRING:
        TRY(json_as_string(json, &text, &length, err));
        return make_string(values, text, length, out, err);
    case JSON_ARRAY: return make_list(values, json, depth, out, err);
    case JSON_OBJECT: return make_dict(values, json, depth, out, err);
    default: *out = value_none(); return STATUS_OK;
    }
}

enum status json_values_make(const struct json_values *values, const struct json_value *json,
                             struct value *out, struct error *err)
{
    return make(values, json, 0, out, err);
}
