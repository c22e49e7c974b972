#include "common/language/constrain/schema_compiler.h"

#include "common/base/str.h"
#include "common/base/utf8.h"

#include <stdlib.h>
#include <string.h>

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *found = c ? strchr(digits, c | 0x20) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* One step of a pointer in a fragment: %xx, ~0 and ~1 are put back. */
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

/* One step down; the path's key is the document's own, which lives as long. */
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

static bool is_ancestor(const struct schema_parts *parts, size_t of, size_t candidate)
{
    for (size_t at = of; at != SCHEMA_NONE; at = parts->list[at].parent)
        if (at == candidate)
            return true;
    return false;
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
        if (is_ancestor(parts, i, at))
            return schema_fail(compiler, path, "$ref", STATUS_INVALID,
                               "\"%s\" leads back to itself without a value between", reference);
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

/* Values of one kind of a leaf: no alternatives are left. */
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
    bool whole = !(facts->types & SCHEMA_FRACTION) || number.modulus > 1;
    number.part_digits = whole ? 0 : NUMBER_DIGITS;
    if (!whole && !number.low.present && !number.high.present)
        number_put_any(grammar, from, to);
    else if (facts->types & (SCHEMA_FRACTION | SCHEMA_INTEGER))
        number_range_put(grammar, &number, from, to);
    if (facts->types & SCHEMA_STRING)
        TRY(schema_put_string(compiler, facts, from, to));
    if (facts->types & SCHEMA_ARRAY)
        TRY(schema_put_array(compiler, facts, from, to));
    if (facts->types & SCHEMA_OBJECT)
        TRY(schema_put_object(compiler, facts, from, to));
    return STATUS_OK;
}

static enum status put_leaf(struct schema_compiler *compiler, const struct schema_parts *parts,
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

/* The two keywords that leave alternatives open, in the order in which they are written out. */
static const char *const open_keywords[] = {"anyOf", "oneOf"};
#define OPEN_KEYWORDS 2

static enum status check_one_of(struct schema_compiler *compiler, const struct schema_part *part,
                                const struct json_value *list)
{
    for (size_t i = 0; i < json_count(list); i++)
        for (size_t j = 0; j < i; j++) {
            bool exclusive;
            struct schema_part a = {json_at(list, i), part->path, SCHEMA_NONE};
            struct schema_part b = {json_at(list, j), part->path, SCHEMA_NONE};
            TRY(schema_exclusive(compiler, &a, &b, &exclusive));
            if (!exclusive)
                return schema_fail(compiler, part->path, "oneOf", STATUS_UNSUPPORTED,
                                   "alternatives %zu and %zu may both be valid for a value, which "
                                   "can't be ruled out: use anyOf, or tell them apart by type or a "
                                   "required property with a const",
                                   j, i);
        }
    return STATUS_OK;
}

static enum status put_open(struct schema_compiler *compiler, const struct schema_parts *parts,
                            size_t step, uint32_t from, uint32_t to);

/* The parts with one of the alternatives, and on to the next open keyword. */
static enum status put_alternative(struct schema_compiler *compiler,
                                   const struct schema_parts *parts, size_t step, size_t index,
                                   uint32_t from, uint32_t to)
{
    const struct schema_part *part = &parts->list[step / OPEN_KEYWORDS];
    const char *keyword = open_keywords[step % OPEN_KEYWORDS];
    struct schema_parts with = {0};
    uint32_t list = schema_path_key(compiler, part->path, keyword);
    schema_spend(compiler, parts->count * (1 + OPEN_KEYWORDS));
    for (size_t i = 0; i < parts->count; i++)
        schema_parts_add(&with, parts->list[i].schema, parts->list[i].path, parts->list[i].parent);
    schema_parts_add(&with, json_at(json_find(part->schema, keyword), index),
                     schema_path_index(compiler, list, index), (uint32_t)(step / OPEN_KEYWORDS));
    enum status status = schema_flatten(compiler, &with, parts->count);
    if (status == STATUS_OK)
        status = put_open(compiler, &with, step + 1, from, to);
    schema_parts_deinit(&with);
    return status;
}

/* `step` counts open keywords of parts. Recursion is as deep as parts may be (flatten_one bounds
 * chains). */
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
        return put_leaf(compiler, parts, from, to);
    const struct schema_part *part = &parts->list[step / OPEN_KEYWORDS];
    const char *keyword = open_keywords[step % OPEN_KEYWORDS];
    if (json_kind(list) != JSON_ARRAY || json_count(list) == 0)
        return schema_fail(compiler, part->path, keyword, STATUS_INVALID,
                           "must be an array that isn't empty");
    if (step % OPEN_KEYWORDS == 1)
        TRY(check_one_of(compiler, part, list));
    compiler->alternatives += json_count(list);
    if (compiler->alternatives > SCHEMA_MAX_ALTERNATIVES)
        return schema_fail(compiler, part->path, keyword, STATUS_LIMIT,
                           "with the others of this value there are more than %d alternatives",
                           SCHEMA_MAX_ALTERNATIVES);
    for (size_t i = 0; i < json_count(list); i++)
        TRY(put_alternative(compiler, parts, step, i, from, to));
    return STATUS_OK;
}

enum status schema_put_parts(struct schema_compiler *compiler, const struct schema_parts *parts,
                             uint32_t from, uint32_t to)
{
    return put_open(compiler, parts, 0, from, to);
}
