/* Finds the plain characters that each state of an automaton takes: the plain_* fields. */
#include "common/language/constrain/automaton.h"

#define MAX_PLACES 16 /* states that a character may lead to; with more, no groups are set */

/* A few states without repeats. */
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

/* Well-formed sequences of two bytes and more (Unicode 15, table 3-7). */
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

/* Adds to `to` the states that the bytes low..high lead to. Returns false if some byte isn't
 * allowed in some state. Sets *some if a byte is allowed anywhere. */
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

/* States in which a character of several bytes may end, in the unit that starts at `start`. `all`:
 * every such character is taken; `some`: at least one byte is. */
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

/* Returns the state that a character from `state` to `to` leads to, as long as the count stays in
 * the state's home. AUTOMATON_NONE: another class is at home there. */
static uint16_t landing(const struct automaton *automaton, const struct automaton_state *state,
                        uint16_t to)
{
    if (to == AUTOMATON_NONE || !automaton->states[to].junction)
        return to;
    uint16_t found = automaton_at_count(automaton, &automaton->states[to], state->home_first);
    if (!state->inside || found == AUTOMATON_NONE)
        return AUTOMATON_NONE;
    const struct automaton_state *behind = &automaton->states[found];
    bool same_home = !behind->inside || behind->home_first == state->home_first;
    return same_home ? found : AUTOMATON_NONE;
}

/* Adds the states that characters of several bytes lead to from `state`. Such characters are always
 * called. */
static void add_called(const struct automaton *automaton, const struct automaton_state *state,
                       const struct characters *characters, struct places *places)
{
    for (uint32_t i = 0; i < characters->ends.count; i++) {
        uint8_t label = automaton->states[characters->ends.state[i]].label;
        if (label != AUTOMATON_NO_LABEL)
            add_place(places,
                      landing(automaton, state, automaton->return_to[state->returns + label]));
    }
}

/* One plain character from a state. A group is in `groups` only if each of its characters leads
 * somewhere; `places` are the states that these characters lead to (landing), AUTOMATON_NONE among
 * them: nothing is known of what follows. */
struct plain_step {
    uint64_t groups;
    struct places places;
    bool some; /* at least one character of any group leads somewhere */
};

static bool in_groups(uint64_t groups, uint32_t byte)
{
    return plain_byte((uint8_t)byte) && groups >> plain_group((uint8_t)byte) & 1;
}

static struct plain_step step_from(const struct automaton *automaton, uint32_t i,
                                   const struct characters *known)
{
    struct plain_step step = {.groups = PLAIN_GROUPS};
    const struct automaton_state *state = &automaton->states[i];
    const uint16_t *row = automaton->next + (size_t)i * automaton->class_count;
    const struct characters *called = state->call == AUTOMATON_NONE ? NULL : &known[state->call];
    step.some = called != NULL; /* the called unit may also take ASCII: a JSON value */
    if (!called || !called->all)
        step.groups &= ~(1ull << PLAIN_GROUP_LONG);
    for (uint32_t byte = 0x20; byte < 0x80; byte++) {
        bool leads = row[automaton->class_of[byte]] != AUTOMATON_NONE;
        if (!plain_byte((uint8_t)byte))
            continue;
        step.some = step.some || leads;
        if (!leads)
            step.groups &= ~(1ull << plain_group((uint8_t)byte));
    }
    for (uint32_t byte = 0x20; byte < 0x80; byte++)
        if (in_groups(step.groups, byte))
            add_place(&step.places, landing(automaton, state, row[automaton->class_of[byte]]));
    if (step.groups >> PLAIN_GROUP_LONG & 1)
        add_called(automaton, state, called, &step.places);
    if (step.places.over)
        step.groups = 0;
    return step;
}

/* Returns the groups of the bytes that the state takes itself. */
static uint64_t groups_of_row(const struct automaton *automaton, uint32_t i)
{
    const uint16_t *row = automaton->next + (size_t)i * automaton->class_count;
    uint64_t groups = 0;
    for (uint32_t byte = 0x20; byte < 256; byte++)
        if (plain_byte((uint8_t)byte) && row[automaton->class_of[byte]] != AUTOMATON_NONE)
            groups |= 1ull << plain_group((uint8_t)byte);
    return groups;
}

static uint8_t one_more(uint8_t count)
{
    return count < AUTOMATON_PLAIN_MANY ? (uint8_t)(count + 1) : count;
}

/* Takes state i one round nearer to the fixed points: plain_all from AUTOMATON_PLAIN_MANY down to
 * the greatest, plain_most from 0 up to the least. Returns whether the state changed. */
static bool improve(struct automaton *automaton, uint32_t i, const struct plain_step *step)
{
    uint8_t all = AUTOMATON_PLAIN_MANY, most = 0;
    bool endless = true;
    struct automaton_state *state = &automaton->states[i];
    for (uint32_t p = 0; p < step->places.count; p++) {
        static const struct automaton_state unknown = {.plain_most = AUTOMATON_PLAIN_MANY};
        uint16_t place = step->places.state[p];
        const struct automaton_state *next =
            place == AUTOMATON_NONE ? &unknown : &automaton->states[place];
        bool same = !(state->plain_groups & ~next->plain_groups);
        uint8_t behind = same ? next->plain_all : 0;
        all = behind < all ? behind : all;
        most = next->plain_most > most ? next->plain_most : most;
        endless = endless && same && next->plain_endless;
    }
    all = one_more(all);
    most = one_more(most);
    bool changed =
        all < state->plain_all || most > state->plain_most || (state->plain_endless && !endless);
    state->plain_endless = endless;
    state->plain_all = all < state->plain_all ? all : state->plain_all;
    state->plain_most = most > state->plain_most ? most : state->plain_most;
    return changed;
}

/* Returns the groups with all characters leading from state i to `to`. */
static uint64_t groups_to(const struct automaton *automaton, uint32_t i,
                          const struct plain_step *step, const struct characters *known,
                          uint16_t to)
{
    const struct automaton_state *state = &automaton->states[i];
    const uint16_t *row = automaton->next + (size_t)i * automaton->class_count;
    uint64_t groups = step->groups;
    for (uint32_t byte = 0x20; byte < 0x80; byte++)
        if (in_groups(step->groups, byte) &&
            landing(automaton, state, row[automaton->class_of[byte]]) != to)
            groups &= ~(1ull << plain_group((uint8_t)byte));
    if (groups >> PLAIN_GROUP_LONG & 1) {
        struct places places = {.count = 0};
        add_called(automaton, state, &known[state->call], &places);
        if (places.count != 1 || places.state[0] != to)
            groups &= ~(1ull << PLAIN_GROUP_LONG);
    }
    return groups;
}

/* Returns plain_dull of state i, once the states with a smaller plain_sure have theirs. Takes the
 * place after one character with the most dull groups. */
static uint64_t dull_groups(const struct automaton *automaton, uint32_t i,
                            const struct plain_step *step, const struct characters *known)
{
    const struct automaton_state *state = &automaton->states[i];
    uint64_t dead = PLAIN_GROUPS & ~state->plain_maybe, dull = dead;
    if (state->plain_sure == 0)
        return dead;
    for (uint32_t p = 0; p < step->places.count; p++) {
        uint16_t to = step->places.state[p];
        if (to == AUTOMATON_NONE)
            continue;
        const struct automaton_state *next = &automaton->states[to];
        if (next->plain_sure + 1u != state->plain_sure)
            continue;
        uint64_t groups = (dead | groups_to(automaton, i, step, known, to)) & next->plain_dull;
        if (__builtin_popcountll(groups) > __builtin_popcountll(dull))
            dull = groups;
    }
    return dull;
}

static void find_dull(struct automaton *automaton, const struct plain_step *steps,
                      const struct characters *known)
{
    for (uint32_t i = 0; i < automaton->state_count; i++) {
        struct automaton_state *state = &automaton->states[i];
        state->plain_dull = PLAIN_GROUPS & ~state->plain_maybe;
        state->plain_sure = state->plain_groups == PLAIN_GROUPS ? state->plain_all : 0;
    }
    for (uint8_t sure = 1; sure < AUTOMATON_PLAIN_MANY; sure++)
        for (uint32_t i = 0; i < automaton->state_count; i++)
            if (automaton->states[i].plain_sure == sure)
                automaton->states[i].plain_dull = dull_groups(automaton, i, &steps[i], known);
}

/* Sets `home_closes`: no junction of the string stands for a state that takes plain characters at
 * counts above home_last. */
static void find_closing(struct automaton *automaton)
{
    uint32_t *last = calloc(automaton->string_count + 1, sizeof *last);
    ASSERT(last);
    for (size_t i = 0; i < automaton->state_count; i++) {
        const struct automaton_state *junction = &automaton->states[i];
        for (uint32_t r = 0; r < junction->range_count; r++) {
            struct automaton_range range = automaton->ranges[junction->ranges + r];
            if (range.state != AUTOMATON_NONE && automaton->states[range.state].plain_maybe &&
                range.last > last[junction->string])
                last[junction->string] = range.last;
        }
    }
    for (size_t i = 0; i < automaton->state_count; i++)
        if (automaton->states[i].inside)
            automaton->states[i].home_closes =
                automaton->states[i].home_last >= last[automaton->states[i].string];
    free(last);
}

bool automaton_find_plain(struct automaton *automaton, struct compile_steps *steps_taken)
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
        bool takes = steps[i].groups != 0;
        state->plain_groups = steps[i].groups;
        state->plain_maybe = groups_of_row(automaton, i);
        if (state->call != AUTOMATON_NONE)
            state->plain_maybe |= groups_of_row(automaton, state->call);
        if (state->label != AUTOMATON_NO_LABEL)
            state->plain_maybe = PLAIN_GROUPS; /* behind the end the caller may take any of them */
        state->plain_endless = takes;
        state->plain_all = takes ? AUTOMATON_PLAIN_MANY : 0;
        state->plain_most =
            steps[i].groups == PLAIN_GROUPS || !steps[i].some ? 0 : AUTOMATON_PLAIN_MANY;
        if (takes)
            open[open_count++] = i;
    }
    /* Looking at a state takes about so many steps: bytes and sequences. */
    bool within = compile_steps_take(steps_taken, (uint64_t)count * 256);
    for (bool changed = within; changed && within;) {
        changed = false;
        for (size_t k = open_count; k-- > 0;)
            changed |= improve(automaton, open[k], &steps[open[k]]);
        within = compile_steps_take(steps_taken, 4 * (uint64_t)open_count);
    }
    find_dull(automaton, steps, known);
    find_closing(automaton);
    free(known);
    free(steps);
    free(open);
    return within;
}
