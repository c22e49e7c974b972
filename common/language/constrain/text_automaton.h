/* One deterministic automaton over classes of characters for texts that match several expressions
 * at once, and maybe have a bounded length. It has no dead ends: from every state a matching text
 * can be reached.
 *
 * text_pattern_* collect the expressions, text_automaton_build makes the automaton. Plain memory;
 * one thread. */
#ifndef BATON_LANGUAGE_CONSTRAIN_TEXT_AUTOMATON_H
#define BATON_LANGUAGE_CONSTRAIN_TEXT_AUTOMATON_H

#include "common/base/status.h"
#include "common/language/constrain/compiling.h"

#define TEXT_MAX_PLACES                                                                            \
    65536 /* places of the nondeterministic automaton, with repeats written out */
#define TEXT_MAX_STATES  16384
#define TEXT_MAX_PARTS   16 /* expressions at once */
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
/* Adds a length in characters: min..max. `max` UINT32_MAX: no maximum. */
enum status text_pattern_add_length(struct text_pattern *pattern, uint32_t min, uint32_t max,
                                    struct error *err) WARN_UNUSED;

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

/* `pattern` has at least one expression or length. STATUS_LIMIT: more than TEXT_MAX_STATES or
 * TEXT_MAX_CLASSES, or too many steps; *automaton then holds nothing. */
enum status text_automaton_build(const struct text_pattern *pattern,
                                 struct text_automaton *automaton, struct error *err) WARN_UNUSED;
void text_automaton_deinit(struct text_automaton *automaton);

/* Returns whether the text, which is valid UTF-8, matches. */
bool text_automaton_matches(const struct text_automaton *automaton, const char *text,
                            size_t length);

#endif
