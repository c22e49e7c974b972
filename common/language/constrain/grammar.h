/* Rules over bytes: the texts that a constraint allows. Each rule is a nondeterministic automaton
 * with one start and one end. Its edges take nothing, a byte of a range, or all texts that another
 * rule takes (a call). Rules may call each other and themselves.
 *
 * A string may count its characters. A place of it may then have a gate: the counts at which the
 * place is open. Places of one string that are reached by the same text have the same count, which
 * starts with 0 behind the opening quote. A place with a gate is reached by jumps alone, and its
 * maker sees to it that from every open place a character or the closing quote leads on.
 *
 * The makers of rules (JSON values, characters) keep three promises, and automaton.h relies on
 * them. A called rule never takes the empty text. Its body never starts with a call. A byte that
 * may follow a call is never one that the called rule may go on with.
 *
 * At a limit nothing more is added and `full` is set. Makers that count stop there; the caller that
 * compiles checks `full` at the end. Steps of all work on the grammar are counted here too. Plain
 * memory; one thread. */
#ifndef BATON_LANGUAGE_CONSTRAIN_GRAMMAR_H
#define BATON_LANGUAGE_CONSTRAIN_GRAMMAR_H

#include "common/language/constrain/compiling.h"

#define GRAMMAR_MAX_STATES 131072
#define GRAMMAR_MAX_EDGES  524288
#define GRAMMAR_MAX_RULES  8192
#define GRAMMAR_MAX_RANGES 262144 /* counts of all gates together */

enum grammar_edge_kind { EDGE_JUMP, EDGE_BYTES, EDGE_CALL, EDGE_DEAD };

struct grammar_edge {
    uint8_t kind;
    uint8_t low, high; /* EDGE_BYTES */
    uint32_t rule;     /* EDGE_CALL */
    uint32_t target;
    uint32_t next; /* next edge of the same state; GRAMMAR_NONE */
};

#define GRAMMAR_NONE UINT32_MAX

struct grammar_state {
    uint32_t rule;
    uint32_t first; /* its first edge; GRAMMAR_NONE */
    uint32_t gate;  /* as grammar_gate returns it, index + 1; 0: none, it is always open */
};

#define GRAMMAR_ENDLESS UINT16_MAX

/* Counts of characters, inclusive. high GRAMMAR_ENDLESS: and beyond. */
struct grammar_range {
    uint16_t low, high;
};

struct grammar_gate {
    uint32_t first, count; /* in ranges: ascending, with gaps between; at least one */
};

struct grammar_rule {
    uint32_t start, end;
    uint32_t note; /* chosen by the maker, for error sentences */
};

struct grammar {
    struct grammar_state *states;
    struct grammar_edge *edges;
    struct grammar_rule *rules;
    struct grammar_gate *gates;
    struct grammar_range *ranges;
    size_t state_count, state_capacity, edge_count, edge_capacity, rule_count, rule_capacity;
    size_t gate_count, gate_capacity, range_count, range_capacity;
    bool full;
    struct compile_steps *steps; /* count of the whole constraint */
};

void grammar_init(struct grammar *grammar, struct compile_steps *steps);
void grammar_deinit(struct grammar *grammar);

/* Counts steps. Returns false, and sets `full`, if there are too many; false too if already
 * full. */
bool grammar_spend(struct grammar *grammar, uint64_t steps);

/* Adds a rule with a start and an end and no edges. At the limit: returns 0 and sets `full`. */
uint32_t grammar_add_rule(struct grammar *grammar, uint32_t note);
/* Adds a state to the rule of `sibling`. At the limit: returns `sibling` and sets `full`. */
uint32_t grammar_add_state(struct grammar *grammar, uint32_t sibling);
/* Returns the gate that is open at the counts of the ranges, at least one; equal ranges share one.
 * At the limit: returns 0 and sets `full`. */
uint32_t grammar_gate(struct grammar *grammar, const struct grammar_range *ranges, size_t count);
/* Adds a state with the gate, and a jump to it. At the limit as grammar_add_state. */
uint32_t grammar_add_gated(struct grammar *grammar, uint32_t from, uint32_t gate);
void grammar_add_jump(struct grammar *grammar, uint32_t from, uint32_t to);
void grammar_add_bytes(struct grammar *grammar, uint32_t from, uint8_t low, uint8_t high,
                       uint32_t to);
void grammar_add_call(struct grammar *grammar, uint32_t from, uint32_t rule, uint32_t to);
/* Adds a path for exactly these bytes, with new states between; `length` > 0. */
void grammar_add_text(struct grammar *grammar, uint32_t from, const char *text, size_t length,
                      uint32_t to);

/* Adds a rule that takes the same texts, with states of its own. At the limit: returns `rule` and
 * sets `full`. */
uint32_t grammar_copy_rule(struct grammar *grammar, uint32_t rule);

/* Returns whether a text from the state on may begin with the byte. Spends a step for each edge. */
bool grammar_may_begin(struct grammar *grammar, uint32_t state, uint8_t byte);

/* Makes EDGE_DEAD of the edges that never lead to the end of their rule, so that each state that
 * can be reached can also be left. Returns false if `root` takes no text at all. */
bool grammar_trim(struct grammar *grammar, uint32_t root);

#endif
