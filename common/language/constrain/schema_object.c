/* Objects: the properties that the schemas of an object name, then their edges. */
#include "common/base/utf8.h"
#include "common/language/constrain/schema_compiler.h"

#include <string.h>

/* A property that a schema names. */
struct property {
    const char *name;
    uint32_t rule, path;
    bool required;
};

/* Properties come in the order in which the schemas name them, then those that no schema names. */
struct object {
    struct schema_compiler *compiler;
    const struct schema_facts *facts;
    struct property *list;
    size_t count, capacity, required_count;
    bool open;                  /* other names may follow */
    uint32_t rule;              /* rule of their values */
    struct text_pattern *names; /* pattern of their names; NULL: any */
    uint32_t names_path;
    const char *names_keyword;
};

static struct property *find(struct object *object, const char *name)
{
    for (size_t i = 0; i < object->count; i++)
        if (!strcmp(object->list[i].name, name))
            return &object->list[i];
    return NULL;
}

/* Collects the schemas of the property with this name; `name` NULL: of properties that no schema
 * names. Returns false if a schema forbids it. */
static bool parts_of_property(struct object *object, const char *name, struct schema_parts *parts,
                              uint32_t *path)
{
    for (size_t i = 0; i < object->facts->parts->count; i++) {
        const struct schema_part *part = &object->facts->parts->list[i];
        const struct json_value *schema = NULL, *properties = json_find(part->schema, "properties");
        const char *keyword = "properties";
        bool named = name && json_find(properties, name);
        schema_spend(object->compiler, 1 + json_count(properties));
        if (named) {
            schema = json_find(properties, name);
        } else {
            keyword = "additionalProperties";
            if (!schema_member(part->schema, keyword, &schema))
                continue;
        }
        if (schema_is_false(schema))
            return false;
        uint32_t at = schema_path_key(object->compiler, part->path, keyword);
        if (named)
            at = schema_path_key(object->compiler, at, name);
        *path = at;
        schema_parts_add(parts, schema, at, SCHEMA_NONE);
    }
    return true;
}

static enum status add_property(struct object *object, const char *name, uint32_t path)
{
    struct schema_parts parts = {0};
    struct property property = {.name = name, .path = path};
    if (!schema_spend(object->compiler, SCHEMA_KEYWORD_STEPS + object->count))
        return schema_fail_full(object->compiler, path);
    if (find(object, name))
        return STATUS_OK;
    if (strlen(name) > SCHEMA_MAX_NAME_BYTES)
        return schema_fail(object->compiler, path, NULL, STATUS_LIMIT,
                           "a property's name is longer than %d bytes", SCHEMA_MAX_NAME_BYTES);
    if (parts_of_property(object, name, &parts, &property.path)) {
        property.rule = schema_rule_of_parts(object->compiler, &parts, property.path);
    } else {
        /* A rule that takes no value: an object can't have the property. */
        schema_parts_deinit(&parts);
        property.rule = grammar_add_rule(object->compiler->grammar, property.path);
    }
    object->list = grow(object->list, object->count, &object->capacity, sizeof *object->list);
    object->list[object->count++] = property;
    return STATUS_OK;
}

static enum status add_named(struct object *object)
{
    for (size_t i = 0; i < object->facts->parts->count; i++) {
        const struct schema_part *part = &object->facts->parts->list[i];
        const struct json_value *properties = json_find(part->schema, "properties");
        if (properties && json_kind(properties) != JSON_OBJECT)
            return schema_fail(object->compiler, part->path, "properties", STATUS_INVALID,
                               "must be an object");
        for (struct json_member m = {0}; json_next(properties, &m);) {
            if (!m.value)
                return schema_fail(object->compiler, part->path, "properties", STATUS_INVALID,
                                   "\"%s\" is null, not a schema", m.key);
            TRY(add_property(object, m.key, part->path));
        }
    }
    return STATUS_OK;
}

static enum status add_required(struct object *object)
{
    for (size_t i = 0; i < object->facts->parts->count; i++) {
        const struct schema_part *part = &object->facts->parts->list[i];
        const struct json_value *list = json_find(part->schema, "required");
        if (list && json_kind(list) != JSON_ARRAY)
            return schema_fail(object->compiler, part->path, "required", STATUS_INVALID,
                               "must be an array of names");
        for (size_t at = 0; at < json_count(list); at++) {
            const char *name;
            if (json_as_string(json_at(list, at), &name, NULL, NULL) != STATUS_OK)
                return schema_fail(object->compiler, part->path, "required", STATUS_INVALID,
                                   "must be an array of names");
            TRY(add_property(object, name, part->path));
            struct property *property = find(object, name);
            object->required_count += !property->required;
            property->required = true;
        }
    }
    return STATUS_OK;
}

/* Other names may follow if a schema allows them, or if no schema names properties; not if a schema
 * forbids them. */
static enum status decide_open(struct object *object)
{
    bool asked = false, closed = false, names_some = false;
    for (size_t i = 0; i < object->facts->parts->count; i++) {
        const struct schema_part *part = &object->facts->parts->list[i];
        const struct json_value *value;
        if (schema_member(part->schema, "additionalProperties", &value)) {
            asked = asked || !schema_is_false(value);
            closed = closed || schema_is_false(value);
        }
        names_some = names_some || json_count(json_find(part->schema, "properties")) > 0;
    }
    object->open = !closed && (asked || !names_some);
    struct schema_parts parts = {0};
    uint32_t path = object->facts->parts->count ? object->facts->parts->list[0].path : 0;
    if (object->open && parts_of_property(object, NULL, &parts, &path))
        object->rule = schema_rule_of_parts(object->compiler, &parts, path);
    schema_parts_deinit(&parts);
    return STATUS_OK;
}

static enum status add_names_pattern(struct object *object, const struct schema_part *part,
                                     const char *keyword, const char *text)
{
    struct error why;
    if (!object->names)
        object->names = text_pattern_create(object->compiler->grammar->steps);
    object->names_path = part->path;
    object->names_keyword = keyword;
    enum status status = text_pattern_add(object->names, text, strlen(text), TEXT_ANYWHERE, &why);
    return status == STATUS_OK
               ? status
               : schema_fail(object->compiler, part->path, keyword, status, "%s", why.text);
}

/* Reads one pattern, without other names: an object that is used as a map. */
static enum status read_pattern_properties(struct object *object, const struct schema_part *part,
                                           const struct json_value *value)
{
    struct json_member pattern = {0};
    const struct json_value *additional;
    bool only = schema_member(part->schema, "additionalProperties", &additional) &&
                schema_is_false(additional);
    if (json_kind(value) == JSON_OBJECT && json_count(value) == 0)
        return STATUS_OK;
    if (json_kind(value) != JSON_OBJECT || json_count(value) != 1 || object->count ||
        object->facts->parts->count > 1 || !only || object->names)
        return schema_fail(object->compiler, part->path, "patternProperties", STATUS_UNSUPPORTED,
                           "only one pattern with \"additionalProperties\": false and without "
                           "\"properties\" is supported");
    if (!json_next(value, &pattern))
        return STATUS_OK;
    struct schema_parts parts = {0};
    uint32_t path = schema_path_key(
        object->compiler, schema_path_key(object->compiler, part->path, "patternProperties"),
        pattern.key);
    schema_parts_add(&parts, pattern.value, path, SCHEMA_NONE);
    object->rule = schema_rule_of_parts(object->compiler, &parts, path);
    object->open = true;
    return add_names_pattern(object, part, "patternProperties", pattern.key);
}

static enum status read_property_names(struct object *object, const struct schema_part *part,
                                       const struct json_value *value)
{
    const char *text, *type;
    bool understood = json_kind(value) == JSON_OBJECT;
    for (struct json_member m = {0}; json_next(value, &m);) {
        bool is_string = !strcmp(m.key, "type") &&
                         json_as_string(m.value, &type, NULL, NULL) == STATUS_OK &&
                         !strcmp(type, "string");
        bool is_pattern = !strcmp(m.key, "pattern") && json_kind(m.value) == JSON_STRING;
        bool is_enum = !strcmp(m.key, "enum") && json_kind(m.value) == JSON_ARRAY;
        understood = understood && (is_string || is_pattern || is_enum);
    }
    if (!understood || object->count || object->names)
        return schema_fail(object->compiler, part->path, "propertyNames", STATUS_UNSUPPORTED,
                           "only \"pattern\" or \"enum\" is supported, without \"properties\", "
                           "\"required\" and \"patternProperties\"");
    if (!object->open)
        return STATUS_OK;
    const struct json_value *list = json_find(value, "enum");
    if (list && json_find(value, "pattern"))
        return schema_fail(object->compiler, part->path, "propertyNames", STATUS_UNSUPPORTED,
                           "\"pattern\" together with \"enum\" isn't supported");
    for (size_t i = 0; i < json_count(list); i++) /* properties that aren't required */
        if (json_as_string(json_at(list, i), &text, NULL, NULL) == STATUS_OK)
            TRY(add_property(object, text, part->path));
    object->open = !list;
    if (json_get_string(value, "pattern", &text, NULL, NULL) == STATUS_OK)
        return add_names_pattern(object, part, "propertyNames/pattern", text);
    return STATUS_OK;
}

static enum status read_names(struct object *object)
{
    for (size_t i = 0; i < object->facts->parts->count; i++) {
        const struct schema_part *part = &object->facts->parts->list[i];
        const struct json_value *value;
        if (schema_member(part->schema, "patternProperties", &value))
            TRY(read_pattern_properties(object, part, value));
    }
    for (size_t i = 0; i < object->facts->parts->count; i++) {
        const struct schema_part *part = &object->facts->parts->list[i];
        const struct json_value *value;
        if (schema_member(part->schema, "propertyNames", &value))
            TRY(read_property_names(object, part, value));
    }
    return STATUS_OK;
}

/* A name may come twice, which makes one property. So counts are kept only if they hold anyway. */
static enum status check_counts(const struct object *object)
{
    const struct schema_facts *facts = object->facts;
    bool map = object->open && !object->count;
    size_t sure = object->required_count;
    if (facts->min_properties > sure && !(map && facts->min_properties == 1))
        return schema_fail(object->compiler, facts->min_properties_path, "minProperties",
                           STATUS_UNSUPPORTED,
                           "%u is more than the %zu required properties: name them in \"required\"",
                           facts->min_properties, sure);
    if (facts->max_properties != UINT32_MAX && !map &&
        (object->open || facts->max_properties < object->count))
        return schema_fail(object->compiler, facts->max_properties_path, "maxProperties",
                           STATUS_UNSUPPORTED,
                           "supported only if it always holds, or without \"properties\"");
    return STATUS_OK;
}

static enum status read_properties(struct object *object)
{
    TRY(add_named(object));
    TRY(add_required(object));
    TRY(decide_open(object));
    TRY(read_names(object));
    return check_counts(object);
}

/* -------------------------------------------------------------------------------------- edges */

/* Puts ':' and the value. */
static void put_value(struct object *object, uint32_t from, uint32_t rule, uint32_t to)
{
    uint32_t ready = schema_put_separator(object->compiler, from, ':');
    grammar_add_call(object->compiler->grammar, ready, rule, to);
}

static void put_property(struct object *object, const struct property *property, uint32_t from,
                         uint32_t to)
{
    struct grammar *grammar = object->compiler->grammar;
    uint32_t name = grammar_add_state(grammar, from), end = grammar_add_state(grammar, from);
    uint32_t behind = grammar_add_state(grammar, from);
    grammar_add_bytes(grammar, from, '"', '"', name);
    characters_put_text(&object->compiler->characters, true, property->name, strlen(property->name),
                        name, end);
    grammar_add_bytes(grammar, end, '"', '"', behind);
    put_value(object, behind, property->rule, to);
}

/* The named properties as a tree of characters. Another name leaves the tree at some character. */
struct name_tree {
    struct object *object;
    const struct property **sorted;
    uint32_t other, end; /* states: a name has left the tree; a name ends */
};

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct property *const *)a)->name,
                  (*(const struct property *const *)b)->name);
}

/* Puts the names that differ from first..last, which agree up to `at`; `from` is the state there.
 * Recursion takes a level for each character. */
static void put_other_names(struct name_tree *tree, size_t first, size_t last, size_t at,
                            uint32_t from)
{
    struct characters *characters = &tree->object->compiler->characters;
    struct grammar *grammar = characters->grammar;
    struct charset others = {0};
    grammar_spend(grammar, 1 + last - first);
    bool ends = first < last && !tree->sorted[first]->name[at];
    first += ends;
    if (!ends)
        grammar_add_jump(grammar, from, tree->end);
    for (size_t i = first; i < last && !grammar->full;) {
        const char *name = tree->sorted[i]->name;
        struct utf8_char here = utf8_next(name + at, strlen(name + at));
        size_t next = i + 1;
        while (next < last && !strncmp(tree->sorted[next]->name + at, name + at, here.length))
            next++;
        charset_add(&others, here.code, here.code);
        uint32_t inside = grammar_add_state(grammar, from);
        characters_put_text(characters, true, name + at, here.length, from, inside);
        put_other_names(tree, i, next, at + here.length, inside);
        i = next;
    }
    charset_normalise(&others);
    charset_complement(&others);
    characters_put(characters, true, &others, from, tree->other);
    charset_deinit(&others);
}

/* Puts any name except those of the named properties. */
static void put_unnamed(struct object *object, uint32_t name, uint32_t end)
{
    struct grammar *grammar = object->compiler->grammar;
    struct name_tree tree = {.object = object,
                             .sorted = calloc(object->count + 1, sizeof *tree.sorted),
                             .other = grammar_add_state(grammar, name),
                             .end = end};
    ASSERT(tree.sorted);
    for (size_t i = 0; i < object->count; i++)
        tree.sorted[i] = &object->list[i];
    qsort(tree.sorted, object->count, sizeof *tree.sorted, by_name);
    put_other_names(&tree, 0, object->count, 0, name);
    free(tree.sorted);
    characters_put(&object->compiler->characters, true, &charset_all, tree.other, tree.other);
    grammar_add_jump(grammar, tree.other, end);
}

/* Puts the names that match the pattern. */
static enum status put_matching(struct object *object, uint32_t name, uint32_t end)
{
    struct text_automaton automaton;
    struct error why;
    enum status status = text_automaton_build(object->names, &automaton, &why);
    if (status != STATUS_OK)
        return schema_fail(object->compiler, object->names_path, object->names_keyword, status,
                           "%s", why.text);
    if (automaton.state_count)
        characters_put_automaton(&object->compiler->characters, true, &automaton, name, end);
    text_automaton_deinit(&automaton);
    return STATUS_OK;
}

/* Puts one property that no schema names. */
static enum status put_other(struct object *object, uint32_t from, uint32_t to)
{
    struct grammar *grammar = object->compiler->grammar;
    uint32_t name = grammar_add_state(grammar, from), end = grammar_add_state(grammar, from);
    uint32_t behind = grammar_add_state(grammar, from);
    grammar_add_bytes(grammar, from, '"', '"', name);
    grammar_add_bytes(grammar, end, '"', '"', behind);
    put_value(object, behind, object->rule, to);
    if (object->names)
        return put_matching(object, name, end);
    put_unnamed(object, name, end);
    return STATUS_OK;
}

/* Puts properties of an object without named ones: as many as the facts allow, in any order. */
static enum status put_map(struct object *object, uint32_t open, uint32_t to)
{
    struct grammar *grammar = object->compiler->grammar;
    const struct schema_facts *facts = object->facts;
    uint32_t max = facts->max_properties;
    if (max != UINT32_MAX && max > SCHEMA_MAX_ITEMS)
        max = SCHEMA_MAX_ITEMS;
    if (!facts->min_properties)
        grammar_add_bytes(grammar, open, '}', '}', to);
    if (!max)
        return STATUS_OK;
    /* `key` is the state before a name, `behind` the one behind a value. With a maximum each
     * property has a pair of its own. */
    uint32_t key = grammar_add_state(grammar, open);
    grammar_add_jump(grammar, open, key);
    uint32_t rounds = max == UINT32_MAX ? 1 : max;
    for (uint32_t i = 0; i < rounds && !grammar->full; i++) {
        uint32_t behind = grammar_add_state(grammar, open);
        TRY(put_other(object, key, behind));
        grammar_add_bytes(grammar, behind, '}', '}', to);
        if (max != UINT32_MAX && i + 1 == rounds)
            break;
        uint32_t next = schema_put_separator(object->compiler, behind, ',');
        if (max == UINT32_MAX)
            grammar_add_jump(grammar, next, key);
        key = next;
    }
    return STATUS_OK;
}

/* Puts named properties, then others. States before property i: `first` if no property is written
 * yet, `later` behind a comma. */
static enum status put_named(struct object *object, uint32_t open, uint32_t to)
{
    struct grammar *grammar = object->compiler->grammar;
    size_t required_left = object->required_count;
    uint32_t first = open, later = GRAMMAR_NONE;
    if (!required_left)
        grammar_add_bytes(grammar, open, '}', '}', to);
    for (size_t i = 0; i < object->count && !grammar->full; i++) {
        const struct property *property = &object->list[i];
        uint32_t key = grammar_add_state(grammar, open);
        uint32_t done = grammar_add_state(grammar, open);
        uint32_t next_first = GRAMMAR_NONE;
        put_property(object, property, key, done);
        required_left -= property->required;
        if (!required_left)
            grammar_add_bytes(grammar, done, '}', '}', to);
        if (first != GRAMMAR_NONE)
            grammar_add_jump(grammar, first, key);
        if (first != GRAMMAR_NONE && !property->required) {
            next_first = grammar_add_state(grammar, open);
            grammar_add_jump(grammar, first, next_first);
        }
        if (later != GRAMMAR_NONE)
            grammar_add_jump(grammar, later, key);
        uint32_t next_later = schema_put_separator(object->compiler, done, ',');
        if (later != GRAMMAR_NONE && !property->required)
            grammar_add_jump(grammar, later, next_later);
        first = next_first;
        later = next_later;
    }
    if (!object->open)
        return STATUS_OK;
    uint32_t key = grammar_add_state(grammar, open), done = grammar_add_state(grammar, open);
    if (first != GRAMMAR_NONE)
        grammar_add_jump(grammar, first, key);
    if (later != GRAMMAR_NONE)
        grammar_add_jump(grammar, later, key);
    TRY(put_other(object, key, done));
    grammar_add_bytes(grammar, done, '}', '}', to);
    grammar_add_jump(grammar, schema_put_separator(object->compiler, done, ','), key);
    return STATUS_OK;
}

enum status schema_put_object(struct schema_compiler *compiler, const struct schema_facts *facts,
                              uint32_t from, uint32_t to)
{
    struct object object = {.compiler = compiler, .facts = facts};
    enum status status = read_properties(&object);
    if (status == STATUS_OK) {
        uint32_t open = grammar_add_state(compiler->grammar, from);
        grammar_add_bytes(compiler->grammar, from, '{', '{', open);
        status = object.open && !object.count ? put_map(&object, open, to)
                                              : put_named(&object, open, to);
    }
    free(object.list);
    text_pattern_destroy(object.names);
    return status;
}
