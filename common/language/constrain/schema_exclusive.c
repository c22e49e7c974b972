/* Telling alternatives of oneOf apart. Only what is plain to see counts: types, enum and const, and
 * of objects a required property that differs in these, or that the other doesn't allow. */
#include "common/base/assert.h"
#include "common/language/constrain/schema_compiler.h"

#include <string.h>

#define MAX_DEPTH 4 /* of properties that are looked into */

static enum status exclusive_parts(struct schema_compiler *compiler, const struct schema_parts *a,
                                   const struct schema_parts *b, int depth, bool *exclusive);

/* Flat parts of one schema. */
static enum status parts_of(struct schema_compiler *compiler, const struct schema_part *part,
                            struct schema_parts *parts)
{
    *parts = (struct schema_parts){0};
    schema_parts_add(parts, part->schema, part->path, SCHEMA_NONE);
    return schema_flatten(compiler, parts, 0);
}

static enum status types_of(struct schema_compiler *compiler, const struct schema_parts *parts,
                            uint32_t *types)
{
    *types = SCHEMA_ALL;
    for (size_t i = 0; i < parts->count; i++) {
        const struct json_value *value;
        uint32_t some = SCHEMA_ALL;
        if (schema_member(parts->list[i].schema, "type", &value))
            TRY(schema_read_types(compiler, value, parts->list[i].path, &some));
        *types &= some;
    }
    return STATUS_OK;
}

/* Whether the value is left out by the enums and consts of the parts; false where there are
 * none. */
static bool left_out(struct schema_compiler *compiler, const struct schema_parts *parts,
                     const struct json_value *value)
{
    for (size_t i = 0; i < parts->count; i++) {
        const struct json_value *only, *list;
        if (schema_member(parts->list[i].schema, "const", &only) &&
            !schema_equal_values(compiler, only, value))
            return true;
        if (!schema_member(parts->list[i].schema, "enum", &list))
            continue;
        bool found = false;
        for (size_t at = 0; at < json_count(list) && !found; at++)
            found = schema_equal_values(compiler, json_at(list, at), value);
        if (!found)
            return true;
    }
    return false;
}

/* Whether each choice of `a` is left out by `b`, or has another type than `types`; false where `a`
 * has no choices. */
static bool choices_left_out(struct schema_compiler *compiler, const struct schema_parts *a,
                             const struct schema_parts *b, uint32_t types)
{
    for (size_t i = 0; i < a->count; i++) {
        const struct json_value *only, *list;
        if (schema_member(a->list[i].schema, "const", &only) &&
            (left_out(compiler, b, only) || !(schema_type_of(only) & types)))
            return true;
        if (!schema_member(a->list[i].schema, "enum", &list) || json_kind(list) != JSON_ARRAY)
            continue;
        bool all = true;
        for (size_t at = 0; at < json_count(list) && all && schema_spend(compiler, 1); at++)
            all = left_out(compiler, b, json_at(list, at)) ||
                  !(schema_type_of(json_at(list, at)) & types);
        if (all)
            return true;
    }
    return false;
}

static bool is_required(struct schema_compiler *compiler, const struct schema_parts *parts,
                        const char *name)
{
    for (size_t i = 0; i < parts->count; i++) {
        const struct json_value *list = json_find(parts->list[i].schema, "required");
        schema_spend(compiler, 1 + json_count(list));
        for (size_t at = 0; json_kind(list) == JSON_ARRAY && at < json_count(list); at++) {
            const char *other;
            if (json_as_string(json_at(list, at), &other, NULL, NULL) == STATUS_OK &&
                !strcmp(other, name))
                return true;
        }
    }
    return false;
}

/* The property's schemas; empty where no part has one. *forbidden where one says that there is no
 * such property. */
static enum status property_of(struct schema_compiler *compiler, const struct schema_parts *parts,
                               const char *name, struct schema_parts *found, bool *forbidden)
{
    *found = (struct schema_parts){0};
    *forbidden = false;
    for (size_t i = 0; i < parts->count; i++) {
        const struct schema_part *part = &parts->list[i];
        const struct json_value *additional, *properties = json_find(part->schema, "properties");
        const struct json_value *schema = json_find(properties, name);
        schema_spend(compiler, 1 + json_count(properties));
        bool flag = true;
        if (schema)
            schema_parts_add(found, schema, part->path, SCHEMA_NONE);
        else if (schema_member(part->schema, "additionalProperties", &additional) &&
                 json_as_bool(additional, &flag, NULL) == STATUS_OK && !flag &&
                 !json_find(part->schema, "patternProperties"))
            *forbidden = true;
    }
    return schema_flatten(compiler, found, 0);
}

/* The property is required by `a`: does what both say of it exclude each other? */
static enum status property_differs(struct schema_compiler *compiler, const struct schema_parts *a,
                                    const struct schema_parts *b, const char *name, int depth,
                                    bool *differs)
{
    struct schema_parts left, right = {0};
    bool forbidden, other_forbidden = false;
    enum status status = property_of(compiler, a, name, &left, &forbidden);
    if (status == STATUS_OK)
        status = property_of(compiler, b, name, &right, &other_forbidden);
    *differs = other_forbidden;
    if (status == STATUS_OK && !*differs && left.count && right.count &&
        is_required(compiler, b, name))
        status = exclusive_parts(compiler, &left, &right, depth + 1, differs);
    schema_parts_deinit(&left);
    schema_parts_deinit(&right);
    return status;
}

static enum status objects_differ(struct schema_compiler *compiler, const struct schema_parts *a,
                                  const struct schema_parts *b, int depth, bool *differ)
{
    for (size_t i = 0; i < a->count; i++) {
        const struct json_value *list = json_find(a->list[i].schema, "required");
        for (size_t at = 0; json_kind(list) == JSON_ARRAY && at < json_count(list); at++) {
            const char *name;
            if (json_as_string(json_at(list, at), &name, NULL, NULL) != STATUS_OK)
                continue;
            TRY(property_differs(compiler, a, b, name, depth, differ));
            if (*differ)
                return STATUS_OK;
        }
    }
    return STATUS_OK;
}

static enum status exclusive_parts(struct schema_compiler *compiler, const struct schema_parts *a,
                                   const struct schema_parts *b, int depth, bool *exclusive)
{
    uint32_t left = 0, right = 0;
    *exclusive = false;
    TRY(types_of(compiler, a, &left));
    TRY(types_of(compiler, b, &right));
    *exclusive = !(left & right) || choices_left_out(compiler, a, b, right) ||
                 choices_left_out(compiler, b, a, left);
    if (*exclusive || (left & right) != SCHEMA_OBJECT || depth == MAX_DEPTH)
        return STATUS_OK;
    TRY(objects_differ(compiler, a, b, depth, exclusive));
    return *exclusive ? STATUS_OK : objects_differ(compiler, b, a, depth, exclusive);
}

enum status schema_exclusive(struct schema_compiler *compiler, const struct schema_part *a,
                             const struct schema_part *b, bool *exclusive)
{
    struct schema_parts left = {0}, right = {0};
    enum status status = parts_of(compiler, a, &left);
    if (status == STATUS_OK)
        status = parts_of(compiler, b, &right);
    if (status == STATUS_OK)
        status = exclusive_parts(compiler, &left, &right, 0, exclusive);
    schema_parts_deinit(&left);
    schema_parts_deinit(&right);
    return status;
}
