/* Inside common/language/constrain only: what a constraint is made of, and its states as
 * cursors. */
#ifndef BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_INTERNAL_H
#define BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_INTERNAL_H

#include "common/language/constrain/automaton.h"
#include "common/language/constrain/constraint.h"

struct constraint {
    struct automaton automaton;
};

/* The frames that a state may have, and one for each byte of the longest token. */
#define CONSTRAINT_POOL_FRAMES (CONSTRAINT_MAX_FRAMES + 256)

struct automaton_cursor constraint_state_open(const struct constraint_state *state,
                                              struct automaton_frame *pool);

#endif
