#include "common/constrain/automaton_plain.h"

#include "common/base/assert.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PLACES 16 /* where a character may lead; with more, nothing is said of the state */

/* A few states, each once. */
struct places {
    uint16_t state[MAX_PLACES];
    uint32_t count;
    bool over;
};

static void add_place(struct places *places, uint16_t state)
{
    for (uint32_t i = 0; i < places->count; i++)
        if (places->state[i] == state)
            return;
    if (places->count == MAX_PLACES)
        places->over = true;
    else
        places->state[places->count++] = state;
}

/* The well-formed sequences of two bytes and more (Unicode 15, table 3-7). */
static const struct sequence {
    uint8_t count, low[4], high[4];
} sequences[] = {
    {2, {0xc2, 0x80}, {0xdf, 0xbf}},
    {3, {0xe0, 0xa0, 0x80}, {0xe0, 0xbf, 0xbf}},
    {3, {0xe1, 0x80, 0x80}, {0xec, 0xbf, 0xbf}},
    {3, {0xed, 0x80, 0x80}, {0xed, 0x9f, 0xbf}},
    {3, {0xee, 0x80, 0x80}, {0xef, 0xbf, 0xbf}},
    {4, {0xf0, 0x90, 0x80, 0x80}, {0xf0, 0xbf, 0xbf, 0xbf}},
    {4, {0xf1, 0x80, 0x80, 0x80}, {0xf3, 0xbf, 0xbf, 0xbf}},
    {4, {0xf4, 0x80, 0x80, 0x80}, {0xf4, 0x8f, 0xbf, 0xbf}},
};

/* Where the bytes low..high lead from these states. False where one of them isn't allowed everywhere; *some where one is. */
static bool take_bytes(const struct automaton *automaton, const struct places *from, uint8_t low,
                       uint8_t high, struct places *to, bool *some)
{
    bool all = true;
    for (uint32_t i = 0; i < from->count; i++)
        for (uint32_t byte = low; byte <= high; byte++) {
            uint16_t next =
                automaton
                    ->next[from->state[i] * automaton->class_count + automaton->class_of[byte]];
            if (next == AUTOMATON_NONE) {
                all = false;
            } else {
                *some = true;
                add_place(to, next);
            }
        }
    return all;
}

/* The states in which a character of several bytes may end, in the unit that starts here. */
struct characters {
    bool all, some;
    struct places ends;
};

static void take_sequence(const struct automaton *automaton, uint16_t start,
                          const struct sequence *sequence, struct characters *out)
{
    struct places at = {.state = {start}, .count = 1};
    for (uint32_t i = 0; i < sequence->count; i++) {
        struct places next = {.count = 0};
        bool some = false;
        bool all = take_bytes(automaton, &at, sequence->low[i], sequence->high[i], &next, &some);
        out->all = out->all && all;
        out->some = out->some || some;
        out->ends.over = out->ends.over || next.over;
        at = next;
    }
    for (uint32_t i = 0; i < at.count; i++)
        add_place(&out->ends, at.state[i]);
}

static struct characters characters_from(const struct automaton *automaton, uint16_t start)
{
    struct characters out = {.all = true};
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences && !out.ends.over; i++)
        take_sequence(automaton, start, &sequences[i], &out);
    for (uint32_t i = 0; i < out.ends.count; i++)
        out.all = out.all && automaton->states[out.ends.state[i]].label != AUTOMATON_NO_LABEL;
    out.all = out.all && !out.ends.over;
    return out;
}

/* Characters of several bytes, which are always called: what they lead to, from `state`. */
static void add_called(const struct automaton *automaton, const struct automaton_state *state,
                       const struct characters *characters, struct places *places)
{
    for (uint32_t i = 0; i < characters->ends.count; i++) {
        uint8_t label = automaton->states[characters->ends.state[i]].label;
        if (label != AUTOMATON_NO_LABEL)
            add_place(places, automaton->return_to[state->returns + label]);
    }
}

/* Where one plain character leads from the state. `all`: any does; `some`: at least one. */
struct plain_step {
    struct places places;
    bool all, some;
};

static struct plain_step step_from(const struct automaton *automaton, uint32_t i,
                                   const struct characters *known)
{
    struct plain_step step = {.all = true};
    const struct automaton_state *state = &automaton->states[i];
    const uint16_t *row = automaton->next + (size_t)i * automaton->class_count;
    for (uint32_t byte = 0x20; byte < 0x80; byte++) {
        uint16_t next = row[automaton->class_of[byte]];
        if (!plain_byte((uint8_t)byte))
            continue;
        step.all = step.all && next != AUTOMATON_NONE;
        if (next == AUTOMATON_NONE)
            continue;
        step.some = true;
        add_place(&step.places, next);
    }
    if (state->call == AUTOMATON_NONE) {
        step.all = false;
        return step;
    }
    /* A call may also take ASCII: a JSON value. */
    const struct characters *characters = &known[state->call];
    step.all = step.all && characters->all;
    step.some = true;
    add_called(automaton, state, characters, &step.places);
    return step;
}

static uint8_t one_more(uint8_t count)
{
    return count < AUTOMATON_PLAIN_MANY ? (uint8_t)(count + 1) : count;
}

/* Down from "many" to the greatest fixed point for plain_all, up from none to the least for plain_most. */
static bool improve(struct automaton *automaton, uint32_t i, const struct plain_step *step)
{
    uint8_t all = AUTOMATON_PLAIN_MANY, most = 0;
    bool endless = true;
    for (uint32_t p = 0; p < step->places.count; p++) {
        const struct automaton_state *next = &automaton->states[step->places.state[p]];
        all = next->plain_all < all ? next->plain_all : all;
        most = next->plain_most > most ? next->plain_most : most;
        endless = endless && next->plain_endless;
    }
    struct automaton_state *state = &automaton->states[i];
    all = one_more(all);
    most = one_more(most);
    bool changed =
        all < state->plain_all || most > state->plain_most || (state->plain_endless && !endless);
    state->plain_endless = endless;
    state->plain_all = all < state->plain_all ? all : state->plain_all;
    state->plain_most = most > state->plain_most ? most : state->plain_most;
    return changed;
}

void automaton_find_plain(struct automaton *automaton)
{
    size_t count = automaton->state_count;
    struct characters *known = calloc(count + 1, sizeof *known);
    struct plain_step *steps = calloc(count + 1, sizeof *steps);
    uint32_t *open = calloc(count + 1, sizeof *open);
    size_t open_count = 0;
    ASSERT(known && steps && open);
    for (size_t i = 0; i < count; i++) {
        uint16_t call = automaton->states[i].call;
        if (call != AUTOMATON_NONE && !known[call].some)
            known[call] = characters_from(automaton, call);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct automaton_state *state = &automaton->states[i];
        steps[i] = step_from(automaton, i, known);
        bool sure = steps[i].all && !steps[i].places.over;
        state->plain_endless = sure;
        state->plain_all = sure ? AUTOMATON_PLAIN_MANY : 0;
        state->plain_most = sure || !steps[i].some ? 0 : AUTOMATON_PLAIN_MANY;
        if (sure)
            open[open_count++] = i;
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t k = open_count; k-- > 0;)
            changed |= improve(automaton, open[k], &steps[open[k]]);
    }
    free(known);
    free(steps);
    free(open);
}
