/* One deterministic automaton over classes of characters for texts that match several expressions
 * at once. It has no dead ends: from every state a matching text can be reached.
 *
 * text_pattern_* collect the expressions, text_automaton_build makes the automaton. Lengths aren't
 * in its states: text_counts_find says in which states a text of so many characters may be. Plain
 * memory; one thread. */
#ifndef BATON_LANGUAGE_CONSTRAIN_TEXT_AUTOMATON_H
#define BATON_LANGUAGE_CONSTRAIN_TEXT_AUTOMATON_H

#include "common/base/status.h"
#include "common/language/constrain/compiling.h"

#define TEXT_MAX_PLACES                                                                            \
    65536 /* places of the nondeterministic automaton, with repeats written out */
#define TEXT_MAX_STATES  16384
#define TEXT_MAX_PARTS   16 /* expressions at once; a lookahead is one, too */
#define TEXT_MAX_CLASSES 512
#define TEXT_NONE        UINT16_MAX

enum text_match {
    TEXT_WHOLE,    /* the expression takes the whole text */
    TEXT_ANYWHERE, /* or a part of it, unless ^ and $ say otherwise (JSON Schema's "pattern") */
};

struct text_pattern;

/* `steps` is the count of the whole constraint and must outlive the pattern. All work on the
 * pattern, text_automaton_build's too, is counted there. */
struct text_pattern *text_pattern_create(struct compile_steps *steps);
void text_pattern_destroy(struct text_pattern *pattern); /* NULL is fine */
/* Adds an expression that texts must match. Errors: as expression_parse, and STATUS_LIMIT. The
 * sentence doesn't name the pattern. */
enum status text_pattern_add(struct text_pattern *pattern, const char *text, size_t length,
                             enum text_match match, struct error *err) WARN_UNUSED;

struct text_interval {
    uint32_t low, high; /* characters, inclusive */
    uint16_t kind;      /* class of characters */
};

struct text_automaton {
    uint16_t *next; /* [state * class_count + kind]; TEXT_NONE */
    bool *accepts;
    size_t state_count; /* 0: nothing matches; otherwise state 0 is the start */
    uint32_t class_count;
    struct text_interval *intervals; /* ascending; they cover all characters */
    size_t interval_count;
};

/* `pattern` has at least one expression. STATUS_LIMIT: more than TEXT_MAX_STATES or
 * TEXT_MAX_CLASSES, or too many steps; *automaton then holds nothing. */
enum status text_automaton_build(const struct text_pattern *pattern,
                                 struct text_automaton *automaton, struct error *err) WARN_UNUSED;
void text_automaton_deinit(struct text_automaton *automaton);

#define TEXT_COUNT_ENDLESS UINT16_MAX /* and beyond */
#define TEXT_MAX_RANGES    (1u << 18)

/* Counts of characters, inclusive. */
struct text_range {
    uint16_t low, high;
    uint32_t next; /* the next range of the state, above this one, + 1; 0: none */
};

/* By state, the counts of characters behind which a text of min..max characters may be in it and
 * can still be completed. If no count of a state matters, no text is too short or too long. */
struct text_counts {
    uint32_t *first; /* [state] index in ranges, + 1; 0: none */
    struct text_range *ranges;
    size_t range_count, range_capacity;
    uint16_t *soonest; /* [state] fewest characters that lead to it */
    bool matter;       /* false: texts of other lengths don't match anyway, and `first` is unset */
    bool none;         /* no text of min..max characters matches, and `first` is unset */
};

/* `max` UINT32_MAX: no maximum; otherwise min <= max < TEXT_COUNT_ENDLESS. Returns false if it
 * takes more than TEXT_MAX_RANGES, or too many of the steps. text_counts_deinit in any case. */
bool text_counts_find(const struct text_automaton *automaton, uint32_t min, uint32_t max,
                      struct compile_steps *steps, struct text_counts *counts) WARN_UNUSED;
void text_counts_deinit(struct text_counts *counts);

/* Returns whether the text, which is valid UTF-8, matches. */
bool text_automaton_matches(const struct text_automaton *automaton, const char *text,
                            size_t length);

#endif
