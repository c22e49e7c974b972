#include "common/language/constrain/schema.h"

#include "common/base/str.h"
#include "common/language/constrain/schema_compiler.h"

#include <stdio.h>
#include <string.h>

struct schema_compiler *schema_compiler_create(struct grammar *grammar)
{
    struct schema_compiler *compiler = calloc(1, sizeof *compiler);
    ASSERT(compiler);
    compiler->grammar = grammar;
    schema_path_key(compiler, SCHEMA_NONE, "#"); /* note 0 */
    characters_init(&compiler->characters, grammar, 0);
    return compiler;
}

void schema_compiler_destroy(struct schema_compiler *compiler)
{
    if (!compiler)
        return;
    for (size_t i = 0; i < compiler->rule_count; i++)
        schema_parts_deinit(&compiler->rules[i].parts);
    characters_deinit(&compiler->characters);
    json_destroy(compiler->object);
    for (size_t i = 0; i < compiler->tag_count; i++)
        json_destroy(compiler->tags[i]);
    free(compiler->tags);
    free(compiler->rules);
    free(compiler->paths);
    free(compiler);
}

bool schema_spend(struct schema_compiler *compiler, uint64_t steps)
{
    return grammar_spend(compiler->grammar, steps);
}

#define PATH_STEPS 32 /* a path takes memory too */

static uint32_t add_path(struct schema_compiler *compiler, struct schema_path path)
{
    schema_spend(compiler, PATH_STEPS);
    compiler->paths = grow(compiler->paths, compiler->path_count, &compiler->path_capacity,
                           sizeof *compiler->paths);
    compiler->paths[compiler->path_count] = path;
    return (uint32_t)compiler->path_count++;
}

uint32_t schema_path_key(struct schema_compiler *compiler, uint32_t parent, const char *key)
{
    return add_path(compiler, (struct schema_path){.parent = parent, .key = key});
}

uint32_t schema_path_index(struct schema_compiler *compiler, uint32_t parent, size_t index)
{
    return add_path(compiler, (struct schema_path){.parent = parent, .index = index});
}

static void add_step(struct str *text, const struct schema_path *path)
{
    if (path->parent != SCHEMA_NONE)
        str_add(text, "/");
    if (!path->key)
        str_addf(text, "%zu", path->index);
    for (const char *c = path->key; c && *c; c++)
        if (*c == '~' || *c == '/')
            str_add(text, *c == '~' ? "~0" : "~1");
        else
            str_append(text, c, 1);
}

void schema_pointer(const struct schema_compiler *compiler, uint32_t note, char *text, size_t size)
{
    uint32_t chain[4 * SCHEMA_MAX_DEPTH], count = 0;
    struct str all;
    str_init(&all, size - 1);
    for (uint32_t at = note; at != SCHEMA_NONE && count < 4 * SCHEMA_MAX_DEPTH;
         at = compiler->paths[at].parent)
        chain[count++] = at;
    while (count)
        add_step(&all, &compiler->paths[chain[--count]]);
    str_copy(text, size, all.data);
    str_deinit(&all);
}

enum status schema_fail(struct schema_compiler *compiler, uint32_t path, const char *keyword,
                        enum status status, const char *format, ...)
{
    char pointer[256];
    va_list args;
    va_start(args, format);
    error_vset(compiler->err, status, format, args);
    va_end(args);
    schema_pointer(compiler, path, pointer, sizeof pointer);
    return error_prefix(compiler->err, status, "%s%s%s", pointer, keyword ? "/" : "",
                        keyword ? keyword : "");
}

void schema_parts_add(struct schema_parts *parts, const struct json_value *schema, uint32_t path,
                      uint32_t parent)
{
    parts->list = grow(parts->list, parts->count, &parts->capacity, sizeof *parts->list);
    parts->list[parts->count++] = (struct schema_part){schema, path, parent};
}

void schema_parts_deinit(struct schema_parts *parts)
{
    free(parts->list);
    *parts = (struct schema_parts){0};
}

static int by_schema(const void *a, const void *b)
{
    uintptr_t left = (uintptr_t)((const struct schema_part *)a)->schema;
    uintptr_t right = (uintptr_t)((const struct schema_part *)b)->schema;
    return (left > right) - (left < right);
}

/* Sorts the parts and drops repeats, and `true` and {}, which allow all values. Equal values have
 * equal lists then. */
static void make_canonical(struct schema_parts *parts)
{
    size_t kept = 0;
    for (size_t i = 0; i < parts->count; i++) {
        const struct json_value *schema = parts->list[i].schema;
        bool allows_all = json_kind(schema) == JSON_BOOL
                              ? !schema_is_false(schema)
                              : json_kind(schema) == JSON_OBJECT && json_count(schema) == 0;
        if (!allows_all)
            parts->list[kept++] = parts->list[i];
    }
    parts->count = kept;
    if (kept)
        qsort(parts->list, kept, sizeof *parts->list, by_schema);
    kept = 0;
    for (size_t i = 0; i < parts->count; i++)
        if (!kept || parts->list[kept - 1].schema != parts->list[i].schema)
            parts->list[kept++] = parts->list[i];
    parts->count = kept;
}

enum status schema_fail_full(struct schema_compiler *compiler, uint32_t path)
{
    if (compile_steps_over(compiler->grammar->steps))
        return schema_fail(compiler, path, NULL, STATUS_LIMIT,
                           "up to here the schema takes more than %u steps to compile",
                           COMPILE_MAX_STEPS);
    return schema_fail(compiler, path, NULL, STATUS_LIMIT,
                       "the schema is too large: up to here it needs more than %d states, "
                       "%d edges or %d rules",
                       GRAMMAR_MAX_STATES, GRAMMAR_MAX_EDGES, GRAMMAR_MAX_RULES);
}

/* Returns the rule of a value; fill_rules fills a new one later. Takes wanted->parts over. */
static uint32_t find_rule(struct schema_compiler *compiler, struct schema_rule *wanted)
{
    uint64_t hash = hash_bytes(&wanted->value, sizeof wanted->value, HASH_SEED + wanted->is_value);
    schema_spend(compiler, 4 * wanted->parts.count);
    for (size_t i = 0; i < wanted->parts.count; i++)
        hash = hash_bytes(&wanted->parts.list[i].schema, sizeof(void *), hash);
    uint32_t *slot = &compiler->slots[(hash ^ (hash >> 32)) % SCHEMA_SLOTS];
    for (uint32_t at = *slot; at; at = compiler->rules[at - 1].next) {
        const struct schema_rule *known = &compiler->rules[at - 1];
        bool same = known->is_value == wanted->is_value && known->value == wanted->value &&
                    known->parts.count == wanted->parts.count;
        for (size_t i = 0; same && i < wanted->parts.count; i++)
            same = known->parts.list[i].schema == wanted->parts.list[i].schema;
        if (same) {
            schema_parts_deinit(&wanted->parts);
            return known->rule;
        }
    }
    wanted->rule = grammar_add_rule(compiler->grammar, wanted->path);
    wanted->next = *slot;
    if (compiler->grammar->full) {
        schema_parts_deinit(&wanted->parts);
        return wanted->rule;
    }
    compiler->rules = grow(compiler->rules, compiler->rule_count, &compiler->rule_capacity,
                           sizeof *compiler->rules);
    compiler->rules[compiler->rule_count] = *wanted;
    *slot = (uint32_t)++compiler->rule_count;
    return wanted->rule;
}

uint32_t schema_rule_of_parts(struct schema_compiler *compiler, struct schema_parts *parts,
                              uint32_t path)
{
    make_canonical(parts);
    struct schema_rule wanted = {.parts = *parts, .path = path};
    *parts = (struct schema_parts){0};
    return find_rule(compiler, &wanted);
}

uint32_t schema_rule_of_value(struct schema_compiler *compiler, const struct json_value *value,
                              uint32_t path)
{
    struct schema_rule wanted = {.value = value, .is_value = true, .path = path};
    return find_rule(compiler, &wanted);
}

uint32_t schema_put_separator(struct schema_compiler *compiler, uint32_t from, char separator)
{
    struct grammar *grammar = compiler->grammar;
    uint32_t behind = grammar_add_state(grammar, from), ready = grammar_add_state(grammar, from);
    grammar_add_bytes(grammar, from, (uint8_t)separator, (uint8_t)separator, behind);
    grammar_add_bytes(grammar, behind, ' ', ' ', ready);
    grammar_add_jump(grammar, behind, ready);
    return ready;
}

bool schema_is_false(const struct json_value *value)
{
    bool flag = true;
    return json_kind(value) == JSON_BOOL && json_as_bool(value, &flag, NULL) == STATUS_OK && !flag;
}

bool schema_member(const struct json_value *object, const char *key,
                   const struct json_value **value)
{
    for (struct json_member m = {0}; json_next(object, &m);)
        if (!strcmp(m.key, key)) {
            *value = m.value;
            return true;
        }
    return false;
}

/* Puts the edges of a rule. */
static enum status fill_rule(struct schema_compiler *compiler, struct schema_rule rule)
{
    const struct grammar_rule *ends = &compiler->grammar->rules[rule.rule];
    uint32_t from = ends->start, to = ends->end;
    if (rule.is_value) {
        schema_put_value(compiler, rule.value, rule.path, from, to);
        return STATUS_OK;
    }
    struct schema_parts flat = {0};
    for (size_t i = 0; i < rule.parts.count; i++)
        schema_parts_add(&flat, rule.parts.list[i].schema, rule.parts.list[i].path, SCHEMA_NONE);
    compiler->alternatives = 0;
    enum status status = schema_flatten(compiler, &flat, 0);
    if (status == STATUS_OK)
        status = schema_put_parts(compiler, &flat, from, to);
    schema_parts_deinit(&flat);
    return status;
}

/* Fills rules in turn. Rules that are added meanwhile are filled later, so nesting takes no
 * stack. */
static enum status fill_rules(struct schema_compiler *compiler)
{
    while (compiler->filled < compiler->rule_count) {
        struct schema_rule rule = compiler->rules[compiler->filled++];
        TRY(fill_rule(compiler, rule));
        if (compiler->grammar->full)
            return schema_fail_full(compiler, rule.path);
    }
    return STATUS_OK;
}

enum status schema_compile(struct schema_compiler *compiler, const struct json_value *schema,
                           uint32_t *rule, struct error *err)
{
    struct schema_parts parts = {0};
    compiler->err = err;
    compiler->root = schema;
    schema_parts_add(&parts, schema, 0, SCHEMA_NONE);
    *rule = schema_rule_of_parts(compiler, &parts, 0);
    return fill_rules(compiler);
}

enum status schema_compile_arguments(struct schema_compiler *compiler, const char *name,
                                     const struct json_value *schema, uint32_t *rule,
                                     struct error *err)
{
    static const char object[] = "{\"type\":\"object\"}";
    struct json_limits limits = {.max_bytes = sizeof object, .max_depth = 2};
    struct schema_parts parts = {0};
    compiler->err = err;
    compiler->root = schema;
    compiler->root_path = schema_path_key(compiler, SCHEMA_NONE, name);
    if (!compiler->object)
        TRY(json_parse(object, strlen(object), limits, &compiler->object, err));
    schema_parts_add(&parts, schema, compiler->root_path, SCHEMA_NONE);
    schema_parts_add(&parts, json_root(compiler->object), compiler->root_path, SCHEMA_NONE);
    *rule = schema_rule_of_parts(compiler, &parts, compiler->root_path);
    return fill_rules(compiler);
}

enum status schema_compile_any_object(struct schema_compiler *compiler, uint32_t *rule,
                                      struct error *err)
{
    struct schema_parts none = {0};
    struct schema_facts facts = {
        .parts = &none, .max_properties = UINT32_MAX, .choice_part = SCHEMA_NONE};
    compiler->err = err;
    *rule = grammar_add_rule(compiler->grammar, 0);
    struct grammar_rule ends = compiler->grammar->rules[*rule];
    TRY(schema_put_object(compiler, &facts, ends.start, ends.end));
    return fill_rules(compiler);
}
