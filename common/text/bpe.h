/* Byte-pair encoding of one word: start from its bytes, then join neighbours, the pair of lowest rank first and of equal
 * ranks the leftmost, until no merge applies (Sennrich et al. 2016, in the order of the `tokenizers` package).
 * O(n log n): a linked list of symbols and a heap of candidate merges.
 *
 * Most words are a token as a whole. A token whose own encoding is itself is marked when the model is made, so that
 * such a word costs one look-up and still is exact.
 *
 * Immutable once made and shared by threads; each caller brings a bpe_scratch. */
#ifndef BATON_TEXT_BPE_H
#define BATON_TEXT_BPE_H

#include "common/text/token_ids.h"
#include "common/text/vocabulary.h"

#define BPE_LIMIT_MERGES (2u * VOCABULARY_LIMIT_COUNT)

struct bpe_merge {
    uint32_t left, right; /* tokens */
    uint32_t joined;
};

struct bpe {
    const struct vocabulary *vocabulary; /* the caller's; outlives this */
    struct bpe_merge *merges;            /* by rank */
    uint32_t merge_count;
    uint32_t *slots; /* hash table of ranks + 1, by (left, right); 0 = empty */
    uint32_t slot_shift;
    uint32_t byte_tokens[256];
    uint8_t *whole; /* by token: its bytes encode to itself */
};

struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t symbol_capacity;
    uint64_t *heap; /* rank << 32 | position of the left symbol */
    size_t heap_count, heap_capacity;
};

/* Takes `merges` (malloc'ed; ids below the vocabulary's count) whatever the outcome. With `ignore_merges` a word that is a
 * token is that token, even where merges would give another encoding. STATUS_INVALID where a byte that occurs in
 * UTF-8 has no token. */
enum status bpe_init(struct bpe *bpe, const struct vocabulary *vocabulary, struct bpe_merge *merges,
                     uint32_t merge_count, bool ignore_merges, struct error *err) WARN_UNUSED;
void bpe_deinit(struct bpe *bpe);

void bpe_scratch_init(struct bpe_scratch *scratch);
void bpe_scratch_deinit(struct bpe_scratch *scratch);

/* Appends the tokens of word[0..length), bytes of valid UTF-8, length < 2^31. False at the limit of `ids`. */
bool bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t length,
                struct token_ids *ids);

#endif
