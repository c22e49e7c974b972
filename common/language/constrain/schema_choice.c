#include "common/base/assert.h"
#include "common/language/constrain/schema_compiler.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EQUAL_STEPS 4 /* of two values that are compared */

static bool equal_arrays(struct schema_compiler *compiler, const struct json_value *a,
                         const struct json_value *b)
{
    bool equal = json_count(a) == json_count(b);
    for (size_t i = 0; equal && i < json_count(a); i++)
        equal = schema_equal_values(compiler, json_at(a, i), json_at(b, i));
    return equal;
}

static bool equal_objects(struct schema_compiler *compiler, const struct json_value *a,
                          const struct json_value *b)
{
    bool equal = json_count(a) == json_count(b);
    for (struct json_member m = {0}; equal && json_next(a, &m);) {
        const struct json_value *other;
        equal = schema_spend(compiler, json_count(b)) && schema_member(b, m.key, &other) &&
                schema_equal_values(compiler, m.value, other);
    }
    return equal;
}

static bool is_number(const struct json_value *value)
{
    return json_kind(value) == JSON_INTEGER || json_kind(value) == JSON_NUMBER;
}

/* An integer as it is written, however large. */
static const char *integer_text(const struct json_value *value, char room[24], size_t *length)
{
    int64_t small;
    uint64_t large;
    if (json_as_i64(value, INT64_MIN, INT64_MAX, &small, NULL) == STATUS_OK)
        *length = (size_t)snprintf(room, 24, "%" PRId64, small);
    else if (json_as_u64(value, 0, UINT64_MAX, &large, NULL) == STATUS_OK)
        *length = (size_t)snprintf(room, 24, "%" PRIu64, large);
    else
        return json_large_number(value, length);
    return room;
}

static bool equal_numbers(const struct json_value *a, const struct json_value *b)
{
    double left = 0, right = 0;
    char rooms[2][24];
    size_t i, j;
    if (json_kind(a) == JSON_INTEGER && json_kind(b) == JSON_INTEGER) {
        const char *one = integer_text(a, rooms[0], &i), *other = integer_text(b, rooms[1], &j);
        return i == j && !memcmp(one, other, i);
    }
    return json_as_double(a, -HUGE_VAL, HUGE_VAL, &left, NULL) == STATUS_OK &&
           json_as_double(b, -HUGE_VAL, HUGE_VAL, &right, NULL) == STATUS_OK && left == right;
}

/* Recursion is bounded by the depth that the parser allowed. */
bool schema_equal_values(struct schema_compiler *compiler, const struct json_value *a,
                         const struct json_value *b)
{
    const char *left, *right;
    size_t left_length, right_length;
    bool flag = false, other = false;
    if (!schema_spend(compiler, EQUAL_STEPS))
        return false;
    if (is_number(a) && is_number(b))
        return equal_numbers(a, b);
    if (json_kind(a) != json_kind(b))
        return false;
    switch (json_kind(a)) {
    case JSON_NULL: return true;
    case JSON_BOOL:
        return json_as_bool(a, &flag, NULL) == STATUS_OK &&
               json_as_bool(b, &other, NULL) == STATUS_OK && flag == other;
    case JSON_STRING:
        return json_as_string(a, &left, &left_length, NULL) == STATUS_OK &&
               json_as_string(b, &right, &right_length, NULL) == STATUS_OK &&
               left_length == right_length && !memcmp(left, right, left_length);
    case JSON_ARRAY: return equal_arrays(compiler, a, b);
    default: return equal_objects(compiler, a, b);
    }
}

static void put_string(struct schema_compiler *compiler, const char *text, size_t length,
                       uint32_t from, uint32_t to)
{
    struct grammar *grammar = compiler->grammar;
    uint32_t first = grammar_add_state(grammar, from), last = grammar_add_state(grammar, from);
    grammar_add_bytes(grammar, from, '"', '"', first);
    characters_put_text(&compiler->characters, true, text, length, first, last);
    grammar_add_bytes(grammar, last, '"', '"', to);
}

static void put_array(struct schema_compiler *compiler, const struct json_value *value,
                      uint32_t path, uint32_t from, uint32_t to)
{
    struct grammar *grammar = compiler->grammar;
    uint32_t at = grammar_add_state(grammar, from);
    grammar_add_bytes(grammar, from, '[', '[', at);
    for (size_t i = 0; i < json_count(value) && !grammar->full; i++) {
        uint32_t next = grammar_add_state(grammar, from);
        if (i)
            at = schema_put_separator(compiler, at, ',');
        grammar_add_call(grammar, at, schema_rule_of_value(compiler, json_at(value, i), path),
                         next);
        at = next;
    }
    grammar_add_bytes(grammar, at, ']', ']', to);
}

static void put_object(struct schema_compiler *compiler, const struct json_value *value,
                       uint32_t path, uint32_t from, uint32_t to)
{
    struct grammar *grammar = compiler->grammar;
    uint32_t at = grammar_add_state(grammar, from);
    grammar_add_bytes(grammar, from, '{', '{', at);
    bool first = true;
    for (struct json_member m = {0}; json_next(value, &m) && !grammar->full; first = false) {
        uint32_t name = grammar_add_state(grammar, from), next = grammar_add_state(grammar, from);
        if (!first)
            at = schema_put_separator(compiler, at, ',');
        put_string(compiler, m.key, strlen(m.key), at, name);
        grammar_add_call(grammar, schema_put_separator(compiler, name, ':'),
                         schema_rule_of_value(compiler, m.value, path), next);
        at = next;
    }
    grammar_add_bytes(grammar, at, '}', '}', to);
}

static void put_number(struct schema_compiler *compiler, const struct json_value *value,
                       uint32_t from, uint32_t to)
{
    char text[40];
    const char *shown = text;
    size_t length = 0;
    double number = 0;
    int precision = 1;
    if (json_kind(value) == JSON_INTEGER) {
        shown = integer_text(value, text, &length);
    } else if (json_as_double(value, -HUGE_VAL, HUGE_VAL, &number, NULL) == STATUS_OK) {
        do
            snprintf(text, sizeof text, "%.*g", precision, number);
        while (strtod(text, NULL) != number && ++precision <= 17);
        length = strlen(text);
    } else {
        return; /* no double is it */
    }
    grammar_add_text(compiler->grammar, from, shown, length, to);
}

void schema_put_value(struct schema_compiler *compiler, const struct json_value *value,
                      uint32_t path, uint32_t from, uint32_t to)
{
    const char *text;
    size_t length;
    bool flag = false;
    switch (json_kind(value)) {
    case JSON_NULL: grammar_add_text(compiler->grammar, from, "null", 4, to); break;
    case JSON_BOOL:
        if (json_as_bool(value, &flag, NULL) == STATUS_OK)
            grammar_add_text(compiler->grammar, from, flag ? "true" : "false", flag ? 4 : 5, to);
        break;
    case JSON_INTEGER:
    case JSON_NUMBER: put_number(compiler, value, from, to); break;
    case JSON_STRING:
        if (json_as_string(value, &text, &length, NULL) == STATUS_OK)
            put_string(compiler, text, length, from, to);
        break;
    case JSON_ARRAY: put_array(compiler, value, path, from, to); break;
    case JSON_OBJECT: put_object(compiler, value, path, from, to); break;
    }
}

/* A list of choices in each part: enum, and const as a list of one. False where the value isn't
 * among those of a part. */
static bool among_choices(struct schema_compiler *compiler, const struct schema_part *part,
                          const struct json_value *value)
{
    const struct json_value *only, *list;
    if (schema_member(part->schema, "const", &only) && !schema_equal_values(compiler, only, value))
        return false;
    if (!schema_member(part->schema, "enum", &list))
        return true;
    for (size_t i = 0; i < json_count(list); i++)
        if (schema_equal_values(compiler, json_at(list, i), value))
            return true;
    return false;
}

static bool fits_number(const struct schema_facts *facts, const struct json_value *value)
{
    struct number_range range = facts->number;
    struct decimal decimal;
    double number = 0;
    int64_t whole;
    range.part_digits = range.modulus == 1 ? NUMBER_DIGITS : 0;
    if (json_as_i64(value, INT64_MIN, INT64_MAX, &whole, NULL) == STATUS_OK)
        decimal_from_i64(whole, &decimal);
    else if (json_as_double(value, -HUGE_VAL, HUGE_VAL, &number, NULL) == STATUS_OK)
        decimal_from_double(number, &decimal);
    else
        return false;
    return number_range_has(&range, &decimal);
}

static size_t count_characters(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += ((uint8_t)text[i] & 0xc0) != 0x80;
    return count;
}

static bool fits_string(const struct schema_facts *facts, const struct text_automaton *automaton,
                        const struct json_value *value)
{
    const char *text;
    size_t length;
    if (json_as_string(value, &text, &length, NULL) != STATUS_OK)
        return false;
    size_t count = count_characters(text, length);
    return count >= facts->min_length && count <= facts->max_length &&
           (!facts->pattern || text_automaton_matches(automaton, text, length));
}

/* What is being chosen from, with what the other parts ask of strings. */
struct choosing {
    struct schema_compiler *compiler;
    const struct schema_facts *facts;
    const struct text_automaton *automaton;
    uint32_t path, from, to;
};

static bool fits(const struct choosing *c, const struct json_value *value)
{
    const struct schema_facts *facts = c->facts;
    uint32_t type = schema_type_of(value);
    if (!(facts->types & type))
        return false;
    for (size_t i = 0; i < facts->parts->count; i++)
        if (!schema_spend(c->compiler, 1) ||
            !among_choices(c->compiler, &facts->parts->list[i], value))
            return false;
    if (type & (SCHEMA_INTEGER | SCHEMA_FRACTION))
        return fits_number(facts, value);
    return type != SCHEMA_STRING || fits_string(facts, c->automaton, value);
}

static enum status put_choice(const struct choosing *c, const struct json_value *value)
{
    uint32_t type = schema_type_of(value);
    if (!fits(c, value))
        return STATUS_OK;
    if ((type & (SCHEMA_ARRAY | SCHEMA_OBJECT)) &&
        (c->facts->has_container_keywords || c->facts->min_items || c->facts->min_properties ||
         c->facts->max_items != UINT32_MAX || c->facts->max_properties != UINT32_MAX))
        return schema_fail(c->compiler, c->path, NULL, STATUS_UNSUPPORTED,
                           "arrays and objects in enum or const aren't supported beside other "
                           "keywords for them");
    schema_put_value(c->compiler, value, c->path, c->from, c->to);
    return STATUS_OK;
}

static enum status put_all(const struct choosing *c)
{
    const struct schema_part *part = &c->facts->parts->list[c->facts->choice_part];
    const struct json_value *only, *list = json_find(part->schema, "enum");
    if (schema_member(part->schema, "const", &only))
        return put_choice(c, only);
    for (size_t i = 0; i < json_count(list) && !c->compiler->grammar->full; i++)
        TRY(put_choice(c, json_at(list, i)));
    return STATUS_OK;
}

enum status schema_put_choices(struct schema_compiler *compiler, const struct schema_facts *facts,
                               uint32_t from, uint32_t to)
{
    struct text_automaton automaton = {0};
    struct error why;
    struct choosing c = {.compiler = compiler,
                         .facts = facts,
                         .automaton = &automaton,
                         .path = facts->parts->list[facts->choice_part].path,
                         .from = from,
                         .to = to};
    if (facts->pattern) {
        enum status status = text_automaton_build(facts->pattern, &automaton, &why);
        if (status != STATUS_OK)
            return schema_fail(compiler, facts->pattern_path, facts->pattern_keyword, status, "%s",
                               why.text);
    }
    enum status status = put_all(&c);
    text_automaton_deinit(&automaton);
    return status;
}
