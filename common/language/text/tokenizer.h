/* Text to token ids by the tokenizer.json of a model, exactly as the `tokenizers` package does it:
 * added tokens, normalizer, pre-tokenizer, BPE (byte-level, or of characters with byte fallback),
 * post-processor. detokenizer.h goes the other way.
 *
 * A file that asks for anything else is refused when it is opened, with a sentence that names it.
 * "truncation" and "padding" are ignored, as they are the caller's business. Limits: file 64 MiB,
 * 2^20 ids, 2^20 merges, 4 KiB for a token, 65536 added tokens of 1 KiB, 8 KiB for a pattern, text
 * 64 MiB.
 *
 * An open tokenizer is immutable: any number of threads use it at once, without locks. */
#ifndef BATON_LANGUAGE_TEXT_TOKENIZER_H
#define BATON_LANGUAGE_TEXT_TOKENIZER_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKENIZER_LIMIT_FILE (64u << 20) /* bytes */
#define TOKENIZER_LIMIT_TEXT (64u << 20) /* bytes */

struct tokenizer;
struct decoder;

/* Bytes [from, to) of a text. */
struct byte_range {
    size_t from, to;
};

/* A growing list of token ids with a limit. The caller of token_ids_init owns it. */
struct token_ids {
    uint32_t *data; /* NULL while empty */
    size_t count;
    size_t capacity;
    size_t limit_count;
};

void token_ids_init(struct token_ids *ids, size_t limit_count);
void token_ids_deinit(struct token_ids *ids);
bool token_ids_push(struct token_ids *ids, uint32_t id); /* false at the limit */

/* STATUS_NOT_FOUND, STATUS_IO, STATUS_INVALID, STATUS_LIMIT or STATUS_UNSUPPORTED; the sentence
 * starts with the path. */
enum status tokenizer_open(const char *path, struct tokenizer **tokenizer,
                           struct error *err) WARN_UNUSED;
void tokenizer_close(struct tokenizer *tokenizer); /* NULL is fine */

/* Appends the ids of text[0..length) to `ids`. With `add_special` the post-processor's tokens come
 * around them (a begin token). Special tokens that are spelled out in the text become those tokens.
 * Takes O(n log n) time, and about 60 bytes for each byte of the longest word.
 *
 * STATUS_INVALID: the text isn't UTF-8. STATUS_LIMIT: the ids reach their limit (some are appended
 * then), the text is over TOKENIZER_LIMIT_TEXT, or a pattern backtracks too much. */
enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                             bool add_special, struct token_ids *ids,
                             struct error *err) WARN_UNUSED;

/* As tokenizer_encode, for a text with parts that aren't trusted. A special token that is spelled
 * out with at least one byte in one of `plain` stays text. `plain` is in order, and its ranges
 * don't touch.
 *
 * The text is cut at the same places as tokenizer_encode cuts it, except if the tokenizer looks for
 * special tokens in normalized text and a plain part spells one: then it is also cut around the
 * parts. */
enum status tokenizer_encode_parts(const struct tokenizer *tokenizer, const char *text,
                                   size_t length, const struct byte_range *plain,
                                   size_t plain_count, bool add_special, struct token_ids *ids,
                                   struct error *err) WARN_UNUSED;

/* Returns whether every text of `length` bytes has more than `count` tokens: it needs no reading.
 * False: it may have fewer. Always false if the tokenizer may drop parts of a text, or may join
 * unlimited parts in one token (white space beside an added token, unknown characters). */
bool tokenizer_surely_exceeds(const struct tokenizer *tokenizer, size_t length, size_t count);

/* Returns the largest id + 1. Some ids below may have no token. A model may have more rows
 * (padding). */
uint32_t tokenizer_vocab_size(const struct tokenizer *tokenizer);

/* Returns the bytes that a token adds inside a text, not NUL-terminated and often not whole UTF-8.
 * NULL for an id without a token. */
const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t id, size_t *length);
const struct decoder *tokenizer_decoder(const struct tokenizer *tokenizer);
bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t id);

/* Finds a token by its spelling in tokenizer.json ("<|im_end|>", "Ġthe"). Returns false if there is
 * none. */
bool tokenizer_id_of(const struct tokenizer *tokenizer, const char *spelling, uint32_t *id);

#endif
