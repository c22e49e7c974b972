/* Answers under a constraint without a model: draws allowed tokens by random logits of a seed at
 * temperature 1.5. Logits are standard normal; tokens with a quote, bracket or brace have more, and
 * more as the answer grows, as a model that wants to finish would. For tests and the benchmark. */
#ifndef BATON_TESTS_CONSTRAIN_GENERATE_H
#define BATON_TESTS_CONSTRAIN_GENERATE_H

#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/language/constrain/constraint_masks.h"
#include "common/language/text/tokenizer.h"

/* A real vocabulary; ids from the tokenizer's count up to `count` are made up of two of its tokens
 * each. */
struct vocabulary_source {
    struct tokenizer *tokenizer;
    struct token_trie *trie;
    uint32_t count;
    uint32_t end_id;
    bool *closes; /* has a quote, bracket or brace */
    bool endless; /* such tokens are drawn only if no other is allowed: answers run into limits */
    char (*made_up)[TOKEN_TRIE_MAX_BYTES + 1];
    uint8_t *made_up_lengths;
};

/* Prints an error and exits on failure. `count` 0: the tokenizer's. */
void vocabulary_source_open(struct vocabulary_source *source, const char *path, uint32_t count);
void vocabulary_source_close(struct vocabulary_source *source);
const char *vocabulary_source_text(const struct vocabulary_source *source, uint32_t id, bool first,
                                   size_t *length);

/* Draws one of the set bits; `step` tokens have been drawn before. */
uint32_t draw_token(const struct vocabulary_source *source, const uint32_t *bits, uint32_t step,
                    struct rng *rng);

struct generated {
    bool complete; /* ended by itself, within max_tokens */
    bool stuck;    /* no token was allowed */
    uint32_t tokens;
};

struct generated generate(const struct vocabulary_source *source,
                          const struct constraint *constraint, struct constraint_masks *masks,
                          uint64_t seed, uint32_t max_tokens, struct str *text);

/* Reads the file's bytes. Prints an error and exits on failure. */
void read_whole(const char *path, struct str *text);

#endif
