/* Reads JSON that comes from outside, within bounds. (JSON that we write is made by hand with
 * json_quote.h.)
 *
 * A document is parsed whole and strictly: RFC 8259, valid UTF-8, one value with nothing behind it,
 * no key twice in an object, no NUL in a key. It is read-only afterwards: any thread may read it
 * until json_destroy. Values belong to their document. JSON's null and an absent member are both
 * the NULL value, and every function takes it.
 *
 * Integers are exact within int64, and by json_as_u64 up to 2^64 - 1. The parser keeps the text of
 * a larger number, or of one that isn't finite; the getter refuses it. A lone surrogate escape
 * reads as U+FFFD. Memory: about 20 times the text, and 400 bytes for each array or object.
 * Failures: STATUS_INVALID (malformed, wrong type, out of range), STATUS_LIMIT (too long, too
 * deep), STATUS_NOT_FOUND (no such file, absent member), STATUS_IO; each with a sentence. */
#ifndef BATON_BASE_JSON_JSON_H
#define BATON_BASE_JSON_JSON_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json;       /* a document */
struct json_value; /* a value in it */

#define JSON_LIMIT_CONTAINERS (1u << 20) /* arrays and objects in a document */

struct json_limits {
    size_t max_bytes; /* text, < 2 GiB */
    int max_depth;    /* nested arrays and objects, 1..1000 */
};

enum status json_parse(const char *bytes, size_t length, struct json_limits limits,
                       struct json **json, struct error *err) WARN_UNUSED;
/* The sentence starts with the path. The file must be a regular one. */
enum status json_read_file(const char *path, struct json_limits limits, struct json **json,
                           struct error *err) WARN_UNUSED;
void json_destroy(struct json *json); /* NULL is fine */
const struct json_value *json_root(const struct json *json);

enum json_kind {
    JSON_NULL,
    JSON_BOOL,
    JSON_INTEGER,
    JSON_NUMBER, /* with a fraction or an exponent */
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

enum json_kind json_kind(const struct json_value *value);
const char *json_kind_name(const struct json_value *value); /* "a string", for sentences */

/* Read the value itself. Outputs are written only on success. */
enum status json_as_bool(const struct json_value *value, bool *out, struct error *err) WARN_UNUSED;
enum status json_as_i64(const struct json_value *value, int64_t min, int64_t max, int64_t *out,
                        struct error *err) WARN_UNUSED;
/* Reads an integer up to 2^64 - 1. */
enum status json_as_u64(const struct json_value *value, uint64_t min, uint64_t max, uint64_t *out,
                        struct error *err) WARN_UNUSED;
/* Reads integers too. The result is always finite. */
enum status json_as_double(const struct json_value *value, double min, double max, double *out,
                           struct error *err) WARN_UNUSED;
/* Returns the text, [*length] bytes, of an integer beyond 64 bits (json_as_double returns the
 * nearest double), or of a number too large to be finite. NULL: any other value. */
const char *json_large_number(const struct json_value *value, size_t *length);
/* The text is NUL-terminated and valid UTF-8. With length == NULL a string with a NUL inside is
 * refused. */
enum status json_as_string(const struct json_value *value, const char **text, size_t *length,
                           struct error *err) WARN_UNUSED;

/* Read a member of an object. The sentence names the key. STATUS_NOT_FOUND: it is absent or null.
 */
enum status json_get_bool(const struct json_value *object, const char *key, bool *out,
                          struct error *err) WARN_UNUSED;
/* Reads a member that may be absent or null. Then `out` stays as it is. */
enum status json_get_optional_bool(const struct json_value *object, const char *key, bool *out,
                                   struct error *err) WARN_UNUSED;
enum status json_get_i64(const struct json_value *object, const char *key, int64_t min, int64_t max,
                         int64_t *out, struct error *err) WARN_UNUSED;
enum status json_get_double(const struct json_value *object, const char *key, double min,
                            double max, double *out, struct error *err) WARN_UNUSED;
enum status json_get_string(const struct json_value *object, const char *key, const char **text,
                            size_t *length, struct error *err) WARN_UNUSED;
enum status json_get_array(const struct json_value *object, const char *key,
                           const struct json_value **array, struct error *err) WARN_UNUSED;
enum status json_get_object(const struct json_value *object, const char *key,
                            const struct json_value **member, struct error *err) WARN_UNUSED;

/* Returns NULL when `object` isn't an object, or the member is absent or null. Use it to test for
 * an optional member. */
const struct json_value *json_find(const struct json_value *object, const char *key);
/* Elements of an array, members of an object; 0 for any other value. */
size_t json_count(const struct json_value *value);
const struct json_value *json_at(const struct json_value *array, size_t index); /* < json_count */

/* Iterates over the members of an object in the order of the text:
 *      for (struct json_member m = {0}; json_next(object, &m);) use(m.key, m.value); */
struct json_member {
    const char *key;
    const struct json_value *value;
    const void *cursor; /* private */
};
bool json_next(const struct json_value *object, struct json_member *member);

#endif
