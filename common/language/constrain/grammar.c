#include "common/language/constrain/grammar.h"

#include <string.h>

void grammar_init(struct grammar *grammar, struct compile_steps *steps)
{
    *grammar = (struct grammar){.steps = steps};
}

bool grammar_spend(struct grammar *grammar, uint64_t steps)
{
    if (!compile_steps_take(grammar->steps, steps))
        grammar->full = true;
    return !grammar->full;
}

void grammar_deinit(struct grammar *grammar)
{
    free(grammar->states);
    free(grammar->edges);
    free(grammar->rules);
    free(grammar->gates);
    free(grammar->ranges);
    *grammar = (struct grammar){0};
}

static uint32_t add_state_of(struct grammar *grammar, uint32_t rule)
{
    grammar->states = grow(grammar->states, grammar->state_count, &grammar->state_capacity,
                           sizeof *grammar->states);
    grammar->states[grammar->state_count] =
        (struct grammar_state){.rule = rule, .first = GRAMMAR_NONE};
    return (uint32_t)grammar->state_count++;
}

uint32_t grammar_add_rule(struct grammar *grammar, uint32_t note)
{
    if (grammar->rule_count == GRAMMAR_MAX_RULES || grammar->state_count + 2 > GRAMMAR_MAX_STATES) {
        grammar->full = true;
        return 0;
    }
    grammar->rules =
        grow(grammar->rules, grammar->rule_count, &grammar->rule_capacity, sizeof *grammar->rules);
    uint32_t rule = (uint32_t)grammar->rule_count++;
    uint32_t start = add_state_of(grammar, rule);
    grammar->rules[rule] = (struct grammar_rule){start, add_state_of(grammar, rule), note};
    return rule;
}

uint32_t grammar_add_state(struct grammar *grammar, uint32_t sibling)
{
    if (grammar->state_count == GRAMMAR_MAX_STATES) {
        grammar->full = true;
        return sibling;
    }
    return add_state_of(grammar, grammar->states[sibling].rule);
}

static void add_edge(struct grammar *grammar, uint32_t from, struct grammar_edge edge)
{
    if (grammar->edge_count == GRAMMAR_MAX_EDGES) {
        grammar->full = true;
        return;
    }
    grammar->edges =
        grow(grammar->edges, grammar->edge_count, &grammar->edge_capacity, sizeof *grammar->edges);
    edge.next = grammar->states[from].first;
    grammar->states[from].first = (uint32_t)grammar->edge_count;
    grammar->edges[grammar->edge_count++] = edge;
}

uint32_t grammar_gate(struct grammar *grammar, const struct grammar_range *ranges, size_t count)
{
    ASSERT(count);
    if (!grammar_spend(grammar, grammar->gate_count / 4 + count))
        return 0;
    for (size_t i = 0; i < grammar->gate_count; i++) {
        const struct grammar_gate *known = &grammar->gates[i];
        if (known->count == count &&
            !memcmp(grammar->ranges + known->first, ranges, count * sizeof *ranges))
            return (uint32_t)i + 1;
    }
    if (grammar->range_count + count > GRAMMAR_MAX_RANGES) {
        grammar->full = true;
        return 0;
    }
    grammar->gates =
        grow(grammar->gates, grammar->gate_count, &grammar->gate_capacity, sizeof *grammar->gates);
    grammar->gates[grammar->gate_count] =
        (struct grammar_gate){(uint32_t)grammar->range_count, (uint32_t)count};
    for (size_t i = 0; i < count; i++) {
        grammar->ranges = grow(grammar->ranges, grammar->range_count, &grammar->range_capacity,
                               sizeof *grammar->ranges);
        grammar->ranges[grammar->range_count++] = ranges[i];
    }
    return (uint32_t)++grammar->gate_count;
}

uint32_t grammar_add_gated(struct grammar *grammar, uint32_t from, uint32_t gate)
{
    uint32_t state = grammar_add_state(grammar, from);
    if (grammar->full)
        return state;
    grammar->states[state].gate = gate;
    grammar_add_jump(grammar, from, state);
    return state;
}

void grammar_add_jump(struct grammar *grammar, uint32_t from, uint32_t to)
{
    add_edge(grammar, from, (struct grammar_edge){.kind = EDGE_JUMP, .target = to});
}

void grammar_add_bytes(struct grammar *grammar, uint32_t from, uint8_t low, uint8_t high,
                       uint32_t to)
{
    add_edge(grammar, from,
             (struct grammar_edge){.kind = EDGE_BYTES, .low = low, .high = high, .target = to});
}

void grammar_add_call(struct grammar *grammar, uint32_t from, uint32_t rule, uint32_t to)
{
    add_edge(grammar, from, (struct grammar_edge){.kind = EDGE_CALL, .rule = rule, .target = to});
}

void grammar_add_text(struct grammar *grammar, uint32_t from, const char *text, size_t length,
                      uint32_t to)
{
    for (size_t i = 0; i < length; i++) {
        uint32_t next = i + 1 == length ? to : grammar_add_state(grammar, from);
        grammar_add_bytes(grammar, from, (uint8_t)text[i], (uint8_t)text[i], next);
        from = next;
    }
}

/* Searches for live states, backwards from the ends. Lists are linked by edge: edges into a state,
 * and calls of a rule. */
struct trimming {
    struct grammar *grammar;
    uint32_t *source;     /* by edge: its state */
    uint32_t *into;       /* by state: first edge into it */
    uint32_t *into_on;    /* by edge: next edge into the same state */
    uint32_t *calling;    /* by rule: first call of it */
    uint32_t *calling_on; /* by edge: next call of the same rule */
    bool *live;           /* by state */
    uint32_t *stack;
    size_t stack_count;
};

static uint32_t *take_none(size_t count)
{
    uint32_t *list = malloc((count + 1) * sizeof *list);
    ASSERT(list);
    for (size_t i = 0; i < count; i++)
        list[i] = GRAMMAR_NONE;
    return list;
}

static void open_trimming(struct trimming *t, struct grammar *grammar)
{
    *t = (struct trimming){.grammar = grammar,
                           .source = take_none(grammar->edge_count),
                           .into = take_none(grammar->state_count),
                           .into_on = take_none(grammar->edge_count),
                           .calling = take_none(grammar->rule_count),
                           .calling_on = take_none(grammar->edge_count),
                           .live = calloc(grammar->state_count + 1, sizeof *t->live),
                           .stack = take_none(grammar->state_count)};
    ASSERT(t->live);
    for (uint32_t state = 0; state < grammar->state_count; state++)
        for (uint32_t e = grammar->states[state].first; e != GRAMMAR_NONE;
             e = grammar->edges[e].next) {
            const struct grammar_edge *edge = &grammar->edges[e];
            t->source[e] = state;
            t->into_on[e] = t->into[edge->target];
            t->into[edge->target] = e;
            if (edge->kind == EDGE_CALL) {
                t->calling_on[e] = t->calling[edge->rule];
                t->calling[edge->rule] = e;
            }
        }
}

static bool rule_lives(const struct trimming *t, uint32_t rule)
{
    return t->live[t->grammar->rules[rule].start];
}

static void revive(struct trimming *t, uint32_t state)
{
    if (t->live[state])
        return;
    t->live[state] = true;
    t->stack[t->stack_count++] = state;
}

static bool edge_lives(const struct trimming *t, const struct grammar_edge *edge)
{
    return edge->kind != EDGE_DEAD && t->live[edge->target] &&
           (edge->kind != EDGE_CALL || rule_lives(t, edge->rule));
}

static void revive_before(struct trimming *t, uint32_t state)
{
    const struct grammar *grammar = t->grammar;
    for (uint32_t e = t->into[state]; e != GRAMMAR_NONE; e = t->into_on[e])
        if (edge_lives(t, &grammar->edges[e]))
            revive(t, t->source[e]);
    uint32_t rule = grammar->states[state].rule;
    if (grammar->rules[rule].start != state)
        return;
    for (uint32_t e = t->calling[rule]; e != GRAMMAR_NONE; e = t->calling_on[e])
        if (edge_lives(t, &grammar->edges[e]))
            revive(t, t->source[e]);
}

bool grammar_trim(struct grammar *grammar, uint32_t root)
{
    struct trimming t;
    open_trimming(&t, grammar);
    for (size_t rule = 0; rule < grammar->rule_count; rule++)
        revive(&t, grammar->rules[rule].end);
    while (t.stack_count)
        revive_before(&t, t.stack[--t.stack_count]);
    for (size_t e = 0; e < grammar->edge_count; e++)
        if (!edge_lives(&t, &grammar->edges[e]))
            grammar->edges[e].kind = EDGE_DEAD;
    bool lives = rule_lives(&t, root);
    free(t.source);
    free(t.into);
    free(t.into_on);
    free(t.calling);
    free(t.calling_on);
    free(t.live);
    free(t.stack);
    return lives;
}

bool grammar_may_begin(struct grammar *grammar, uint32_t state, uint8_t byte)
{
    bool *seen = calloc(grammar->state_count, sizeof *seen), found = false;
    uint32_t *stack = take_none(grammar->state_count);
    size_t count = 0;
    ASSERT(seen);
    seen[state] = true;
    stack[count++] = state;
    while (count && !found)
        for (uint32_t e = grammar->states[stack[--count]].first; e != GRAMMAR_NONE && !found;
             e = grammar->edges[e].next) {
            const struct grammar_edge *edge = &grammar->edges[e];
            grammar_spend(grammar, 1);
            found = edge->kind == EDGE_BYTES && edge->low <= byte && byte <= edge->high;
            uint32_t next =
                edge->kind == EDGE_CALL ? grammar->rules[edge->rule].start : edge->target;
            if (edge->kind != EDGE_BYTES && edge->kind != EDGE_DEAD && !seen[next]) {
                seen[next] = true;
                stack[count++] = next;
            }
        }
    free(stack);
    free(seen);
    return found;
}

uint32_t grammar_copy_rule(struct grammar *grammar, uint32_t rule)
{
    const struct grammar_rule old = grammar->rules[rule];
    size_t count = grammar->state_count;
    uint32_t made = grammar_add_rule(grammar, old.note);
    if (grammar->full)
        return rule;
    uint32_t *copies = take_none(count);
    copies[old.start] = grammar->rules[made].start;
    copies[old.end] = grammar->rules[made].end;
    for (size_t i = 0; i < count && !grammar->full; i++)
        if (grammar->states[i].rule == rule) {
            if (copies[i] == GRAMMAR_NONE)
                copies[i] = grammar_add_state(grammar, copies[old.start]);
            grammar->states[copies[i]].gate = grammar->states[i].gate;
        }
    for (size_t i = 0; i < count; i++)
        for (uint32_t e = copies[i] == GRAMMAR_NONE ? GRAMMAR_NONE : grammar->states[i].first;
             e != GRAMMAR_NONE; e = grammar->edges[e].next) {
            struct grammar_edge edge = grammar->edges[e];
            edge.target = copies[edge.target];
            add_edge(grammar, copies[i], edge);
        }
    free(copies);
    return made;
}
