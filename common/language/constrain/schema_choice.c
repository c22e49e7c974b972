/* Constants: exactly one value as edges, equality of values, and the choices of enum and const. */
#include "common/language/constrain/schema_compiler.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define EQUAL_STEPS 4 /* comparing two values */

/* Arrays are equal item by item; objects have the same members in any order. */
static bool equal_containers(struct schema_compiler *compiler, const struct json_value *a,
                             const struct json_value *b)
{
    bool equal = json_count(a) == json_count(b);
    if (json_kind(a) == JSON_ARRAY) {
        for (size_t i = 0; equal && i < json_count(a); i++)
            equal = schema_equal_values(compiler, json_at(a, i), json_at(b, i));
        return equal;
    }
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

/* Returns an integer as it is written, however large: in `room` or in the document. */
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

/* Recursion is bounded by the depth that the parser allows. */
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
    default: return equal_containers(compiler, a, b);
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
        return; /* beyond doubles: no text is valid */
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

bool schema_allows_choice(struct schema_compiler *compiler, const struct schema_parts *parts,
                          const struct json_value *value)
{
    for (size_t i = 0; i < parts->count; i++) {
        const struct json_value *only, *list;
        if (schema_member(parts->list[i].schema, "const", &only) &&
            !schema_equal_values(compiler, only, value))
            return false;
        if (!schema_member(parts->list[i].schema, "enum", &list))
            continue;
        bool found = false;
        for (size_t at = 0; at < json_count(list) && !found; at++)
            found = schema_equal_values(compiler, json_at(list, at), value);
        if (!found)
            return false;
    }
    return true;
}

static bool fits_string(const struct schema_facts *facts, const struct text_automaton *automaton,
                        const struct json_value *value)
{
    const char *text;
    size_t length, count = 0;
    if (json_as_string(value, &text, &length, NULL) != STATUS_OK)
        return false;
    for (size_t i = 0; i < length; i++)
        count += ((uint8_t)text[i] & 0xc0) != 0x80; /* characters */
    return count >= facts->min_length && count <= facts->max_length &&
           (!facts->pattern || text_automaton_matches(automaton, text, length));
}

/* A choice that is being put. `automaton`: of the patterns of the parts. */
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
    if (!schema_spend(c->compiler, facts->parts->count) ||
        !schema_allows_choice(c->compiler, facts->parts, value))
        return false;
    if (type & (SCHEMA_INTEGER | SCHEMA_FRACTION)) {
        struct number_range range = facts->number;
        struct decimal decimal;
        range.part_digits = NUMBER_DIGITS;
        return decimal_read(value, &decimal) && number_range_has(&range, &decimal);
    }
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
    const struct schema_part *part = &facts->parts->list[facts->choice_part];
    const struct json_value *only, *list = json_find(part->schema, "enum");
    enum status status = STATUS_OK;
    if (schema_member(part->schema, "const", &only))
        status = put_choice(&c, only);
    else
        for (size_t i = 0; i < json_count(list) && status == STATUS_OK && !compiler->grammar->full;
             i++)
            status = put_choice(&c, json_at(list, i));
    text_automaton_deinit(&automaton);
    return status;
}
