#include "common/language/constrain/schema_properties.h"

#include "common/language/constrain/grow.h"

#include <stdlib.h>
#include <string.h>

static const struct json_value *member(const struct json_value *schema, const char *key)
{
    return json_find(schema, key);
}

static struct schema_property *find(struct schema_properties *object, const char *name)
{
    for (size_t i = 0; i < object->count; i++)
        if (!strcmp(object->list[i].name, name))
            return &object->list[i];
    return NULL;
}

/* All that applies to the property of this name, and in NULL's case to those that no schema names.
 * False where one forbids it. */
static bool parts_of_property(struct schema_properties *object, const char *name,
                              struct schema_parts *parts, uint32_t *path)
{
    for (size_t i = 0; i < object->facts->parts->count; i++) {
        const struct schema_part *part = &object->facts->parts->list[i];
        const struct json_value *schema = NULL, *properties = member(part->schema, "properties");
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

static enum status add_property(struct schema_properties *object, const char *name, uint32_t path)
{
    struct schema_parts parts = {0};
    struct schema_property property = {.name = name, .path = path};
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
        /* A value that there is none of: no way leads past it. */
        schema_parts_deinit(&parts);
        property.rule = grammar_add_rule(object->compiler->grammar, property.path);
    }
    object->list = grow(object->list, object->count, &object->capacity, sizeof *object->list);
    object->list[object->count++] = property;
    return STATUS_OK;
}

static enum status add_named(struct schema_properties *object)
{
    for (size_t i = 0; i < object->facts->parts->count; i++) {
        const struct schema_part *part = &object->facts->parts->list[i];
        const struct json_value *properties = member(part->schema, "properties");
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

static enum status add_required(struct schema_properties *object)
{
    for (size_t i = 0; i < object->facts->parts->count; i++) {
        const struct schema_part *part = &object->facts->parts->list[i];
        const struct json_value *list = member(part->schema, "required");
        if (list && json_kind(list) != JSON_ARRAY)
            return schema_fail(object->compiler, part->path, "required", STATUS_INVALID,
                               "must be an array of names");
        for (size_t at = 0; at < json_count(list); at++) {
            const char *name;
            if (json_as_string(json_at(list, at), &name, NULL, NULL) != STATUS_OK)
                return schema_fail(object->compiler, part->path, "required", STATUS_INVALID,
                                   "must be an array of names");
            TRY(add_property(object, name, part->path));
            struct schema_property *property = find(object, name);
            object->required_count += !property->required;
            property->required = true;
        }
    }
    return STATUS_OK;
}

/* Names that no schema has are welcome where one says so, or where none has any. */
static enum status decide_open(struct schema_properties *object)
{
    bool asked = false, closed = false, names_some = false;
    for (size_t i = 0; i < object->facts->parts->count; i++) {
        const struct schema_part *part = &object->facts->parts->list[i];
        const struct json_value *value;
        if (schema_member(part->schema, "additionalProperties", &value)) {
            asked = asked || !schema_is_false(value);
            closed = closed || schema_is_false(value);
        }
        names_some = names_some || json_count(member(part->schema, "properties")) > 0;
    }
    object->open = !closed && (asked || !names_some);
    struct schema_parts parts = {0};
    uint32_t path = object->facts->parts->count ? object->facts->parts->list[0].path : 0;
    if (object->open && parts_of_property(object, NULL, &parts, &path))
        object->rule = schema_rule_of_parts(object->compiler, &parts, path);
    schema_parts_deinit(&parts);
    return STATUS_OK;
}

static enum status add_names_pattern(struct schema_properties *object,
                                     const struct schema_part *part, const char *keyword,
                                     const char *text)
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

/* One pattern, and nothing but what matches it: an object used as a map. */
static enum status read_pattern_properties(struct schema_properties *object,
                                           const struct schema_part *part,
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

/* {"enum": [...]}: these names become properties that may be there. */
static enum status add_enum_names(struct schema_properties *object, const struct schema_part *part,
                                  const struct json_value *list)
{
    for (size_t i = 0; i < json_count(list); i++) {
        const char *name;
        if (json_as_string(json_at(list, i), &name, NULL, NULL) == STATUS_OK)
            TRY(add_property(object, name, part->path));
    }
    object->open = false;
    return STATUS_OK;
}

static enum status read_property_names(struct schema_properties *object,
                                       const struct schema_part *part,
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
    if (json_find(value, "enum") && !json_find(value, "pattern"))
        return add_enum_names(object, part, json_find(value, "enum"));
    if (json_find(value, "enum"))
        return schema_fail(object->compiler, part->path, "propertyNames", STATUS_UNSUPPORTED,
                           "\"pattern\" together with \"enum\" isn't supported");
    if (json_get_string(value, "pattern", &text, NULL, NULL) == STATUS_OK)
        return add_names_pattern(object, part, "propertyNames/pattern", text);
    return STATUS_OK;
}

static enum status read_names(struct schema_properties *object)
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

/* A name may come twice, which makes one property: so only what holds anyway can be promised. */
static enum status check_counts(const struct schema_properties *object)
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
                           "only supported where it holds anyway, or without \"properties\"");
    return STATUS_OK;
}

enum status schema_properties_read(struct schema_properties *object)
{
    TRY(add_named(object));
    TRY(add_required(object));
    TRY(decide_open(object));
    TRY(read_names(object));
    return check_counts(object);
}

void schema_properties_deinit(struct schema_properties *object)
{
    free(object->list);
    text_pattern_destroy(object->names);
}
