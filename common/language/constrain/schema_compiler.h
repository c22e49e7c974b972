/* Internal to schema_*.c: what they share. A value of the document is described by parts: schemas
 * that all apply to it. */
#ifndef BATON_LANGUAGE_CONSTRAIN_SCHEMA_COMPILER_H
#define BATON_LANGUAGE_CONSTRAIN_SCHEMA_COMPILER_H

#include "common/language/constrain/characters.h"
#include "common/language/constrain/number_range.h"
#include "common/language/constrain/schema.h"

#define SCHEMA_NONE UINT32_MAX

/* Where a schema stands in the document, for messages: a chain up to the root. */
struct schema_path {
    uint32_t parent; /* SCHEMA_NONE at the root */
    const char *key; /* NULL: index */
    size_t index;
};

struct schema_part {
    const struct json_value *schema;
    uint32_t path;
    uint32_t parent; /* the part whose $ref, allOf or anyOf brought it in; SCHEMA_NONE */
};

struct schema_parts {
    struct schema_part *list;
    size_t count, capacity;
};

/* A rule that exists, and is still to be filled while `filled` is behind it. */
struct schema_rule {
    struct schema_parts parts;
    const struct json_value *value; /* instead: a constant; `is_value` */
    bool is_value;
    uint32_t rule, path;
    uint32_t next; /* with the same hash */
};

#define SCHEMA_SLOTS 4096

struct schema_compiler {
    struct grammar *grammar;
    struct characters characters;
    const struct json_value *root;
    uint32_t root_path;
    struct json *object; /* {"type":"object"}, once it was wanted; NULL */
    struct schema_path *paths;
    size_t path_count, path_capacity;
    struct schema_rule *rules;
    size_t rule_count, rule_capacity, filled;
    uint32_t slots[SCHEMA_SLOTS]; /* rules + 1 */
    size_t alternatives;
    struct error *err;
};

/* Steps of the whole constraint (compile_steps.h). Where they are over, or anything else, `grammar`
 * is full: nothing goes on, and the rule that was being filled says so. A keyword that is looked at
 * is several. */
#define SCHEMA_KEYWORD_STEPS 16
bool schema_spend(struct schema_compiler *compiler, uint64_t steps);
/* STATUS_LIMIT at the schema at `path`: over the steps, or the limits of a grammar. */
enum status schema_fail_full(struct schema_compiler *compiler, uint32_t path) WARN_UNUSED;

/* A failure at the keyword of the schema at `path` (NULL: at the schema itself):
 * "#/properties/a/not: ...". */
enum status schema_fail(struct schema_compiler *compiler, uint32_t path, const char *keyword,
                        enum status status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
uint32_t schema_path_key(struct schema_compiler *compiler, uint32_t parent, const char *key);
uint32_t schema_path_index(struct schema_compiler *compiler, uint32_t parent, size_t index);

void schema_parts_add(struct schema_parts *parts, const struct json_value *schema, uint32_t path,
                      uint32_t parent);
void schema_parts_deinit(struct schema_parts *parts);

/* The rule of a value that these parts describe, which are taken over; and of one that is this
 * constant. */
uint32_t schema_rule_of_parts(struct schema_compiler *compiler, struct schema_parts *parts,
                              uint32_t path);
uint32_t schema_rule_of_value(struct schema_compiler *compiler, const struct json_value *value,
                              uint32_t path);

/* Adds what $ref and allOf of the parts from `first` on bring in. */
enum status schema_flatten(struct schema_compiler *compiler, struct schema_parts *parts,
                           size_t first) WARN_UNUSED;
/* All that the parts allow, from `from` to `to`; alternatives are written out. The parts are
 * flat. */
enum status schema_put_parts(struct schema_compiler *compiler, const struct schema_parts *parts,
                             uint32_t from, uint32_t to) WARN_UNUSED;

enum schema_type {
    SCHEMA_NULL = 1 << 0,
    SCHEMA_BOOLEAN = 1 << 1,
    SCHEMA_INTEGER = 1 << 2,
    SCHEMA_FRACTION = 1 << 3, /* numbers that aren't whole; "number" is both */
    SCHEMA_STRING = 1 << 4,
    SCHEMA_ARRAY = 1 << 5,
    SCHEMA_OBJECT = 1 << 6,
    SCHEMA_ALL = (1 << 7) - 1,
};

/* What flat parts without alternatives say together. */
struct schema_facts {
    const struct schema_parts *parts;
    uint32_t types;
    struct number_range number;
    struct text_pattern *pattern; /* of strings; NULL: none */
    uint32_t pattern_path;        /* of the schema that has it */
    const char *pattern_keyword;
    uint32_t min_length, max_length;
    uint32_t min_length_path;
    uint32_t choice_part; /* the first part with enum or const; SCHEMA_NONE */
    uint32_t min_items, max_items, min_items_path;
    uint32_t min_properties, max_properties, min_properties_path, max_properties_path;
    bool has_container_keywords;
};

enum status schema_facts_gather(struct schema_compiler *compiler, const struct schema_parts *parts,
                                struct schema_facts *facts) WARN_UNUSED;
void schema_facts_deinit(struct schema_facts *facts);
/* Bits of schema_type of the keyword "type"; of a value. */
enum status schema_read_types(struct schema_compiler *compiler, const struct json_value *type,
                              uint32_t path, uint32_t *types) WARN_UNUSED;
uint32_t schema_type_of(const struct json_value *value);
/* A keyword's count, 0 to 2^31. */
enum status schema_read_count(struct schema_compiler *compiler, const struct json_value *value,
                              uint32_t path, const char *keyword, uint32_t *count) WARN_UNUSED;
/* STATUS_UNSUPPORTED for a keyword that would change what is valid and isn't taken. */
enum status schema_check_keyword(struct schema_compiler *compiler, const char *keyword,
                                 const struct json_value *value, uint32_t path) WARN_UNUSED;

enum status schema_put_string(struct schema_compiler *compiler, const struct schema_facts *facts,
                              uint32_t from, uint32_t to) WARN_UNUSED;
enum status schema_put_object(struct schema_compiler *compiler, const struct schema_facts *facts,
                              uint32_t from, uint32_t to) WARN_UNUSED;
enum status schema_put_array(struct schema_compiler *compiler, const struct schema_facts *facts,
                             uint32_t from, uint32_t to) WARN_UNUSED;
/* Those values of enum and const that the other parts allow. */
enum status schema_put_choices(struct schema_compiler *compiler, const struct schema_facts *facts,
                               uint32_t from, uint32_t to) WARN_UNUSED;
/* Exactly this value. */
void schema_put_value(struct schema_compiler *compiler, const struct json_value *value,
                      uint32_t path, uint32_t from, uint32_t to);
/* False, too, where the steps are over. */
bool schema_equal_values(struct schema_compiler *compiler, const struct json_value *a,
                         const struct json_value *b);

/* The expression of a "format" of strings: NULL for one that says nothing of validity; *known is
 * false for others. */
const char *schema_format(const char *name, bool *known);
/* Whether no value is valid for both; false where that isn't sure. Looks at type, enum, const and
 * required properties. */
enum status schema_exclusive(struct schema_compiler *compiler, const struct schema_part *a,
                             const struct schema_part *b, bool *exclusive) WARN_UNUSED;

/* ',' or ':' and maybe one space. */
uint32_t schema_put_separator(struct schema_compiler *compiler, uint32_t from, char separator);
bool schema_is_false(const struct json_value *value);
/* Whether the member is there; then *value, which is NULL for null. */
bool schema_member(const struct json_value *object, const char *key,
                   const struct json_value **value);

#endif
