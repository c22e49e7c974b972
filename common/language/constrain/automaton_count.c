/* Finds the strings of an automaton that count their characters, and the classes of their
 * counts. */
#include "common/language/constrain/automaton.h"

/* Strings are found as sets of states that lead to each other: union and find. */
static uint16_t root_of(uint16_t *parents, uint16_t state)
{
    while (parents[state] != state)
        state = parents[state] = parents[parents[state]];
    return state;
}

static void join(const struct automaton *automaton, uint16_t *parents, uint16_t a, uint16_t b)
{
    if (b == AUTOMATON_NONE || !(automaton->states[b].junction || automaton->states[b].inside))
        return;
    uint16_t left = root_of(parents, a), right = root_of(parents, b);
    parents[left > right ? left : right] = left < right ? left : right;
}

static void join_neighbours(const struct automaton *automaton, uint16_t *parents, uint16_t i)
{
    const struct automaton_state *state = &automaton->states[i];
    const uint16_t *row = automaton->next + (size_t)i * automaton->class_count;
    for (uint32_t r = 0; r < state->range_count; r++)
        join(automaton, parents, i, automaton->ranges[state->ranges + r].state);
    for (uint32_t c = 0; c < automaton->class_count && state->inside; c++)
        join(automaton, parents, i, row[c]);
    for (uint32_t label = 0; label < state->label_count && state->inside; label++)
        join(automaton, parents, i, automaton->return_to[state->returns + label]);
}

/* Numbers the strings. */
static void number_strings(struct automaton *automaton)
{
    size_t count = automaton->state_count;
    uint16_t *parents = malloc((count + 1) * sizeof *parents);
    ASSERT(parents);
    for (size_t i = 0; i < count; i++)
        parents[i] = (uint16_t)i;
    for (size_t i = 0; i < count; i++)
        join_neighbours(automaton, parents, (uint16_t)i);
    for (size_t i = 0; i < count; i++) {
        struct automaton_state *state = &automaton->states[i];
        if (!state->junction && !state->inside)
            continue;
        uint16_t root = root_of(parents, (uint16_t)i); /* not above i */
        state->string =
            root == i ? (uint16_t)automaton->string_count++ : automaton->states[root].string;
    }
    free(parents);
}

static int ascending(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* Sets `strings` and `bounds`: where a range of some junction of the string begins. */
static void find_bounds(struct automaton *automaton)
{
    size_t count = 0, most = automaton->string_count + automaton->range_count;
    uint32_t *found = calloc(most + 1, sizeof *found); /* string, then bound */
    automaton->strings = calloc(automaton->string_count + 1, sizeof *automaton->strings);
    automaton->bounds = calloc(most + 1, sizeof *automaton->bounds);
    ASSERT(found && automaton->strings && automaton->bounds);
    for (uint32_t string = 0; string < automaton->string_count; string++)
        found[count++] = string << 16;
    for (size_t i = 0; i < automaton->state_count; i++) {
        const struct automaton_state *state = &automaton->states[i];
        for (uint32_t r = 0; r + 1 < state->range_count; r++)
            found[count++] = (uint32_t)state->string << 16 |
                             (uint32_t)(automaton->ranges[state->ranges + r].last + 1);
    }
    if (count)
        qsort(found, count, sizeof *found, ascending);
    for (size_t i = 0; i < count; i++) {
        struct automaton_string *string = &automaton->strings[found[i] >> 16];
        if (i && found[i] == found[i - 1])
            continue;
        if (!string->bound_count++)
            string->bounds = (uint32_t)automaton->bound_count;
        automaton->bounds[automaton->bound_count++] = (uint16_t)found[i];
    }
    free(found);
}

struct automaton_class automaton_class_of(const struct automaton *automaton, uint16_t string,
                                          uint16_t count)
{
    const struct automaton_string *of = &automaton->strings[string];
    const uint16_t *bounds = automaton->bounds + of->bounds;
    uint32_t low = 0, high = of->bound_count;
    while (low + 1 < high) {
        uint32_t middle = (low + high) / 2;
        if (bounds[middle] <= count)
            low = middle;
        else
            high = middle;
    }
    bool last = low + 1 == of->bound_count;
    return (struct automaton_class){bounds[low], last ? UINT16_MAX : bounds[low + 1] - 1};
}

/* Gives the states of a junction their homes: the longest class in which some junction stands for
 * the state. */
static bool find_homes(struct automaton *automaton, const struct automaton_state *junction,
                       struct compile_steps *steps)
{
    uint16_t first = 0;
    for (uint32_t r = 0; r < junction->range_count; r++) {
        struct automaton_range range = automaton->ranges[junction->ranges + r];
        for (uint32_t at = first; range.state != AUTOMATON_NONE && at <= range.last;) {
            struct automaton_class class =
                automaton_class_of(automaton, junction->string, (uint16_t)at);
            struct automaton_state *state = &automaton->states[range.state];
            if (state->inside &&
                class.last - class.first > (int)state->home_last - (int)state->home_first) {
                state->home_first = class.first;
                state->home_last = class.last;
            }
            at = class.last + 1u;
            if (!compile_steps_take(steps, 4))
                return false;
        }
        first = (uint16_t)(range.last + 1);
    }
    return true;
}

bool automaton_find_strings(struct automaton *automaton, struct compile_steps *steps)
{
    if (!automaton->range_count)
        return true;
    number_strings(automaton);
    find_bounds(automaton);
    bool within = compile_steps_take(steps, automaton->state_count * automaton->class_count +
                                                8 * automaton->bound_count);
    for (size_t i = 0; i < automaton->state_count; i++)
        if (automaton->states[i].inside) {
            automaton->states[i].home_first = 1; /* no home yet */
            automaton->states[i].home_last = 0;
        }
    for (size_t i = 0; i < automaton->state_count && within; i++)
        within = find_homes(automaton, &automaton->states[i], steps);
    return within;
}
