/* A grammar made deterministic: tables of states over classes of bytes, and a stack of states, a
 * frame for each rule that is under way. A state may stand for several rules at once (a unit:
 * alternatives that a schema leaves open): all of them start together and end together, and the
 * label of the end says which of them took the text. So one stack is enough, whatever is ambiguous,
 * and a step is a few table look-ups.
 *
 * Built once (automaton_build), immutable afterwards and shared by threads. Wherever a walk is, it
 * can get to the end: dead ends are trimmed, and a call for which the stack would become too deep
 * isn't taken. */
#ifndef BATON_LANGUAGE_CONSTRAIN_AUTOMATON_H
#define BATON_LANGUAGE_CONSTRAIN_AUTOMATON_H

#include "common/base/status.h"
#include "common/language/constrain/grammar.h"

#define AUTOMATON_NONE       UINT16_MAX
#define AUTOMATON_NO_LABEL   UINT8_MAX
#define AUTOMATON_MAX_STATES 32768
#define AUTOMATON_MAX_CELLS  (8u << 20) /* of the table: states times classes of bytes */
#define AUTOMATON_MAX_LABELS 64         /* of a unit */
#define AUTOMATON_MAX_RULES  64         /* of a unit: alternatives that are open at once */
#define AUTOMATON_MAX_ITEMS  (4u << 20) /* of all states: places in the grammar */
#define AUTOMATON_MAX_DEPTH  66         /* frames: a document 64 deep, a value, a character */
/* Counts of characters from here on are all the same (`plain_all`, `plain_most`). */
#define AUTOMATON_PLAIN_MANY 33

struct automaton_state {
    uint16_t call;     /* start of the unit that may be called here; AUTOMATON_NONE */
    uint8_t label;     /* of what may end here; AUTOMATON_NO_LABEL */
    uint8_t need;      /* frames above this one that are enough to get to the end */
    uint8_t call_need; /* the same, if the call is taken */
    bool final;        /* may end and can't go on */
    /* Plain characters (no control, quote, backslash), in groups (plain_group): any character of
     * these may come, and behind it others of them, plain_all in all, or any number
     * (plain_endless). */
    uint8_t plain_all; /* 0..AUTOMATON_PLAIN_MANY */
    bool plain_endless;
    uint8_t plain_most; /* no more plain characters than so many may come, whichever they are */
    uint64_t plain_groups;
    uint64_t plain_maybe; /* groups of which some character may come */
    /* Any plain characters may come, so many at least (0: not any); and groups of which alone no
     * more than those may come: all but those that a pattern still waits for. */
    uint8_t plain_sure;
    uint64_t plain_dull;
    uint32_t returns; /* in return_to, where call is: a state for each label of the unit */
};

struct automaton {
    uint16_t *next; /* [state * class_count + class] */
    struct automaton_state *states;
    uint16_t *return_to;
    size_t state_count, return_count;
    uint32_t class_count;
    uint32_t max_depth; /* frames below the top */
    uint32_t most_need; /* of all states from which the end is near enough */
    uint16_t start;
    uint8_t class_of[256];
};

/* `root` must take some text (grammar_trim). `max_depth` 1..AUTOMATON_MAX_DEPTH. STATUS_LIMIT where
 * it needs more than the limits above; then *note is that of the rule with the most states. */
enum status automaton_build(const struct grammar *grammar, uint32_t root, uint32_t max_depth,
                            struct automaton *automaton, uint32_t *note,
                            struct error *err) WARN_UNUSED;
void automaton_deinit(struct automaton *automaton); /* all zeros are fine */
size_t automaton_bytes(const struct automaton *automaton);

/* Where a walk is: the top of its stack; the frames below are in a pool that the walk's branches
 * share. */
struct automaton_frame {
    uint16_t state, below; /* below: in the pool; AUTOMATON_NONE */
};
struct automaton_cursor {
    uint16_t top, below;
    uint16_t depth; /* frames below the top */
    uint16_t used;  /* of the pool: a step takes one at most, and later branches write over it */
};

static inline void automaton_pop(const struct automaton *automaton,
                                 const struct automaton_frame *pool, struct automaton_cursor *at)
{
    struct automaton_frame caller = pool[at->below];
    uint8_t label = automaton->states[at->top].label;
    at->top = automaton->return_to[automaton->states[caller.state].returns + label];
    at->below = caller.below;
    at->depth--;
}

/* Takes a byte. False where it isn't allowed; then *cursor is unchanged. pool[cursor->used] must be
 * there. */
static inline bool automaton_step(const struct automaton *automaton, struct automaton_frame *pool,
                                  struct automaton_cursor *cursor, uint8_t byte)
{
    size_t width = automaton->class_count, column = automaton->class_of[byte];
    struct automaton_cursor at = *cursor;
    for (;;) {
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
            }
        }
        if (next != AUTOMATON_NONE) {
            at.top = next;
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

/* Whether the text may end here. */
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
