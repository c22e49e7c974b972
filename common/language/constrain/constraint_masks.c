#include "common/language/constrain/constraint_masks.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/language/constrain/constraint_internal.h"

#include <stdlib.h>
#include <string.h>

#define WAYS 8 /* places that a state may be kept in */

struct constraint_masks {
    const struct constraint *constraint;
    const struct token_trie *trie;
    struct constraint_mask *kept;
    uint64_t *hashes; /* of the state of each, so that a look at a few places is one of memory */
    uint32_t *sets;   /* of each */
    uint32_t kept_count;
    uint64_t clock;
    struct constraint_masks_counts counts;
};

struct constraint_masks *constraint_masks_create(const struct constraint *constraint,
                                                 const struct token_trie *trie, uint32_t kept_count)
{
    struct constraint_masks *masks = calloc(1, sizeof *masks);
    ASSERT(masks && kept_count <= CONSTRAINT_MASKS_MAX);
    size_t words = (size_t)(kept_count + 1u) * trie->words;
    masks->constraint = constraint;
    masks->trie = trie;
    masks->kept_count = kept_count;
    masks->kept = calloc(kept_count + 1u, sizeof *masks->kept);
    masks->sets = malloc(words * sizeof *masks->sets);
    masks->hashes = calloc(kept_count + 1u, sizeof *masks->hashes);
    ASSERT(masks->kept && masks->sets && masks->hashes);
    memset(masks->sets, 0xff, words * sizeof *masks->sets); /* no step shall wait for its pages */
    for (uint32_t i = 0; i < kept_count; i++)
        masks->kept[i].bits = masks->sets + (size_t)i * trie->words;
    return masks;
}

void constraint_masks_destroy(struct constraint_masks *masks)
{
    if (!masks)
        return;
    for (uint32_t i = 0; i < masks->kept_count; i++)
        ASSERT(!masks->kept[i].holders);
    free(masks->kept);
    free(masks->hashes);
    free(masks->sets);
    free(masks);
}

struct constraint_masks_counts constraint_masks_counts(const struct constraint_masks *masks)
{
    return masks->counts;
}

static bool is_of(const struct constraint_mask *mask, const struct constraint_state *state)
{
    return mask->last_used && !memcmp(&mask->state, state, sizeof *state);
}

static uint64_t hash_of(const struct constraint_state *state)
{
    size_t length =
        offsetof(struct constraint_state, frames) + (state->depth + 1u) * sizeof *state->frames;
    uint64_t hash = hash_bytes(state, length, HASH_SEED);
    return hash ^ hash >> 32;
}

static struct constraint_mask *find(struct constraint_masks *masks,
                                    const struct constraint_state *state, uint64_t hash)
{
    for (uint32_t i = 0; i < WAYS && masks->kept_count; i++) {
        uint64_t at = (hash + i) % masks->kept_count;
        if (masks->hashes[at] == hash && is_of(&masks->kept[at], state))
            return &masks->kept[at];
    }
    return NULL;
}

/* A place for the state; NULL: all are held. */
static struct constraint_mask *place_for(struct constraint_masks *masks, uint64_t hash)
{
    struct constraint_mask *oldest = NULL;
    for (uint32_t i = 0; i < WAYS && masks->kept_count; i++) {
        struct constraint_mask *mask = &masks->kept[(hash + i) % masks->kept_count];
        if (!mask->holders && (!oldest || mask->last_used < oldest->last_used))
            oldest = mask;
    }
    if (oldest)
        masks->hashes[oldest - masks->kept] = hash;
    return oldest;
}

struct constraint_mask *constraint_masks_take(struct constraint_masks *masks,
                                              const struct constraint_state *state,
                                              struct constraint_mask *spare)
{
    uint64_t hash = hash_of(state);
    struct constraint_mask *mask = find(masks, state, hash);
    if (mask) {
        masks->counts.found++;
    } else {
        mask = place_for(masks, hash);
        mask = mask ? mask : spare;
        *mask = (struct constraint_mask){.state = *state, .bits = mask->bits};
    }
    mask->holders++;
    mask->last_used = ++masks->clock;
    return mask;
}

void constraint_masks_give(struct constraint_mask *mask)
{
    ASSERT(mask->holders);
    mask->holders--;
    if (!mask->holders && !mask->whole)
        mask->last_used = 0;
}

void constraint_masks_begin(struct constraint_masks *masks, const struct constraint_mask *mask,
                            struct constraint_walk *walk)
{
    ASSERT(!mask->whole);
    masks->counts.walked++;
    constraint_walk_begin(walk, masks->constraint, masks->trie, &mask->state);
}

static void make_whole(struct constraint_masks *masks, struct constraint_mask *mask)
{
    uint64_t nodes = UINT64_MAX;
    struct constraint_walk *walk = constraint_walk_create();
    constraint_masks_begin(masks, mask, walk);
    mask->whole = constraint_walk_go(walk, mask->bits, &nodes);
    ASSERT(mask->whole);
    constraint_walk_destroy(walk);
}

uint32_t constraint_masks_find(struct constraint_masks *masks, const struct constraint_state *state,
                               uint32_t *bits)
{
    struct constraint_mask spare = {.bits = bits};
    struct constraint_mask *mask = constraint_masks_take(masks, state, &spare);
    uint32_t count = 0;
    ASSERT(!mask->maker);
    if (!mask->whole)
        make_whole(masks, mask);
    for (uint32_t i = 0; i < masks->trie->words; i++) {
        bits[i] = mask->bits[i];
        count += (uint32_t)__builtin_popcount(bits[i]);
    }
    constraint_masks_give(mask);
    return count;
}
