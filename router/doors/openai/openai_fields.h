/* Reads the members of a JSON object that a client sent. PURE.
 *
 * Lenient: null means absent, 3.0 is an integer, and unknown members are ignored. The first failure
 * is kept in `refusal`. After it every function finds nothing, so a caller may check once, at the
 * end.
 *
 * Each function returns true, and writes its output, if the member is present and valid. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_FIELDS_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_FIELDS_H

#include "common/base/arena.h"
#include "common/base/json/json.h"
#include "common/base/str.h"
#include "router/doors/openai/openai_error.h"

struct openai_ids {
    uint32_t *ids; /* [count], in the caller's arena */
    size_t count;
};

struct openai_fields {
    const struct json_value *object; /* a value that isn't an object has no members */
    const char *prefix;              /* before the members' names: "", "stream_options." */
    struct openai_refusal *refusal;
};

/* NULL: absent, or there is a failure already. */
const struct json_value *openai_field(const struct openai_fields *fields, const char *key);
bool openai_field_bool(const struct openai_fields *fields, const char *key, bool *out);
bool openai_field_integer(const struct openai_fields *fields, const char *key, int64_t min,
                          int64_t max, int64_t *out);
/* Refuses with the sentence of the validator (request_parse.h), also for numbers too large for the
 * field of the message. */
bool openai_field_range(const struct openai_fields *fields, const char *key, uint32_t min,
                        uint32_t max, uint32_t *out);
/* The value must be finite as a float. */
bool openai_field_float(const struct openai_fields *fields, const char *key, float *out);
/* The text must have no NUL inside: a name. */
bool openai_field_text(const struct openai_fields *fields, const char *key, const char **out);
/* A text that a tokenizer or a template gets: a NUL is a character like others. */
bool openai_field_content(const struct openai_fields *fields, const char *key, struct text *out);
bool openai_field_array(const struct openai_fields *fields, const char *key,
                        const struct json_value **out);
bool openai_field_object(const struct openai_fields *fields, const char *key,
                         const struct json_value **out);
/* Refuses the member `key`; the refusal names it with its prefix. Returns false. */
bool openai_field_refuse(const struct openai_fields *fields, const char *key, enum reason reason,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Writes the elements of `array` to `arena` as token ids; `reason` if one isn't an id. `name` is
 * that of the field, or of the element of the field that holds the array. */
bool openai_array_ids(const struct openai_fields *fields, const char *name, enum reason reason,
                      const struct json_value *array, struct arena *arena, struct openai_ids *out);

/* The integer in `value`, which is an element or a member. False: *err says why. */
bool openai_value_integer(const struct json_value *value, int64_t min, int64_t max, int64_t *out,
                          struct error *err);

#endif
