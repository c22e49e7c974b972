/* Characters as edges of a grammar: in plain text (regular expressions, choices) or inside a JSON
 * string.
 *
 * A character of one byte is an edge; one of several bytes, or one that JSON must escape, is a call
 * of a rule for it. That keeps long counted strings small (a state a character), and as every
 * string of JSON is made this way, alternatives stay in step.
 *
 * In JSON strings a set of characters has one spelling each: itself, or the shortest escape (\n,
 * \u001f) where JSON wants one. Free strings (characters_put_any) take every escape there is, but
 * no lone surrogates. */
#ifndef BATON_LANGUAGE_CONSTRAIN_CHARACTERS_H
#define BATON_LANGUAGE_CONSTRAIN_CHARACTERS_H

#include "common/language/constrain/charset.h"
#include "common/language/constrain/grammar.h"
#include "common/language/constrain/text_automaton.h"

struct charset_rule {
    struct charset set;
    bool json;
    uint32_t rule;
};

struct characters {
    struct grammar *grammar;
    struct charset_rule *rules; /* those made so far */
    size_t rule_count, rule_capacity;
    uint32_t
        any_rule;  /* of a JSON string, escaped or of several bytes; GRAMMAR_NONE until wanted */
    uint32_t note; /* of the rules that are made */
};

void characters_init(struct characters *characters, struct grammar *grammar, uint32_t note);
void characters_deinit(struct characters *characters);

/* One character of the set (normalised, not empty). */
void characters_put(struct characters *characters, bool json, const struct charset *set,
                    uint32_t from, uint32_t to);
/* One character of a JSON string, in any spelling. */
void characters_put_any(struct characters *characters, uint32_t from, uint32_t to);
/* This text (valid UTF-8), without quotes; an empty one is a jump. */
void characters_put_text(struct characters *characters, bool json, const char *text, size_t length,
                         uint32_t from, uint32_t to);
/* What the automaton matches (state_count > 0), without quotes. */
void characters_put_automaton(struct characters *characters, bool json,
                              const struct text_automaton *automaton, uint32_t from, uint32_t to);

#endif
