#include "common/language/constrain/constraint.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"
#include "common/language/constrain/characters.h"
#include "common/language/constrain/constraint_internal.h"
#include "common/language/constrain/schema.h"
#include "common/language/constrain/tool_calls.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(CONSTRAINT_MAX_FRAMES >= AUTOMATON_MAX_DEPTH, "a state holds a whole stack");

/* What is being compiled. */
struct compiling {
    struct compile_steps steps;
    struct grammar grammar;
    struct schema_compiler *schema;
    struct json *json; /* what the schema's names are in; NULL */
    struct tool_calls calls;
    uint32_t root;
    struct error *err;
};

static enum status fill_from_schema(struct compiling *c, const char *text, size_t length)
{
    struct json_limits limits = {.max_bytes = CONSTRAINT_MAX_TEXT_BYTES,
                                 .max_depth = SCHEMA_MAX_DEPTH};
    enum status status = json_parse(text, length, limits, &c->json, c->err);
    if (status != STATUS_OK)
        return error_prefix(c->err, status, "the schema");
    return schema_compile(c->schema, json_root(c->json), &c->root, c->err);
}

static enum status fail_full(struct compiling *c, const char *what)
{
    if (compile_steps_over(&c->steps))
        return error_set(c->err, STATUS_LIMIT, "%s takes more than %u steps to compile", what,
                         COMPILE_MAX_STEPS);
    return error_set(c->err, STATUS_LIMIT, "%s needs more than %d states", what,
                     GRAMMAR_MAX_STATES);
}

static enum status fill_from_pattern(struct compiling *c, const struct text_pattern *pattern)
{
    struct text_automaton automaton;
    struct characters characters;
    TRY(text_automaton_build(pattern, &automaton, c->err));
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

static enum status fill_from_regex(struct compiling *c, const char *text, size_t length)
{
    struct text_pattern *pattern = text_pattern_create(&c->steps);
    enum status status = text_pattern_add(pattern, text, length, TEXT_WHOLE, c->err);
    if (status == STATUS_OK)
        status = fill_from_pattern(c, pattern);
    text_pattern_destroy(pattern);
    return status;
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

static enum status fill_from_choices(struct compiling *c, const char *text, size_t length)
{
    struct json_limits limits = {.max_bytes = CONSTRAINT_MAX_TEXT_BYTES, .max_depth = 2};
    enum status status = json_parse(text, length, limits, &c->json, c->err);
    if (status != STATUS_OK)
        return error_prefix(c->err, status, "the choices");
    return put_choices(c, json_root(c->json));
}

static enum status fill_from_calls(struct compiling *c, const char *text, size_t length)
{
    TRY(tool_calls_compile(&c->calls, c->schema, &c->grammar, text, length, &c->root, c->err));
    return c->grammar.full ? fail_full(c, "the description of the calls") : STATUS_OK;
}

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
    case CONSTRAINT_JSON_SCHEMA: return fill_from_schema(c, text, length);
    case CONSTRAINT_REGEX: return fill_from_regex(c, text, length);
    case CONSTRAINT_CHOICE: return fill_from_choices(c, text, length);
    case CONSTRAINT_TOOL_CALLS: return fill_from_calls(c, text, length);
    }
    ASSERT(false);
}

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
    TRY(tool_calls_check(&c->calls, &c->grammar, c->err));
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
    enum status status = fill(&c, kind, text, length);
    if (status == STATUS_OK)
        status = build(&c, kind, made);
    schema_compiler_destroy(c.schema);
    json_destroy(c.json);
    tool_calls_deinit(&c.calls);
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

void constraint_state_init(const struct constraint *constraint, struct constraint_state *state)
{
    memset(state, 0, sizeof *state);
    state->frames[0] = constraint->automaton.start;
}

struct automaton_cursor constraint_state_open(const struct constraint_state *state,
                                              struct automaton_frame *pool)
{
    struct automaton_cursor cursor = {
        .top = state->frames[state->depth], .below = AUTOMATON_NONE, .depth = state->depth};
    for (uint16_t i = 0; i < state->depth; i++) {
        pool[i] = (struct automaton_frame){state->frames[i], cursor.below};
        cursor.below = i;
    }
    cursor.used = state->depth;
    return cursor;
}

static void close_state(const struct automaton_frame *pool, struct automaton_cursor cursor,
                        struct constraint_state *state)
{
    memset(state, 0, sizeof *state);
    state->depth = cursor.depth;
    state->started = 1;
    state->frames[cursor.depth] = cursor.top;
    for (uint16_t at = cursor.below, i = cursor.depth; at != AUTOMATON_NONE; at = pool[at].below)
        state->frames[--i] = pool[at].state;
}

bool constraint_state_take(const struct constraint *constraint, struct constraint_state *state,
                           const char *bytes, size_t length)
{
    struct automaton_frame pool[CONSTRAINT_POOL_FRAMES];
    struct constraint_state at = *state;
    /* In pieces, so that the pool is enough for any length. */
    while (length) {
        size_t piece = length < 256 ? length : 256;
        struct automaton_cursor cursor = constraint_state_open(&at, pool);
        for (size_t i = 0; i < piece; i++)
            if (!automaton_step(&constraint->automaton, pool, &cursor, (uint8_t)bytes[i]))
                return false;
        close_state(pool, cursor, &at);
        bytes += piece;
        length -= piece;
    }
    *state = at;
    return true;
}

bool constraint_state_may_end(const struct constraint *constraint,
                              const struct constraint_state *state)
{
    struct automaton_frame pool[CONSTRAINT_POOL_FRAMES];
    return automaton_accepts(&constraint->automaton, pool, constraint_state_open(state, pool));
}

bool constraint_state_is_complete(const struct constraint *constraint,
                                  const struct constraint_state *state)
{
    const struct automaton *automaton = &constraint->automaton;
    struct automaton_frame pool[CONSTRAINT_POOL_FRAMES];
    const struct automaton_cursor cursor = constraint_state_open(state, pool);
    if (!automaton_accepts(automaton, pool, cursor))
        return false;
    for (unsigned byte = 0; byte < 256; byte++) {
        struct automaton_cursor at = cursor;
        if (automaton_step(automaton, pool, &at, (uint8_t)byte))
            return false;
    }
    return true;
}
