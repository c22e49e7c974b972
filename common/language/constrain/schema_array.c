#include "common/base/assert.h"
#include "common/language/constrain/schema_compiler.h"

/* What the parts say of one place of the array; false where one of them forbids an item there. */
struct array {
    struct schema_compiler *compiler;
    const struct schema_facts *facts;
    size_t prefix; /* places that differ from all later ones */
};

/* Items by place: 2020-12's prefixItems, or a list in "items" as it was before. */
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

/* False where there can't be an item. */
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

/* The rule of the items at this place; false where there can't be one. */
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

/* `at` items are written and `behind` is behind the last of them. `places` are written out; then,
 * without a maximum, it loops. */
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

enum status schema_put_array(struct schema_compiler *compiler, const struct schema_facts *facts,
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
