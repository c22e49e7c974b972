/* A constraint on an answer: any JSON object, JSON of a schema, a regular expression, one of
 * several texts, or calls of tools.
 *
 * A constraint is compiled once, within limits of memory and steps (compiling.h). It is immutable
 * then, and any threads share it. A constraint_state is the place of an answer in a constraint: a
 * small plain value, copied freely, and a function of the answer's bytes alone. So an answer that
 * goes on elsewhere gets its state back from its tokens. constraint_masks.h finds the tokens that
 * may come next.
 *
 * An answer never gets stuck: from every state that can be reached, some bytes lead to the end. A
 * vocabulary without a token for these bytes may still lack the token.
 *
 * CONSTRAINT_TOOL_CALLS is JSON that describes calls of tools as models write them, JSON between
 * texts:
 *
 *     {"begin": "", "tools": [{"name": "f", "begin": "{\"name\": \"f\", \"arguments\": ",
 *                              "schema": "{...}", "end": "}"}, ...],
 *      "separator": ", ", "end": "", "parallel": true, "special_tokens": ["[TOOL_CALLS]"]}
 *
 * It takes `begin`, a call, with `parallel` any number of further calls behind a separator each,
 * and `end`. A call is the texts of one tool around an object of its schema. "schema" is JSON as
 * text, and its $refs lead into itself. If a text has a special token, the token (TOKEN_SPECIAL) or
 * other tokens may spell it. No tool's `begin` may be the start of another's, and `end` may not
 * start like one more call, so that there is one way to go on.
 *
 * CONSTRAINT_BEHIND_REASONING is a line, and then the text of another kind:
 *
 *     json_schema inside <think> </think>
 *
 * An answer that begins `inside` takes any text up to the first end tag, which may be a special
 * token. Up to CONSTRAINT_NEWLINES_BEHIND newlines may follow, and then the constraint of that kind
 * starts. They belong to the reasoning: a regex or choice that itself may begin with a newline
 * starts behind exactly as many. With `outside` the answer begins with the begin tag, or at once
 * with that constraint. */
#ifndef BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_H
#define BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_H

#include "common/base/domain/constraint_source.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONSTRAINT_MAX_TEXT_BYTES  (128u << 10)
#define CONSTRAINT_MAX_LINE_BYTES  127 /* the line about reasoning, besides, with its end */
#define CONSTRAINT_MAX_CHOICES     1024
#define CONSTRAINT_MAX_DEPTH       64 /* nested arrays and objects in an answer, about */
#define CONSTRAINT_TAG_BYTES       31 /* a tag around reasoning, without white space */
#define CONSTRAINT_NEWLINES_BEHIND 2  /* allowed behind the end tag of reasoning */
#define CONSTRAINT_MAX_FRAMES      66
#define TOOL_CALLS_MAX_TOOLS       128
#define TOOL_CALLS_MAX_SPECIALS    16
#define TOOL_CALLS_MAX_TEXT        4096 /* bytes of a text around arguments */

struct automaton;
struct constraint;

/* STATUS_INVALID (malformed, or nothing is valid), STATUS_UNSUPPORTED, STATUS_LIMIT. The sentence
 * names the keyword of a schema by its JSON pointer ("#/properties/a/not: ..."), or the byte of a
 * pattern. */
enum status constraint_compile(enum constraint_kind kind, const char *text, size_t length,
                               struct constraint **constraint, struct error *err) WARN_UNUSED;
/* Also sets *steps, on errors too: the steps taken of COMPILE_MAX_STEPS, and the few beyond it. */
enum status constraint_compile_counted(enum constraint_kind kind, const char *text, size_t length,
                                       struct constraint **constraint, uint64_t *steps,
                                       struct error *err) WARN_UNUSED;
void constraint_destroy(struct constraint *constraint); /* NULL is fine */

size_t constraint_bytes(const struct constraint *constraint); /* memory that it takes */
size_t constraint_state_count(const struct constraint *constraint);
/* Returns the automaton (automaton.h), which lives as long as the constraint. */
const struct automaton *constraint_automaton(const struct constraint *constraint);

/* Unused frames are zero, and so is a count that isn't used: equal states are equal bytes. */
struct constraint_state {
    uint16_t depth;   /* frames below the top, which is frames[depth] */
    uint16_t count;   /* characters of the string, if it counts them (automaton.h) */
    uint16_t started; /* 1: a token was taken */
    uint16_t frames[CONSTRAINT_MAX_FRAMES];
};

void constraint_state_init(const struct constraint *constraint, struct constraint_state *state);
/* Takes the bytes of a token, which isn't an end token. Returns false if they aren't allowed; the
 * state is then unchanged. */
bool constraint_state_take(const struct constraint *constraint, struct constraint_state *state,
                           const char *bytes, size_t length);
/* Returns whether the answer may end here. */
bool constraint_state_may_end(const struct constraint *constraint,
                              const struct constraint_state *state);
/* Returns whether the answer may end here and nothing else may follow. */
bool constraint_state_is_complete(const struct constraint *constraint,
                                  const struct constraint_state *state);

#endif
