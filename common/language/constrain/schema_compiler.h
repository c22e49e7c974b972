/* Inside schema*.c only: the compiler's state, and the functions that these files share.
 *
 * Parts are schemas that all apply to one value of the document. A schema_put_* function puts edges
 * between two states of a rule, `from` and `to`. */
#ifndef BATON_LANGUAGE_CONSTRAIN_SCHEMA_COMPILER_H
#define BATON_LANGUAGE_CONSTRAIN_SCHEMA_COMPILER_H

#include "common/language/constrain/characters.h"
#include "common/language/constrain/schema.h"
#include "common/language/constrain/text_automaton.h"

#define SCHEMA_NONE UINT32_MAX

/* The place of a schema in the document, for error sentences: a chain up to the root. */
struct schema_path {
    uint32_t parent; /* SCHEMA_NONE at the root */
    const char *key; /* NULL: index */
    size_t index;
};

struct schema_part {
    const struct json_value *schema;
    uint32_t path;
    uint32_t parent; /* the part with the $ref, allOf or anyOf that led here; SCHEMA_NONE */
};

struct schema_parts {
    struct schema_part *list;
    size_t count, capacity;
};

/* A rule of the grammar. It has no edges yet if its index isn't below `filled`. */
struct schema_rule {
    struct schema_parts parts;
    const struct json_value *value; /* if `is_value`: the rule takes this constant instead */
    bool is_value;
    uint32_t rule, path;
    uint32_t next; /* rule with the same hash, + 1; 0: none */
};

#define SCHEMA_SLOTS 4096

struct schema_compiler {
    struct grammar *grammar;
    struct characters characters;
    const struct json_value *root;
    uint32_t root_path;
    struct json *object; /* {"type":"object"}; NULL until it is used */
    struct json **tags;  /* {"required":[name]}, each for a name */
    size_t tag_count, tag_capacity;
    struct schema_path *paths;
    size_t path_count, path_capacity;
    struct schema_rule *rules;
    size_t rule_count, rule_capacity, filled;
    uint32_t slots[SCHEMA_SLOTS]; /* hash table: rule + 1 */
    size_t alternatives;          /* alternatives of the rule that is being filled */
    struct error *err;
};

/* ------------------------------------------------------------ schema.c: errors, paths and rules */

/* Counts steps of the constraint (compiling.h). Returns false if the grammar is full: all work
 * stops, and the rule that was being filled reports it. Looking at a keyword takes
 * SCHEMA_KEYWORD_STEPS. */
#define SCHEMA_KEYWORD_STEPS 16
bool schema_spend(struct schema_compiler *compiler, uint64_t steps);
/* Returns STATUS_LIMIT at the schema at `path`: the steps are over, or a limit of the grammar. */
enum status schema_fail_full(struct schema_compiler *compiler, uint32_t path) WARN_UNUSED;
/* Returns `status` with a sentence at a keyword of the schema at `path`:
 * "#/properties/a/not: ...". `keyword` NULL: at the schema itself. */
enum status schema_fail(struct schema_compiler *compiler, uint32_t path, const char *keyword,
                        enum status status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
uint32_t schema_path_key(struct schema_compiler *compiler, uint32_t parent, const char *key);
uint32_t schema_path_index(struct schema_compiler *compiler, uint32_t parent, size_t index);

void schema_parts_add(struct schema_parts *parts, const struct json_value *schema, uint32_t path,
                      uint32_t parent);
void schema_parts_deinit(struct schema_parts *parts);

/* Returns the rule of a value with these parts, which it takes over. */
uint32_t schema_rule_of_parts(struct schema_compiler *compiler, struct schema_parts *parts,
                              uint32_t path);
/* Returns the rule that takes exactly this value. */
uint32_t schema_rule_of_value(struct schema_compiler *compiler, const struct json_value *value,
                              uint32_t path);

/* Puts ',' or ':' and maybe one space. Returns the state behind. */
uint32_t schema_put_separator(struct schema_compiler *compiler, uint32_t from, char separator);
bool schema_is_false(const struct json_value *value);
/* Returns whether the object has the member; *value is then its value, or NULL for null. */
bool schema_member(const struct json_value *object, const char *key,
                   const struct json_value **value);

/* ------------------------------------------------- schema_parts.c: parts and their alternatives */

/* Adds the schemas that $ref and allOf of the parts from `first` on lead to. */
enum status schema_flatten(struct schema_compiler *compiler, struct schema_parts *parts,
                           size_t first) WARN_UNUSED;
/* Puts all values that the flat parts allow; alternatives (anyOf, oneOf) are written out. */
enum status schema_put_parts(struct schema_compiler *compiler, const struct schema_parts *parts,
                             uint32_t from, uint32_t to) WARN_UNUSED;

/* ------------------------------------------------------ schema_number.c: decimals, and numbers */

#define NUMBER_DIGITS      18 /* at most so many are written before the point, and behind it */
#define NUMBER_MAX_MODULUS 1000
#define DECIMAL_MAX_DIGITS 340 /* digits of a double, before or behind the point */

/* (-1)^negative * whole.part, in digits 0..9. */
struct decimal {
    bool negative;
    uint16_t whole_count, part_count; /* 1..; 0.. without zeros at the end */
    uint8_t whole[DECIMAL_MAX_DIGITS], part[DECIMAL_MAX_DIGITS];
};

/* Reads an integer exactly, another number as the shortest decimal of its double. Returns false for
 * values that aren't numbers, and for numbers beyond doubles. */
bool decimal_read(const struct json_value *value, struct decimal *decimal);
int decimal_compare(const struct decimal *a, const struct decimal *b); /* as memcmp */

struct number_bound {
    bool present, exclusive;
    struct decimal value;
};

struct number_range {
    struct number_bound low, high;
    uint32_t part_digits; /* at most so many digits behind the point; 0: whole numbers */
    /* Numbers are multiples of modulus / 10^modulus_digits, if modulus isn't 0. A modulus is at
     * most NUMBER_MAX_MODULUS, and ends with 0 only if modulus_digits is 0. */
    uint32_t modulus, modulus_digits;
};

/* Adds that numbers are multiples of this one, too, which is above 0. Returns false if the least
 * common multiple has a modulus over NUMBER_MAX_MODULUS, or over NUMBER_DIGITS digits behind the
 * point. */
bool number_range_multiply(struct number_range *range, const struct decimal *number) WARN_UNUSED;
/* Puts the numbers of the range, maybe none: without an exponent. A bound has at most NUMBER_DIGITS
 * digits behind the point. */
void number_range_put(struct grammar *grammar, const struct number_range *range, uint32_t from,
                      uint32_t to);
/* Puts any number, with an exponent of at most two digits. */
void number_put_any(struct grammar *grammar, uint32_t from, uint32_t to);
/* Returns whether the number is in the range. */
bool number_range_has(const struct number_range *range, const struct decimal *number);

/* ----------------------------------------- schema_facts.c: parts without alternatives, together */

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

/* The keywords of flat parts without alternatives, taken together. Each *_path is the path of the
 * schema with the keyword that decided. */
struct schema_facts {
    const struct schema_parts *parts;
    uint32_t types; /* bits of schema_type */
    struct number_range number;
    struct text_pattern *pattern; /* pattern of strings; NULL: none */
    uint32_t pattern_path;
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
/* Reads the keyword "type": a name or a list of names. */
enum status schema_read_types(struct schema_compiler *compiler, const struct json_value *type,
                              uint32_t path, uint32_t *types) WARN_UNUSED;
uint32_t schema_type_of(const struct json_value *value);

/* -------------------------------------- schema_leaf.c, schema_object.c, schema_choice.c: values */

/* Puts the values of all types of the facts: schema_choice.c if there is an enum or const. */
enum status schema_put_leaf(struct schema_compiler *compiler, const struct schema_parts *parts,
                            uint32_t from, uint32_t to) WARN_UNUSED;
/* A string's "format". */
struct schema_format {
    const char *name;
    const char *expression; /* for the whole text; NULL: the format doesn't restrict it */
    uint32_t max_length;    /* 0: none */
};
const struct schema_format *schema_format(const char *name); /* NULL: unknown */
enum status schema_put_object(struct schema_compiler *compiler, const struct schema_facts *facts,
                              uint32_t from, uint32_t to) WARN_UNUSED;
/* Puts the values of enum and const that the other parts allow. */
enum status schema_put_choices(struct schema_compiler *compiler, const struct schema_facts *facts,
                               uint32_t from, uint32_t to) WARN_UNUSED;
/* Puts exactly this value. */
void schema_put_value(struct schema_compiler *compiler, const struct json_value *value,
                      uint32_t path, uint32_t from, uint32_t to);
/* Returns whether the values are equal; false too if the steps are over. */
bool schema_equal_values(struct schema_compiler *compiler, const struct json_value *a,
                         const struct json_value *b);
/* Returns whether the enums and consts of the parts, if any, all have the value. */
bool schema_allows_choice(struct schema_compiler *compiler, const struct schema_parts *parts,
                          const struct json_value *value);

#endif
