/* Values for a template from JSON: what Python's json.loads would give it. Strings come from the
 * request, so they are marked as input; they point into the document, which must outlive the
 * values, unless they are copied. */
#ifndef BATON_LANGUAGE_CHAT_JSON_VALUES_H
#define BATON_LANGUAGE_CHAT_JSON_VALUES_H

#include "common/base/json/json.h"
#include "common/language/template/value.h"

struct json_values {
    struct arena *arena;
    bool copies; /* strings into the arena, too */
};

/* STATUS_INVALID for a number that Python has and this doesn't: an integer beyond int64 (or its
 * smallest), one that isn't finite; STATUS_LIMIT where the arena is full or nesting is deeper than
 * JSON_VALUES_LIMIT_DEPTH. The sentence has the path. */
#define JSON_VALUES_LIMIT_DEPTH 100
enum status json_values_make(const struct json_values *values, const struct json_value *json,
                             struct value *out, struct error *err) WARN_UNUSED;

#endif
