#include "common/language/constrain/constraint_masks.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/language/constrain/automaton.h"

#include <stdlib.h>
#include <string.h>

#define IDS_OF_A_NODE 8  /* setting so many ids takes about as long as looking at a node */
#define SET_NODES     64 /* clearing or adding a set takes about as long as so many nodes */

/* Returns the index behind the ids of the tokens that end at the node. */
static inline uint32_t own_end(const struct token_tree *tree, const struct token_node *node)
{
    if (node->count < TOKEN_NODE_MANY)
        return node->first + node->count;
    return node->child ? tree->nodes[node->child].first : node->last;
}

/* As automaton_step; faster for steps within a frame, which most are. */
static inline bool step(const struct automaton *automaton, struct automaton_frame *pool,
                        struct automaton_cursor *cursor, uint8_t byte)
{
    uint16_t next =
        automaton->next[(size_t)cursor->top * automaton->class_count + automaton->class_of[byte]];
    if (next == AUTOMATON_NONE || automaton->states[next].slow ||
        cursor->depth + automaton->states[next].need > automaton->max_depth)
        return automaton_step(automaton, pool, cursor, byte);
    cursor->top = next;
    return true;
}

/* Returns for how many characters from here on the state's plain_* fields hold: as long as the
 * count of the string stays in the state's home. */
static inline uint32_t plain_room(const struct automaton_state *state, uint16_t count)
{
    if (!state->inside)
        return UINT32_MAX;
    if (count < state->home_first || count > state->home_last)
        return 0;
    return state->home_last == UINT16_MAX ? UINT32_MAX : state->home_last - count + 1u;
}

/* Nodes of one level that are still to be looked at; `at` is the cursor above them. */
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

/* The next work of a walk. */
enum phase { PHASE_OVER, PHASE_CLEAR, PHASE_OTHER, PHASE_PLAIN, PHASE_ENDS };

struct constraint_walk {
    const struct automaton *automaton;
    const struct token_trie *trie;
    const struct token_forest *forest;
    struct automaton_cursor start;
    enum phase phase;
    const struct token_tree *tree; /* the tree that is walked */
    bool plain;     /* the tree has plain characters only, and the plain_* fields hold */
    uint32_t done;  /* allowed tokens of up to so many bytes are in the set already */
    uint32_t depth; /* index of the lowest level */
    struct level levels[TOKEN_TRIE_MAX_BYTES + 1];
    struct automaton_frame pool[AUTOMATON_POOL_FRAMES];
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
    walk->automaton = constraint_automaton(constraint);
    walk->trie = trie;
    walk->forest = trie->has_first && !state->started ? &trie->first : &trie->inside;
    walk->start = automaton_open(state->frames, state->depth, state->count, walk->pool);
    walk->phase = PHASE_CLEAR;
}

static void begin_tree(struct constraint_walk *walk, const struct token_tree *tree)
{
    walk->tree = tree;
    walk->depth = 0;
    enter(walk->levels, tree, tree->nodes, walk->start);
}

/* Adds all tokens of the tree that the automaton takes. Returns false if no nodes are left. */
static bool walk_tree(struct constraint_walk *walk, uint32_t *bits, uint64_t *nodes_left)
{
    const struct automaton *automaton = walk->automaton;
    const uint32_t *ids = walk->forest->ids;
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
        uint32_t room = plain_room(state, cursor.count);
        bool all = walk->plain && !(node->groups & ~state->plain_groups) && node->below <= room &&
                   (state->plain_endless || node->below <= state->plain_all);
        bool none =
            walk->plain && (!(node->groups & state->plain_maybe) ||
                            (depth + state->plain_sure <= walk->done &&
                             !(node->groups & ~state->plain_dull) && state->plain_sure < room));
        if (depth + (all ? node->below : 0u) > walk->done) {
            uint32_t end = all ? node->last : own_end(walk->tree, node);
            for (uint32_t i = node->first; i < end; i++)
                bits[ids[i] / 32] |= 1u << ids[i] % 32;
            nodes += (end - node->first) / IDS_OF_A_NODE;
        }
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

/* Adds plain tokens. Uses ready sets as far as the state takes any plain characters; the rest needs
 * a walk. If the stack is almost full, the plain_* fields don't hold. Returns the next phase. */
static enum phase begin_plain(struct constraint_walk *walk, uint32_t *bits)
{
    const struct automaton *automaton = walk->automaton;
    const struct token_forest *forest = walk->forest;
    const struct automaton_state *state = &automaton->states[walk->start.top];
    const struct token_tree *tree = &forest->plain;
    bool deep = walk->start.depth + automaton->most_need > automaton->max_depth;
    uint32_t room = plain_room(state, walk->start.count);
    uint32_t all = deep ? 0 : state->plain_sure;
    if (all && state->plain_endless && room < TOKEN_TRIE_MAX_BYTES)
        all = room; /* and then the count leaves the home */
    all = all < room ? all : room;
    bool closes = state->home_closes && room && room < state->plain_most;
    uint32_t most = closes ? room : state->plain_most;
    bool known = most <= room; /* otherwise `most` may not hold */
    if (all && state->plain_endless && room >= TOKEN_TRIE_MAX_BYTES) {
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
    return deep || !known || all != most ? PHASE_PLAIN : PHASE_ENDS;
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
    bool may_end = automaton_accepts(walk->automaton, walk->pool, walk->start);
    for (uint32_t i = 0; i < walk->trie->end_count; i++) {
        uint32_t id = walk->trie->end_ids[i];
        bits[id / 32] &= ~(1u << id % 32);
        bits[id / 32] |= (uint32_t)may_end << id % 32;
    }
    walk->phase = PHASE_OVER;
    return true;
}

/* --------------------------------------------------------------------------- sets that are kept */

#define WAYS 8 /* places that the set of a state may be kept in */

struct constraint_masks {
    const struct constraint *constraint;
    const struct token_trie *trie;
    struct constraint_mask *kept;
    uint64_t
        *hashes; /* by place: hash of its state; together, so that a search reads little memory */
    uint32_t *sets; /* by place: trie->words of bits */
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
    memset(masks->sets, 0xff, words * sizeof *masks->sets); /* so that no step waits for pages */
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

static struct constraint_mask *find(struct constraint_masks *masks,
                                    const struct constraint_state *state, uint64_t hash)
{
    for (uint32_t i = 0; i < WAYS && masks->kept_count; i++) {
        uint64_t at = (hash + i) % masks->kept_count;
        struct constraint_mask *mask = &masks->kept[at];
        if (masks->hashes[at] == hash && mask->last_used &&
            !memcmp(&mask->state, state, sizeof *state))
            return mask;
    }
    return NULL;
}

/* Returns a place for the state: free, or the one not used for longest. NULL: all are held. */
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

/* Returns the state that stands for all with the same set: with the first count of a class, if any
 * token ends within it from here and from there. */
static struct constraint_state key_of(const struct constraint_masks *masks,
                                      const struct constraint_state *state)
{
    const struct automaton *automaton = constraint_automaton(masks->constraint);
    struct constraint_state key = *state;
    /* The top may be a character of several bytes within the string. */
    for (uint32_t below = 0; below <= 1 && below <= state->depth; below++) {
        const struct automaton_state *at = &automaton->states[state->frames[state->depth - below]];
        if (!at->inside)
            continue;
        struct automaton_class class = automaton_class_of(automaton, at->string, state->count);
        if (class.last == UINT16_MAX || class.last - state->count >= TOKEN_TRIE_MAX_BYTES)
            key.count = class.first;
        break;
    }
    return key;
}

bool constraint_masks_is_of(const struct constraint_masks *masks,
                            const struct constraint_mask *mask,
                            const struct constraint_state *state)
{
    struct constraint_state key = key_of(masks, state);
    return memcmp(&mask->state, &key, sizeof key) == 0;
}

struct constraint_mask *constraint_masks_take(struct constraint_masks *masks,
                                              const struct constraint_state *state,
                                              struct constraint_mask *spare)
{
    size_t length =
        offsetof(struct constraint_state, frames) + (state->depth + 1u) * sizeof *state->frames;
    struct constraint_state key = key_of(masks, state);
    uint64_t hash = hash_bytes(&key, length, HASH_SEED);
    hash ^= hash >> 32;
    struct constraint_mask *mask = find(masks, &key, hash);
    if (mask) {
        masks->counts.found++;
    } else {
        mask = place_for(masks, hash);
        mask = mask ? mask : spare;
        *mask = (struct constraint_mask){.state = key, .bits = mask->bits};
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

uint32_t constraint_masks_find(struct constraint_masks *masks, const struct constraint_state *state,
                               uint32_t *bits)
{
    struct constraint_mask spare = {.bits = bits};
    struct constraint_mask *mask = constraint_masks_take(masks, state, &spare);
    uint32_t count = 0;
    ASSERT(!mask->maker);
    if (!mask->whole) {
        uint64_t nodes = UINT64_MAX;
        struct constraint_walk *walk = constraint_walk_create();
        constraint_masks_begin(masks, mask, walk);
        mask->whole = constraint_walk_go(walk, mask->bits, &nodes);
        ASSERT(mask->whole);
        constraint_walk_destroy(walk);
    }
    for (uint32_t i = 0; i < masks->trie->words; i++) {
        bits[i] = mask->bits[i];
        count += (uint32_t)__builtin_popcount(bits[i]);
    }
    constraint_masks_give(mask);
    return count;
}
