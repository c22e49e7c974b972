/* Internal to text_automaton: the nondeterministic automaton that expressions are written out
 * into. */
#ifndef BATON_LANGUAGE_CONSTRAIN_TEXT_PATTERN_H
#define BATON_LANGUAGE_CONSTRAIN_TEXT_PATTERN_H

#include "common/language/constrain/text_automaton.h"

#define TEXT_NOWHERE UINT32_MAX

enum text_edge_kind { TEXT_JUMP, TEXT_SET, TEXT_BEGIN, TEXT_END };

/* A place has two edges at most: of one kind, the second only for jumps. */
struct text_place {
    uint8_t kind;
    uint8_t part;
    uint32_t set;
    uint32_t target, other; /* TEXT_NOWHERE */
};

struct text_part {
    uint32_t start, end;
    uint32_t tail; /* once there, everything matches; TEXT_NOWHERE */
};

struct text_pattern {
    struct text_place *places;
    size_t place_count, place_capacity;
    struct charset *sets;
    size_t set_count, set_capacity;
    struct text_part parts[TEXT_MAX_PARTS];
    uint32_t part_count;
    bool full;                   /* of places, or steps */
    struct compile_steps *steps; /* of the whole constraint */
};

#endif
