#include "common/language/constrain/automaton_states.h"

#include "common/base/str.h"
#include "common/language/constrain/grow.h"

#include <string.h>

#define SLOTS (1u << 17) /* power of two, at least twice the states */

static bool over(struct subsets *s, const char *what)
{
    if (!s->over)
        s->over = what;
    return false;
}

static int ascending(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static void collect(struct subsets *s, uint32_t state)
{
    if (s->stamp[state] == s->now)
        return;
    s->stamp[state] = s->now;
    s->set = grow(s->set, s->set_count, &s->set_capacity, sizeof *s->set);
    s->set[s->set_count++] = state;
}

static bool is_end(const struct grammar *grammar, uint32_t state)
{
    return grammar->rules[grammar->states[state].rule].end == state;
}

/* From the states collected, by jumps, to all that they stand for; of these only the places that
 * take something or end. */
static void close_set(struct subsets *s)
{
    const struct grammar *grammar = s->grammar;
    size_t kept = 0;
    for (size_t i = 0; i < s->set_count; i++) {
        uint32_t state = s->set[i];
        bool matters = is_end(grammar, state);
        for (uint32_t e = grammar->states[state].first; e != GRAMMAR_NONE;
             e = grammar->edges[e].next) {
            s->grammar->steps->taken++;
            if (grammar->edges[e].kind == EDGE_JUMP)
                collect(s, grammar->edges[e].target);
            else if (grammar->edges[e].kind != EDGE_DEAD)
                matters = true;
        }
        if (matters)
            s->set[kept++] = state;
    }
    s->set_count = kept;
    if (kept)
        qsort(s->set, kept, sizeof *s->set, ascending);
}

static void begin_set(struct subsets *s)
{
    s->now++;
    s->set_count = 0;
}

static bool add_row(struct subsets *s)
{
    struct automaton *automaton = s->automaton;
    size_t width = automaton->class_count;
    if (s->subset_count == AUTOMATON_MAX_STATES ||
        (s->subset_count + 1) * width > AUTOMATON_MAX_CELLS)
        return over(s, "states");
    if (s->subset_count == s->next_capacity) {
        s->next_capacity = s->next_capacity ? 2 * s->next_capacity : 64;
        automaton->next =
            realloc(automaton->next, s->next_capacity * width * sizeof *automaton->next);
        ASSERT(automaton->next);
    }
    memset(automaton->next + s->subset_count * width, 0xff, width * sizeof *automaton->next);
    return true;
}

/* The state of the set collected, which close_set has been over; AUTOMATON_NONE for the empty one,
 * or at a limit. */
static uint16_t state_of_set(struct subsets *s, uint32_t unit)
{
    if (!s->set_count)
        return AUTOMATON_NONE;
    uint64_t hash = hash_bytes(s->set, s->set_count * sizeof *s->set, HASH_SEED ^ unit);
    uint32_t *slot = &s->slots[(hash ^ (hash >> 32)) & (SLOTS - 1)];
    for (uint32_t at = *slot; at; at = s->subsets[at - 1].next) {
        const struct subset *known = &s->subsets[at - 1];
        if (known->unit == unit && known->count == s->set_count &&
            !memcmp(s->items + known->first, s->set, s->set_count * sizeof *s->set))
            return (uint16_t)(at - 1);
    }
    if (s->item_count + s->set_count > AUTOMATON_MAX_ITEMS) {
        over(s, "places");
        return AUTOMATON_NONE;
    }
    if (!add_row(s))
        return AUTOMATON_NONE;
    s->subsets = grow(s->subsets, s->subset_count, &s->subset_capacity, sizeof *s->subsets);
    s->subsets[s->subset_count] = (struct subset){.first = (uint32_t)s->item_count,
                                                  .count = (uint32_t)s->set_count,
                                                  .unit = unit,
                                                  .next = *slot,
                                                  .call_unit = AUTOMATON_NONE,
                                                  .label = AUTOMATON_NO_LABEL};
    for (size_t i = 0; i < s->set_count; i++) {
        s->items = grow(s->items, s->item_count, &s->item_capacity, sizeof *s->items);
        s->items[s->item_count++] = s->set[i];
    }
    *slot = (uint32_t)++s->subset_count;
    return (uint16_t)(s->subset_count - 1);
}

/* The unit of these rules, which are ascending and not none. */
static uint32_t unit_of(struct subsets *s, const uint32_t *rules, uint32_t count)
{
    if (count == 1 && s->alone[rules[0]])
        return s->alone[rules[0]] - 1;
    for (uint32_t u = 0; count > 1 && u < s->unit_count; u++)
        if (s->units[u].rule_count == count &&
            !memcmp(s->units[u].rules, rules, count * sizeof *rules))
            return u;
    s->grammar->steps->taken += count > 1 ? s->unit_count : 0;
    uint32_t *copy = malloc(count * sizeof *copy);
    ASSERT(copy);
    memcpy(copy, rules, count * sizeof *copy);
    s->units = grow(s->units, s->unit_count, &s->unit_capacity, sizeof *s->units);
    uint32_t unit = (uint32_t)s->unit_count++;
    s->units[unit] = (struct unit){.rules = copy, .rule_count = count};
    if (count == 1)
        s->alone[copy[0]] = unit + 1;
    begin_set(s);
    for (uint32_t i = 0; i < count; i++)
        collect(s, s->grammar->rules[copy[i]].start);
    close_set(s);
    uint16_t start = state_of_set(s, unit);
    s->units[unit].start = start;
    return unit;
}

static uint32_t rule_index(const struct unit *unit, uint32_t rule)
{
    uint32_t low = 0, high = unit->rule_count;
    while (low + 1 < high) {
        uint32_t middle = (low + high) / 2;
        if (unit->rules[middle] <= rule)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Where `from` goes on when the unit that it called ended with the label. */
static void add_return(struct subsets *s, uint16_t from, uint32_t label)
{
    const struct grammar *grammar = s->grammar;
    struct subset caller = s->subsets[from];
    const struct unit *unit = &s->units[caller.call_unit];
    begin_set(s);
    for (uint32_t i = 0; i < caller.count; i++)
        for (uint32_t e = grammar->states[s->items[caller.first + i]].first; e != GRAMMAR_NONE;
             e = grammar->edges[e].next) {
            const struct grammar_edge *edge = &grammar->edges[e];
            s->grammar->steps->taken++;
            if (edge->kind == EDGE_CALL && unit->labels[label] >> rule_index(unit, edge->rule) & 1)
                collect(s, edge->target);
        }
    close_set(s);
    uint16_t to = state_of_set(s, caller.unit);
    s->returns = grow(s->returns, s->return_count, &s->return_capacity, sizeof *s->returns);
    s->returns[s->return_count++] = (struct return_edge){from, (uint16_t)label, to};
}

static bool note_label(struct subsets *s, uint16_t state, uint64_t label)
{
    uint32_t u = s->subsets[state].unit, at = 0;
    while (at < s->units[u].label_count && s->units[u].labels[at] != label)
        at++;
    if (at == AUTOMATON_MAX_LABELS)
        return over(s, "ways to end");
    s->subsets[state].label = (uint8_t)at;
    if (at < s->units[u].label_count)
        return true;
    s->units[u].labels[s->units[u].label_count++] = label;
    for (size_t i = 0; i < s->units[u].caller_count && !s->over; i++) {
        add_return(s, s->units[u].callers[i], at);
        if (compile_steps_over(s->grammar->steps))
            over(s, "steps");
    }
    return true;
}

static bool find_label(struct subsets *s, uint16_t state)
{
    const struct subset *subset = &s->subsets[state];
    uint64_t label = 0;
    for (uint32_t i = 0; i < subset->count; i++) {
        uint32_t place = s->items[subset->first + i];
        if (is_end(s->grammar, place))
            label |= 1ull << rule_index(&s->units[subset->unit], s->grammar->states[place].rule);
    }
    return label ? note_label(s, state, label) : true;
}

static bool find_call(struct subsets *s, uint16_t state)
{
    const struct grammar *grammar = s->grammar;
    const struct subset *subset = &s->subsets[state];
    uint32_t rules[AUTOMATON_MAX_RULES], count = 0;
    for (uint32_t i = 0; i < subset->count; i++)
        for (uint32_t e = grammar->states[s->items[subset->first + i]].first; e != GRAMMAR_NONE;
             e = grammar->edges[e].next) {
            if (grammar->edges[e].kind != EDGE_CALL)
                continue;
            uint32_t rule = grammar->edges[e].rule, at = 0;
            while (at < count && rules[at] != rule)
                at++;
            grammar->steps->taken += at;
            if (at == AUTOMATON_MAX_RULES)
                return over(s, "alternatives open at once");
            rules[at] = rule;
            count += at == count;
        }
    if (!count)
        return true;
    qsort(rules, count, sizeof *rules, ascending);
    uint32_t u = unit_of(s, rules, count);
    if (s->over)
        return false;
    s->subsets[state].call_unit = (uint16_t)u;
    struct unit *unit = &s->units[u];
    unit->callers =
        grow(unit->callers, unit->caller_count, &unit->caller_capacity, sizeof *unit->callers);
    unit->callers[unit->caller_count++] = state;
    for (uint32_t label = 0; label < s->units[u].label_count && !s->over; label++)
        add_return(s, state, label);
    return true;
}

/* Where the byte leads, one edge after the other: `targets`. */
static void find_targets(struct subsets *s, uint16_t state, uint32_t byte)
{
    const struct grammar *grammar = s->grammar;
    const struct subset *subset = &s->subsets[state];
    s->target_count = 0;
    for (uint32_t i = 0; i < subset->count; i++)
        for (uint32_t e = grammar->states[s->items[subset->first + i]].first; e != GRAMMAR_NONE;
             e = grammar->edges[e].next) {
            const struct grammar_edge *edge = &grammar->edges[e];
            s->grammar->steps->taken++;
            if (edge->kind != EDGE_BYTES || byte < edge->low || byte > edge->high)
                continue;
            s->targets = grow(s->targets, s->target_count, &s->target_capacity, sizeof *s->targets);
            s->targets[s->target_count++] = edge->target;
        }
}

static bool same_targets(const struct subsets *s)
{
    return s->target_count == s->last_count &&
           (!s->last_count ||
            !memcmp(s->targets, s->last_targets, s->last_count * sizeof *s->targets));
}

static void keep_targets(struct subsets *s)
{
    uint32_t *list = s->last_targets;
    size_t capacity = s->last_capacity;
    s->last_targets = s->targets;
    s->last_count = s->target_count;
    s->last_capacity = s->target_capacity;
    s->targets = list;
    s->target_capacity = capacity;
}

static bool find_bytes(struct subsets *s, uint16_t state)
{
    const struct automaton *automaton = s->automaton;
    uint16_t last = AUTOMATON_NONE;
    s->last_count = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        if (byte && automaton->class_of[byte] == automaton->class_of[byte - 1])
            continue;
        find_targets(s, state, byte);
        if (!same_targets(s)) {
            begin_set(s);
            for (size_t i = 0; i < s->target_count; i++)
                collect(s, s->targets[i]);
            close_set(s);
            last = state_of_set(s, s->subsets[state].unit);
            keep_targets(s);
        }
        if (!s->target_count)
            last = AUTOMATON_NONE;
        s->automaton->next[state * automaton->class_count + automaton->class_of[byte]] = last;
        if (compile_steps_over(s->grammar->steps))
            over(s, "steps");
        if (s->over)
            return false;
    }
    return true;
}

/* Bytes that no edge tells apart are one class. */
static void find_classes(struct subsets *s)
{
    const struct grammar *grammar = s->grammar;
    bool starts[257] = {false};
    for (size_t e = 0; e < grammar->edge_count; e++) {
        if (grammar->edges[e].kind != EDGE_BYTES)
            continue;
        starts[grammar->edges[e].low] = true;
        starts[grammar->edges[e].high + 1] = true;
    }
    uint32_t column = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        column += byte && starts[byte];
        s->automaton->class_of[byte] = (uint8_t)column;
    }
    s->automaton->class_count = column + 1;
}

bool subsets_build(struct subsets *s, uint32_t root)
{
    s->slots = calloc(SLOTS, sizeof *s->slots);
    s->stamp = calloc(s->grammar->state_count + 1, sizeof *s->stamp);
    s->alone = calloc(s->grammar->rule_count + 1, sizeof *s->alone);
    ASSERT(s->slots && s->stamp && s->alone);
    find_classes(s);
    unit_of(s, &root, 1);
    for (size_t state = 0; state < s->subset_count && !s->over; state++) {
        if (!find_label(s, (uint16_t)state) || !find_call(s, (uint16_t)state) ||
            !find_bytes(s, (uint16_t)state))
            break;
        if (compile_steps_over(s->grammar->steps))
            over(s, "steps");
    }
    return !s->over;
}

void subsets_deinit(struct subsets *s)
{
    for (size_t u = 0; u < s->unit_count; u++) {
        free(s->units[u].rules);
        free(s->units[u].callers);
    }
    free(s->units);
    free(s->subsets);
    free(s->items);
    free(s->returns);
    free(s->slots);
    free(s->stamp);
    free(s->alone);
    free(s->set);
    free(s->targets);
    free(s->last_targets);
}
