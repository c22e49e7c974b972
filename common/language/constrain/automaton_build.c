/* Builds an automaton: the subset construction over the rules of a grammar, then its tables. */
#include "common/base/str.h"
#include "common/language/constrain/automaton.h"

#include <string.h>

#define NEED_NEVER UINT8_MAX
#define SLOTS      (1u << 17) /* power of two, at least twice the states */

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

/* A state of the automaton: a set of places in the grammar. */
struct subset {
    uint32_t first, count; /* in items, ascending */
    uint32_t unit;
    uint32_t next; /* subset with the same hash, + 1; 0: none */
    uint16_t call_unit;
    uint8_t label;
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

/* Follows all jumps from the collected places. Keeps only places that take something or end. */
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
    free(s->targets);
    free(s->last_targets);
}

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

/* Returns the frames that are enough for the call of state i, whatever label it ends with, if the
 * way through is chosen well. */
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

/* Finds the least fixed point of `need`. States mostly lead to later states, so going from the last
 * to the first takes few rounds. Returns false if the steps are over. */
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
        for (size_t i = 0; i < automaton->state_count; i++) {
            const struct automaton_state *state = &automaton->states[i];
            uint8_t need = state->call == AUTOMATON_NONE ? state->need : state->call_need;
            if (need != NEED_NEVER && need > automaton->most_need)
                automaton->most_need = need;
        }
    }
    subsets_deinit(&s);
    if (status != STATUS_OK)
        automaton_deinit(automaton);
    return status;
}
