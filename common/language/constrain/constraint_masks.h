/* Finds the tokens of a vocabulary that may come next in a state of a constraint: a set of ids,
 * made by a walk over the vocabulary's trie.
 *
 * A walk may be broken off anywhere and gone on with later, so a caller with little time spends no
 * more than it has. The unit is one node that is looked at, about 10 ns. The set doesn't depend on
 * where its walk was broken off, nor on the sets that were kept.
 *
 * A constraint_masks keeps sets for when their states come again. It is bounded: among sets that
 * aren't held, the one not used for longest goes. Equal states share one set. One constraint_masks
 * belongs to one constraint, one vocabulary and one thread. Constraint and trie must outlive it,
 * and each walk. */
#ifndef BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_MASKS_H
#define BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_MASKS_H

#include "common/language/constrain/constraint.h"
#include "common/language/constrain/token_trie.h"

struct constraint_walk; /* about 10 KiB */

struct constraint_walk *constraint_walk_create(void);
void constraint_walk_destroy(struct constraint_walk *walk); /* NULL is fine */

void constraint_walk_begin(struct constraint_walk *walk, const struct constraint *constraint,
                           const struct token_trie *trie, const struct constraint_state *state);
/* Goes on for up to *nodes_left nodes and one more, and subtracts them. Returns true if the walk is
 * over: bits[trie->words] are whole then. The caller may not change the bits until then. */
bool constraint_walk_go(struct constraint_walk *walk, uint32_t *bits, uint64_t *nodes_left);

#define CONSTRAINT_MASKS_MAX 4096 /* sets that are kept */

struct constraint_masks;

/* The set of a state: bit id % 32 of bits[id / 32] is set for each token that may come next, and
 * for the end ids if the answer may end. */
struct constraint_mask {
    struct constraint_state state; /* one of those that share the set */
    uint32_t *bits; /* [trie->words]; the maker writes them until `whole`; constant then */
    uint32_t holders;
    bool whole;
    void *maker;        /* set by the holder that works the set out; NULL: no holder does */
    uint64_t last_used; /* 0: the place is free */
};

/* Keeps up to `kept_count` sets (0..CONSTRAINT_MASKS_MAX), each of trie->words * 4 bytes and about
 * 200 more. */
struct constraint_masks *constraint_masks_create(const struct constraint *constraint,
                                                 const struct token_trie *trie,
                                                 uint32_t kept_count);
/* No set may be held any more. */
void constraint_masks_destroy(struct constraint_masks *masks); /* NULL is fine */

/* Returns the state's set, and holds it until constraint_masks_give. A set that is neither whole
 * nor has a maker may be worked out by the caller. Returns `spare`, the caller's with bits, if all
 * places for the state are held; no other holder sees it. */
struct constraint_mask *constraint_masks_take(struct constraint_masks *masks,
                                              const struct constraint_state *state,
                                              struct constraint_mask *spare);
/* Returns whether the set is the state's. States with equal stacks share a set where a counted
 * string is far from its limits. */
bool constraint_masks_is_of(const struct constraint_masks *masks,
                            const struct constraint_mask *mask,
                            const struct constraint_state *state);
/* Forgets the set if it isn't whole and has no other holder. */
void constraint_masks_give(struct constraint_mask *mask);
/* Begins the walk that makes the set whole. */
void constraint_masks_begin(struct constraint_masks *masks, const struct constraint_mask *mask,
                            struct constraint_walk *walk);

/* Copies the state's set to bits[trie->words], after the whole walk if needed. Returns the number
 * of bits that are set: 0 only if the vocabulary lacks a token for the bytes that must come. */
uint32_t constraint_masks_find(struct constraint_masks *masks, const struct constraint_state *state,
                               uint32_t *bits);

struct constraint_masks_counts {
    uint64_t found, walked; /* sets that were there, whole or under way; walks that were begun */
};
struct constraint_masks_counts constraint_masks_counts(const struct constraint_masks *masks);

#endif
