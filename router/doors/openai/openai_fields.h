/* The members of a JSON object as clients send them: null is the same as absent, 3.0 is an integer,
 * and what nobody asks for is passed over. PURE. After the first failure, which `refusal` keeps,
 * every function finds nothing, so that nobody has to look between two of them.
 *
 * The functions return true, and write their output, where the member is there and fine. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_FIELDS_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_FIELDS_H

#include "common/base/arena.h"
#include "common/base/json/json.h"
#include "router/doors/openai/openai_error.h"

struct openai_ids {
    uint32_t *ids;
    size_t count;
};

struct openai_fields {
    const struct json_value *object; /* one that isn't an object has no members */
    const char *prefix;              /* of names: "", "stream_options." */
    struct openai_refusal *refusal;
};

const struct json_value *openai_field(const struct openai_fields *fields, const char *key);
bool openai_field_bool(const struct openai_fields *fields, const char *key, bool *out);
bool openai_field_integer(const struct openai_fields *fields, const char *key, int64_t min,
                          int64_t max, int64_t *out);
/* As the validator says it (request_parse.h), of numbers that its messages have no room for,
 * too. */
bool openai_field_range(const struct openai_fields *fields, const char *key, uint32_t min,
                        uint32_t max, uint32_t *out);
/* Finite as a float. */
bool openai_field_float(const struct openai_fields *fields, const char *key, float *out);
/* Without a NUL inside, since what follows are C strings. */
bool openai_field_text(const struct openai_fields *fields, const char *key, const char **out);
bool openai_field_array(const struct openai_fields *fields, const char *key,
                        const struct json_value **out);
bool openai_field_object(const struct openai_fields *fields, const char *key,
                         const struct json_value **out);
/* For `key` of these fields, with its prefix. */
bool openai_field_refuse(const struct openai_fields *fields, const char *key, enum reason reason,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The elements of an array, as token ids in `arena`; `reason` where one isn't. `name` is the
 * field's, or an element's of it. */
bool openai_array_ids(const struct openai_fields *fields, const char *name, enum reason reason,
                      const struct json_value *array, struct arena *arena, struct openai_ids *out);

/* An element or a member by itself. */
bool openai_value_integer(const struct json_value *value, int64_t min, int64_t max, int64_t *out,
                          struct error *err);

#endif
