#include "common/language/constrain/constraint.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/base/utf8.h"
#include "common/language/constrain/automaton.h"
#include "common/language/constrain/characters.h"
#include "common/language/constrain/schema.h"
#include "common/language/constrain/text_automaton.h"
#include "common/language/constrain/token_trie.h"

#include <stdio.h>
#include <string.h>

_Static_assert(CONSTRAINT_MAX_FRAMES >= AUTOMATON_MAX_DEPTH, "a state holds a whole stack");

struct constraint {
    struct automaton automaton;
};

/* A constraint that is being compiled. */
struct compiling {
    struct compile_steps steps;
    struct grammar grammar;
    struct schema_compiler *schema;
    struct json *json; /* the text; schema pointers and names point into it; NULL */
    struct json *tool_schemas[TOOL_CALLS_MAX_TOOLS];
    const char *tool_names[TOOL_CALLS_MAX_TOOLS];
    uint32_t tool_rules[TOOL_CALLS_MAX_TOOLS]; /* rules of the arguments */
    size_t tool_count;
    uint32_t root;
    struct error *err;
};

/* Parses the text. `name` starts the sentence of an error. */
static enum status parse(struct compiling *c, const char *text, size_t length, int max_depth,
                         const char *name)
{
    struct json_limits limits = {.max_bytes = CONSTRAINT_MAX_TEXT_BYTES, .max_depth = max_depth};
    enum status status = json_parse(text, length, limits, &c->json, c->err);
    return status == STATUS_OK ? status : error_prefix(c->err, status, "%s", name);
}

static enum status fail_full(struct compiling *c, const char *what)
{
    if (compile_steps_over(&c->steps))
        return error_set(c->err, STATUS_LIMIT, "%s takes more than %u steps to compile", what,
                         COMPILE_MAX_STEPS);
    return error_set(c->err, STATUS_LIMIT, "%s needs more than %d states", what,
                     GRAMMAR_MAX_STATES);
}

static enum status put_regex(struct compiling *c, const char *text, size_t length)
{
    struct text_automaton automaton;
    struct characters characters;
    struct text_pattern *pattern = text_pattern_create(&c->steps);
    enum status status = text_pattern_add(pattern, text, length, TEXT_WHOLE, c->err);
    if (status == STATUS_OK)
        status = text_automaton_build(pattern, &automaton, c->err);
    text_pattern_destroy(pattern);
    if (status != STATUS_OK)
        return status;
    characters_init(&characters, &c->grammar, 0);
    c->root = grammar_add_rule(&c->grammar, 0);
    struct grammar_rule ends = c->grammar.rules[c->root];
    bool matches = automaton.state_count > 0;
    if (matches)
        characters_put_automaton(&characters, false, &automaton, ends.start, ends.end);
    characters_deinit(&characters);
    text_automaton_deinit(&automaton);
    if (!matches)
        return error_set(c->err, STATUS_INVALID, "no text matches the pattern");
    return c->grammar.full ? fail_full(c, "the pattern") : STATUS_OK;
}

static enum status put_choices(struct compiling *c, const struct json_value *list)
{
    struct characters characters;
    size_t count = json_count(list);
    if (json_kind(list) != JSON_ARRAY || count == 0 || count > CONSTRAINT_MAX_CHOICES)
        return error_set(c->err, STATUS_INVALID, "the choices must be an array of 1 to %d strings",
                         CONSTRAINT_MAX_CHOICES);
    characters_init(&characters, &c->grammar, 0);
    c->root = grammar_add_rule(&c->grammar, 0);
    struct grammar_rule ends = c->grammar.rules[c->root];
    enum status status = STATUS_OK;
    for (size_t i = 0; i < count && status == STATUS_OK && !c->grammar.full; i++) {
        const char *text;
        size_t length;
        status = json_as_string(json_at(list, i), &text, &length, c->err);
        if (status == STATUS_OK && !length)
            status = error_set(c->err, STATUS_INVALID, "it is empty");
        if (status == STATUS_OK)
            characters_put_text(&characters, false, text, length, ends.start, ends.end);
        else
            error_prefix(c->err, status, "choice %zu", i);
    }
    characters_deinit(&characters);
    return status == STATUS_OK && c->grammar.full ? fail_full(c, "the list of choices") : status;
}

/* ------------------------------------------------------------------------------- calls of tools */

struct tool {
    const char *name;
    struct text begin, schema, end;
};

/* A description of calls. It points into its JSON. */
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

static enum status read_description(const struct json_value *json, struct described *d,
                                    struct error *err)
{
    TRY(read_text(json, "begin", TOOL_CALLS_MAX_TEXT, &d->begin, err));
    TRY(read_text(json, "separator", TOOL_CALLS_MAX_TEXT, &d->separator, err));
    TRY(read_text(json, "end", TOOL_CALLS_MAX_TEXT, &d->end, err));
    const struct json_value *tools = json_find(json, "tools");
    d->count = json_count(tools);
    if (!d->count || d->count > TOOL_CALLS_MAX_TOOLS)
        return error_set(err, STATUS_LIMIT, "%zu tools: 1 to %d are possible", d->count,
                         TOOL_CALLS_MAX_TOOLS);
    for (size_t i = 0; i < d->count; i++) {
        enum status status = read_tool(json_at(tools, i), &d->tools[i], err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "tool %zu", i);
    }
    const struct json_value *specials = json_find(json, "special_tokens");
    d->special_count = json_count(specials);
    if (d->special_count > TOOL_CALLS_MAX_SPECIALS)
        return error_set(err, STATUS_LIMIT, "%zu special tokens: at most %d are possible",
                         d->special_count, TOOL_CALLS_MAX_SPECIALS);
    for (size_t i = 0; i < d->special_count; i++) {
        struct text *text = &d->specials[i];
        TRY(json_as_string(json_at(specials, i), &text->bytes, &text->length, err));
        if (!text->length)
            return error_set(err, STATUS_INVALID, "special token %zu is empty", i);
    }
    const struct json_value *parallel = json_find(json, "parallel");
    return parallel ? json_as_bool(parallel, &d->parallel, err) : STATUS_OK;
}

static bool starts_with(struct text text, struct text start)
{
    return text.length >= start.length && !memcmp(text.bytes, start.bytes, start.length);
}

/* Refuses a description in which two texts could go on at the same place. */
static enum status check_ways(const struct described *d, struct error *err)
{
    struct text behind = d->end; /* the rest of `end` behind a separator that it starts with */
    bool like_more = d->parallel && starts_with(d->end, d->separator);
    behind.bytes += like_more ? d->separator.length : 0;
    behind.length -= like_more ? d->separator.length : 0;
    for (size_t i = 0; i < d->count; i++) {
        for (size_t j = 0; j < d->count; j++)
            if (i != j && starts_with(d->tools[i].begin, d->tools[j].begin))
                return error_set(err, STATUS_INVALID,
                                 "a call of \"%s\" can't be distinguished from one of \"%s\"",
                                 d->tools[i].name, d->tools[j].name);
        if (like_more && starts_with(behind, d->tools[i].begin))
            return error_set(err, STATUS_INVALID,
                             "the end can't be distinguished from one more call of \"%s\"",
                             d->tools[i].name);
    }
    return STATUS_OK;
}

/* Calls that are being put. */
struct putting {
    struct compiling *c;
    const struct described *described;
    struct grammar *grammar;
    struct characters characters;
};

/* Returns the special token that the text starts with, or NULL. */
static const struct text *special_at(const struct putting *p, struct text text)
{
    for (size_t i = 0; i < p->described->special_count; i++)
        if (starts_with(text, p->described->specials[i]))
            return &p->described->specials[i];
    return NULL;
}

/* Puts the text, spelled, and each special token in it also as the token. Returns the state
 * behind. */
static uint32_t put_text(struct putting *p, struct text text, uint32_t from)
{
    while (text.length) {
        const struct text *special = special_at(p, text);
        struct text part = {text.bytes, special ? special->length : 1};
        while (!special && part.length < text.length &&
               !special_at(p, (struct text){text.bytes + part.length, text.length - part.length}))
            part.length++;
        uint32_t to = grammar_add_state(p->grammar, from);
        characters_put_text(&p->characters, false, part.bytes, part.length, from, to);
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

static enum status put_tool(struct putting *p, const struct tool *tool, uint32_t from, uint32_t to)
{
    struct compiling *c = p->c;
    struct json_limits limits = {.max_bytes = CONSTRAINT_MAX_TEXT_BYTES,
                                 .max_depth = SCHEMA_MAX_DEPTH};
    size_t i = c->tool_count;
    enum status status =
        json_parse(tool->schema.bytes, tool->schema.length, limits, &c->tool_schemas[i], c->err);
    if (status != STATUS_OK)
        return error_prefix(c->err, status, "%s: the schema", tool->name);
    c->tool_names[c->tool_count++] = tool->name;
    TRY(schema_compile_arguments(c->schema, tool->name, json_root(c->tool_schemas[i]),
                                 &c->tool_rules[i], c->err));
    uint32_t before = put_text(p, tool->begin, from), behind = grammar_add_state(p->grammar, from);
    grammar_add_call(p->grammar, before, c->tool_rules[i], behind);
    grammar_add_jump(p->grammar, put_text(p, tool->end, behind), to);
    return STATUS_OK;
}

static enum status put_all_calls(struct putting *p)
{
    const struct described *d = p->described;
    struct grammar_rule ends = p->grammar->rules[p->c->root];
    uint32_t ready = put_text(p, d->begin, ends.start);
    uint32_t next = grammar_add_state(p->grammar, ready),
             behind = grammar_add_state(p->grammar, ready);
    grammar_add_jump(p->grammar, ready, next);
    for (size_t i = 0; i < d->count; i++)
        TRY(put_tool(p, &d->tools[i], next, behind));
    if (d->parallel)
        grammar_add_jump(p->grammar, put_text(p, d->separator, behind), next);
    grammar_add_jump(p->grammar, put_text(p, d->end, behind), ends.end);
    return STATUS_OK;
}

static enum status put_calls(struct compiling *c, const struct json_value *json)
{
    struct described described = {.parallel = false};
    enum status status = read_description(json, &described, c->err);
    if (status == STATUS_OK)
        status = check_ways(&described, c->err);
    if (status != STATUS_OK)
        return error_prefix(c->err, status, "the calls");
    struct putting p = {.c = c, .described = &described, .grammar = &c->grammar};
    characters_init(&p.characters, &c->grammar, 0);
    c->root = grammar_add_rule(&c->grammar, 0);
    status = put_all_calls(&p);
    characters_deinit(&p.characters);
    return status == STATUS_OK && c->grammar.full ? fail_full(c, "the description of the calls")
                                                  : status;
}

/* Refuses a tool that can't be called since no arguments are valid. Call it after grammar_trim. */
static enum status check_tools(const struct compiling *c)
{
    for (size_t i = 0; i < c->tool_count; i++) {
        bool lives = false;
        uint32_t start = c->grammar.rules[c->tool_rules[i]].start;
        for (uint32_t e = c->grammar.states[start].first; e != GRAMMAR_NONE;
             e = c->grammar.edges[e].next)
            lives |= c->grammar.edges[e].kind != EDGE_DEAD;
        if (!lives)
            return error_set(c->err, STATUS_INVALID, "%s: no object is valid for it",
                             c->tool_names[i]);
    }
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------ reasoning */

struct reasoning {
    enum constraint_kind kind; /* the kind of the text behind the line */
    bool inside;
    char begin[CONSTRAINT_TAG_BYTES + 1], end[CONSTRAINT_TAG_BYTES + 1];
    size_t line; /* bytes of the line, with its end */
};

static enum status read_reasoning(const char *text, size_t length, struct reasoning *r,
                                  struct error *err)
{
    char line[CONSTRAINT_MAX_LINE_BYTES + 1], name[16], where[16];
    int taken = 0;
    _Static_assert(CONSTRAINT_TAG_BYTES == 31, "the width of a tag below");
    const char *end = memchr(text, '\n', length < sizeof line ? length : sizeof line - 1);
    r->line = end ? (size_t)(end - text) + 1 : 0;
    memcpy(line, text, r->line);
    line[r->line] = 0;
    if (sscanf(line, "%15s %15s %31s %31s%n", name, where, r->begin, r->end, &taken) != 4 ||
        (size_t)taken + 1 != r->line)
        return error_set(err, STATUS_INVALID, "behind: the first line is malformed");
    r->inside = !strcmp(where, "inside");
    for (int kind = 0; kind < CONSTRAINT_BEHIND_REASONING; kind++) {
        r->kind = (enum constraint_kind)kind;
        if (!strcmp(name, constraint_kind_names[kind]))
            return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "behind: no constraint is called \"%s\"", name);
}

/* Puts the tag, spelled or as a special token. */
static void put_tag(struct grammar *grammar, const char *tag, uint32_t from, uint32_t to)
{
    uint32_t marked = grammar_add_state(grammar, from);
    grammar_add_text(grammar, from, tag, strlen(tag), to);
    grammar_add_bytes(grammar, from, TOKEN_SPECIAL, TOKEN_SPECIAL, marked);
    grammar_add_text(grammar, marked, tag, strlen(tag), to);
}

/* Returns how many bytes of `tag` a text ends with that ended with `matched` of them, and then has
 * `byte` (Knuth, Morris, Pratt 1977). */
static size_t advance(const char *tag, size_t matched, uint8_t byte)
{
    for (size_t kept = matched + 1; kept; kept--)
        if ((uint8_t)tag[kept - 1] == byte && !memcmp(tag, tag + matched + 1 - kept, kept - 1))
            return kept;
    return 0;
}

/* Puts any text up to the first `tag`, from the first of `states` [strlen(tag)] on. */
static void put_until(struct grammar *grammar, const char *tag, const uint32_t *states, uint32_t to)
{
    size_t length = strlen(tag);
    for (size_t i = 0; i < length; i++) {
        uint32_t marked = grammar_add_state(grammar, to);
        grammar_add_bytes(grammar, states[i], TOKEN_SPECIAL, TOKEN_SPECIAL, marked);
        grammar_add_text(grammar, marked, tag, length, to);
        for (unsigned low = 0, high; low < TOKEN_SPECIAL; low = high + 1) {
            size_t matched = advance(tag, i, (uint8_t)low);
            for (high = low; high + 1 < TOKEN_SPECIAL; high++)
                if (advance(tag, i, (uint8_t)(high + 1)) != matched)
                    break;
            grammar_add_bytes(grammar, states[i], (uint8_t)low, (uint8_t)high,
                              matched == length ? to : states[matched]);
        }
    }
}

/* Puts reasoning before the root. A rule that may be called stays: a copy of it gets the new
 * start. Newlines behind the end tag are no part of the answer's content. A client checks content
 * against its regex or choices as it stands, so no newline may belong to either side there. */
static enum status put_reasoning(struct compiling *c, const struct reasoning *r)
{
    struct grammar *grammar = &c->grammar;
    uint32_t states[CONSTRAINT_TAG_BYTES];
    if (r->kind == CONSTRAINT_JSON_OBJECT || r->kind == CONSTRAINT_JSON_SCHEMA)
        c->root = grammar_copy_rule(grammar, c->root);
    uint32_t ready = grammar->rules[c->root].start, start = grammar_add_state(grammar, ready);
    uint32_t behind = grammar_add_state(grammar, ready);
    bool exact = (r->kind == CONSTRAINT_REGEX || r->kind == CONSTRAINT_CHOICE) &&
                 grammar_may_begin(grammar, ready, '\n');
    for (size_t i = 0; i < strlen(r->end); i++)
        states[i] = grammar_add_state(grammar, ready);
    put_until(grammar, r->end, states, behind);
    if (r->inside) {
        grammar_add_jump(grammar, start, states[0]);
    } else {
        grammar_add_jump(grammar, start, ready);
        put_tag(grammar, r->begin, start, states[0]);
    }
    for (int newlines = 0; newlines < CONSTRAINT_NEWLINES_BEHIND; newlines++) {
        uint32_t next = grammar_add_state(grammar, ready);
        if (!exact)
            grammar_add_jump(grammar, behind, ready);
        grammar_add_bytes(grammar, behind, '\n', '\n', next);
        behind = next;
    }
    grammar_add_jump(grammar, behind, ready);
    grammar->rules[c->root].start = start;
    return grammar->full ? fail_full(c, "it") : STATUS_OK;
}

/* ------------------------------------------------------------------------------------ compiling */

/* Fills the grammar. */
static enum status fill(struct compiling *c, enum constraint_kind kind, const char *text,
                        size_t length)
{
    if (length > CONSTRAINT_MAX_TEXT_BYTES)
        return error_set(c->err, STATUS_LIMIT, "%zu bytes are over the limit of %u", length,
                         CONSTRAINT_MAX_TEXT_BYTES);
    if (!utf8_valid(text, length, NULL))
        return error_set(c->err, STATUS_INVALID, "it isn't valid UTF-8");
    switch (kind) {
    case CONSTRAINT_JSON_OBJECT: return schema_compile_any_object(c->schema, &c->root, c->err);
    case CONSTRAINT_JSON_SCHEMA:
        TRY(parse(c, text, length, SCHEMA_MAX_DEPTH, "the schema"));
        return schema_compile(c->schema, json_root(c->json), &c->root, c->err);
    case CONSTRAINT_REGEX: return put_regex(c, text, length);
    case CONSTRAINT_CHOICE:
        TRY(parse(c, text, length, 2, "the choices"));
        return put_choices(c, json_root(c->json));
    case CONSTRAINT_TOOL_CALLS:
        TRY(parse(c, text, length, 4, "the calls"));
        return put_calls(c, json_root(c->json));
    case CONSTRAINT_BEHIND_REASONING: break; /* it was taken apart */
    }
    ASSERT(false);
}

/* Makes the automaton of the grammar. */
static enum status build(struct compiling *c, enum constraint_kind kind,
                         struct constraint *constraint)
{
    uint32_t note = 0;
    char pointer[256];
    /* Trimming looks at each edge a few times. */
    if (!grammar_spend(&c->grammar, 4 * c->grammar.edge_count))
        return fail_full(c, "it");
    if (!grammar_trim(&c->grammar, c->root))
        return error_set(c->err, STATUS_INVALID, "nothing is valid for it");
    TRY(check_tools(c));
    enum status status = automaton_build(&c->grammar, c->root, CONSTRAINT_MAX_DEPTH,
                                         &constraint->automaton, &note, c->err);
    if (status == STATUS_OK || (kind != CONSTRAINT_JSON_SCHEMA && kind != CONSTRAINT_TOOL_CALLS))
        return status;
    schema_pointer(c->schema, note, pointer, sizeof pointer);
    return error_prefix(c->err, status, "%s", pointer);
}

enum status constraint_compile_counted(enum constraint_kind kind, const char *text, size_t length,
                                       struct constraint **constraint, uint64_t *steps,
                                       struct error *err)
{
    struct compiling c = {.err = err};
    struct constraint *made = calloc(1, sizeof *made);
    ASSERT(made);
    grammar_init(&c.grammar, &c.steps);
    c.schema = schema_compiler_create(&c.grammar);
    struct reasoning reasoning = {.kind = kind};
    enum status status = STATUS_OK;
    if (kind == CONSTRAINT_BEHIND_REASONING)
        status = read_reasoning(text, length, &reasoning, err);
    text += reasoning.line;
    length -= reasoning.line;
    bool behind = status == STATUS_OK && kind == CONSTRAINT_BEHIND_REASONING;
    if (status == STATUS_OK)
        status = fill(&c, reasoning.kind, text, length);
    if (status == STATUS_OK && behind)
        status = put_reasoning(&c, &reasoning);
    if (status == STATUS_OK)
        status = build(&c, reasoning.kind, made);
    if (status != STATUS_OK && behind) /* as the router names other kinds */
        error_prefix(err, status, "%s", constraint_kind_names[reasoning.kind]);
    schema_compiler_destroy(c.schema);
    for (size_t i = 0; i < c.tool_count; i++)
        json_destroy(c.tool_schemas[i]);
    json_destroy(c.json);
    grammar_deinit(&c.grammar);
    *steps = c.steps.taken;
    if (status == STATUS_OK)
        *constraint = made;
    else
        constraint_destroy(made);
    return status;
}

enum status constraint_compile(enum constraint_kind kind, const char *text, size_t length,
                               struct constraint **constraint, struct error *err)
{
    uint64_t steps;
    return constraint_compile_counted(kind, text, length, constraint, &steps, err);
}

void constraint_destroy(struct constraint *constraint)
{
    if (!constraint)
        return;
    automaton_deinit(&constraint->automaton);
    free(constraint);
}

size_t constraint_bytes(const struct constraint *constraint)
{
    return sizeof *constraint + automaton_bytes(&constraint->automaton);
}

size_t constraint_state_count(const struct constraint *constraint)
{
    return constraint->automaton.state_count;
}

const struct automaton *constraint_automaton(const struct constraint *constraint)
{
    return &constraint->automaton;
}

void constraint_state_init(const struct constraint *constraint, struct constraint_state *state)
{
    memset(state, 0, sizeof *state);
    state->frames[0] = constraint->automaton.start;
}

bool constraint_state_take(const struct constraint *constraint, struct constraint_state *state,
                           const char *bytes, size_t length)
{
    struct automaton_frame pool[AUTOMATON_POOL_FRAMES];
    struct constraint_state at = *state;
    /* Takes pieces, so that the pool is enough for any length. */
    while (length) {
        size_t piece = length < 256 ? length : 256;
        struct automaton_cursor cursor = automaton_open(at.frames, at.depth, at.count, pool);
        for (size_t i = 0; i < piece; i++)
            if (!automaton_step(&constraint->automaton, pool, &cursor, (uint8_t)bytes[i]))
                return false;
        at = (struct constraint_state){.depth = cursor.depth, .count = cursor.count, .started = 1};
        at.frames[cursor.depth] = cursor.top;
        for (uint16_t below = cursor.below, i = cursor.depth; below != AUTOMATON_NONE;
             below = pool[below].below)
            at.frames[--i] = pool[below].state;
        bytes += piece;
        length -= piece;
    }
    *state = at;
    return true;
}

bool constraint_state_may_end(const struct constraint *constraint,
                              const struct constraint_state *state)
{
    struct automaton_frame pool[AUTOMATON_POOL_FRAMES];
    return automaton_accepts(&constraint->automaton, pool,
                             automaton_open(state->frames, state->depth, state->count, pool));
}

bool constraint_state_is_complete(const struct constraint *constraint,
                                  const struct constraint_state *state)
{
    const struct automaton *automaton = &constraint->automaton;
    struct automaton_frame pool[AUTOMATON_POOL_FRAMES];
    const struct automaton_cursor cursor =
        automaton_open(state->frames, state->depth, state->count, pool);
    if (!automaton_accepts(automaton, pool, cursor))
        return false;
    for (unsigned byte = 0; byte < 256; byte++) {
        struct automaton_cursor at = cursor;
        if (automaton_step(automaton, pool, &at, (uint8_t)byte))
            return false;
    }
    return true;
}
