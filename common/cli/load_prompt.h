/* Prompts made of words, with about the asked number of tokens.
 *
 * With a tokenizer each word is one token of its vocabulary, so that numbers are exact. Without
 * one the words are common in English, one token in most vocabularies. A measured number of tokens
 * a word corrects for others. The words of a segment depend on the seed and its name alone.
 *
 * Owner: one thread. */
#ifndef BATON_CLI_LOAD_PROMPT_H
#define BATON_CLI_LOAD_PROMPT_H

#include "common/base/str.h"
#include "common/cli/load_plan.h"

struct tokenizer;

#define LOAD_MAX_WORDS 4096

struct load_words {
    char (*words)[24]; /* each without blanks */
    uint32_t count;
    uint32_t first_count; /* the front ones, which are one token at the beginning of a text, too */
    uint64_t seed;
    double tokens_per_word;
    /* tokens of a prompt besides those of its words: a begin token, a chat's template */
    double overhead;
    const struct tokenizer *tokenizer; /* NULL: none */
};

/* `tokenizer` may be NULL, and outlives the words. STATUS_LIMIT: no memory. */
enum status load_words_open(struct load_words *words, const struct tokenizer *tokenizer,
                            uint64_t seed, struct error *err) WARN_UNUSED;
void load_words_close(struct load_words *words);

/* Appends `count` words of the segment `name`, with blanks between them, and one in front unless
 * `out` is empty. */
void load_words_append(const struct load_words *words, uint64_t name, uint32_t count,
                       struct str *out);
/* Appends the own text of a request: that of its segments, or its text. The overhead is taken off
 * its last segment if it has no parent. At least one word. */
void load_words_render(const struct load_words *words, const struct load_plan *plan,
                       uint32_t request, struct str *out);
/* Returns the tokens of a text: exact with a tokenizer, otherwise estimated at four bytes each. */
enum status load_words_count(const void *words, const char *text, size_t length, uint32_t *tokens,
                             struct error *err) WARN_UNUSED;

#endif
