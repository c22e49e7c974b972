/* What an answer must look like: any JSON object, JSON of a schema, a regular expression, one of
 * some texts, or calls of tools.
 *
 * A constraint is compiled once, within bounds of memory and steps (compile_steps.h), and is
 * immutable then: any threads share it. Where an answer is stands in a constraint_state: a small
 * plain value, copied freely, and a function of the answer's bytes alone, so that an answer which
 * goes on elsewhere is brought to its state by its tokens. Which tokens may come next is
 * constraint_masks.h.
 *
 * An answer never gets stuck: every state that can be reached has a way to the end (in bytes; a
 * vocabulary without tokens for all bytes may lack the token). */
#ifndef BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_H
#define BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_H

#include "common/base/domain/constraint_source.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONSTRAINT_MAX_TEXT_BYTES (128u << 10)
#define CONSTRAINT_MAX_CHOICES    1024
#define CONSTRAINT_MAX_DEPTH      64 /* arrays and objects in each other in an answer, about */
#define CONSTRAINT_MAX_FRAMES     66

struct constraint;

/* STATUS_INVALID (malformed, or nothing is valid), STATUS_UNSUPPORTED, STATUS_LIMIT. The sentence
 * names the keyword of a schema by its JSON pointer ("#/properties/a/not: ..."), or the byte of a
 * pattern. */
enum status constraint_compile(enum constraint_kind kind, const char *text, size_t length,
                               struct constraint **constraint, struct error *err) WARN_UNUSED;
/* Also tells what it took, of COMPILE_MAX_STEPS and what the last of its parts went over that; set
 * in any case. */
enum status constraint_compile_counted(enum constraint_kind kind, const char *text, size_t length,
                                       struct constraint **constraint, uint64_t *steps,
                                       struct error *err) WARN_UNUSED;
void constraint_destroy(struct constraint *constraint); /* NULL is fine */

size_t constraint_bytes(const struct constraint *constraint); /* of memory */
size_t constraint_state_count(const struct constraint *constraint);

/* Unused frames are zero, so that equal states are equal bytes. */
struct constraint_state {
    uint16_t depth;   /* frames below the top, which is frames[depth] */
    uint16_t started; /* 1: a token was taken */
    uint16_t frames[CONSTRAINT_MAX_FRAMES];
};

void constraint_state_init(const struct constraint *constraint, struct constraint_state *state);
/* Takes the bytes of a token. False where they aren't allowed; then the state is unchanged. Not for
 * end tokens. */
bool constraint_state_take(const struct constraint *constraint, struct constraint_state *state,
                           const char *bytes, size_t length);
/* Whether the answer may end here. */
bool constraint_state_may_end(const struct constraint *constraint,
                              const struct constraint_state *state);
/* Whether it may, and nothing else may follow. */
bool constraint_state_is_complete(const struct constraint *constraint,
                                  const struct constraint_state *state);

#endif
