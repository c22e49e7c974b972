#include "common/constrain/constraint_masks.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/constrain/constraint_internal.h"

#include <stdlib.h>
#include <string.h>

#define WAYS        8  /* places that a state may be kept in */
#define FOUND_NODES 64 /* what a set that is kept takes to be looked for and copied */

struct kept {
    struct constraint_state state;
    uint64_t last_used; /* 0: free */
};

struct constraint_masks {
    const struct constraint *constraint;
    const struct token_trie *trie;
    struct kept *kept;
    uint32_t *sets; /* of each of kept */
    uint32_t kept_count;
    uint64_t clock;
    struct constraint_masks_counts counts;
};

struct constraint_masks *constraint_masks_create(const struct constraint *constraint,
                                                 const struct token_trie *trie, uint32_t kept_count)
{
    struct constraint_masks *masks = calloc(1, sizeof *masks);
    ASSERT(masks && kept_count <= CONSTRAINT_MASKS_MAX);
    masks->constraint = constraint;
    masks->trie = trie;
    masks->kept_count = kept_count;
    masks->kept = calloc(kept_count + 1u, sizeof *masks->kept);
    masks->sets = malloc((size_t)(kept_count + 1u) * trie->words * sizeof *masks->sets);
    ASSERT(masks->kept && masks->sets);
    return masks;
}

void constraint_masks_destroy(struct constraint_masks *masks)
{
    if (!masks)
        return;
    free(masks->kept);
    free(masks->sets);
    free(masks);
}

struct constraint_masks_counts constraint_masks_counts(const struct constraint_masks *masks)
{
    return masks->counts;
}

static uint32_t count_bits(const uint32_t *bits, uint32_t words)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < words; i++)
        count += (uint32_t)__builtin_popcount(bits[i]);
    return count;
}

/* The place of the state, or one that may be taken for it. */
static struct kept *place_of(struct constraint_masks *masks, const struct constraint_state *state)
{
    size_t length =
        offsetof(struct constraint_state, frames) + (state->depth + 1u) * sizeof *state->frames;
    uint64_t hash = hash_bytes(state, length, HASH_SEED);
    uint32_t start = (uint32_t)((hash ^ (hash >> 32)) % masks->kept_count);
    struct kept *oldest = NULL;
    for (uint32_t i = 0; i < WAYS; i++) {
        struct kept *kept = &masks->kept[(start + i) % masks->kept_count];
        if (kept->last_used && !memcmp(&kept->state, state, sizeof *state))
            return kept;
        if (!oldest || kept->last_used < oldest->last_used)
            oldest = kept;
    }
    return oldest;
}

/* For as many nodes as are left; true: the set is whole. */
static bool go(struct constraint_masks *masks, struct constraint_walk *walk, uint32_t *bits,
               uint64_t *nodes_left)
{
    uint64_t before = *nodes_left;
    bool whole = constraint_walk_go(walk, bits, nodes_left);
    masks->counts.nodes += before - *nodes_left;
    masks->counts.walked += whole;
    return whole;
}

static bool is_kept(const struct kept *kept, const struct constraint_state *state)
{
    return kept->last_used && !memcmp(&kept->state, state, sizeof *state);
}

/* A set that was kept; false: it is not there. */
static bool look(struct constraint_masks *masks, const struct constraint_state *state,
                 uint32_t *bits)
{
    uint32_t words = masks->trie->words;
    if (!masks->kept_count)
        return false;
    struct kept *kept = place_of(masks, state);
    if (!is_kept(kept, state))
        return false;
    masks->counts.found++;
    kept->last_used = ++masks->clock;
    memcpy(bits, masks->sets + (size_t)(kept - masks->kept) * words, words * sizeof *bits);
    return true;
}

static void keep(struct constraint_masks *masks, const struct constraint_state *state,
                 const uint32_t *bits)
{
    uint32_t words = masks->trie->words;
    if (!masks->kept_count)
        return;
    struct kept *kept = place_of(masks, state);
    kept->state = *state;
    kept->last_used = ++masks->clock;
    memcpy(masks->sets + (size_t)(kept - masks->kept) * words, bits, words * sizeof *bits);
}

bool constraint_masks_go(struct constraint_masks *masks, const struct constraint_state *state,
                         struct constraint_walk *walk, uint32_t *bits, uint64_t *nodes_left)
{
    bool begun = constraint_walk_is_of(walk, masks->constraint, state);
    if (!begun && look(masks, state, bits)) {
        *nodes_left -= *nodes_left < FOUND_NODES ? *nodes_left : FOUND_NODES;
        return true;
    }
    if (!*nodes_left)
        return false;
    if (!begun)
        constraint_walk_begin(walk, masks->constraint, masks->trie, state);
    if (!go(masks, walk, bits, nodes_left))
        return false;
    keep(masks, state, bits);
    return true;
}

uint32_t constraint_masks_find(struct constraint_masks *masks, const struct constraint_state *state,
                               uint32_t *bits)
{
    uint64_t nodes_left = UINT64_MAX;
    struct constraint_walk *walk = constraint_walk_create();
    bool whole = constraint_masks_go(masks, state, walk, bits, &nodes_left);
    ASSERT(whole);
    constraint_walk_destroy(walk);
    uint64_t nodes = UINT64_MAX - nodes_left;
    if (nodes > masks->counts.most_nodes)
        masks->counts.most_nodes = nodes;
    return count_bits(bits, masks->trie->words);
}
