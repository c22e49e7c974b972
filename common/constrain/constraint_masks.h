/* Which tokens of a vocabulary may come next in a state of a constraint: as a set of ids, worked out by one walk over the trie
 * of the vocabulary, and kept for when the state comes again (bounded; the sets not used for longest go first).
 *
 * One for each constraint, vocabulary and thread; both must outlive it. Nothing that it gives depends on what it has kept. */
#ifndef BATON_CONSTRAIN_CONSTRAINT_MASKS_H
#define BATON_CONSTRAIN_CONSTRAINT_MASKS_H

#include "common/constrain/constraint_walk.h"

#define CONSTRAINT_MASKS_MAX 4096 /* sets that are kept */

struct constraint_masks;

/* Keeps up to `kept_count` sets (0..CONSTRAINT_MASKS_MAX), each of trie->words * 4 bytes and about 150 more. */
struct constraint_masks *constraint_masks_create(const struct constraint *constraint,
                                                 const struct token_trie *trie,
                                                 uint32_t kept_count);
void constraint_masks_destroy(struct constraint_masks *masks); /* NULL is fine */

/* Sets bit id % 32 of bits[id / 32] for each token that may come next, and for the end ids where the answer may end; clears all
 * others. bits[trie->words]. Returns how many bits are set: 0 only where the vocabulary lacks a token for what must come. */
uint32_t constraint_masks_find(struct constraint_masks *masks, const struct constraint_state *state,
                               uint32_t *bits);

/* The same, by a walk of the caller's, within a budget: for up to *nodes_left nodes, which are taken off, whether they were walked or what a kept set takes instead.
 * True: `bits` are whole. False: none are left; call it again with the same state, walk and bits, to go on. A state that was left
 * for another is begun anew. */
bool constraint_masks_go(struct constraint_masks *masks, const struct constraint_state *state,
                         struct constraint_walk *walk, uint32_t *bits, uint64_t *nodes_left);

struct constraint_masks_counts {
    uint64_t found, walked; /* sets that were kept; worked out */
    uint64_t nodes;         /* of the trie that walks looked at */
    uint64_t most_nodes;    /* for one set */
};
struct constraint_masks_counts constraint_masks_counts(const struct constraint_masks *masks);

#endif
