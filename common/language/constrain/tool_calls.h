/* Internal to constraint.c: calls of tools as models write them, JSON between texts, to a grammar.
 * Described by
 *
 *     {"begin": "", "tools": [{"name": "f", "begin": "{\"name\": \"f\", \"arguments\": ", "schema": "{...}", "end": "}"}, ...],
 *      "separator": ", ", "end": "", "parallel": true, "special_tokens": ["[TOOL_CALLS]"]}
 *
 * which takes `begin`, a call, with `parallel` any number more of them behind a separator each, and
 * `end`. A call is the texts of one tool with an object of its schema between; "schema" is JSON as
 * text, and its $refs lead into itself. Where a text has a special token, the token may stand for
 * it (TOKEN_SPECIAL), or other tokens may spell it.
 *
 * So that there is one way to go on: no tool's `begin` is the start of another's, and `end` doesn't
 * start like one more call. */
#ifndef BATON_LANGUAGE_CONSTRAIN_TOOL_CALLS_H
#define BATON_LANGUAGE_CONSTRAIN_TOOL_CALLS_H

#include "common/language/constrain/schema.h"

#define TOOL_CALLS_MAX_TOOLS    128
#define TOOL_CALLS_MAX_SPECIALS 16
#define TOOL_CALLS_MAX_TEXT     4096 /* bytes of a text around arguments */

struct tool_calls {
    struct json *description;
    struct json *schemas[TOOL_CALLS_MAX_TOOLS]; /* which the compiler's messages point into */
    uint32_t rules[TOOL_CALLS_MAX_TOOLS];       /* of the arguments */
    size_t count;
};

/* *root: the rule of all of it; a grammar that is full by then is the caller's to refuse. Deinit in
 * any case, when the compiler is gone. */
enum status tool_calls_compile(struct tool_calls *calls, struct schema_compiler *compiler,
                               struct grammar *grammar, const char *text, size_t length,
                               uint32_t *root, struct error *err) WARN_UNUSED;
void tool_calls_deinit(struct tool_calls *calls); /* all zeros are fine */
/* After grammar_trim: a tool that can't be called since no arguments are valid is refused. */
enum status tool_calls_check(const struct tool_calls *calls, const struct grammar *grammar,
                             struct error *err) WARN_UNUSED;

#endif
