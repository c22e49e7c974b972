#include "common/base/assert.h"
#include "common/language/constrain/schema_compiler.h"

#include <math.h>
#include <string.h>

/* Keywords that change what is valid and that an automaton can't keep, or that we don't. */
static const char *const refused[] = {
    "not",          "if",
    "then",         "else",
    "dependencies", "dependentRequired",
    "contains",     "dependentSchemas",
    "minContains",  "maxContains",
    "$dynamicRef",  "$recursiveRef",
    "divisibleBy",  "unevaluatedItems",
    "extends",      "unevaluatedProperties",
    "disallow",
};

enum status schema_check_keyword(struct schema_compiler *compiler, const char *keyword,
                                 const struct json_value *value, uint32_t path)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!strcmp(keyword, refused[i]))
            return schema_fail(compiler, path, keyword, STATUS_UNSUPPORTED,
                               "this keyword isn't supported");
    if (!strcmp(keyword, "uniqueItems") && !schema_is_false(value))
        return schema_fail(compiler, path, keyword, STATUS_UNSUPPORTED,
                           "no automaton can remember which items there were: leave it out");
    if (!strcmp(keyword, "nullable") && !schema_is_false(value))
        return schema_fail(compiler, path, keyword, STATUS_UNSUPPORTED,
                           "this is no keyword of JSON Schema: write \"type\": [..., \"null\"]");
    return STATUS_OK;
}

enum status schema_read_count(struct schema_compiler *compiler, const struct json_value *value,
                              uint32_t path, const char *keyword, uint32_t *count)
{
    double number;
    if (json_as_double(value, 0, 2147483648.0, &number, NULL) != STATUS_OK ||
        number != floor(number))
        return schema_fail(compiler, path, keyword, STATUS_INVALID,
                           "must be a whole number from 0 to 2147483648");
    *count = (uint32_t)number;
    return STATUS_OK;
}

static enum status read_type(struct schema_compiler *compiler, const struct json_value *value,
                             uint32_t path, uint32_t *types)
{
    static const struct {
        const char *name;
        uint32_t types;
    } known[] = {
        {"null", SCHEMA_NULL},       {"boolean", SCHEMA_BOOLEAN},
        {"integer", SCHEMA_INTEGER}, {"number", SCHEMA_INTEGER | SCHEMA_FRACTION},
        {"string", SCHEMA_STRING},   {"array", SCHEMA_ARRAY},
        {"object", SCHEMA_OBJECT},
    };
    const char *name = "";
    if (json_as_string(value, &name, NULL, NULL) == STATUS_OK)
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (!strcmp(name, known[i].name)) {
                *types |= known[i].types;
                return STATUS_OK;
            }
    return schema_fail(compiler, path, "type", STATUS_INVALID,
                       "must be null, boolean, integer, number, string, array or object, or a list "
                       "of them");
}

enum status schema_read_types(struct schema_compiler *compiler, const struct json_value *type,
                              uint32_t path, uint32_t *types)
{
    *types = 0;
    if (json_kind(type) != JSON_ARRAY)
        return read_type(compiler, type, path, types);
    for (size_t i = 0; i < json_count(type); i++)
        TRY(read_type(compiler, json_at(type, i), path, types));
    return STATUS_OK;
}

uint32_t schema_type_of(const struct json_value *value)
{
    double number = 0.5;
    switch (json_kind(value)) {
    case JSON_NULL: return SCHEMA_NULL;
    case JSON_BOOL: return SCHEMA_BOOLEAN;
    case JSON_INTEGER: return SCHEMA_INTEGER;
    case JSON_NUMBER:
        if (json_as_double(value, -HUGE_VAL, HUGE_VAL, &number, NULL) != STATUS_OK)
            return SCHEMA_FRACTION;
        return number == floor(number) ? SCHEMA_INTEGER : SCHEMA_FRACTION;
    case JSON_STRING: return SCHEMA_STRING;
    case JSON_ARRAY: return SCHEMA_ARRAY;
    case JSON_OBJECT: return SCHEMA_OBJECT;
    }
    return SCHEMA_NULL;
}

/* What gathering is about at the moment. */
struct gathering {
    struct schema_compiler *compiler;
    struct schema_facts *facts;
    const struct schema_part *part;
    const char *keyword;
    const struct json_value *value;
};

static enum status gather_bound(struct gathering *g, struct number_bound *bound, int direction,
                                bool exclusive)
{
    double number;
    int64_t whole;
    struct number_bound found = {.present = true, .exclusive = exclusive};
    if (json_as_i64(g->value, INT64_MIN, INT64_MAX, &whole, NULL) == STATUS_OK)
        decimal_from_i64(whole, &found.value);
    else if (json_as_double(g->value, -HUGE_VAL, HUGE_VAL, &number, NULL) == STATUS_OK)
        decimal_from_double(number, &found.value);
    else
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_INVALID,
                           "must be a number");
    if (found.value.part_count > NUMBER_DIGITS)
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_UNSUPPORTED,
                           "more than %d digits behind the point", NUMBER_DIGITS);
    bool beyond = found.value.whole_count > NUMBER_DIGITS;
    if (beyond && found.value.negative == (direction < 0))
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_UNSUPPORTED,
                           "leaves only numbers of more than %d digits", NUMBER_DIGITS);
    int order = bound->present ? direction * decimal_compare(&found.value, &bound->value) : 1;
    if (order > 0 || (order == 0 && exclusive))
        *bound = found;
    return STATUS_OK;
}

static enum status gather_minimum(struct gathering *g)
{
    return gather_bound(g, &g->facts->number.low, 1, false);
}

static enum status gather_exclusive_minimum(struct gathering *g)
{
    return gather_bound(g, &g->facts->number.low, 1, true);
}

static enum status gather_maximum(struct gathering *g)
{
    return gather_bound(g, &g->facts->number.high, -1, false);
}

static enum status gather_exclusive_maximum(struct gathering *g)
{
    return gather_bound(g, &g->facts->number.high, -1, true);
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static enum status gather_multiple_of(struct gathering *g)
{
    double number = 0;
    if (json_as_double(g->value, 0, HUGE_VAL, &number, NULL) != STATUS_OK || number <= 0)
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_INVALID,
                           "must be a number above 0");
    if (number != floor(number) || number > NUMBER_MAX_MODULUS)
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_UNSUPPORTED,
                           "only whole numbers up to %d are supported", NUMBER_MAX_MODULUS);
    uint64_t a = g->facts->number.modulus, b = (uint64_t)number;
    uint64_t both = a / common_divisor(a, b) * b;
    if (both > NUMBER_MAX_MODULUS)
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_UNSUPPORTED,
                           "with the others the least common multiple is over %d",
                           NUMBER_MAX_MODULUS);
    g->facts->number.modulus = (uint32_t)both;
    /* 1 says that it is whole. */
    g->facts->types &= ~(uint32_t)SCHEMA_FRACTION;
    return STATUS_OK;
}

static enum status gather_min(struct gathering *g, uint32_t *min, uint32_t *path)
{
    uint32_t count = 0;
    TRY(schema_read_count(g->compiler, g->value, g->part->path, g->keyword, &count));
    if (count > *min) {
        *min = count;
        *path = g->part->path;
    }
    return STATUS_OK;
}

static enum status gather_max(struct gathering *g, uint32_t *max)
{
    uint32_t count = 0;
    TRY(schema_read_count(g->compiler, g->value, g->part->path, g->keyword, &count));
    *max = count < *max ? count : *max;
    return STATUS_OK;
}

static enum status gather_min_length(struct gathering *g)
{
    return gather_min(g, &g->facts->min_length, &g->facts->min_length_path);
}

static enum status gather_max_length(struct gathering *g)
{
    return gather_max(g, &g->facts->max_length);
}

static enum status gather_min_items(struct gathering *g)
{
    return gather_min(g, &g->facts->min_items, &g->facts->min_items_path);
}

static enum status gather_max_items(struct gathering *g)
{
    return gather_max(g, &g->facts->max_items);
}

static enum status gather_min_properties(struct gathering *g)
{
    return gather_min(g, &g->facts->min_properties, &g->facts->min_properties_path);
}

static enum status gather_max_properties(struct gathering *g)
{
    uint32_t before = g->facts->max_properties;
    TRY(gather_max(g, &g->facts->max_properties));
    if (g->facts->max_properties < before)
        g->facts->max_properties_path = g->part->path;
    return STATUS_OK;
}

static enum status add_pattern(struct gathering *g, const char *text, size_t length,
                               enum text_match match)
{
    struct schema_facts *facts = g->facts;
    struct error why;
    if (!facts->pattern)
        facts->pattern = text_pattern_create(g->compiler->grammar->steps);
    facts->pattern_path = g->part->path;
    facts->pattern_keyword = g->keyword;
    enum status status = text_pattern_add(facts->pattern, text, length, match, &why);
    return status == STATUS_OK
               ? status
               : schema_fail(g->compiler, g->part->path, g->keyword, status, "%s", why.text);
}

static enum status gather_pattern(struct gathering *g)
{
    const char *text;
    size_t length;
    if (json_as_string(g->value, &text, &length, NULL) != STATUS_OK)
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_INVALID,
                           "must be a string");
    return add_pattern(g, text, length, TEXT_ANYWHERE);
}

static enum status gather_format(struct gathering *g)
{
    const char *name;
    bool known;
    if (json_as_string(g->value, &name, NULL, NULL) != STATUS_OK)
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_INVALID,
                           "must be a string");
    const char *expression = schema_format(name, &known);
    if (!known)
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_UNSUPPORTED,
                           "the format \"%s\" isn't supported: use \"pattern\"", name);
    return expression ? add_pattern(g, expression, strlen(expression), TEXT_WHOLE) : STATUS_OK;
}

static enum status gather_type(struct gathering *g)
{
    uint32_t types = 0;
    TRY(schema_read_types(g->compiler, g->value, g->part->path, &types));
    g->facts->types &= types;
    return STATUS_OK;
}

static enum status gather_choice(struct gathering *g)
{
    bool is_enum = !strcmp(g->keyword, "enum");
    if (is_enum && json_kind(g->value) != JSON_ARRAY)
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_INVALID,
                           "must be an array");
    uint32_t index = (uint32_t)(g->part - g->facts->parts->list);
    if (g->facts->choice_part == SCHEMA_NONE)
        g->facts->choice_part = index;
    return STATUS_OK;
}

static enum status gather_container(struct gathering *g)
{
    g->facts->has_container_keywords = true;
    return STATUS_OK;
}

static const struct {
    const char *keyword;
    enum status (*gather)(struct gathering *g);
} gatherers[] = {
    {"type", gather_type},
    {"enum", gather_choice},
    {"const", gather_choice},
    {"minLength", gather_min_length},
    {"maxLength", gather_max_length},
    {"pattern", gather_pattern},
    {"format", gather_format},
    {"minimum", gather_minimum},
    {"maximum", gather_maximum},
    {"exclusiveMinimum", gather_exclusive_minimum},
    {"exclusiveMaximum", gather_exclusive_maximum},
    {"multipleOf", gather_multiple_of},
    {"minItems", gather_min_items},
    {"maxItems", gather_max_items},
    {"minProperties", gather_min_properties},
    {"maxProperties", gather_max_properties},
    {"items", gather_container},
    {"prefixItems", gather_container},
    {"additionalItems", gather_container},
    {"properties", gather_container},
    {"required", gather_container},
    {"additionalProperties", gather_container},
    {"patternProperties", gather_container},
    {"propertyNames", gather_container},
};

static enum status gather_member(struct gathering *g)
{
    TRY(schema_check_keyword(g->compiler, g->keyword, g->value, g->part->path));
    for (size_t i = 0; i < sizeof gatherers / sizeof *gatherers; i++)
        if (!strcmp(g->keyword, gatherers[i].keyword))
            return gatherers[i].gather(g);
    return STATUS_OK; /* annotations, and what JSON Schema doesn't know: they change nothing */
}

static enum status gather_part(struct schema_compiler *compiler, struct schema_facts *facts,
                               const struct schema_part *part)
{
    if (schema_is_false(part->schema))
        facts->types = 0;
    for (struct json_member m = {0}; json_next(part->schema, &m);) {
        if (!schema_spend(compiler, SCHEMA_KEYWORD_STEPS))
            return schema_fail_full(compiler, part->path);
        struct gathering g = {compiler, facts, part, m.key, m.value};
        TRY(gather_member(&g));
    }
    return STATUS_OK;
}

enum status schema_facts_gather(struct schema_compiler *compiler, const struct schema_parts *parts,
                                struct schema_facts *facts)
{
    *facts = (struct schema_facts){.parts = parts,
                                   .types = SCHEMA_ALL,
                                   .number = {.modulus = 1},
                                   .max_length = UINT32_MAX,
                                   .max_items = UINT32_MAX,
                                   .max_properties = UINT32_MAX,
                                   .choice_part = SCHEMA_NONE};
    for (size_t i = 0; i < parts->count; i++)
        TRY(gather_part(compiler, facts, &parts->list[i]));
    return STATUS_OK;
}

void schema_facts_deinit(struct schema_facts *facts)
{
    text_pattern_destroy(facts->pattern);
    facts->pattern = NULL;
}
