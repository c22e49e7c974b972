/* Byte-pair encoding of one word: start from its symbols (bpe_alphabet.h), then join neighbours,
 * the pair of lowest rank first and of equal ranks the leftmost, until no merge applies (Sennrich
 * et al. 2016, in the order of the `tokenizers` package).
 *
 * A word may be a whole text (SentencePiece's style has no words). It is cut into segments that no
 * merge can reach across (merge_table.h). Most segments are a token as a whole: a token whose own
 * encoding is itself is marked when the model is made, so that such a segment costs one look-up and
 * still is exact. Short ones are joined in an array, long ones by a linked list of symbols and a
 * heap of candidate merges: O(n log n) for any text.
 *
 * Immutable once made and shared by threads; each caller brings a bpe_scratch. */
#ifndef BATON_LANGUAGE_TEXT_BPE_H
#define BATON_LANGUAGE_TEXT_BPE_H

#include "common/language/text/bpe_alphabet.h"
#include "common/language/text/merge_table.h"
#include "common/language/text/token_ids.h"

struct bpe {
    const struct vocabulary *vocabulary; /* the caller's; outlives this */
    struct bpe_alphabet alphabet;
    struct merge_table merges;
    bool ignore_merges;
    uint8_t *whole; /* by token: its bytes encode to itself */
};

struct bpe_scratch {
    uint32_t *tokens; /* the segment's */
    size_t token_count, token_capacity;
    struct bpe_symbol *symbols;
    size_t symbol_capacity;
    uint64_t *heap; /* rank << 32 | position of the left symbol */
    size_t heap_count;
    uint64_t pairs_looked_up; /* of all words so far: what tests count instead of time */
};

struct bpe_settings {
    struct bpe_alphabet_settings alphabet;
    bool
        /* a word that is a token is that token, even where merges would give another encoding */
        ignore_merges;
};

/* Takes `merges` (malloc'ed, at most MERGE_TABLE_LIMIT_COUNT; ids below the vocabulary's count)
 * whatever the outcome. Fails as bpe_alphabet_init does. */
enum status bpe_init(struct bpe *bpe, const struct vocabulary *vocabulary,
                     const struct bpe_settings *settings, struct bpe_merge *merges,
                     uint32_t merge_count, struct error *err) WARN_UNUSED;
void bpe_deinit(struct bpe *bpe);

void bpe_scratch_init(struct bpe_scratch *scratch);
void bpe_scratch_deinit(struct bpe_scratch *scratch);

/* Appends the tokens of word[0..length), valid UTF-8 (or its bytes), length < 2^31. False at the
 * limit of `ids`. */
bool bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t length,
                struct token_ids *ids);

#endif
