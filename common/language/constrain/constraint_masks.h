/* Which tokens of a vocabulary may come next in a state of a constraint: sets of ids, each worked
 * out by a walk over the trie of the vocabulary (constraint_walk.h), and kept for when the state
 * comes again (bounded; of those that nobody holds, the ones not used for longest go). Who is in
 * the same state holds the same set.
 *
 * One for each constraint, vocabulary and thread; both must outlive it. What is in a set doesn't
 * depend on what was kept. */
#ifndef BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_MASKS_H
#define BATON_LANGUAGE_CONSTRAIN_CONSTRAINT_MASKS_H

#include "common/language/constrain/constraint_walk.h"

#define CONSTRAINT_MASKS_MAX 4096 /* sets that are kept */

struct constraint_masks;

/* The set of a state: bit id % 32 of bits[id / 32] is set for each token that may come next, and
 * for the end ids where the answer may end. */
struct constraint_mask {
    struct constraint_state state;
    uint32_t
        *bits; /* [trie->words]; the maker's until they are whole, and nobody's to change then */
    uint32_t holders;
    bool whole;
    void *maker;        /* who works it out, as he likes; NULL: nobody does */
    uint64_t last_used; /* 0: the place is free */
};

/* Keeps up to `kept_count` sets (0..CONSTRAINT_MASKS_MAX), each of trie->words * 4 bytes and about
 * 200 more. */
struct constraint_masks *constraint_masks_create(const struct constraint *constraint,
                                                 const struct token_trie *trie,
                                                 uint32_t kept_count);
/* None may be held any more. */
void constraint_masks_destroy(struct constraint_masks *masks); /* NULL is fine */

/* The set of the state, which is kept as long as it is held, or a place for it: who finds it
 * neither whole nor with a maker may work it out. `spare` (the caller's, with bits) where all
 * places that it could have are held: then nobody else sees it. */
struct constraint_mask *constraint_masks_take(struct constraint_masks *masks,
                                              const struct constraint_state *state,
                                              struct constraint_mask *spare);
/* One that isn't whole, and that nobody holds any more, is forgotten. */
void constraint_masks_give(struct constraint_mask *mask);
/* Begins the walk that makes it whole. */
void constraint_masks_begin(struct constraint_masks *masks, const struct constraint_mask *mask,
                            struct constraint_walk *walk);

/* All of it at once: copies the set to bits[trie->words]. Returns how many bits are set: 0 only
 * where the vocabulary lacks a token for what must come. */
uint32_t constraint_masks_find(struct constraint_masks *masks, const struct constraint_state *state,
                               uint32_t *bits);

struct constraint_masks_counts {
    uint64_t found, walked; /* sets that were there, whole or under way; begun */
};
struct constraint_masks_counts constraint_masks_counts(const struct constraint_masks *masks);

#endif
