/* What a constraint allows, as rules over bytes: each rule is a nondeterministic automaton with one
 * start and one end, whose edges take a byte of a range, nothing, or all that another rule takes (a
 * call). Rules may call each other and themselves.
 *
 * A called rule never takes the empty text and its body never starts with a call; what may follow a
 * call never is what the called rule may go on with. The makers of rules (JSON values, characters)
 * see to that; automaton.h relies on it.
 *
 * Bounded: at a limit nothing more is added and `full` is set; makers that count stop there,
 * whoever compiles asks at the end. The steps of all who work on it are counted here, too. Plain
 * memory; one thread. */
#ifndef BATON_LANGUAGE_CONSTRAIN_GRAMMAR_H
#define BATON_LANGUAGE_CONSTRAIN_GRAMMAR_H

#include "common/language/constrain/compile_steps.h"

#include <stddef.h>

#define GRAMMAR_MAX_STATES 131072
#define GRAMMAR_MAX_EDGES  524288
#define GRAMMAR_MAX_RULES  8192

enum grammar_edge_kind { EDGE_JUMP, EDGE_BYTES, EDGE_CALL, EDGE_DEAD };

struct grammar_edge {
    uint8_t kind;
    uint8_t low, high; /* EDGE_BYTES */
    uint32_t rule;     /* EDGE_CALL */
    uint32_t target;
    uint32_t next; /* edge of the same state; GRAMMAR_NONE */
};

#define GRAMMAR_NONE UINT32_MAX

struct grammar_state {
    uint32_t rule;
    uint32_t first; /* edge */
};

struct grammar_rule {
    uint32_t start, end;
    uint32_t note; /* the maker's, for messages */
};

struct grammar {
    struct grammar_state *states;
    struct grammar_edge *edges;
    struct grammar_rule *rules;
    size_t state_count, state_capacity, edge_count, edge_capacity, rule_count, rule_capacity;
    bool full;
    struct compile_steps *steps; /* of the whole constraint */
};

void grammar_init(struct grammar *grammar, struct compile_steps *steps);
void grammar_deinit(struct grammar *grammar);

/* Steps of work on it; false where there were too many (or it is full otherwise): then `full`. */
bool grammar_spend(struct grammar *grammar, uint64_t steps);

/* A rule with a start and an end and nothing between. At the limit: rule 0, and `full`. */
uint32_t grammar_add_rule(struct grammar *grammar, uint32_t note);
/* A state of the rule that `sibling` belongs to. At the limit: `sibling`, and `full`. */
uint32_t grammar_add_state(struct grammar *grammar, uint32_t sibling);
void grammar_add_jump(struct grammar *grammar, uint32_t from, uint32_t to);
void grammar_add_bytes(struct grammar *grammar, uint32_t from, uint8_t low, uint8_t high,
                       uint32_t to);
void grammar_add_call(struct grammar *grammar, uint32_t from, uint32_t rule, uint32_t to);
/* These bytes and no others, by way of new states; `length` > 0. */
void grammar_add_text(struct grammar *grammar, uint32_t from, const char *text, size_t length,
                      uint32_t to);

/* Kills the edges that never lead to the end of their rule, so that each state that can be reached
 * can also be left. False where `root` takes no text at all. */
bool grammar_trim(struct grammar *grammar, uint32_t root);

#endif
