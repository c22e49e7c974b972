/* The "decoder" of tokenizer.json: from the spellings of tokens to text. ByteLevel; Metaspace, or
 * Sequences of Replace, Strip, Metaspace (on each token), then ByteFallback, Fuse, Strip (at the
 * start of the text). Without a decoder, tokens have spaces between.
 *
 * The text of a token is worked out once, when it is added; detokenizer.h puts texts together.
 * Filled while a file is loaded, immutable afterwards and then shared by threads. */
#ifndef BATON_LANGUAGE_TEXT_DECODER_H
#define BATON_LANGUAGE_TEXT_DECODER_H

#include "common/base/json/json.h"

#define DECODER_LIMIT_STEPS 16
#define DECODER_LIMIT_TOKEN (16u << 10) /* bytes of one token's text */
#define DECODER_LIMIT_BYTES (64u << 20) /* bytes of all tokens' texts */
#define DECODER_LIMIT_STRIP 64          /* characters */

enum decoder_kind {
    DECODER_BYTES,  /* ByteLevel: the bytes of all tokens together are the text */
    DECODER_PIECES, /* each token is text, or with ByteFallback a byte */
    DECODER_SPACES, /* no decoder: each token is text, with spaces between */
};

struct decoded_token {
    uint32_t offset, length;             /* in the pool */
    uint32_t first_offset, first_length; /* as the first token of a text */
    bool present;
    bool is_byte; /* ByteFallback: the one byte at offset */
};

struct decoder {
    enum decoder_kind kind;
    struct decoder_step *steps; /* on each token */
    size_t step_count;
    bool byte_fallback;
    char strip[5]; /* one character, NUL-terminated: taken off the start of a text */
    size_t strip_length, strip_count; /* strip_count: at most so many times */
    struct decoded_token *tokens;
    uint32_t count;
    char *pool;
    size_t pool_bytes, pool_capacity;
    struct decoder_room *room; /* between decoder_reserve and decoder_seal */
};

/* `json` may be NULL: no decoder. STATUS_UNSUPPORTED with a sentence that names the component. */
enum status decoder_init(struct decoder *decoder, const struct json_value *json,
                         struct error *err) WARN_UNUSED;
void decoder_deinit(struct decoder *decoder);

/* Makes room for ids below `count`. Call it once, before the first token. */
void decoder_reserve(struct decoder *decoder, uint32_t count);
/* Works out the text of a token. A later call for the same id (an added token) replaces it.
 * STATUS_LIMIT, or the error of a pattern. */
enum status decoder_add(struct decoder *decoder, uint32_t id, const char *spelling, size_t length,
                        struct error *err) WARN_UNUSED;
/* Frees the memory of loading. No more tokens may be added. */
void decoder_seal(struct decoder *decoder);

/* Returns NULL for an id without a token. */
const struct decoded_token *decoder_token(const struct decoder *decoder, uint32_t id);

#endif
