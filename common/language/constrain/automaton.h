/* A deterministic automaton over bytes, made of a grammar: a table of states and classes of bytes,
 * and a stack with one frame for each rule that is under way.
 *
 * A state may stand for several rules at once, which are called a unit: alternatives that a schema
 * leaves open. They start together and end together, and the label of the end names the rules that
 * took the text. So one stack is enough even for ambiguous grammars, and a step is a few table
 * look-ups.
 *
 * Lengths of strings are counted beside the states (grammar.h: gates). Strings don't nest, and all
 * alternatives of a string have read as many characters, so one count is enough for a walk. A
 * character leads to a junction, which stands for several states. The count picks the one with the
 * places that are open then. From there only characters lead on behind which the text can still
 * end.
 *
 * automaton_build makes it; it is immutable afterwards and shared by threads. A walk can always get
 * to the end: dead ends are trimmed, and a call that would make the stack too deep isn't taken. */
#ifndef BATON_LANGUAGE_CONSTRAIN_AUTOMATON_H
#define BATON_LANGUAGE_CONSTRAIN_AUTOMATON_H

#include "common/base/status.h"
#include "common/language/constrain/grammar.h"

#define AUTOMATON_NONE       UINT16_MAX
#define AUTOMATON_NO_LABEL   UINT8_MAX
#define AUTOMATON_NEVER      UINT8_MAX /* a need that no stack meets */
#define AUTOMATON_MAX_STATES 32768
#define AUTOMATON_MAX_CELLS  (8u << 20) /* cells of the table: states times classes of bytes */
#define AUTOMATON_MAX_LABELS 64         /* labels of a unit */
#define AUTOMATON_MAX_RULES  64         /* rules of a unit: alternatives that are open at once */
#define AUTOMATON_MAX_ITEMS  (4u << 20) /* places in the grammar, of all states together */
#define AUTOMATON_MAX_RANGES (1u << 18) /* ranges of counts, of all junctions together */
#define AUTOMATON_MAX_DEPTH  66         /* frames: a document 64 deep, a value, a character */
/* Frames of a pool: a whole stack, and one for each of 256 bytes. */
#define AUTOMATON_POOL_FRAMES (AUTOMATON_MAX_DEPTH + 256)
/* `plain_all` and `plain_most` count characters up to here. */
#define AUTOMATON_PLAIN_MANY 33

/* Plain characters are all except control characters, the quote and the backslash. Most tokens
 * spell nothing else, so a walk over tokens is saved where a state takes any of them. Groups
 * (plain_group) tell apart the plain characters that a state takes. */
static inline bool plain_byte(uint8_t byte)
{
    return byte >= 0x20 && byte != '"' && byte != '\\';
}

#define PLAIN_GROUPS      ((1ull << 63) - 1)
#define PLAIN_GROUP_LONG  62 /* characters of several bytes */
#define PLAIN_GROUP_OTHER 61

/* Returns 0..62: each letter has a group of its own, some other characters too; the rest share
 * PLAIN_GROUP_OTHER. */
static inline unsigned plain_group(uint8_t byte)
{
    if (byte >= 'a' && byte <= 'z')
        return byte - 'a';
    if (byte >= 'A' && byte <= 'Z')
        return 26 + byte - 'A';
    if (byte >= '0' && byte <= '9')
        return 52;
    if (byte >= 0x80)
        return PLAIN_GROUP_LONG;
    switch (byte) {
    case ' ': return 53;
    case '-': return 54;
    case '_': return 55;
    case '.': return 56;
    case ',': return 57;
    case ':': return 58;
    case '/': return 59;
    case '@': return 60;
    default: return PLAIN_GROUP_OTHER;
    }
}

struct automaton_state {
    uint16_t call;     /* start of the unit that may be called here; AUTOMATON_NONE */
    uint8_t label;     /* label of the unit if it may end here; AUTOMATON_NO_LABEL */
    uint8_t need;      /* frames above this one that are enough to get to the end */
    uint8_t call_need; /* the same, if the call is taken */
    bool final;        /* may end and can't go on */
    bool junction;     /* stands for the states of `ranges`; never on a stack, and has no row */
    bool inside;       /* in a string that counts: a step from here to a junction is a character */
    bool slow;         /* automaton_step has more to do than to go here */
    bool home_closes;  /* no plain characters may come at counts above home_last */
    /* Inside: counts for which the plain_* fields hold, a class of its string. home_last
     * UINT16_MAX: and beyond. */
    uint16_t home_first, home_last;
    uint16_t string; /* inside, or a junction: index in strings */
    /* Any character of the groups `plain_groups` may come, and more of these characters may follow:
     * `plain_all` in all, or any number if `plain_endless`. */
    uint8_t plain_all; /* 0..AUTOMATON_PLAIN_MANY */
    bool plain_endless;
    uint8_t plain_most; /* at most so many plain characters may come, of any groups */
    uint64_t plain_groups;
    uint64_t plain_maybe; /* groups with at least one character that may come */
    /* At least `plain_sure` plain characters of any groups may come (0: unknown). With characters
     * of `plain_dull` alone no more than these may come: a pattern waits for another character. */
    uint8_t plain_sure;
    uint64_t plain_dull;
    uint32_t returns; /* if call is set: index in return_to, with a state for each label */
    uint8_t label_count;
    uint32_t ranges, range_count; /* junction: in the automaton's ranges, ascending */
};

/* The state of a junction for counts up to `last`, behind the range before. */
struct automaton_range {
    uint16_t last;  /* UINT16_MAX: and beyond */
    uint16_t state; /* AUTOMATON_NONE: a walk never gets there */
};

/* A string that counts its characters: states that lead to each other. Its junctions stand for the
 * same states at all counts of a class: from a bound up to the next. */
struct automaton_string {
    uint32_t bounds, bound_count; /* in the automaton's bounds, ascending, 0 first */
};

struct automaton {
    uint16_t *next; /* [state * class_count + class] */
    struct automaton_state *states;
    uint16_t *return_to;
    struct automaton_range *ranges;
    struct automaton_string *strings;
    uint16_t *bounds;
    size_t state_count, return_count, range_count, string_count, bound_count;
    uint16_t most_count; /* counts from here on are alike: a walk counts no further */
    uint32_t class_count;
    uint32_t max_depth; /* frames below the top */
    uint32_t most_need; /* largest `need` of the states that can get to the end */
    uint16_t start;
    uint8_t class_of[256];
};

/* Builds the automaton of the rule `root`, which must take some text (grammar_trim). `max_depth`:
 * 1..AUTOMATON_MAX_DEPTH. STATUS_LIMIT: more states, labels, places or steps than the limits allow;
 * *note is then the note of the rule with the most states. */
enum status automaton_build(const struct grammar *grammar, uint32_t root, uint32_t max_depth,
                            struct automaton *automaton, uint32_t *note,
                            struct error *err) WARN_UNUSED;
/* Sets `strings`, and `string` and the home of each state. Returns false if that takes too many
 * steps. For automaton_build only, as the next one. */
bool automaton_find_strings(struct automaton *automaton, struct compile_steps *steps) WARN_UNUSED;
/* Sets `need` and `call_need` of each state, behind automaton_find_strings. Returns false if that
 * takes too many steps. */
bool automaton_find_needs(struct automaton *automaton, struct compile_steps *steps) WARN_UNUSED;
/* Sets the plain_* fields of each state; all other fields must be set. Returns false if that takes
 * too many steps. */
bool automaton_find_plain(struct automaton *automaton, struct compile_steps *steps) WARN_UNUSED;
void automaton_deinit(struct automaton *automaton); /* all zeros are fine */
size_t automaton_bytes(const struct automaton *automaton);

/* Counts of a string between two bounds, inclusive. last UINT16_MAX: and beyond. */
struct automaton_class {
    uint16_t first, last;
};
struct automaton_class automaton_class_of(const struct automaton *automaton, uint16_t string,
                                          uint16_t count);

/* A walk stands on a stack of states. The cursor has the top; the frames below it are in a pool,
 * which the branches of a walk share. */
struct automaton_frame {
    uint16_t state, below; /* below: index in the pool; AUTOMATON_NONE */
};
struct automaton_cursor {
    uint16_t top, below;
    uint16_t depth; /* frames below the top */
    uint16_t count; /* characters of the string that the walk is in, if it counts them; or 0 */
    uint16_t used;  /* frames of the pool; a step takes one at most, later branches overwrite it */
};

/* Returns a cursor on a stack: states[depth] is the top. Overwrites the pool. */
static inline struct automaton_cursor
automaton_open(const uint16_t *states, uint16_t depth, uint16_t count,
               struct automaton_frame pool[AUTOMATON_POOL_FRAMES])
{
    struct automaton_cursor cursor = {.top = states[depth],
                                      .below = AUTOMATON_NONE,
                                      .depth = depth,
                                      .count = count,
                                      .used = depth};
    for (uint16_t i = 0; i < depth; i++) {
        pool[i] = (struct automaton_frame){states[i], cursor.below};
        cursor.below = i;
    }
    return cursor;
}

/* Returns the state that a junction stands for at the count. */
static inline uint16_t automaton_at_count(const struct automaton *automaton,
                                          const struct automaton_state *junction, uint16_t count)
{
    const struct automaton_range *ranges = automaton->ranges + junction->ranges;
    uint32_t low = 0, high = junction->range_count - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (ranges[middle].last < count)
            low = middle + 1;
        else
            high = middle;
    }
    return ranges[low].state;
}

/* Goes on from the state `from`, in the same frame, to `to`. */
static inline void automaton_arrive(const struct automaton *automaton, struct automaton_cursor *at,
                                    uint16_t from, uint16_t to)
{
    const struct automaton_state *target = &automaton->states[to];
    bool inside = automaton->states[from].inside;
    if (target->junction) {
        at->count = !inside ? 0 : (uint16_t)(at->count + (at->count < automaton->most_count));
        to = automaton_at_count(automaton, target, at->count);
        ASSERT(to != AUTOMATON_NONE); /* gates are on characters, so none leads to a dead end */
    } else if (inside) {
        at->count = 0;
    }
    at->top = to;
}

static inline void automaton_pop(const struct automaton *automaton,
                                 const struct automaton_frame *pool, struct automaton_cursor *at)
{
    struct automaton_frame caller = pool[at->below];
    uint8_t label = automaton->states[at->top].label;
    at->below = caller.below;
    at->depth--;
    automaton_arrive(automaton, at, caller.state,
                     automaton->return_to[automaton->states[caller.state].returns + label]);
}

/* Takes a byte. Returns false if the byte isn't allowed; *cursor is then unchanged. The pool must
 * have room for pool[cursor->used]. */
static inline bool automaton_step(const struct automaton *automaton, struct automaton_frame *pool,
                                  struct automaton_cursor *cursor, uint8_t byte)
{
    size_t width = automaton->class_count, column = automaton->class_of[byte];
    struct automaton_cursor at = *cursor;
    for (;;) {
        uint16_t from = at.top;
        const struct automaton_state *state = &automaton->states[at.top];
        uint16_t next = automaton->next[at.top * width + column];
        if (next == AUTOMATON_NONE && state->call != AUTOMATON_NONE) {
            next = automaton->next[state->call * width + column];
            if (next != AUTOMATON_NONE) {
                if (at.depth + state->call_need > automaton->max_depth)
                    return false;
                pool[at.used] = (struct automaton_frame){at.top, at.below};
                at.below = at.used++;
                at.depth++;
                from = state->call;
            }
        }
        if (next != AUTOMATON_NONE) {
            automaton_arrive(automaton, &at, from, next);
            break;
        }
        if (state->label == AUTOMATON_NO_LABEL || at.below == AUTOMATON_NONE)
            return false;
        automaton_pop(automaton, pool, &at);
    }
    if (at.depth + automaton->states[at.top].need > automaton->max_depth)
        return false;
    while (automaton->states[at.top].final && at.below != AUTOMATON_NONE)
        automaton_pop(automaton, pool, &at);
    *cursor = at;
    return true;
}

/* Returns whether the text may end here. */
static inline bool automaton_accepts(const struct automaton *automaton,
                                     const struct automaton_frame *pool, struct automaton_cursor at)
{
    while (automaton->states[at.top].label != AUTOMATON_NO_LABEL) {
        if (at.below == AUTOMATON_NONE)
            return true;
        automaton_pop(automaton, pool, &at);
    }
    return false;
}

#endif
