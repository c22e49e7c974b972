#include "common/constrain/constraint_masks.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/constrain/automaton_plain.h"
#include "common/constrain/constraint_internal.h"

#include <stdlib.h>
#include <string.h>

#define WAYS 8 /* places that a state may be kept in */

struct kept {
    struct constraint_state state;
    uint64_t last_used; /* 0: free */
    uint32_t count;
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

static inline void add_ids(const uint32_t *ids, uint32_t first, uint32_t end, uint32_t *bits)
{
    for (uint32_t i = first; i < end; i++)
        bits[ids[i] / 32] |= 1u << ids[i] % 32;
}

/* Behind the ids of the tokens that end at the node. */
static inline uint32_t own_end(const struct token_tree *tree, const struct token_node *node)
{
    if (node->count < TOKEN_NODE_MANY)
        return node->first + node->count;
    return node->child ? tree->nodes[node->child].first : node->last;
}

/* Whether the state takes all that is below the node, whatever it is. */
static inline bool takes_all(const struct automaton_state *state, const struct token_node *node)
{
    return !(node->groups & ~state->plain_groups) &&
           (state->plain_endless || node->below <= state->plain_all);
}

/* As automaton_step, of which most are within a frame. */
static inline bool step(const struct automaton *automaton, struct automaton_frame *pool,
                        struct automaton_cursor *cursor, uint8_t byte)
{
    uint16_t next =
        automaton->next[(size_t)cursor->top * automaton->class_count + automaton->class_of[byte]];
    if (next == AUTOMATON_NONE || automaton->states[next].final ||
        cursor->depth + automaton->states[next].need > automaton->max_depth)
        return automaton_step(automaton, pool, cursor, byte);
    cursor->top = next;
    return true;
}

/* Nodes of one level that are still to be looked at, and where the walk is above them. */
struct level {
    const struct token_node *node, *end;
    struct automaton_cursor at;
};

static void enter(struct level *level, const struct token_tree *tree,
                  const struct token_node *parent, struct automaton_cursor at)
{
    level->node = tree->nodes + parent->child;
    level->end = parent->child ? level->node + parent->last_child + 1 : level->node;
    level->at = at;
}

/* What a walk is over, and what is known before. */
struct walked {
    const struct token_tree *tree;
    const uint32_t *ids;
    bool plain;    /* whole plain characters only, and states say truly what they take of them */
    uint32_t done; /* tokens of up to so many bytes are in the set already, if they are allowed */
};

/* All tokens of the tree that the automaton takes from the cursor on. */
static void walk(struct constraint_masks *masks, struct walked w, struct automaton_frame *pool,
                 struct automaton_cursor start, uint32_t *bits)
{
    const struct automaton *automaton = &masks->constraint->automaton;
    struct level levels[TOKEN_TRIE_MAX_BYTES + 1], *level = levels;
    uint64_t nodes = 0;
    enter(level, w.tree, w.tree->nodes, start);
    for (;; nodes++) {
        while (level->node == level->end && level > levels)
            level--;
        if (level->node == level->end)
            break;
        const struct token_node *node = level->node++;
        struct automaton_cursor cursor = level->at;
        if (!step(automaton, pool, &cursor, node->byte))
            continue;
        const struct automaton_state *state = &automaton->states[cursor.top];
        uint32_t depth = (uint32_t)(level - levels) + 1;
        bool all = w.plain && takes_all(state, node);
        bool none = w.plain &&
                    (!(node->groups & state->plain_maybe) ||
                     (depth + state->plain_sure <= w.done && !(node->groups & ~state->plain_dull)));
        if (depth + (all ? node->below : 0u) > w.done)
            add_ids(w.ids, node->first, all ? node->last : own_end(w.tree, node), bits);
        if (!all && !none)
            enter(++level, w.tree, node, cursor);
    }
    masks->counts.nodes += nodes;
}

static void add_set(uint32_t *bits, const uint32_t *set, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++)
        bits[i] |= set[i];
}

/* Plain tokens: by the sets that are ready where the state takes any plain characters, else by walking. Where the stack is almost
 * full, what a state takes is not all that counts. */
static void add_plain(struct constraint_masks *masks, const struct token_forest *forest,
                      struct automaton_frame *pool, struct automaton_cursor cursor, uint32_t *bits)
{
    const struct automaton *automaton = &masks->constraint->automaton;
    const struct automaton_state *state = &automaton->states[cursor.top];
    bool deep = cursor.depth + automaton->most_need > automaton->max_depth;
    uint32_t all = deep ? 0 : state->plain_sure;
    struct walked w = {.tree = &forest->plain, .ids = forest->ids, .plain = !deep};
    if (all && state->plain_endless) {
        add_set(bits, forest->all_plain, masks->trie->words);
        return;
    }
    if (all >= TOKEN_TRIE_LEVELS) {
        all = TOKEN_TRIE_LEVELS;
        w.tree = &forest->long_plain;
    }
    add_set(bits, forest->sets[all], masks->trie->words);
    w.done = all;
    if (deep || all != state->plain_most)
        walk(masks, w, pool, cursor, bits);
}

static uint32_t count_bits(const uint32_t *bits, uint32_t words)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < words; i++)
        count += (uint32_t)__builtin_popcount(bits[i]);
    return count;
}

static uint32_t work_out(struct constraint_masks *masks, const struct constraint_state *state,
                         uint32_t *bits)
{
    struct automaton_frame pool[CONSTRAINT_POOL_FRAMES];
    const struct token_trie *trie = masks->trie;
    const struct token_forest *forest =
        trie->has_first && !state->started ? &trie->first : &trie->inside;
    struct automaton_cursor cursor = constraint_state_open(state, pool);
    memset(bits, 0, trie->words * sizeof *bits);
    walk(masks, (struct walked){.tree = &forest->other, .ids = forest->ids}, pool, cursor, bits);
    add_plain(masks, forest, pool, cursor, bits);
    bool may_end = automaton_accepts(&masks->constraint->automaton, pool, cursor);
    for (uint32_t i = 0; i < trie->end_count; i++) {
        uint32_t id = trie->end_ids[i];
        bits[id / 32] &= ~(1u << id % 32);
        bits[id / 32] |= (uint32_t)may_end << id % 32;
    }
    masks->counts.walked++;
    return count_bits(bits, trie->words);
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

uint32_t constraint_masks_find(struct constraint_masks *masks, const struct constraint_state *state,
                               uint32_t *bits)
{
    uint32_t words = masks->trie->words;
    if (!masks->kept_count)
        return work_out(masks, state, bits);
    struct kept *kept = place_of(masks, state);
    uint32_t *set = masks->sets + (size_t)(kept - masks->kept) * words;
    if (kept->last_used && !memcmp(&kept->state, state, sizeof *state)) {
        masks->counts.found++;
    } else {
        kept->state = *state;
        kept->count = work_out(masks, state, set);
    }
    kept->last_used = ++masks->clock;
    memcpy(bits, set, words * sizeof *bits);
    return kept->count;
}
