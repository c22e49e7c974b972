#include "common/language/constrain/tool_calls.h"

#include "common/base/utf8.h"
#include "common/language/constrain/characters.h"
#include "common/language/constrain/constraint.h"
#include "common/language/constrain/token_trie.h"

#include <string.h>

struct text {
    const char *bytes;
    size_t length;
};

/* One tool's texts. */
struct tool {
    const char *name;
    struct text begin, schema, end;
};

/* A description that was read; it points into its JSON. */
struct described {
    struct text begin, separator, end;
    struct tool tools[TOOL_CALLS_MAX_TOOLS];
    size_t count;
    struct text specials[TOOL_CALLS_MAX_SPECIALS];
    size_t special_count;
    bool parallel;
};

static enum status read_text(const struct json_value *object, const char *key, size_t max,
                             struct text *text, struct error *err)
{
    *text = (struct text){"", 0};
    if (!json_find(object, key))
        return STATUS_OK;
    TRY(json_as_string(json_find(object, key), &text->bytes, &text->length, err));
    if (text->length > max)
        return error_set(err, STATUS_LIMIT, "\"%s\" has %zu bytes: at most %zu", key, text->length,
                         max);
    return STATUS_OK;
}

static enum status read_tool(const struct json_value *json, struct tool *tool, struct error *err)
{
    struct text name;
    TRY(read_text(json, "name", TOOL_CALLS_MAX_TEXT, &name, err));
    TRY(read_text(json, "begin", TOOL_CALLS_MAX_TEXT, &tool->begin, err));
    TRY(read_text(json, "schema", CONSTRAINT_MAX_TEXT_BYTES, &tool->schema, err));
    TRY(read_text(json, "end", TOOL_CALLS_MAX_TEXT, &tool->end, err));
    tool->name = name.bytes;
    if (!name.length || !tool->begin.length)
        return error_set(err, STATUS_INVALID, "a tool needs a name, and a text to begin with");
    return STATUS_OK;
}

static enum status read_tools(const struct json_value *list, struct described *d, struct error *err)
{
    d->count = json_count(list);
    if (!d->count || d->count > TOOL_CALLS_MAX_TOOLS)
        return error_set(err, STATUS_LIMIT, "%zu tools: 1 to %d can be", d->count,
                         TOOL_CALLS_MAX_TOOLS);
    for (size_t i = 0; i < d->count; i++) {
        enum status status = read_tool(json_at(list, i), &d->tools[i], err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "tool %zu", i);
    }
    return STATUS_OK;
}

static enum status read_specials(const struct json_value *list, struct described *d,
                                 struct error *err)
{
    d->special_count = json_count(list);
    if (d->special_count > TOOL_CALLS_MAX_SPECIALS)
        return error_set(err, STATUS_LIMIT, "%zu special tokens: at most %d can be",
                         d->special_count, TOOL_CALLS_MAX_SPECIALS);
    for (size_t i = 0; i < d->special_count; i++) {
        struct text *text = &d->specials[i];
        TRY(json_as_string(json_at(list, i), &text->bytes, &text->length, err));
        if (!text->length)
            return error_set(err, STATUS_INVALID, "special token %zu is empty", i);
    }
    return STATUS_OK;
}

static enum status read_description(const struct json_value *json, struct described *d,
                                    struct error *err)
{
    TRY(read_text(json, "begin", TOOL_CALLS_MAX_TEXT, &d->begin, err));
    TRY(read_text(json, "separator", TOOL_CALLS_MAX_TEXT, &d->separator, err));
    TRY(read_text(json, "end", TOOL_CALLS_MAX_TEXT, &d->end, err));
    TRY(read_tools(json_find(json, "tools"), d, err));
    TRY(read_specials(json_find(json, "special_tokens"), d, err));
    const struct json_value *parallel = json_find(json, "parallel");
    return parallel ? json_as_bool(parallel, &d->parallel, err) : STATUS_OK;
}

/* ------------------------------------------------------------------------- one way to go on */

static bool starts_with(struct text text, struct text start)
{
    return text.length >= start.length && !memcmp(text.bytes, start.bytes, start.length);
}

static enum status check_ways(const struct described *d, struct error *err)
{
    struct text behind = d->end; /* `end`, behind what it shares with a separator */
    bool like_more = d->parallel && starts_with(d->end, d->separator);
    behind.bytes += like_more ? d->separator.length : 0;
    behind.length -= like_more ? d->separator.length : 0;
    for (size_t i = 0; i < d->count; i++) {
        for (size_t j = 0; j < d->count; j++)
            if (i != j && starts_with(d->tools[i].begin, d->tools[j].begin))
                return error_set(err, STATUS_INVALID,
                                 "a call of \"%s\" can't be told from one of \"%s\"",
                                 d->tools[i].name, d->tools[j].name);
        if (like_more && starts_with(behind, d->tools[i].begin))
            return error_set(err, STATUS_INVALID,
                             "the end can't be told from one more call of \"%s\"",
                             d->tools[i].name);
    }
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------- the grammar */

struct putting {
    const struct described *described;
    struct grammar *grammar;
    struct characters characters;
};

/* The special token that the text starts with; NULL. */
static const struct text *special_at(const struct putting *p, struct text text)
{
    for (size_t i = 0; i < p->described->special_count; i++)
        if (starts_with(text, p->described->specials[i]))
            return &p->described->specials[i];
    return NULL;
}

static uint32_t put_spelled(struct putting *p, struct text text, uint32_t from)
{
    uint32_t to = grammar_add_state(p->grammar, from);
    characters_put_text(&p->characters, false, text.bytes, text.length, from, to);
    return to;
}

/* The text, spelled; each special token in it also as that. */
static uint32_t put_text(struct putting *p, struct text text, uint32_t from)
{
    while (text.length) {
        const struct text *special = special_at(p, text);
        struct text part = {text.bytes, special ? special->length : 1};
        while (!special && part.length < text.length &&
               !special_at(p, (struct text){text.bytes + part.length, text.length - part.length}))
            part.length++;
        uint32_t to = put_spelled(p, part, from);
        if (special) {
            uint32_t marked = grammar_add_state(p->grammar, from);
            grammar_add_bytes(p->grammar, from, TOKEN_SPECIAL, TOKEN_SPECIAL, marked);
            characters_put_text(&p->characters, false, part.bytes, part.length, marked, to);
        }
        text.bytes += part.length;
        text.length -= part.length;
        from = to;
    }
    return from;
}

static enum status put_tool(struct putting *p, struct schema_compiler *compiler,
                            struct tool_calls *calls, const struct tool *tool, uint32_t from,
                            uint32_t to, struct error *err)
{
    struct json_limits limits = {.max_bytes = CONSTRAINT_MAX_TEXT_BYTES,
                                 .max_depth = SCHEMA_MAX_DEPTH};
    size_t i = calls->count;
    enum status status =
        json_parse(tool->schema.bytes, tool->schema.length, limits, &calls->schemas[i], err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "%s: the schema", tool->name);
    calls->count++;
    TRY(schema_compile_arguments(compiler, tool->name, json_root(calls->schemas[i]),
                                 &calls->rules[i], err));
    uint32_t before = put_text(p, tool->begin, from), behind = grammar_add_state(p->grammar, from);
    grammar_add_call(p->grammar, before, calls->rules[i], behind);
    grammar_add_jump(p->grammar, put_text(p, tool->end, behind), to);
    return STATUS_OK;
}

static enum status put_calls(struct putting *p, struct schema_compiler *compiler,
                             struct tool_calls *calls, uint32_t root, struct error *err)
{
    const struct described *d = p->described;
    struct grammar_rule ends = p->grammar->rules[root];
    uint32_t ready = put_text(p, d->begin, ends.start);
    uint32_t next = grammar_add_state(p->grammar, ready),
             behind = grammar_add_state(p->grammar, ready);
    grammar_add_jump(p->grammar, ready, next);
    for (size_t i = 0; i < d->count; i++)
        TRY(put_tool(p, compiler, calls, &d->tools[i], next, behind, err));
    if (d->parallel)
        grammar_add_jump(p->grammar, put_text(p, d->separator, behind), next);
    grammar_add_jump(p->grammar, put_text(p, d->end, behind), ends.end);
    return STATUS_OK;
}

enum status tool_calls_compile(struct tool_calls *calls, struct schema_compiler *compiler,
                               struct grammar *grammar, const char *text, size_t length,
                               uint32_t *root, struct error *err)
{
    struct json_limits limits = {.max_bytes = CONSTRAINT_MAX_TEXT_BYTES, .max_depth = 4};
    struct described described = {.parallel = false};
    enum status status = json_parse(text, length, limits, &calls->description, err);
    if (status == STATUS_OK)
        status = read_description(json_root(calls->description), &described, err);
    if (status == STATUS_OK)
        status = check_ways(&described, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "the calls");
    struct putting p = {.described = &described, .grammar = grammar};
    characters_init(&p.characters, grammar, 0);
    *root = grammar_add_rule(grammar, 0);
    status = put_calls(&p, compiler, calls, *root, err);
    characters_deinit(&p.characters);
    return status;
}

enum status tool_calls_check(const struct tool_calls *calls, const struct grammar *grammar,
                             struct error *err)
{
    const struct json_value *tools =
        calls->count ? json_find(json_root(calls->description), "tools") : NULL;
    for (size_t i = 0; i < calls->count; i++) {
        bool lives = false;
        uint32_t start = grammar->rules[calls->rules[i]].start;
        for (uint32_t e = grammar->states[start].first; e != GRAMMAR_NONE;
             e = grammar->edges[e].next)
            lives |= grammar->edges[e].kind != EDGE_DEAD;
        const char *name = "";
        if (!lives && json_get_string(json_at(tools, i), "name", &name, NULL, NULL) == STATUS_OK)
            return error_set(err, STATUS_INVALID, "%s: no object is valid for it", name);
    }
    return STATUS_OK;
}

void tool_calls_deinit(struct tool_calls *calls)
{
    for (size_t i = 0; i < calls->count; i++)
        json_destroy(calls->schemas[i]);
    json_destroy(calls->description);
    *calls = (struct tool_calls){0};
}
