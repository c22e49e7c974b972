/* The parts of a value: $ref and allOf bring schemas in, anyOf and oneOf leave alternatives
 * open. */
#include "common/base/json/json_quote.h"
#include "common/base/str.h"
#include "common/language/constrain/schema_compiler.h"

#include <string.h>

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *found = c ? strchr(digits, c | 0x20) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* Undoes %xx, ~0 and ~1 in one step of a pointer. */
static void unescape(const char *text, size_t length, struct str *out)
{
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == '%' && i + 2 < length && hex_digit(text[i + 1]) >= 0 &&
            hex_digit(text[i + 2]) >= 0) {
            c = (char)(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
            i += 2;
        }
        if (c == '~' && i + 1 < length && (text[i + 1] == '0' || text[i + 1] == '1'))
            c = text[++i] == '0' ? '~' : '/';
        str_append(out, &c, 1);
    }
}

/* Goes one step down. Returns false if there is no such member or item. The path's key is the
 * document's own, which lives long enough. */
static bool step_into(struct schema_compiler *compiler, const struct json_value **at,
                      uint32_t *path, const char *step)
{
    if (json_kind(*at) == JSON_ARRAY) {
        uint64_t index;
        if (!str_to_u64(step, 0, json_count(*at) - 1, &index) || !json_count(*at))
            return false;
        *at = json_at(*at, (size_t)index);
        *path = schema_path_index(compiler, *path, (size_t)index);
        return true;
    }
    schema_spend(compiler, json_count(*at));
    for (struct json_member m = {0}; json_next(*at, &m);)
        if (!strcmp(m.key, step)) {
            *at = m.value;
            *path = schema_path_key(compiler, *path, m.key);
            return true;
        }
    return false;
}

static enum status resolve(struct schema_compiler *compiler, const char *reference, uint32_t path,
                           struct schema_part *target)
{
    *target = (struct schema_part){.schema = compiler->root, .path = compiler->root_path};
    if (reference[0] != '#' || (reference[1] && reference[1] != '/'))
        return schema_fail(compiler, path, "$ref", STATUS_UNSUPPORTED,
                           "\"%s\" isn't a pointer into this schema, like \"#/$defs/name\"",
                           reference);
    for (const char *at = reference + 1; *at;) {
        size_t length = strcspn(at + 1, "/");
        struct str step;
        str_init(&step, 4096);
        unescape(at + 1, length, &step);
        bool found = step_into(compiler, &target->schema, &target->path, step.data);
        str_deinit(&step);
        if (!found)
            return schema_fail(compiler, path, "$ref", STATUS_INVALID, "there is no \"%s\"",
                               reference);
        at += 1 + length;
    }
    return STATUS_OK;
}

static enum status add_reference(struct schema_compiler *compiler, struct schema_parts *parts,
                                 size_t i, const struct json_value *value)
{
    const char *reference;
    struct schema_part target;
    uint32_t path = parts->list[i].path;
    if (json_as_string(value, &reference, NULL, NULL) != STATUS_OK)
        return schema_fail(compiler, path, "$ref", STATUS_INVALID, "must be a string");
    TRY(resolve(compiler, reference, path, &target));
    schema_spend(compiler, parts->count);
    for (size_t at = 0; at < parts->count; at++) {
        if (parts->list[at].schema != target.schema)
            continue;
        for (size_t above = i; above != SCHEMA_NONE; above = parts->list[above].parent)
            if (above == at)
                return schema_fail(compiler, path, "$ref", STATUS_INVALID,
                                   "\"%s\" leads back to itself without a value between",
                                   reference);
        return STATUS_OK;
    }
    schema_parts_add(parts, target.schema, target.path, (uint32_t)i);
    return STATUS_OK;
}

static enum status add_all_of(struct schema_compiler *compiler, struct schema_parts *parts,
                              size_t i, const struct json_value *value)
{
    uint32_t path = parts->list[i].path;
    if (json_kind(value) != JSON_ARRAY)
        return schema_fail(compiler, path, "allOf", STATUS_INVALID, "must be an array");
    uint32_t list = schema_path_key(compiler, path, "allOf");
    for (size_t at = 0; at < json_count(value); at++)
        schema_parts_add(parts, json_at(value, at), schema_path_index(compiler, list, at),
                         (uint32_t)i);
    return STATUS_OK;
}

static enum status flatten_one(struct schema_compiler *compiler, struct schema_parts *parts,
                               size_t i)
{
    struct schema_part part = parts->list[i];
    uint32_t depth = 0;
    for (size_t at = i; at != SCHEMA_NONE; at = parts->list[at].parent)
        depth++;
    if (depth > SCHEMA_MAX_DEPTH)
        return schema_fail(compiler, part.path, NULL, STATUS_LIMIT,
                           "a chain of $ref, allOf and anyOf is longer than %d", SCHEMA_MAX_DEPTH);
    if (json_kind(part.schema) != JSON_OBJECT && json_kind(part.schema) != JSON_BOOL)
        return schema_fail(compiler, part.path, NULL, STATUS_INVALID,
                           "a schema must be an object, true or false");
    for (struct json_member m = {0}; json_next(part.schema, &m);)
        if (!strcmp(m.key, "$ref"))
            TRY(add_reference(compiler, parts, i, m.value));
        else if (!strcmp(m.key, "allOf"))
            TRY(add_all_of(compiler, parts, i, m.value));
    if (!schema_spend(compiler, (1 + json_count(part.schema)) * SCHEMA_KEYWORD_STEPS))
        return schema_fail_full(compiler, part.path);
    return STATUS_OK;
}

enum status schema_flatten(struct schema_compiler *compiler, struct schema_parts *parts,
                           size_t first)
{
    for (size_t i = first; i < parts->count; i++)
        TRY(flatten_one(compiler, parts, i));
    return STATUS_OK;
}

/* ---------------------------------------------------------- telling alternatives of oneOf apart */

/* Compares only types, enum and const. Two objects also exclude each other by a required property:
 * with different values of these, or forbidden by the other schema. */
#define MAX_DEPTH 4 /* properties of properties that are looked into */

static enum status exclusive_parts(struct schema_compiler *compiler, const struct schema_parts *a,
                                   const struct schema_parts *b, int depth, bool *exclusive);

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

/* Returns whether `b` allows none of the choices of `a`: by its own choices, or by `types`. Returns
 * false if `a` has no choices. */
static bool choices_differ(struct schema_compiler *compiler, const struct schema_parts *a,
                           const struct schema_parts *b, uint32_t types)
{
    for (size_t i = 0; i < a->count; i++) {
        const struct json_value *only, *list;
        if (schema_member(a->list[i].schema, "const", &only) &&
            (!schema_allows_choice(compiler, b, only) || !(schema_type_of(only) & types)))
            return true;
        if (!schema_member(a->list[i].schema, "enum", &list) || json_kind(list) != JSON_ARRAY)
            continue;
        bool all = true;
        for (size_t at = 0; at < json_count(list) && all && schema_spend(compiler, 1); at++)
            all = !schema_allows_choice(compiler, b, json_at(list, at)) ||
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

/* Finds the property's schemas, flat; none if no part has one. Sets *forbidden if a part forbids
 * the property. */
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

/* `a` requires the property. Sets *differs if no value of it is valid for both. */
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
    *exclusive = !(left & right) || choices_differ(compiler, a, b, right) ||
                 choices_differ(compiler, b, a, left);
    if (*exclusive || (left & right) != SCHEMA_OBJECT || depth == MAX_DEPTH)
        return STATUS_OK;
    TRY(objects_differ(compiler, a, b, depth, exclusive));
    return *exclusive ? STATUS_OK : objects_differ(compiler, b, a, depth, exclusive);
}

/* Sets *exclusive if it is sure that no value is valid for both schemas. `tag` is a schema that
 * applies besides; NULL: none. */
static enum status find_exclusive(struct schema_compiler *compiler, const struct json_value *a,
                                  const struct json_value *b, const struct json_value *tag,
                                  uint32_t path, bool *exclusive)
{
    struct schema_parts left = {0}, right = {0};
    schema_parts_add(&left, a, path, SCHEMA_NONE);
    schema_parts_add(&right, b, path, SCHEMA_NONE);
    if (tag) {
        schema_parts_add(&left, tag, path, SCHEMA_NONE);
        schema_parts_add(&right, tag, path, SCHEMA_NONE);
    }
    enum status status = schema_flatten(compiler, &left, 0);
    if (status == STATUS_OK)
        status = schema_flatten(compiler, &right, 0);
    if (status == STATUS_OK)
        status = exclusive_parts(compiler, &left, &right, 0, exclusive);
    schema_parts_deinit(&left);
    schema_parts_deinit(&right);
    return status;
}

/* -------------------------------------------------------------------------- anyOf and oneOf */

/* Keywords that leave alternatives open, in the order in which they are written out. */
static const char *const open_keywords[] = {"anyOf", "oneOf"};
#define OPEN_KEYWORDS 2

/* Finds the first two alternatives that may both be valid for a value; *first is then below
 * *second, which is the count of the list if there are none. `tag`: as for find_exclusive. */
static enum status find_overlap(struct schema_compiler *compiler, const struct json_value *list,
                                const struct json_value *tag, uint32_t path, size_t *first,
                                size_t *second)
{
    for (*second = 0; *second < json_count(list); ++*second)
        for (*first = 0; *first < *second; ++*first) {
            bool exclusive;
            TRY(find_exclusive(compiler, json_at(list, *second), json_at(list, *first), tag, path,
                               &exclusive));
            if (!exclusive)
                return STATUS_OK;
        }
    return STATUS_OK;
}

/* Finds the schema that requires the property, made at its first use: equal rules need equal
 * pointers. */
static enum status require(struct schema_compiler *compiler, const char *name, uint32_t path,
                           const struct json_value **schema)
{
    const char *known;
    if (!schema_spend(compiler, (1 + compiler->tag_count) * SCHEMA_KEYWORD_STEPS))
        return schema_fail_full(compiler, path);
    for (size_t i = 0; i < compiler->tag_count; i++) {
        *schema = json_root(compiler->tags[i]);
        if (json_as_string(json_at(json_find(*schema, "required"), 0), &known, NULL, NULL) ==
                STATUS_OK &&
            !strcmp(known, name))
            return STATUS_OK;
    }
    struct str text;
    struct json *json = NULL;
    str_init(&text, 8 * SCHEMA_MAX_NAME_BYTES);
    str_add(&text, "{\"required\":[");
    json_quote(&text, name, strlen(name));
    str_add(&text, "]}");
    struct json_limits limits = {.max_bytes = text.length, .max_depth = 3};
    enum status status = json_parse(text.data, text.length, limits, &json, compiler->err);
    str_deinit(&text);
    if (status != STATUS_OK)
        return status;
    compiler->tags =
        grow(compiler->tags, compiler->tag_count, &compiler->tag_capacity, sizeof *compiler->tags);
    compiler->tags[compiler->tag_count++] = json;
    *schema = json_root(json);
    return STATUS_OK;
}

/* Tries whether the alternatives exclude each other once the property is there. */
static enum status try_tag(struct schema_compiler *compiler, const struct json_value *list,
                           const char *name, uint32_t path, const struct json_value **tag)
{
    const struct json_value *schema = NULL;
    size_t first, second;
    if (strlen(name) > SCHEMA_MAX_NAME_BYTES)
        return STATUS_OK;
    TRY(require(compiler, name, path, &schema));
    TRY(find_overlap(compiler, list, schema, path, &first, &second));
    if (second == json_count(list))
        *tag = schema;
    return STATUS_OK;
}

/* Finds the tag of a union: a property that differs between all alternatives, and that none of them
 * requires since it has a default. Sets *tag to a schema that requires it; NULL: there is none. */
static enum status find_tag(struct schema_compiler *compiler, const struct schema_part *part,
                            const struct json_value *list, const struct json_value **tag)
{
    const char *name;
    struct schema_parts parts = {0};
    *tag = NULL;
    if (json_get_string(json_find(part->schema, "discriminator"), "propertyName", &name, NULL,
                        NULL) == STATUS_OK)
        TRY(try_tag(compiler, list, name, part->path, tag));
    schema_parts_add(&parts, json_at(list, 0), part->path, SCHEMA_NONE);
    enum status status = schema_flatten(compiler, &parts, 0);
    for (size_t i = 0; i < parts.count && status == STATUS_OK && !*tag; i++)
        for (struct json_member m = {0};
             status == STATUS_OK && !*tag &&
             json_next(json_find(parts.list[i].schema, "properties"), &m);)
            if (json_find(m.value, "const") || json_find(m.value, "enum"))
                status = try_tag(compiler, list, m.key, part->path, tag);
    schema_parts_deinit(&parts);
    return status;
}

/* Refuses alternatives that may both be valid for a value. *tag: as of find_tag; NULL: none is
 * needed. */
static enum status check_one_of(struct schema_compiler *compiler, const struct schema_part *part,
                                const struct json_value *list, const struct json_value **tag)
{
    size_t first, second;
    *tag = NULL;
    TRY(find_overlap(compiler, list, NULL, part->path, &first, &second));
    if (second == json_count(list))
        return STATUS_OK;
    TRY(find_tag(compiler, part, list, tag));
    if (*tag)
        return STATUS_OK;
    return schema_fail(
        compiler, part->path, "oneOf", STATUS_UNSUPPORTED,
        "alternatives %zu and %zu may both be valid for a value, which can't be "
        "ruled out: use anyOf, or tell them apart by type or a property with a const",
        first, second);
}

static enum status put_open(struct schema_compiler *compiler, const struct schema_parts *parts,
                            size_t step, uint32_t from, uint32_t to);

/* The alternatives of an open keyword. */
struct alternatives {
    const struct schema_parts *parts; /* the parts of the value; one of them has the keyword */
    size_t step;
    const struct json_value *tag; /* a schema that each of them gets; NULL */
};

/* Puts the parts with one of the alternatives; put_open goes on with the next open keyword. */
static enum status put_alternative(struct schema_compiler *compiler, const struct alternatives *of,
                                   size_t index, uint32_t from, uint32_t to)
{
    const struct schema_parts *parts = of->parts;
    size_t step = of->step;
    const struct schema_part *part = &parts->list[step / OPEN_KEYWORDS];
    const char *keyword = open_keywords[step % OPEN_KEYWORDS];
    struct schema_parts with = {0};
    uint32_t list = schema_path_key(compiler, part->path, keyword);
    schema_spend(compiler, parts->count * (1 + OPEN_KEYWORDS));
    for (size_t i = 0; i < parts->count; i++)
        schema_parts_add(&with, parts->list[i].schema, parts->list[i].path, parts->list[i].parent);
    schema_parts_add(&with, json_at(json_find(part->schema, keyword), index),
                     schema_path_index(compiler, list, index), (uint32_t)(step / OPEN_KEYWORDS));
    if (of->tag)
        schema_parts_add(&with, of->tag, part->path, (uint32_t)(step / OPEN_KEYWORDS));
    enum status status = schema_flatten(compiler, &with, parts->count);
    if (status == STATUS_OK)
        status = put_open(compiler, &with, step + 1, from, to);
    schema_parts_deinit(&with);
    return status;
}

/* `step` counts the open keywords of all parts. Recursion is as deep as parts may be: flatten_one
 * bounds chains. */
static enum status put_open(struct schema_compiler *compiler, const struct schema_parts *parts,
                            size_t step, uint32_t from, uint32_t to)
{
    const struct json_value *list = NULL;
    while (step < OPEN_KEYWORDS * parts->count &&
           !schema_member(parts->list[step / OPEN_KEYWORDS].schema,
                          open_keywords[step % OPEN_KEYWORDS], &list))
        step++;
    if (compiler->grammar->full)
        return STATUS_OK;
    if (step == OPEN_KEYWORDS * parts->count)
        return schema_put_leaf(compiler, parts, from, to);
    const struct schema_part *part = &parts->list[step / OPEN_KEYWORDS];
    const char *keyword = open_keywords[step % OPEN_KEYWORDS];
    if (json_kind(list) != JSON_ARRAY || json_count(list) == 0)
        return schema_fail(compiler, part->path, keyword, STATUS_INVALID,
                           "must be an array that isn't empty");
    struct alternatives all = {.parts = parts, .step = step};
    if (step % OPEN_KEYWORDS == 1)
        TRY(check_one_of(compiler, part, list, &all.tag));
    compiler->alternatives += json_count(list);
    if (compiler->alternatives > SCHEMA_MAX_ALTERNATIVES)
        return schema_fail(compiler, part->path, keyword, STATUS_LIMIT,
                           "with the others of this value there are more than %d alternatives",
                           SCHEMA_MAX_ALTERNATIVES);
    for (size_t i = 0; i < json_count(list); i++)
        TRY(put_alternative(compiler, &all, i, from, to));
    return STATUS_OK;
}

enum status schema_put_parts(struct schema_compiler *compiler, const struct schema_parts *parts,
                             uint32_t from, uint32_t to)
{
    return put_open(compiler, parts, 0, from, to);
}
