/* What a word starts from in BPE: one symbol (a token) for each byte or each character.
 *
 * Characters without a token are spelled in tokens of their bytes ("<0xE6>"), where the model has
 * byte_fallback and all of the character's bytes have one; else they become the unknown token,
 * neighbours one together with fuse_unk; else, in a model without one, nothing. All of it as
 * `tokenizers` does. Immutable once made and shared by threads. */
#ifndef BATON_LANGUAGE_TEXT_BPE_ALPHABET_H
#define BATON_LANGUAGE_TEXT_BPE_ALPHABET_H

#include "common/language/text/vocabulary.h"

#define BPE_ALPHABET_NONE UINT32_MAX

enum bpe_alphabet_kind {
    BPE_ALPHABET_BYTES,      /* byte-level BPE: tokens are bytes */
    BPE_ALPHABET_CHARACTERS, /* SentencePiece's style: tokens are text */
};

struct bpe_alphabet_settings {
    enum bpe_alphabet_kind kind;
    bool byte_fallback;
    bool fuse_unk;
    const char *unk_token; /* NULL: none */
};

struct bpe_alphabet {
    enum bpe_alphabet_kind kind;
    bool fuse_unk;
    uint32_t unk;                    /* BPE_ALPHABET_NONE: none */
    uint32_t bytes[256];             /* tokens of bytes: of BYTES, or for CHARACTERS the fallback */
    uint32_t *pages[0x110000 / 256]; /* CHARACTERS: tokens by character; NULL: none of its 256 */
};

/* STATUS_INVALID where a byte that occurs in UTF-8 can't be encoded in BYTES, or unk_token is
 * needed and isn't in the vocabulary. */
enum status bpe_alphabet_init(struct bpe_alphabet *alphabet, const struct vocabulary *vocabulary,
                              const struct bpe_alphabet_settings *settings,
                              struct error *err) WARN_UNUSED;
void bpe_alphabet_deinit(struct bpe_alphabet *alphabet);

static inline uint32_t bpe_alphabet_character(const struct bpe_alphabet *alphabet, uint32_t code)
{
    const uint32_t *page = alphabet->pages[code >> 8];
    return page ? page[code & 0xFF] : BPE_ALPHABET_NONE;
}

/* Takes the symbols of a word in order; false ends the run. bytes[start..start + length) is what
 * the symbol spells; length 0: it isn't spelled by the text. */
struct bpe_symbol_sink {
    bool (*take)(void *context, uint32_t token, size_t start, size_t length);
    void *context;
};

/* word[0..length) is valid UTF-8. False where the sink said so. */
bool bpe_alphabet_read(const struct bpe_alphabet *alphabet, const char *word, size_t length,
                       const struct bpe_symbol_sink *sink);

/* The symbol that the first (or last) character of a token's bytes becomes, or BPE_ALPHABET_NONE.
 * length > 0. */
uint32_t bpe_alphabet_first(const struct bpe_alphabet *alphabet, const char *bytes, size_t length);
uint32_t bpe_alphabet_last(const struct bpe_alphabet *alphabet, const char *bytes, size_t length);

#endif
