/* Byte-pair encoding of one word, in the order of the `tokenizers` package (Sennrich et al. 2016).
 * It starts from the word's symbols, then joins neighbours until no merge applies: the pair of
 * lowest rank first, and among equal ranks the leftmost.
 *
 * A word may be a whole text (SentencePiece's style has no words). It is cut into segments that no
 * merge can reach across; each is encoded on its own, with the same outcome. Most segments are a
 * token as a whole. A token that encodes to itself is marked when the model is made, so such a
 * segment costs one look-up. Short segments are joined in an array, long ones with links between
 * symbols and a heap of candidate merges: O(n log n) for any text, and 17 bytes for each symbol of
 * the longest segment.
 *
 * Everything here is immutable once made and shared by threads; each caller brings a
 * bpe_scratch. */
#ifndef BATON_LANGUAGE_TEXT_BPE_H
#define BATON_LANGUAGE_TEXT_BPE_H

#include "common/base/json/json.h"
#include "common/language/text/tokenizer.h"
#include "common/language/text/vocabulary.h"

#define BPE_NONE UINT32_MAX

/* A word starts from symbols: one token for each byte or each character.
 *
 * A character without a token becomes the tokens of its bytes ("<0xE6>"), if the model has
 * byte_fallback and all of these bytes have one. Otherwise it becomes the unknown token; with
 * fuse_unk, neighbours become one. Without an unknown token it is dropped. A byte without a token
 * (StarCoder's vocabulary lacks 0xF1 and others) is the character that spells it, and fares alike.
 * `tokenizers` does the same. */
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
    uint32_t unk;                    /* BPE_NONE: none, or not needed */
    uint32_t bytes[256];             /* BYTES: tokens of bytes */
    uint32_t fallback[256];          /* tokens like "<0xE6>"; BPE_NONE: none */
    uint32_t *pages[0x110000 / 256]; /* CHARACTERS: tokens by character; NULL: no token */
};

/* The merges: two tokens, and the token that they join to, by rank. */
#define MERGE_TABLE_LIMIT_COUNT (1u << 20) /* the largest published files have 600,000 */

struct bpe_merge {
    uint32_t left, right;
    uint32_t joined;
};

struct merge_slot {
    uint32_t left, right;
    uint32_t rank; /* BPE_NONE: empty */
};

struct merge_table {
    struct bpe_merge *merges; /* by rank */
    uint32_t count;
    uint32_t slot_mask;
    struct merge_slot *slots; /* at most half are taken */
    uint64_t *joinable;       /* by hash of two neighbouring symbols: a merge may reach across */
    uint32_t joinable_mask;
    uint64_t seed;
};

struct bpe {
    const struct vocabulary *vocabulary; /* the caller's; outlives this */
    struct bpe_alphabet alphabet;
    struct merge_table merges;
    bool ignore_merges;
    uint8_t *whole; /* by token: its bytes encode to itself */
};

struct bpe_scratch {
    /* The segment's symbols, each at the place where it begins; in the end its tokens. BPE_NONE:
     * joined to the symbol on the left. */
    uint32_t *tokens;
    size_t token_count, token_capacity;
    uint32_t *links; /* a symbol of several places has at its first the place behind it, and at its
                        last its first */
    uint64_t *heap;  /* rank << 32 | place of the left symbol */
    size_t place_capacity, heap_count, heap_limit;
    uint64_t pairs_looked_up; /* in all words so far; tests count it instead of time */
    uint64_t sweeps;          /* times that a full heap was cleaned; tests count them, too */
};

struct bpe_settings {
    struct bpe_alphabet_settings alphabet;
    /* A word that is a token becomes that token, even if merges would give another encoding. */
    bool ignore_merges;
};

/* Takes `merges` over, also on errors: malloc'ed, at most MERGE_TABLE_LIMIT_COUNT, with ids below
 * the vocabulary's count. Among equal pairs the last one counts. STATUS_INVALID: unk_token is
 * needed and isn't in the vocabulary. */
enum status bpe_init(struct bpe *bpe, const struct vocabulary *vocabulary,
                     const struct bpe_settings *settings, struct bpe_merge *merges,
                     uint32_t merge_count, struct error *err) WARN_UNUSED;
void bpe_deinit(struct bpe *bpe);

void bpe_scratch_init(struct bpe_scratch *scratch);
void bpe_scratch_deinit(struct bpe_scratch *scratch);

/* Appends the tokens of word[0..length), valid UTF-8 (or its bytes), length < 2^31. Returns false
 * at the limit of `ids`. */
bool bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t length,
                struct token_ids *ids);

/* The "model" member of tokenizer.json (bpe_model.c): a vocabulary and the merges. For BYTES the
 * vocabulary has the bytes of tokens that are spelled in the byte-level alphabet. All other tokens
 * are in it as spelled. */
struct bpe_model {
    enum bpe_alphabet_kind kind;
    struct vocabulary vocabulary;
    struct bpe bpe;
};

/* Also adds each token to `decoder`. `max_added_id` is the largest id among added_tokens:
 * vocabulary and decoder have room for it. STATUS_INVALID, STATUS_LIMIT or STATUS_UNSUPPORTED; the
 * sentence names the setting. The struct must not move afterwards. */
enum status bpe_model_init(struct bpe_model *model, const struct json_value *json,
                           enum bpe_alphabet_kind kind, uint32_t max_added_id,
                           struct decoder *decoder, struct error *err) WARN_UNUSED;
void bpe_model_deinit(struct bpe_model *model);

/* Writes a token's bytes as the vocabulary has them, and returns their count. For BYTES *findable
 * is false if the spelling isn't in the byte-level alphabet: no text becomes this token. `bytes`
 * has room for `length`. */
size_t bpe_model_bytes(const struct bpe_model *model, const char *spelling, size_t length,
                       char *bytes, bool *findable);

#endif
