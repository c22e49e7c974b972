/* Builds an automaton: the subset construction over the rules of a grammar, then its tables. */
#include "common/base/str.h"
#include "common/language/constrain/automaton.h"

#include <string.h>

#define SLOTS (1u << 17) /* power of two, at least twice the states */

/* A set of rules that are under way together. */
struct unit {
    uint32_t *rules; /* ascending */
    uint32_t rule_count;
    uint16_t start;
    uint32_t label_count;
    uint64_t labels[AUTOMATON_MAX_LABELS]; /* bit i of a label: rules[i] ends */
    uint16_t *callers;
    size_t caller_count, caller_capacity;
};

/* A set with gates that wait for a count is a junction. At a count, each gate is open or shut: shut
 * places are left out, and the set is inside a string if an open one is in it. */
enum subset_kind { SUBSET_PLAIN, SUBSET_JUNCTION, SUBSET_INSIDE };

/* A state of the automaton: a set of places in the grammar. */
struct subset {
    uint32_t first, count; /* in items, ascending */
    uint32_t unit;
    uint32_t next; /* subset with the same hash, + 1; 0: none */
    uint16_t call_unit;
    uint8_t label;
    uint8_t kind;                 /* enum subset_kind */
    uint32_t ranges, range_count; /* junction: in the automaton's ranges */
};

struct return_edge {
    uint16_t from, label, to;
};

struct subsets {
    const struct grammar *grammar;
    struct automaton *automaton;
    struct unit *units;
    size_t unit_count, unit_capacity;
    struct subset *subsets;
    size_t subset_count, subset_capacity;
    uint32_t *items;
    size_t item_count, item_capacity;
    struct return_edge *returns;
    size_t return_count, return_capacity;
    size_t next_capacity; /* rows of the table */
    uint32_t *slots;      /* hash table: subset + 1 */
    uint32_t *alone;      /* by rule: the unit with only this rule, + 1; 0: none */
    uint32_t *stamp;      /* by place: value of `now` when it was last collected */
    uint32_t now;
    uint32_t *set; /* the set that is being collected */
    size_t set_count, set_capacity;
    enum subset_kind set_kind; /* set by close_set */
    uint32_t *bounds;          /* counts at which a gate of a junction opens or shuts, ascending */
    size_t bound_count, bound_capacity;
    size_t range_capacity; /* elements of automaton->ranges */
    uint32_t *targets; /* targets of the class that is looked at; last_targets: of the one before */
    size_t target_count, target_capacity;
    uint32_t *last_targets;
    size_t last_count, last_capacity;
    const char *over; /* name of the limit that was reached; NULL */
};

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

static bool is_open(const struct grammar *grammar, uint32_t gate, uint32_t count)
{
    const struct grammar_range *ranges = grammar->ranges + grammar->gates[gate - 1].first;
    uint32_t low = 0, high = grammar->gates[gate - 1].count - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (ranges[middle].high < count)
            low = middle + 1;
        else
            high = middle;
    }
    return ranges[low].low <= count && (count <= ranges[low].high);
}

#define NO_COUNT UINT32_MAX

/* Follows all jumps from the collected places. Keeps only places that take something or end, and
 * those with a gate: all of them without a count, otherwise the open ones. */
static void close_set_at(struct subsets *s, uint32_t count)
{
    const struct grammar *grammar = s->grammar;
    size_t kept = 0;
    s->set_kind = SUBSET_PLAIN;
    for (size_t i = 0; i < s->set_count; i++) {
        uint32_t state = s->set[i], gate = grammar->states[state].gate;
        if (gate && count == NO_COUNT) {
            s->set_kind = SUBSET_JUNCTION;
            s->set[kept++] = state;
            continue;
        }
        if (gate && !is_open(grammar, gate, count))
            continue;
        if (gate)
            s->set_kind = SUBSET_INSIDE;
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

static void close_set(struct subsets *s)
{
    close_set_at(s, NO_COUNT);
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
    size_t row_bytes = width * sizeof *automaton->next;
    automaton->next = grow(automaton->next, s->subset_count, &s->next_capacity, row_bytes);
    memset(automaton->next + s->subset_count * width, 0xff, row_bytes);
    return true;
}

/* Returns the state for the collected set, after close_set. AUTOMATON_NONE: the set is empty, or a
 * limit is reached. */
static uint16_t state_of_set(struct subsets *s, uint32_t unit)
{
    if (!s->set_count)
        return AUTOMATON_NONE;
    uint64_t hash = hash_bytes(s->set, s->set_count * sizeof *s->set,
                               HASH_SEED ^ unit ^ (uint64_t)s->set_kind << 32);
    uint32_t *slot = &s->slots[(hash ^ (hash >> 32)) & (SLOTS - 1)];
    for (uint32_t at = *slot; at; at = s->subsets[at - 1].next) {
        const struct subset *known = &s->subsets[at - 1];
        if (known->unit == unit && known->kind == s->set_kind && known->count == s->set_count &&
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
                                                  .label = AUTOMATON_NO_LABEL,
                                                  .kind = (uint8_t)s->set_kind};
    for (size_t i = 0; i < s->set_count; i++) {
        s->items = grow(s->items, s->item_count, &s->item_capacity, sizeof *s->items);
        s->items[s->item_count++] = s->set[i];
    }
    *slot = (uint32_t)++s->subset_count;
    return (uint16_t)(s->subset_count - 1);
}

/* Returns the unit of `count` rules, at least one, ascending. */
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

/* Adds the state in which `from` goes on after the unit that it called ended with the label. */
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

/* Sets `targets`: the targets of all edges from the state that take the byte. */
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

/* Fills the state's row. Neighbouring classes often have the same targets: then the last state
 * found is right again. */
static bool find_bytes(struct subsets *s, uint16_t state)
{
    const struct automaton *automaton = s->automaton;
    uint16_t last = AUTOMATON_NONE;
    s->last_count = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        if (byte && automaton->class_of[byte] == automaton->class_of[byte - 1])
            continue;
        find_targets(s, state, byte);
        bool same = s->target_count == s->last_count &&
                    (!s->last_count ||
                     !memcmp(s->targets, s->last_targets, s->last_count * sizeof *s->targets));
        if (!same) {
            begin_set(s);
            for (size_t i = 0; i < s->target_count; i++)
                collect(s, s->targets[i]);
            close_set(s);
            last = state_of_set(s, s->subsets[state].unit);
            uint32_t *list = s->last_targets;
            size_t capacity = s->last_capacity;
            s->last_targets = s->targets;
            s->last_count = s->target_count;
            s->last_capacity = s->target_capacity;
            s->targets = list;
            s->target_capacity = capacity;
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

static void add_bound(struct subsets *s, uint32_t count)
{
    s->bounds = grow(s->bounds, s->bound_count, &s->bound_capacity, sizeof *s->bounds);
    s->bounds[s->bound_count++] = count;
}

/* Sets `bounds`, 0 first: between two of them the junction stands for one state. */
static void find_bounds(struct subsets *s, uint16_t junction)
{
    const struct grammar *grammar = s->grammar;
    struct subset subset = s->subsets[junction];
    s->bound_count = 0;
    add_bound(s, 0);
    begin_set(s);
    for (uint32_t i = 0; i < subset.count; i++)
        collect(s, s->items[subset.first + i]);
    for (size_t i = 0; i < s->set_count; i++) {
        const struct grammar_state *state = &grammar->states[s->set[i]];
        const struct grammar_gate *gate = state->gate ? &grammar->gates[state->gate - 1] : NULL;
        for (uint32_t r = 0; gate && r < gate->count; r++) {
            struct grammar_range range = grammar->ranges[gate->first + r];
            add_bound(s, range.low);
            if (range.high != GRAMMAR_ENDLESS)
                add_bound(s, range.high + 1u);
        }
        for (uint32_t e = state->first; e != GRAMMAR_NONE; e = grammar->edges[e].next)
            if (grammar->edges[e].kind == EDGE_JUMP)
                collect(s, grammar->edges[e].target);
    }
    grammar->steps->taken += 2 * (uint64_t)s->bound_count;
    qsort(s->bounds, s->bound_count, sizeof *s->bounds, ascending);
    size_t kept = 1;
    for (size_t i = 1; i < s->bound_count; i++)
        if (s->bounds[i] != s->bounds[kept - 1])
            s->bounds[kept++] = s->bounds[i];
    s->bound_count = kept;
}

/* Adds the state behind the last range, up to `last`; equal neighbours become one. */
static bool add_range(struct subsets *s, uint32_t first, uint32_t last, uint16_t state)
{
    struct automaton *automaton = s->automaton;
    if (automaton->range_count > first &&
        automaton->ranges[automaton->range_count - 1].state == state) {
        automaton->ranges[automaton->range_count - 1].last = (uint16_t)last;
        return true;
    }
    if (automaton->range_count == AUTOMATON_MAX_RANGES)
        return over(s, "ranges of lengths");
    automaton->ranges = grow(automaton->ranges, automaton->range_count, &s->range_capacity,
                             sizeof *automaton->ranges);
    automaton->ranges[automaton->range_count++] = (struct automaton_range){(uint16_t)last, state};
    return true;
}

/* Finds the states that a junction stands for. */
static bool find_ranges(struct subsets *s, uint16_t junction)
{
    struct automaton *automaton = s->automaton;
    struct subset subset = s->subsets[junction];
    uint32_t first = (uint32_t)automaton->range_count;
    find_bounds(s, junction);
    for (size_t b = 0; b < s->bound_count; b++) {
        begin_set(s);
        for (uint32_t i = 0; i < subset.count; i++)
            collect(s, s->items[subset.first + i]);
        close_set_at(s, s->bounds[b]);
        uint16_t state = state_of_set(s, subset.unit);
        bool is_last = b + 1 == s->bound_count;
        if (compile_steps_over(s->grammar->steps))
            over(s, "steps");
        if (s->over || !add_range(s, first, is_last ? UINT16_MAX : s->bounds[b + 1] - 1, state))
            return false;
    }
    if (s->bounds[s->bound_count - 1] > automaton->most_count)
        automaton->most_count = (uint16_t)s->bounds[s->bound_count - 1];
    s->subsets[junction].ranges = first;
    s->subsets[junction].range_count = (uint32_t)automaton->range_count - first;
    return true;
}

/* Sets the classes of bytes: bytes that no edge tells apart share one. */
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

/* Makes all that can be reached from `root`: subsets, rows of automaton->next, units, returns.
 * Returns false at a limit, which `over` names. */
static bool subsets_build(struct subsets *s, uint32_t root)
{
    s->slots = calloc(SLOTS, sizeof *s->slots);
    s->stamp = calloc(s->grammar->state_count + 1, sizeof *s->stamp);
    s->alone = calloc(s->grammar->rule_count + 1, sizeof *s->alone);
    ASSERT(s->slots && s->stamp && s->alone);
    find_classes(s);
    unit_of(s, &root, 1);
    for (size_t state = 0; state < s->subset_count && !s->over; state++) {
        if (s->subsets[state].kind == SUBSET_JUNCTION) {
            if (!find_ranges(s, (uint16_t)state))
                break;
            continue;
        }
        if (!find_label(s, (uint16_t)state) || !find_call(s, (uint16_t)state) ||
            !find_bytes(s, (uint16_t)state))
            break;
        if (compile_steps_over(s->grammar->steps))
            over(s, "steps");
    }
    return !s->over;
}

static void subsets_deinit(struct subsets *s)
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
    free(s->bounds);
    free(s->targets);
    free(s->last_targets);
}

void automaton_deinit(struct automaton *automaton)
{
    free(automaton->next);
    free(automaton->states);
    free(automaton->return_to);
    free(automaton->ranges);
    free(automaton->strings);
    free(automaton->bounds);
    *automaton = (struct automaton){0};
}

size_t automaton_bytes(const struct automaton *automaton)
{
    return automaton->state_count *
               (automaton->class_count * sizeof *automaton->next + sizeof *automaton->states) +
           automaton->return_count * sizeof *automaton->return_to +
           automaton->range_count * sizeof *automaton->ranges +
           automaton->string_count * sizeof *automaton->strings +
           automaton->bound_count * sizeof *automaton->bounds;
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
        *state = (struct automaton_state){.call = AUTOMATON_NONE,
                                          .label = subset->label,
                                          .junction = subset->kind == SUBSET_JUNCTION,
                                          .inside = subset->kind == SUBSET_INSIDE,
                                          .ranges = subset->ranges,
                                          .range_count = subset->range_count};
        if (subset->call_unit == AUTOMATON_NONE)
            continue;
        state->call = s->units[subset->call_unit].start;
        state->returns = (uint32_t)automaton->return_count;
        state->label_count = (uint8_t)s->units[subset->call_unit].label_count;
        automaton->return_count += state->label_count;
    }
    automaton->return_to = take(automaton->return_count, sizeof *automaton->return_to);
    memset(automaton->return_to, 0xff, automaton->return_count * sizeof *automaton->return_to);
    for (size_t i = 0; i < s->return_count; i++) {
        struct return_edge edge = s->returns[i];
        automaton->return_to[automaton->states[edge.from].returns + edge.label] = edge.to;
    }
    automaton->start = s->units[0].start;
}

/* Sets `final` and `slow`. */
static void find_final(struct automaton *automaton)
{
    for (size_t i = 0; i < automaton->state_count; i++) {
        struct automaton_state *state = &automaton->states[i];
        const uint16_t *row = automaton->next + i * automaton->class_count;
        bool goes_on = state->call != AUTOMATON_NONE;
        for (uint32_t c = 0; c < automaton->class_count; c++)
            goes_on = goes_on || row[c] != AUTOMATON_NONE;
        state->final = !goes_on && state->label != AUTOMATON_NO_LABEL;
        state->slow = state->slow || state->final || state->junction;
        for (uint32_t c = 0; c < automaton->class_count && state->inside; c++)
            if (row[c] != AUTOMATON_NONE)
                automaton->states[row[c]].slow = true; /* the count ends there */
    }
}

/* Returns the note of the rule with the most states: most likely it makes the automaton too
 * large. */
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
        built = automaton_find_strings(automaton, grammar->steps) || over(&s, "steps");
        built = built && (automaton_find_needs(automaton, grammar->steps) || over(&s, "steps"));
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
        for (size_t i = 0; i < automaton->state_count; i++) {
            const struct automaton_state *state = &automaton->states[i];
            uint8_t need = state->call == AUTOMATON_NONE ? state->need : state->call_need;
            if (need != AUTOMATON_NEVER && need > automaton->most_need)
                automaton->most_need = need;
        }
    }
    subsets_deinit(&s);
    if (status != STATUS_OK)
        automaton_deinit(automaton);
    return status;
}
