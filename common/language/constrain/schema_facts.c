/* Gathers the keywords of parts without alternatives. */
#include "common/language/constrain/schema_compiler.h"

#include <math.h>
#include <string.h>

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

/* A keyword that is being gathered. */
struct gathering {
    struct schema_compiler *compiler;
    struct schema_facts *facts;
    const struct schema_part *part;
    const char *keyword;
    const struct json_value *value;
};

/* Takes the bound if it is tighter. `direction`: 1 for lower bounds, -1 for upper ones. */
static enum status gather_bound(struct gathering *g, struct number_bound *bound, int direction,
                                bool exclusive)
{
    struct number_bound found = {.present = true, .exclusive = exclusive};
    if (!decimal_read(g->value, &found.value))
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

static enum status gather_multiple_of(struct gathering *g)
{
    double number = 0;
    struct decimal decimal;
    if (json_as_double(g->value, 0, HUGE_VAL, &number, NULL) != STATUS_OK || number <= 0 ||
        !decimal_read(g->value, &decimal))
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_INVALID,
                           "must be a number above 0");
    if (!number_range_multiply(&g->facts->number, &decimal))
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_UNSUPPORTED,
                           "the digits of the number, or of the least common multiple with the "
                           "others, must make a number up to %d (12, 0.01, 2.5), with at most %d "
                           "behind the point",
                           NUMBER_MAX_MODULUS, NUMBER_DIGITS);
    if (!g->facts->number.modulus_digits) /* even a multiple of 1 is a whole number */
        g->facts->types &= ~(uint32_t)SCHEMA_FRACTION;
    return STATUS_OK;
}

/* Reads the keyword's count. */
static enum status read_count(struct gathering *g, uint32_t *count)
{
    double number;
    if (json_as_double(g->value, 0, 2147483648.0, &number, NULL) != STATUS_OK ||
        number != floor(number))
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_INVALID,
                           "must be a whole number from 0 to 2147483648");
    *count = (uint32_t)number;
    return STATUS_OK;
}

static enum status gather_min(struct gathering *g, uint32_t *min, uint32_t *path)
{
    uint32_t count = 0;
    TRY(read_count(g, &count));
    if (count > *min) {
        *min = count;
        *path = g->part->path;
    }
    return STATUS_OK;
}

/* `path` may be NULL. */
static enum status gather_max(struct gathering *g, uint32_t *max, uint32_t *path)
{
    uint32_t count = 0;
    TRY(read_count(g, &count));
    if (count < *max && path)
        *path = g->part->path;
    *max = count < *max ? count : *max;
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
    if (json_as_string(g->value, &name, NULL, NULL) != STATUS_OK)
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_INVALID,
                           "must be a string");
    const struct schema_format *format = schema_format(name);
    if (!format)
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_UNSUPPORTED,
                           "the format \"%s\" isn't supported: use \"pattern\"", name);
    if (format->max_length && format->max_length < g->facts->max_length)
        g->facts->max_length = format->max_length;
    return format->expression
               ? add_pattern(g, format->expression, strlen(format->expression), TEXT_WHOLE)
               : STATUS_OK;
}

/* Keywords that JSON Schema doesn't know, and annotations, change nothing: KEYWORD_OTHER. */
enum keyword {
    KEYWORD_OTHER,
    KEYWORD_TYPE,
    KEYWORD_CHOICE,
    KEYWORD_MIN_LENGTH,
    KEYWORD_MAX_LENGTH,
    KEYWORD_PATTERN,
    KEYWORD_FORMAT,
    KEYWORD_MINIMUM,
    KEYWORD_MAXIMUM,
    KEYWORD_EXCLUSIVE_MINIMUM,
    KEYWORD_EXCLUSIVE_MAXIMUM,
    KEYWORD_MULTIPLE_OF,
    KEYWORD_MIN_ITEMS,
    KEYWORD_MAX_ITEMS,
    KEYWORD_MIN_PROPERTIES,
    KEYWORD_MAX_PROPERTIES,
    KEYWORD_CONTAINER, /* schema_leaf.c and schema_object.c read it */
    KEYWORD_UNIQUE_ITEMS,
    KEYWORD_NULLABLE,
    KEYWORD_REFUSED, /* changes which values are valid, and isn't supported */
};

static enum keyword keyword_of(const char *name)
{
    static const struct {
        const char *name;
        enum keyword keyword;
    } known[] = {
        {"type", KEYWORD_TYPE},
        {"enum", KEYWORD_CHOICE},
        {"const", KEYWORD_CHOICE},
        {"minLength", KEYWORD_MIN_LENGTH},
        {"maxLength", KEYWORD_MAX_LENGTH},
        {"pattern", KEYWORD_PATTERN},
        {"format", KEYWORD_FORMAT},
        {"minimum", KEYWORD_MINIMUM},
        {"maximum", KEYWORD_MAXIMUM},
        {"exclusiveMinimum", KEYWORD_EXCLUSIVE_MINIMUM},
        {"exclusiveMaximum", KEYWORD_EXCLUSIVE_MAXIMUM},
        {"multipleOf", KEYWORD_MULTIPLE_OF},
        {"minItems", KEYWORD_MIN_ITEMS},
        {"maxItems", KEYWORD_MAX_ITEMS},
        {"minProperties", KEYWORD_MIN_PROPERTIES},
        {"maxProperties", KEYWORD_MAX_PROPERTIES},
        {"items", KEYWORD_CONTAINER},
        {"prefixItems", KEYWORD_CONTAINER},
        {"additionalItems", KEYWORD_CONTAINER},
        {"properties", KEYWORD_CONTAINER},
        {"required", KEYWORD_CONTAINER},
        {"additionalProperties", KEYWORD_CONTAINER},
        {"patternProperties", KEYWORD_CONTAINER},
        {"propertyNames", KEYWORD_CONTAINER},
        {"uniqueItems", KEYWORD_UNIQUE_ITEMS},
        {"nullable", KEYWORD_NULLABLE},
        {"not", KEYWORD_REFUSED},
        {"if", KEYWORD_REFUSED},
        {"then", KEYWORD_REFUSED},
        {"else", KEYWORD_REFUSED},
        {"dependencies", KEYWORD_REFUSED},
        {"dependentRequired", KEYWORD_REFUSED},
        {"dependentSchemas", KEYWORD_REFUSED},
        {"contains", KEYWORD_REFUSED},
        {"minContains", KEYWORD_REFUSED},
        {"maxContains", KEYWORD_REFUSED},
        {"$dynamicRef", KEYWORD_REFUSED},
        {"$recursiveRef", KEYWORD_REFUSED},
        {"divisibleBy", KEYWORD_REFUSED},
        {"unevaluatedItems", KEYWORD_REFUSED},
        {"unevaluatedProperties", KEYWORD_REFUSED},
        {"extends", KEYWORD_REFUSED},
        {"disallow", KEYWORD_REFUSED},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name))
            return known[i].keyword;
    return KEYWORD_OTHER;
}

static enum status gather_keyword(struct gathering *g)
{
    struct schema_facts *facts = g->facts;
    uint32_t types = 0;
    switch (keyword_of(g->keyword)) {
    case KEYWORD_OTHER: return STATUS_OK;
    case KEYWORD_TYPE:
        TRY(schema_read_types(g->compiler, g->value, g->part->path, &types));
        facts->types &= types;
        return STATUS_OK;
    case KEYWORD_CHOICE:
        if (!strcmp(g->keyword, "enum") && json_kind(g->value) != JSON_ARRAY)
            return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_INVALID,
                               "must be an array");
        if (facts->choice_part == SCHEMA_NONE)
            facts->choice_part = (uint32_t)(g->part - facts->parts->list);
        return STATUS_OK;
    case KEYWORD_MIN_LENGTH: return gather_min(g, &facts->min_length, &facts->min_length_path);
    case KEYWORD_MAX_LENGTH: return gather_max(g, &facts->max_length, NULL);
    case KEYWORD_PATTERN: return gather_pattern(g);
    case KEYWORD_FORMAT: return gather_format(g);
    case KEYWORD_MINIMUM: return gather_bound(g, &facts->number.low, 1, false);
    case KEYWORD_MAXIMUM: return gather_bound(g, &facts->number.high, -1, false);
    case KEYWORD_EXCLUSIVE_MINIMUM: return gather_bound(g, &facts->number.low, 1, true);
    case KEYWORD_EXCLUSIVE_MAXIMUM: return gather_bound(g, &facts->number.high, -1, true);
    case KEYWORD_MULTIPLE_OF: return gather_multiple_of(g);
    case KEYWORD_MIN_ITEMS: return gather_min(g, &facts->min_items, &facts->min_items_path);
    case KEYWORD_MAX_ITEMS: return gather_max(g, &facts->max_items, NULL);
    case KEYWORD_MIN_PROPERTIES:
        return gather_min(g, &facts->min_properties, &facts->min_properties_path);
    case KEYWORD_MAX_PROPERTIES:
        return gather_max(g, &facts->max_properties, &facts->max_properties_path);
    case KEYWORD_CONTAINER: facts->has_container_keywords = true; return STATUS_OK;
    case KEYWORD_UNIQUE_ITEMS:
        if (schema_is_false(g->value))
            return STATUS_OK;
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_UNSUPPORTED,
                           "no automaton can remember which items there were: leave it out");
    case KEYWORD_NULLABLE:
        if (schema_is_false(g->value))
            return STATUS_OK;
        return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_UNSUPPORTED,
                           "this is no keyword of JSON Schema: write \"type\": [..., \"null\"]");
    case KEYWORD_REFUSED: break;
    }
    return schema_fail(g->compiler, g->part->path, g->keyword, STATUS_UNSUPPORTED,
                       "this keyword isn't supported");
}

enum status schema_facts_gather(struct schema_compiler *compiler, const struct schema_parts *parts,
                                struct schema_facts *facts)
{
    *facts = (struct schema_facts){.parts = parts,
                                   .types = SCHEMA_ALL,
                                   .max_length = UINT32_MAX,
                                   .max_items = UINT32_MAX,
                                   .max_properties = UINT32_MAX,
                                   .choice_part = SCHEMA_NONE};
    for (size_t i = 0; i < parts->count; i++) {
        const struct schema_part *part = &parts->list[i];
        if (schema_is_false(part->schema))
            facts->types = 0;
        for (struct json_member m = {0}; json_next(part->schema, &m);) {
            if (!schema_spend(compiler, SCHEMA_KEYWORD_STEPS))
                return schema_fail_full(compiler, part->path);
            struct gathering g = {compiler, facts, part, m.key, m.value};
            TRY(gather_keyword(&g));
        }
    }
    return STATUS_OK;
}

void schema_facts_deinit(struct schema_facts *facts)
{
    text_pattern_destroy(facts->pattern);
    facts->pattern = NULL;
}
