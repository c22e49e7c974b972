/* The walk over a vocabulary's trie that finds which tokens a constraint takes in a state. It may
 * be broken off anywhere and gone on with later, so that who has little time spends no more on it
 * than he has: a node looked at takes about 10 ns, and is what is counted. What it finds doesn't
 * depend on where it was broken off. Constraint and trie must outlive a walk that is under way. */
#ifndef BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_WALK_H
#define BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_WALK_H

#include "common/language/constrain/constraint.h"
#include "common/language/constrain/token_trie.h"

struct constraint_walk; /* about 10 KiB */

struct constraint_walk *constraint_walk_create(void);
void constraint_walk_destroy(struct constraint_walk *walk); /* NULL is fine */

void constraint_walk_begin(struct constraint_walk *walk, const struct constraint *constraint,
                           const struct token_trie *trie, const struct constraint_state *state);
/* Goes on for up to *nodes_left nodes (and one more), which are taken off. True: bits[trie->words],
 * of which none may have changed since it began, are whole, and the walk is over. */
bool constraint_walk_go(struct constraint_walk *walk, uint32_t *bits, uint64_t *nodes_left);

#endif
