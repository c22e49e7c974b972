#include "common/language/constrain/constraint_walk.h"

#include "common/base/assert.h"
#include "common/language/constrain/automaton_plain.h"
#include "common/language/constrain/constraint_internal.h"

#include <stdlib.h>
#include <string.h>

#define IDS_OF_A_NODE 8  /* ids that are set take about as long as one node */
#define SET_NODES     64 /* what a set takes that is cleared or added */

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

/* What comes next. */
enum phase { PHASE_OVER, PHASE_CLEAR, PHASE_OTHER, PHASE_PLAIN, PHASE_ENDS };

struct constraint_walk {
    const struct constraint *constraint;
    const struct token_trie *trie;
    const struct token_forest *forest;
    struct automaton_cursor start;
    enum phase phase;
    /* Of the tree that is walked, and what is known before. */
    const struct token_tree *tree;
    bool plain;     /* whole plain characters only, and states say truly what they take of them */
    uint32_t done;  /* tokens of up to so many bytes are in the set already, if they are allowed */
    uint32_t depth; /* of `levels` */
    struct level levels[TOKEN_TRIE_MAX_BYTES + 1];
    struct automaton_frame pool[CONSTRAINT_POOL_FRAMES];
};

struct constraint_walk *constraint_walk_create(void)
{
    struct constraint_walk *walk = calloc(1, sizeof *walk);
    ASSERT(walk);
    return walk;
}

void constraint_walk_destroy(struct constraint_walk *walk)
{
    free(walk);
}

void constraint_walk_begin(struct constraint_walk *walk, const struct constraint *constraint,
                           const struct token_trie *trie, const struct constraint_state *state)
{
    walk->constraint = constraint;
    walk->trie = trie;
    walk->forest = trie->has_first && !state->started ? &trie->first : &trie->inside;
    walk->start = constraint_state_open(state, walk->pool);
    walk->phase = PHASE_CLEAR;
}

static void begin_tree(struct constraint_walk *walk, const struct token_tree *tree)
{
    walk->tree = tree;
    walk->depth = 0;
    enter(walk->levels, tree, tree->nodes, walk->start);
}

static uint64_t add_tokens(const struct constraint_walk *walk, uint32_t first, uint32_t end,
                           uint32_t *bits)
{
    add_ids(walk->forest->ids, first, end, bits);
    return (end - first) / IDS_OF_A_NODE;
}

/* All tokens of the tree that the automaton takes from the start on. False: broken off. */
static bool walk_tree(struct constraint_walk *walk, uint32_t *bits, uint64_t *nodes_left)
{
    const struct automaton *automaton = &walk->constraint->automaton;
    struct level *level = walk->levels + walk->depth;
    uint64_t nodes = 0;
    for (; nodes < *nodes_left; nodes++) {
        while (level->node == level->end && level > walk->levels)
            level--;
        if (level->node == level->end) {
            *nodes_left -= nodes;
            return true;
        }
        const struct token_node *node = level->node++;
        struct automaton_cursor cursor = level->at;
        if (!step(automaton, walk->pool, &cursor, node->byte))
            continue;
        const struct automaton_state *state = &automaton->states[cursor.top];
        uint32_t depth = (uint32_t)(level - walk->levels) + 1;
        bool all = walk->plain && takes_all(state, node);
        bool none =
            walk->plain &&
            (!(node->groups & state->plain_maybe) ||
             (depth + state->plain_sure <= walk->done && !(node->groups & ~state->plain_dull)));
        if (depth + (all ? node->below : 0u) > walk->done)
            nodes +=
                add_tokens(walk, node->first, all ? node->last : own_end(walk->tree, node), bits);
        if (!all && !none)
            enter(++level, walk->tree, node, cursor);
    }
    walk->depth = (uint32_t)(level - walk->levels);
    *nodes_left = 0;
    return false;
}

static void add_set(uint32_t *bits, const uint32_t *set, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++)
        bits[i] |= set[i];
}

/* Plain tokens: by the sets that are ready where the state takes any plain characters, else by
 * walking. Where the stack is almost full, what a state takes is not all that counts. */
static enum phase begin_plain(struct constraint_walk *walk, uint32_t *bits)
{
    const struct automaton *automaton = &walk->constraint->automaton;
    const struct token_forest *forest = walk->forest;
    const struct automaton_state *state = &automaton->states[walk->start.top];
    const struct token_tree *tree = &forest->plain;
    bool deep = walk->start.depth + automaton->most_need > automaton->max_depth;
    uint32_t all = deep ? 0 : state->plain_sure;
    if (all && state->plain_endless) {
        add_set(bits, forest->all_plain, walk->trie->words);
        return PHASE_ENDS;
    }
    if (all >= TOKEN_TRIE_LEVELS) {
        all = TOKEN_TRIE_LEVELS;
        tree = &forest->long_plain;
    }
    add_set(bits, forest->sets[all], walk->trie->words);
    walk->done = all;
    walk->plain = !deep;
    begin_tree(walk, tree);
    return deep || all != state->plain_most ? PHASE_PLAIN : PHASE_ENDS;
}

static void add_ends(struct constraint_walk *walk, uint32_t *bits)
{
    const struct token_trie *trie = walk->trie;
    bool may_end = automaton_accepts(&walk->constraint->automaton, walk->pool, walk->start);
    for (uint32_t i = 0; i < trie->end_count; i++) {
        uint32_t id = trie->end_ids[i];
        bits[id / 32] &= ~(1u << id % 32);
        bits[id / 32] |= (uint32_t)may_end << id % 32;
    }
}

bool constraint_walk_go(struct constraint_walk *walk, uint32_t *bits, uint64_t *nodes_left)
{
    if (walk->phase == PHASE_CLEAR && *nodes_left) {
        memset(bits, 0, walk->trie->words * sizeof *bits);
        *nodes_left -= *nodes_left < SET_NODES ? *nodes_left : SET_NODES;
        walk->plain = false;
        walk->done = 0;
        begin_tree(walk, &walk->forest->other);
        walk->phase = PHASE_OTHER;
    }
    if (walk->phase == PHASE_OTHER && walk_tree(walk, bits, nodes_left))
        walk->phase = begin_plain(walk, bits);
    if (walk->phase == PHASE_PLAIN && walk_tree(walk, bits, nodes_left))
        walk->phase = PHASE_ENDS;
    if (walk->phase != PHASE_ENDS)
        return false;
    add_ends(walk, bits);
    walk->phase = PHASE_OVER;
    return true;
}
