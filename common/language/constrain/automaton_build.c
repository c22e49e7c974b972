#include "common/language/constrain/automaton.h"
#include "common/language/constrain/automaton_plain.h"
#include "common/language/constrain/automaton_states.h"
#include "common/language/constrain/grow.h"

#include <string.h>

#define NEED_NEVER UINT8_MAX

void automaton_deinit(struct automaton *automaton)
{
    free(automaton->next);
    free(automaton->states);
    free(automaton->return_to);
    *automaton = (struct automaton){0};
}

size_t automaton_bytes(const struct automaton *automaton)
{
    return automaton->state_count *
               (automaton->class_count * sizeof *automaton->next + sizeof *automaton->states) +
           automaton->return_count * sizeof *automaton->return_to;
}

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    ASSERT(memory);
    return memory;
}

static void lay_out_states(struct subsets *s)
{
    struct automaton *automaton = s->automaton;
    automaton->state_count = s->subset_count;
    automaton->states = take(s->subset_count, sizeof *automaton->states);
    for (size_t i = 0; i < s->subset_count; i++) {
        const struct subset *subset = &s->subsets[i];
        struct automaton_state *state = &automaton->states[i];
        *state = (struct automaton_state){.call = AUTOMATON_NONE, .label = subset->label};
        if (subset->call_unit == AUTOMATON_NONE)
            continue;
        state->call = s->units[subset->call_unit].start;
        state->returns = (uint32_t)automaton->return_count;
        automaton->return_count += s->units[subset->call_unit].label_count;
    }
    automaton->return_to = take(automaton->return_count, sizeof *automaton->return_to);
    memset(automaton->return_to, 0xff, automaton->return_count * sizeof *automaton->return_to);
    for (size_t i = 0; i < s->return_count; i++) {
        struct return_edge edge = s->returns[i];
        automaton->return_to[automaton->states[edge.from].returns + edge.label] = edge.to;
    }
    automaton->start = s->units[0].start;
}

static void find_final(struct automaton *automaton)
{
    for (size_t i = 0; i < automaton->state_count; i++) {
        struct automaton_state *state = &automaton->states[i];
        const uint16_t *row = automaton->next + i * automaton->class_count;
        bool goes_on = state->call != AUTOMATON_NONE;
        for (uint32_t c = 0; c < automaton->class_count; c++)
            goes_on = goes_on || row[c] != AUTOMATON_NONE;
        state->final = !goes_on && state->label != AUTOMATON_NO_LABEL;
    }
}

/* Frames that the call takes at most, if the way through it is chosen well, and whatever label it
 * ends with. */
static uint8_t need_of_call(const struct subsets *s, uint32_t i)
{
    const struct automaton *automaton = s->automaton;
    const struct automaton_state *state = &automaton->states[i];
    uint32_t labels = s->units[s->subsets[i].call_unit].label_count;
    uint8_t start = automaton->states[state->call].need;
    if (start >= NEED_NEVER - 1 || !labels)
        return NEED_NEVER;
    uint8_t need = (uint8_t)(start + 1);
    for (uint32_t label = 0; label < labels; label++) {
        uint8_t behind = automaton->states[automaton->return_to[state->returns + label]].need;
        need = behind > need ? behind : need;
    }
    return need;
}

static uint8_t need_of(const struct automaton *automaton, size_t i)
{
    const struct automaton_state *state = &automaton->states[i];
    const uint16_t *row = automaton->next + i * automaton->class_count;
    uint8_t need = state->call == AUTOMATON_NONE ? NEED_NEVER : state->call_need;
    if (state->label != AUTOMATON_NO_LABEL)
        return 0;
    for (uint32_t c = 0; c < automaton->class_count && need; c++)
        if (row[c] != AUTOMATON_NONE && automaton->states[row[c]].need < need)
            need = automaton->states[row[c]].need;
    return need;
}

/* The least fixed point. States mostly lead to later ones: from the last to the first, few rounds
 * do. */
static bool find_needs(struct subsets *s)
{
    struct automaton *automaton = s->automaton;
    for (size_t i = 0; i < automaton->state_count; i++)
        automaton->states[i].need = automaton->states[i].call_need = NEED_NEVER;
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = automaton->state_count; i-- > 0;) {
            struct automaton_state *state = &automaton->states[i];
            if (state->call != AUTOMATON_NONE)
                state->call_need = need_of_call(s, (uint32_t)i);
            uint8_t need = need_of(automaton, i);
            changed = changed || need < state->need;
            state->need = need;
        }
        if (!compile_steps_take(s->grammar->steps,
                                (uint64_t)automaton->state_count * automaton->class_count)) {
            s->over = "steps";
            return false;
        }
    }
    return true;
}

static void find_most_need(struct automaton *automaton)
{
    for (size_t i = 0; i < automaton->state_count; i++) {
        const struct automaton_state *state = &automaton->states[i];
        uint8_t need = state->call == AUTOMATON_NONE ? state->need : state->call_need;
        if (need != NEED_NEVER && need > automaton->most_need)
            automaton->most_need = need;
    }
}

/* The note of the rule whose unit has the most states: most likely what makes it too large. */
static uint32_t largest_rule(const struct subsets *s)
{
    size_t *counts = take(s->unit_count, sizeof *counts), best = 0;
    for (size_t i = 0; i < s->subset_count; i++)
        counts[s->subsets[i].unit]++;
    for (size_t u = 0; u < s->unit_count; u++)
        best = counts[u] > counts[best] ? u : best;
    free(counts);
    return s->grammar->rules[s->units[best].rules[0]].note;
}

enum status automaton_build(const struct grammar *grammar, uint32_t root, uint32_t max_depth,
                            struct automaton *automaton, uint32_t *note, struct error *err)
{
    ASSERT(max_depth >= 1 && max_depth <= AUTOMATON_MAX_DEPTH);
    struct subsets s = {.grammar = grammar, .automaton = automaton};
    *automaton = (struct automaton){.max_depth = max_depth};
    enum status status = STATUS_OK;
    bool built = subsets_build(&s, root);
    if (built) {
        lay_out_states(&s);
        find_final(automaton);
        built = find_needs(&s);
    }
    if (built && !automaton_find_plain(automaton, grammar->steps)) {
        s.over = "steps";
        built = false;
    }
    if (!built) {
        *note = largest_rule(&s);
        status = error_set(err, STATUS_LIMIT, "the automaton needs too many %s", s.over);
    } else if (automaton->states[automaton->start].need > max_depth) {
        *note = grammar->rules[root].note;
        status = error_set(err, STATUS_LIMIT, "it can't be met within a depth of %u", max_depth);
    } else {
        find_most_need(automaton);
    }
    subsets_deinit(&s);
    if (status != STATUS_OK)
        automaton_deinit(automaton);
    return status;
}
