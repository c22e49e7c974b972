#include "router/doors/openai/openai_fields.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define EXACT_INTEGERS 9007199254740992.0 /* a double holds every integer up to this one */

bool openai_field_refuse(const struct openai_fields *fields, const char *key, enum reason reason,
                         const char *format, ...)
{
    char param[OPENAI_PARAM_BYTES];
    struct error why;
    va_list args;
    snprintf(param, sizeof param, "%s%s", fields->prefix, key);
    va_start(args, format);
    error_vset(&why, STATUS_INVALID, format, args);
    va_end(args);
    return openai_refuse(fields->refusal, reason, param, "%s: %s", param, why.text);
}

const struct json_value *openai_field(const struct openai_fields *fields, const char *key)
{
    return fields->refusal->reason ? NULL : json_find(fields->object, key);
}

static bool malformed(const struct openai_fields *fields, const char *key, const struct error *why)
{
    return openai_field_refuse(fields, key, REASON_MALFORMED, "%s", why->text);
}

bool openai_field_bool(const struct openai_fields *fields, const char *key, bool *out)
{
    struct error why;
    const struct json_value *value = openai_field(fields, key);
    if (!value)
        return false;
    return json_as_bool(value, out, &why) == STATUS_OK || malformed(fields, key, &why);
}

bool openai_value_integer(const struct json_value *value, int64_t min, int64_t max, int64_t *out,
                          struct error *err)
{
    double number;
    if (json_kind(value) != JSON_NUMBER ||
        json_as_double(value, -EXACT_INTEGERS, EXACT_INTEGERS, &number, err) != STATUS_OK ||
        number != trunc(number))
        return json_as_i64(value, min, max, out, err) == STATUS_OK;
    if (number < (double)min || number > (double)max) {
        error_set(err, STATUS_INVALID, "%.0f is not within %lld..%lld", number, (long long)min,
                  (long long)max);
        return false;
    }
    *out = (int64_t)number;
    return true;
}

bool openai_field_integer(const struct openai_fields *fields, const char *key, int64_t min,
                          int64_t max, int64_t *out)
{
    struct error why;
    const struct json_value *value = openai_field(fields, key);
    if (!value)
        return false;
    return openai_value_integer(value, min, max, out, &why) || malformed(fields, key, &why);
}

/* Returns the largest or the smallest integer for one that has more than 64 bits. */
static bool read_whole(const struct json_value *value, int64_t *out, struct error *err)
{
    double large;
    if (openai_value_integer(value, INT64_MIN, INT64_MAX, out, err))
        return true;
    if (json_kind(value) != JSON_INTEGER ||
        json_as_double(value, -DBL_MAX, DBL_MAX, &large, err) != STATUS_OK)
        return false;
    *out = large < 0 ? INT64_MIN : INT64_MAX;
    return true;
}

bool openai_field_range(const struct openai_fields *fields, const char *key, uint32_t min,
                        uint32_t max, uint32_t *out)
{
    struct error why;
    int64_t number;
    const struct json_value *value = openai_field(fields, key);
    if (!value)
        return false;
    if (!read_whole(value, &number, &why))
        return malformed(fields, key, &why);
    if (number == INT64_MIN || number == INT64_MAX)
        return openai_refuse(fields->refusal, REASON_INVALID_SAMPLING, key,
                             "%s must be between %u and %u, got a number of more than 63 bits", key,
                             min, max);
    if (number < min || number > max)
        return openai_refuse(fields->refusal, REASON_INVALID_SAMPLING, key,
                             "%s must be between %u and %u, got %lld", key, min, max,
                             (long long)number);
    *out = (uint32_t)number;
    return true;
}

bool openai_field_float(const struct openai_fields *fields, const char *key, float *out)
{
    struct error why;
    double number;
    const struct json_value *value = openai_field(fields, key);
    if (!value)
        return false;
    if (json_as_double(value, -(double)FLT_MAX, (double)FLT_MAX, &number, &why) != STATUS_OK)
        return malformed(fields, key, &why);
    *out = (float)number;
    return true;
}

bool openai_field_text(const struct openai_fields *fields, const char *key, const char **out)
{
    struct error why;
    const struct json_value *value = openai_field(fields, key);
    if (!value)
        return false;
    return json_as_string(value, out, NULL, &why) == STATUS_OK || malformed(fields, key, &why);
}

bool openai_field_content(const struct openai_fields *fields, const char *key, struct text *out)
{
    struct error why;
    struct text text;
    const struct json_value *value = openai_field(fields, key);
    if (!value)
        return false;
    if (json_as_string(value, &text.bytes, &text.length, &why) != STATUS_OK)
        return malformed(fields, key, &why);
    *out = text;
    return true;
}

static bool container(const struct openai_fields *fields, const char *key, enum json_kind kind,
                      const struct json_value **out)
{
    const struct json_value *value = openai_field(fields, key);
    if (!value)
        return false;
    if (json_kind(value) != kind)
        return openai_field_refuse(fields, key, REASON_MALFORMED, "expected %s, found %s",
                                   kind == JSON_ARRAY ? "an array" : "an object",
                                   json_kind_name(value));
    *out = value;
    return true;
}

bool openai_field_array(const struct openai_fields *fields, const char *key,
                        const struct json_value **out)
{
    return container(fields, key, JSON_ARRAY, out);
}

bool openai_field_object(const struct openai_fields *fields, const char *key,
                         const struct json_value **out)
{
    return container(fields, key, JSON_OBJECT, out);
}

bool openai_array_ids(const struct openai_fields *fields, const char *name, enum reason reason,
                      const struct json_value *array, struct arena *arena, struct openai_ids *out)
{
    size_t count = json_count(array);
    uint32_t *ids = arena_take(arena, (count + 1) * sizeof *ids);
    if (!ids)
        return openai_field_refuse(fields, name, reason, "too many token ids");
    for (size_t i = 0; i < count; i++) {
        struct error why;
        int64_t id;
        if (!openai_value_integer(json_at(array, i), 0, UINT32_MAX, &id, &why))
            return openai_field_refuse(fields, name, reason, "[%zu]: %s", i, why.text);
        ids[i] = (uint32_t)id;
    }
    *out = (struct openai_ids){ids, count};
    return true;
}
