/* Texts that match several expressions at once (and have so many characters), as one deterministic
 * automaton over classes of characters. From every state a matching text can be reached: there are
 * no dead ends.
 *
 * Made in two parts: text_pattern_* collects what must match; text_automaton_build determinises.
 * Plain memory; one thread. */
#ifndef BATON_LANGUAGE_CONSTRAIN_TEXT_AUTOMATON_H
#define BATON_LANGUAGE_CONSTRAIN_TEXT_AUTOMATON_H

#include "common/language/constrain/compile_steps.h"
#include "common/language/constrain/expression.h"

#define TEXT_MAX_PLACES  65536 /* of the nondeterministic automaton: repeats are written out */
#define TEXT_MAX_STATES  16384
#define TEXT_MAX_PARTS   16 /* expressions at once */
#define TEXT_MAX_CLASSES 512
#define TEXT_NONE        UINT16_MAX

enum text_match {
    TEXT_WHOLE,    /* the expression takes the whole text */
    TEXT_ANYWHERE, /* or a part of it, unless ^ and $ say otherwise (JSON Schema's "pattern") */
};

struct text_pattern;

/* `steps`: of the whole constraint; they outlive it. Reading, writing out and building all count
 * there. */
struct text_pattern *text_pattern_create(struct compile_steps *steps);
void text_pattern_destroy(struct text_pattern *pattern); /* NULL is fine */
/* One more expression to match. The sentence doesn't name the pattern. */
enum status text_pattern_add(struct text_pattern *pattern, const char *text, size_t length,
                             enum text_match match, struct error *err) WARN_UNUSED;
/* Characters: min..max, max may be EXPRESSION_ENDLESS. */
enum status text_pattern_add_length(struct text_pattern *pattern, uint32_t min, uint32_t max,
                                    struct error *err) WARN_UNUSED;

struct text_interval {
    uint32_t low, high;
    uint16_t kind; /* class of characters */
};

struct text_automaton {
    uint16_t *next; /* [state * class_count + kind]; TEXT_NONE */
    bool *accepts;
    size_t state_count; /* 0: nothing matches; otherwise state 0 is the start */
    uint32_t class_count;
    struct text_interval *intervals; /* ascending; they cover all characters */
    size_t interval_count;
};

enum status text_automaton_build(const struct text_pattern *pattern,
                                 struct text_automaton *automaton, struct error *err) WARN_UNUSED;
void text_automaton_deinit(struct text_automaton *automaton);

/* Whether this text, valid UTF-8, matches. */
bool text_automaton_matches(const struct text_automaton *automaton, const char *text,
                            size_t length);

#endif
