/* Internal to building: the subset construction. automaton_build.c makes tables of what it
 * leaves. */
#ifndef BATON_LANGUAGE_CONSTRAIN_AUTOMATON_STATES_H
#define BATON_LANGUAGE_CONSTRAIN_AUTOMATON_STATES_H

#include "common/language/constrain/automaton.h"

/* Rules that are under way together. */
struct unit {
    uint32_t *rules; /* ascending */
    uint32_t rule_count;
    uint16_t start;
    uint32_t label_count;
    uint64_t labels[AUTOMATON_MAX_LABELS]; /* sets of `rules`, by index */
    uint16_t *callers;
    size_t caller_count, caller_capacity;
};

/* A set of places in the grammar. */
struct subset {
    uint32_t first, count; /* in items, ascending */
    uint32_t unit;
    uint32_t next; /* with the same hash */
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
    uint32_t *slots;      /* hash table of subsets + 1 */
    uint32_t *alone;      /* unit of one rule, + 1 */
    uint32_t *stamp;      /* of a state of the grammar: when it was last seen */
    uint32_t now;
    uint32_t *set; /* being collected */
    size_t set_count, set_capacity;
    uint32_t *targets; /* of the class that is looked at, and of the one before */
    size_t target_count, target_capacity;
    uint32_t *last_targets;
    size_t last_count, last_capacity;
    const char *over; /* the limit that was reached, or NULL */
};

/* Everything that can be reached from `root`: subsets, rows of automaton->next, units, returns.
 * False at a limit (`over`). */
bool subsets_build(struct subsets *s, uint32_t root);
void subsets_deinit(struct subsets *s);

#endif
