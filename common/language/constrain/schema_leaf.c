/* Values of parts without alternatives: null, true and false, strings and arrays. */
#include "common/language/constrain/schema_compiler.h"

#include <string.h>

#define DAY "(0[1-9]|1\\d|2[0-8])"
#define DATE                                                                                       \
    "(000[1-9]|00[1-9]\\d|0[1-9]\\d{2}|[1-9]\\d{3})-"                                              \
    "((0[1-9]|1[0-2])-" DAY "|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
#define TIME   "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define HEX    "[0-9a-f]"
#define H16    "[0-9a-fA-F]{1,4}"
#define OCTET  "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define LABEL  "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define PCHAR  "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define NUMBER "(0|[1-9]\\d{0,3})"

#define IPV4 "(" OCTET "\\.){3}" OCTET
#define IPV6                                                                                       \
    "((" H16 ":){7}" H16 "|(" H16 ":){1,7}:|(" H16 ":){1,6}:" H16 "|(" H16 ":){1,5}(:" H16         \
    "){1,2}|(" H16 ":){1,4}(:" H16 "){1,3}|(" H16 ":){1,3}(:" H16 "){1,4}|(" H16 ":){1,2}(:" H16   \
    "){1,5}|" H16 ":(:" H16 "){1,6}|:(:" H16 "){1,7}|::)"
#define PREFIX4       "(/([0-9]|[12]\\d|3[0-2]))?"
#define PREFIX6       "(/(\\d|[1-9]\\d|1[01]\\d|12[0-8]))?"
#define UUID(version) HEX "{8}-" HEX "{4}-" version HEX "{3}-[89ab]" HEX "{3}-" HEX "{12}"

/* Formats as expressions for the whole text. Some take less than the standard (no 29 February,
 * short labels, no quoted local parts); none takes more. */
static const struct schema_format formats[] = {
    {"date", DATE, 0},
    {"time", TIME, 0},
    {"date-time", DATE "T" TIME, 0},
    {"duration",
     "P(" NUMBER "W|(" NUMBER "Y(" NUMBER "M(" NUMBER "D)?)?|" NUMBER "M(" NUMBER "D)?|" NUMBER
     "D)(T(" NUMBER "H(" NUMBER "M(" NUMBER "S)?)?|" NUMBER "M(" NUMBER "S)?|" NUMBER
     "S))?|T(" NUMBER "H(" NUMBER "M(" NUMBER "S)?)?|" NUMBER "M(" NUMBER "S)?|" NUMBER "S))",
     0},
    {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}", 0},
    {"ipv4", IPV4, 0},
    {"ipv6", IPV6, 0},
    {"hostname", LABEL "(\\." LABEL ")*", 253},
    {"email", "[A-Za-z0-9_%+-]{1,20}(\\.[A-Za-z0-9_%+-]{1,20}){0,2}@" LABEL "(\\." LABEL ")+", 254},
    {"uri",
     "[A-Za-z][A-Za-z0-9+.-]{0,20}://[A-Za-z0-9._~-]+(:\\d{1,4})?(/" PCHAR "*)*(\\?(" PCHAR
     "|[/?])*)?(#(" PCHAR "|[/?])*)?",
     0},
    /* Pydantic's. A network is written as its one address. */
    {"uuid1", UUID("1"), 0},
    {"uuid3", UUID("3"), 0},
    {"uuid4", UUID("4"), 0},
    {"uuid5", UUID("5"), 0},
    {"ipvanyaddress", IPV4 "|" IPV6, 0},
    {"ipvanyinterface", IPV4 PREFIX4 "|" IPV6 PREFIX6, 0},
    {"ipvanynetwork", IPV4 "|" IPV6, 0},
    {"ipv4interface", IPV4 PREFIX4, 0},
    {"ipv6interface", IPV6 PREFIX6, 0},
    {"ipv4network", IPV4, 0},
    {"ipv6network", IPV6, 0},
    {"path", NULL, 0}, /* any text may be the name of a file */
    {"file-path", NULL, 0},
    {"directory-path", NULL, 0},
    /* OpenAPI's, which don't restrict the text. */
    {"password", NULL, 0},
    {"byte", NULL, 0},
    {"binary", NULL, 0},
    {"int32", NULL, 0},
    {"int64", NULL, 0},
    {"uint32", NULL, 0},
    {"uint64", NULL, 0},
    {"float", NULL, 0},
    {"double", NULL, 0},
    {"decimal", NULL, 0},
};

const struct schema_format *schema_format(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(name, formats[i].name))
            return &formats[i];
    return NULL;
}

/* Puts any characters, as many as the lengths say; max UINT32_MAX: no maximum. */
static void put_free(struct schema_compiler *compiler, uint32_t min, uint32_t max, uint32_t from,
                     uint32_t to)
{
    if (min || max != UINT32_MAX) {
        characters_put_any_counted(&compiler->characters, min, max, from, to);
        return;
    }
    uint32_t loop = grammar_add_state(compiler->grammar, from);
    grammar_add_jump(compiler->grammar, from, loop);
    characters_put_any(&compiler->characters, loop, loop);
    grammar_add_jump(compiler->grammar, loop, to);
}

/* Puts the texts that match the patterns and lengths. */
static enum status put_matching(struct schema_compiler *compiler, const struct schema_facts *facts,
                                uint32_t max, uint32_t from, uint32_t to)
{
    struct text_automaton automaton;
    struct text_counts counts = {0};
    struct error why;
    enum status status = text_automaton_build(facts->pattern, &automaton, &why);
    if (status != STATUS_OK)
        return schema_fail(compiler, facts->pattern_path, facts->pattern_keyword, status, "%s",
                           why.text);
    if (automaton.state_count &&
        !text_counts_find(&automaton, facts->min_length, max, compiler->grammar->steps, &counts))
        status = schema_fail(compiler, facts->pattern_path, facts->pattern_keyword, STATUS_LIMIT,
                             "together with minLength and maxLength it takes more than %u steps to "
                             "compile, or %u ranges of lengths",
                             COMPILE_MAX_STEPS, TEXT_MAX_RANGES);
    else if (automaton.state_count && counts.matter && !counts.none)
        characters_put_counted(&compiler->characters, &automaton, &counts, facts->min_length, max,
                               from, to);
    else if (automaton.state_count && !counts.none)
        characters_put_automaton(&compiler->characters, true, &automaton, from, to);
    text_counts_deinit(&counts);
    text_automaton_deinit(&automaton);
    return status;
}

static enum status put_string(struct schema_compiler *compiler, const struct schema_facts *facts,
                              uint32_t from, uint32_t to)
{
    struct grammar *grammar = compiler->grammar;
    uint32_t first = grammar_add_state(grammar, from), last = grammar_add_state(grammar, from);
    uint32_t max = facts->max_length;
    if (facts->min_length > SCHEMA_MAX_LENGTH)
        return schema_fail(compiler, facts->min_length_path, "minLength", STATUS_LIMIT,
                           "%u is over the limit of %d", facts->min_length, SCHEMA_MAX_LENGTH);
    if (max < facts->min_length)
        return STATUS_OK;
    if (max != UINT32_MAX && max > SCHEMA_MAX_LENGTH)
        max = SCHEMA_MAX_LENGTH;
    grammar_add_bytes(grammar, from, '"', '"', first);
    grammar_add_bytes(grammar, last, '"', '"', to);
    if (facts->pattern)
        return put_matching(compiler, facts, max, first, last);
    put_free(compiler, facts->min_length, max, first, last);
    return STATUS_OK;
}

struct array {
    struct schema_compiler *compiler;
    const struct schema_facts *facts;
    size_t prefix; /* places with schemas of their own */
};

/* Returns the schemas of items by place: prefixItems of 2020-12, or a list in "items" as before.
 * NULL: none. */
static const struct json_value *prefix_of(const struct json_value *schema, const char **keyword)
{
    *keyword = "prefixItems";
    const struct json_value *prefix = json_find(schema, "prefixItems");
    if (prefix)
        return prefix;
    *keyword = "items";
    prefix = json_find(schema, "items");
    return json_kind(prefix) == JSON_ARRAY ? prefix : NULL;
}

static enum status find_prefix(struct array *array)
{
    for (size_t i = 0; i < array->facts->parts->count; i++) {
        const struct schema_part *part = &array->facts->parts->list[i];
        const char *keyword;
        const struct json_value *prefix = prefix_of(part->schema, &keyword);
        if (prefix && json_kind(prefix) != JSON_ARRAY)
            return schema_fail(array->compiler, part->path, keyword, STATUS_INVALID,
                               "must be an array");
        if (json_count(prefix) > SCHEMA_MAX_ITEMS)
            return schema_fail(array->compiler, part->path, keyword, STATUS_LIMIT,
                               "more than %d items", SCHEMA_MAX_ITEMS);
        array->prefix = json_count(prefix) > array->prefix ? json_count(prefix) : array->prefix;
    }
    return STATUS_OK;
}

/* Collects the schemas of the item at a place. Returns false if there can't be an item. */
static bool parts_of_item(struct array *array, size_t at, struct schema_parts *parts,
                          uint32_t *path)
{
    schema_spend(array->compiler, array->facts->parts->count * SCHEMA_KEYWORD_STEPS);
    for (size_t i = 0; i < array->facts->parts->count; i++) {
        const struct schema_part *part = &array->facts->parts->list[i];
        const char *keyword;
        const struct json_value *prefix = prefix_of(part->schema, &keyword), *schema = NULL;
        bool old = prefix && keyword[0] == 'i';
        bool in_prefix = at < json_count(prefix);
        if (!in_prefix) {
            keyword = old ? "additionalItems" : "items";
            if (!schema_member(part->schema, keyword, &schema))
                continue;
        } else {
            schema = json_at(prefix, at);
        }
        if (schema_is_false(schema))
            return false;
        *path = schema_path_key(array->compiler, part->path, keyword);
        if (in_prefix)
            *path = schema_path_index(array->compiler, *path, at);
        schema_parts_add(parts, schema, *path, SCHEMA_NONE);
    }
    return true;
}

/* Finds the rule of the item at this place. Returns false if there can't be one. */
static bool rule_of_item(struct array *array, size_t at, uint32_t *rule)
{
    struct schema_parts parts = {0};
    uint32_t path = array->facts->parts->count ? array->facts->parts->list[0].path : 0;
    bool allowed = parts_of_item(array, at, &parts, &path);
    if (allowed)
        *rule = schema_rule_of_parts(array->compiler, &parts, path);
    schema_parts_deinit(&parts);
    return allowed;
}

/* Writes out `places` places; then, without a maximum, a loop. `behind` is the state behind `at`
 * items. */
static void put_items(struct array *array, uint32_t open, size_t places, uint32_t to)
{
    struct grammar *grammar = array->compiler->grammar;
    uint32_t min = array->facts->min_items, max = array->facts->max_items, rule;
    uint32_t behind = open;
    for (size_t at = 0; !grammar->full; at++) {
        if (at >= min)
            grammar_add_bytes(grammar, behind, ']', ']', to);
        if (at >= max || !rule_of_item(array, at, &rule))
            return;
        uint32_t next = grammar_add_state(grammar, open);
        uint32_t ready = at ? schema_put_separator(array->compiler, behind, ',') : behind;
        grammar_add_call(grammar, ready, rule, next);
        behind = next;
        if (max == UINT32_MAX && at >= places)
            break;
    }
    grammar_add_bytes(grammar, behind, ']', ']', to);
    if (rule_of_item(array, places + 1, &rule))
        grammar_add_call(grammar, schema_put_separator(array->compiler, behind, ','), rule, behind);
}

static enum status put_array(struct schema_compiler *compiler, const struct schema_facts *facts,
                             uint32_t from, uint32_t to)
{
    struct array array = {.compiler = compiler, .facts = facts};
    struct schema_facts bounded = *facts;
    if (facts->min_items > SCHEMA_MAX_ITEMS)
        return schema_fail(compiler, facts->min_items_path, "minItems", STATUS_LIMIT,
                           "%u is over the limit of %d", facts->min_items, SCHEMA_MAX_ITEMS);
    if (facts->max_items < facts->min_items)
        return STATUS_OK;
    if (facts->max_items != UINT32_MAX && facts->max_items > SCHEMA_MAX_ITEMS)
        bounded.max_items = SCHEMA_MAX_ITEMS;
    array.facts = &bounded;
    TRY(find_prefix(&array));
    size_t places = array.prefix > facts->min_items ? array.prefix : facts->min_items;
    uint32_t open = grammar_add_state(compiler->grammar, from);
    grammar_add_bytes(compiler->grammar, from, '[', '[', open);
    put_items(&array, open, places, to);
    return STATUS_OK;
}

static enum status put_types(struct schema_compiler *compiler, const struct schema_facts *facts,
                             uint32_t from, uint32_t to)
{
    struct grammar *grammar = compiler->grammar;
    if (facts->types & SCHEMA_NULL)
        grammar_add_text(grammar, from, "null", 4, to);
    if (facts->types & SCHEMA_BOOLEAN) {
        grammar_add_text(grammar, from, "true", 4, to);
        grammar_add_text(grammar, from, "false", 5, to);
    }
    struct number_range number = facts->number;
    static const struct decimal one = {.whole_count = 1, .whole = {1}};
    bool whole = !(facts->types & SCHEMA_FRACTION);
    if (whole && number.modulus_digits) {
        bool fits = number_range_multiply(&number, &one); /* the modulus doesn't grow */
        ASSERT(fits);
    }
    number.part_digits = whole ? 0 : number.modulus ? number.modulus_digits : NUMBER_DIGITS;
    if (!whole && !number.modulus && !number.low.present && !number.high.present)
        number_put_any(grammar, from, to);
    else if (facts->types & (SCHEMA_FRACTION | SCHEMA_INTEGER))
        number_range_put(grammar, &number, from, to);
    if (facts->types & SCHEMA_STRING)
        TRY(put_string(compiler, facts, from, to));
    if (facts->types & SCHEMA_ARRAY)
        TRY(put_array(compiler, facts, from, to));
    if (facts->types & SCHEMA_OBJECT)
        TRY(schema_put_object(compiler, facts, from, to));
    return STATUS_OK;
}

enum status schema_put_leaf(struct schema_compiler *compiler, const struct schema_parts *parts,
                            uint32_t from, uint32_t to)
{
    struct schema_facts facts;
    enum status status = schema_facts_gather(compiler, parts, &facts);
    if (status == STATUS_OK && facts.choice_part != SCHEMA_NONE)
        status = schema_put_choices(compiler, &facts, from, to);
    else if (status == STATUS_OK)
        status = put_types(compiler, &facts, from, to);
    schema_facts_deinit(&facts);
    return status;
}
