/* Finds how many frames each state of an automaton needs to get to the end. */
#include "common/language/constrain/automaton.h"

#include <string.h>

/* Returns the frames that are enough for the call of state i, whatever label it ends with, if the
 * way through is chosen well. */
static uint8_t need_of_call(const struct automaton *automaton, size_t i)
{
    const struct automaton_state *state = &automaton->states[i];
    uint32_t labels = state->label_count;
    uint8_t start = automaton->states[state->call].need;
    if (start >= AUTOMATON_NEVER - 1 || !labels)
        return AUTOMATON_NEVER;
    uint8_t need = (uint8_t)(start + 1);
    for (uint32_t label = 0; label < labels; label++) {
        uint8_t behind = automaton->states[automaton->return_to[state->returns + label]].need;
        need = behind > need ? behind : need;
    }
    return need;
}

static uint8_t larger(uint8_t a, uint8_t b)
{
    return a > b ? a : b;
}

/* Finds frames that are enough for each string that counts. From each of its states bytes lead on,
 * if `needs` is to be 0, until no more characters may come: then the string can end. */
static void find_string_needs(const struct automaton *automaton, struct compile_steps *steps,
                              uint8_t *needs)
{
    memset(needs, 0, automaton->string_count);
    for (size_t i = 0; i < automaton->state_count; i++) {
        const struct automaton_state *state = &automaton->states[i];
        const uint16_t *row = automaton->next + i * automaton->class_count;
        uint8_t *need = &needs[state->string], called = AUTOMATON_NEVER;
        bool byte = false;
        if (!state->inside || state->need != AUTOMATON_NEVER)
            continue;
        steps->taken += automaton->class_count;
        for (uint32_t c = 0; c < automaton->class_count; c++) {
            byte = byte || row[c] != AUTOMATON_NONE;
            if (row[c] != AUTOMATON_NONE && !automaton->states[row[c]].junction)
                *need = larger(*need, automaton->states[row[c]].need);
        }
        for (uint32_t label = 0; label < state->label_count; label++) {
            uint16_t behind = automaton->return_to[state->returns + label];
            if (!automaton->states[behind].junction)
                *need = larger(*need, automaton->states[behind].need);
        }
        if (state->call != AUTOMATON_NONE &&
            automaton->states[state->call].need < AUTOMATON_NEVER - 1)
            called = (uint8_t)(automaton->states[state->call].need + 1);
        if (!byte)
            *need = larger(*need, called);
    }
}

/* A search for the states that get to the end with `frames` frames. */
struct needing {
    struct automaton *automaton;
    uint8_t frames;
    uint8_t *needs; /* by string */
    bool *called;   /* by state: it is among them by a call only */
    bool *barred;   /* by state: it isn't among them, so no call may end there */
    struct compile_steps *steps;
};

/* Returns whether state i gets to the end, if those with a `need` up to `frames` do: by a byte, or
 * by a call with some text that leads on. The call may end with other labels, too, and then the
 * state behind isn't barred. */
static bool gets_to_end(struct needing *n, size_t i)
{
    const struct automaton *automaton = n->automaton;
    const struct automaton_state *state = &automaton->states[i];
    const uint16_t *row = automaton->next + i * automaton->class_count;
    if (state->inside || state->junction)
        return n->needs[state->string] <= n->frames;
    if (state->label != AUTOMATON_NO_LABEL)
        return true;
    n->steps->taken += automaton->class_count;
    for (uint32_t c = 0; c < automaton->class_count; c++)
        if (row[c] != AUTOMATON_NONE && automaton->states[row[c]].need <= n->frames)
            return true;
    if (state->call == AUTOMATON_NONE || automaton->states[state->call].need >= n->frames)
        return false;
    bool some = false;
    for (uint32_t label = 0; label < state->label_count; label++) {
        uint16_t behind = automaton->return_to[state->returns + label];
        if (n->barred[behind])
            return false;
        some = some || automaton->states[behind].need <= n->frames;
    }
    n->called[i] = some;
    return some;
}

/* Gives `need` to the states that get to the end with `frames` frames and not with fewer. Returns
 * whether there is one. States mostly lead to later states, so going from the last to the first
 * takes few rounds. */
static bool find_reached(struct needing *n)
{
    struct automaton *automaton = n->automaton;
    bool any = false;
    memset(n->called, 0, automaton->state_count * sizeof *n->called);
    for (bool changed = true; changed && !compile_steps_over(n->steps);) {
        changed = false;
        if (automaton->string_count)
            find_string_needs(automaton, n->steps, n->needs);
        for (size_t i = automaton->state_count; i-- > 0;) {
            if (automaton->states[i].need != AUTOMATON_NEVER || !gets_to_end(n, i))
                continue;
            automaton->states[i].need = n->frames;
            changed = any = true;
        }
    }
    return any;
}

/* Bars the states that a call would lead to although they don't get to the end with so few frames,
 * and takes `need` back from all that were found. Returns whether there was one. */
static bool bar_dead_ends(struct needing *n)
{
    struct automaton *automaton = n->automaton;
    bool any = false;
    for (size_t i = 0; i < automaton->state_count; i++) {
        const struct automaton_state *state = &automaton->states[i];
        for (uint32_t label = 0; n->called[i] && label < state->label_count; label++) {
            uint16_t behind = automaton->return_to[state->returns + label];
            bool dead = automaton->states[behind].need > n->frames;
            n->barred[behind] = n->barred[behind] || dead;
            any = any || dead;
        }
    }
    for (size_t i = 0; i < automaton->state_count && any; i++)
        if (automaton->states[i].need == n->frames)
            automaton->states[i].need = AUTOMATON_NEVER;
    return any;
}

/* By 0, 1, 2, ... frames, until no state is left that gets to the end with one more. */
bool automaton_find_needs(struct automaton *automaton, struct compile_steps *steps)
{
    struct needing n = {.automaton = automaton,
                        .needs = calloc(automaton->string_count + 1, sizeof *n.needs),
                        .called = calloc(automaton->state_count + 1, sizeof *n.called),
                        .barred = calloc(automaton->state_count + 1, sizeof *n.barred),
                        .steps = steps};
    ASSERT(n.needs && n.called && n.barred);
    for (size_t i = 0; i < automaton->state_count; i++)
        automaton->states[i].need = automaton->states[i].call_need = AUTOMATON_NEVER;
    bool within = true;
    for (bool more = true; more && n.frames < AUTOMATON_MAX_DEPTH; n.frames++) {
        memset(n.barred, 0, automaton->state_count * sizeof *n.barred);
        do {
            more = find_reached(&n);
            within = compile_steps_take(steps, automaton->state_count);
        } while (within && bar_dead_ends(&n));
        more = more && within;
    }
    for (size_t i = 0; i < automaton->state_count; i++)
        if (automaton->states[i].call != AUTOMATON_NONE)
            automaton->states[i].call_need = need_of_call(automaton, i);
    free(n.needs);
    free(n.called);
    free(n.barred);
    return within;
}
