/* Characters as edges of a grammar: in plain text (regular expressions, choices), or inside a JSON
 * string (`json`).
 *
 * A character of one byte is an edge. A character of several bytes, or one that JSON must escape,
 * is a call of a rule. Calls keep long counted strings small, with a state for each character. All
 * strings of JSON are made this way, so alternatives stay in step.
 *
 * In a JSON string each character of a set has one spelling: itself, or the shortest escape (\n,
 * \u001f) where JSON needs one. Free strings (characters_put_any) take every escape, but no lone
 * surrogates. */
#ifndef BATON_LANGUAGE_CONSTRAIN_CHARACTERS_H
#define BATON_LANGUAGE_CONSTRAIN_CHARACTERS_H

#include "common/language/constrain/expression.h"
#include "common/language/constrain/grammar.h"
#include "common/language/constrain/text_automaton.h"

struct charset_rule {
    struct charset set;
    bool json;
    uint32_t rule;
};

struct characters {
    struct grammar *grammar;
    struct charset_rule *rules; /* rules made so far; equal sets share one */
    size_t rule_count, rule_capacity;
    uint32_t any_rule; /* any character of a JSON string that is escaped or of several bytes;
                        * GRAMMAR_NONE until it is used */
    uint32_t note;     /* note of the rules that are made */
};

void characters_init(struct characters *characters, struct grammar *grammar, uint32_t note);
void characters_deinit(struct characters *characters);

/* Each of these puts edges between two states of a rule, `from` and `to`. */

/* Puts one character of the set, which is normalised and not empty. */
void characters_put(struct characters *characters, bool json, const struct charset *set,
                    uint32_t from, uint32_t to);
/* Puts one character of a JSON string, in any spelling. */
void characters_put_any(struct characters *characters, uint32_t from, uint32_t to);
/* Puts min..max characters of a JSON string, in any spelling, which are counted (grammar.h). `max`
 * UINT32_MAX: no maximum; otherwise min <= max < GRAMMAR_ENDLESS. */
void characters_put_any_counted(struct characters *characters, uint32_t min, uint32_t max,
                                uint32_t from, uint32_t to);
/* Puts a text (valid UTF-8) without quotes; an empty text is a jump. */
void characters_put_text(struct characters *characters, bool json, const char *text, size_t length,
                         uint32_t from, uint32_t to);
/* Puts all texts that the automaton matches, without quotes. It must match some text. */
void characters_put_automaton(struct characters *characters, bool json,
                              const struct text_automaton *automaton, uint32_t from, uint32_t to);
/* Puts the texts of min..max characters that the automaton matches, in a JSON string. `counts`: of
 * text_counts_find for these; they must matter and not be none. */
void characters_put_counted(struct characters *characters, const struct text_automaton *automaton,
                            const struct text_counts *counts, uint32_t min, uint32_t max,
                            uint32_t from, uint32_t to);

#endif
