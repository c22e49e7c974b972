/* Text to token ids by the tokenizer.json of a model, exactly as the `tokenizers` package does it:
 * added tokens, normalizer, pre-tokenizer, BPE (byte-level, or of characters with byte fallback),
 * post-processor. (Ids to text: detokenizer.h.)
 *
 * What the file asks for and this can't do is refused when it is opened, with a sentence that names
 * it; "truncation" and "padding" are passed over: they are the caller's business. Limits: file 64
 * MiB, 2^20 ids, 2^20 merges, 4 KiB a token; 65536 added tokens of 1 KiB; a pattern 8 KiB; text 64
 * MiB.
 *
 * An open tokenizer is immutable: any number of threads use it at once, without locks. */
#ifndef BATON_LANGUAGE_TEXT_TOKENIZER_H
#define BATON_LANGUAGE_TEXT_TOKENIZER_H

#include "common/base/status.h"
#include "common/language/text/byte_range.h"
#include "common/language/text/token_ids.h"

#define TOKENIZER_LIMIT_FILE (64u << 20) /* bytes */
#define TOKENIZER_LIMIT_TEXT (64u << 20) /* bytes */

struct tokenizer;
struct decoder;

/* STATUS_NOT_FOUND, STATUS_IO, STATUS_INVALID, STATUS_LIMIT or STATUS_UNSUPPORTED; the sentence
 * starts with the path. */
enum status tokenizer_open(const char *path, struct tokenizer **tokenizer,
                           struct error *err) WARN_UNUSED;
void tokenizer_close(struct tokenizer *tokenizer); /* NULL is fine */

/* Appends the ids of text[0..length) to `ids`; with `add_special` also what the post-processor puts
 * around it (a begin token). Special tokens spelled out in the text become those tokens. The caller
 * bounds the text: time is O(n log n), memory about 60 bytes for each byte of the longest word.
 * STATUS_INVALID when the text isn't UTF-8; STATUS_LIMIT when the ids reach their limit (some are
 * there then), over TOKENIZER_LIMIT_TEXT, or where a pattern backtracks too much. */
enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                             bool add_special, struct token_ids *ids,
                             struct error *err) WARN_UNUSED;

/* The same of a text of which some parts are not trusted: special tokens that are spelled out with
 * a byte of theirs in one of `plain` stay text. `plain` is in order, without touching. The text is
 * cut nowhere else than tokenizer_encode cuts it, but for one case: a tokenizer that looks for
 * special tokens in normalized text, and a part that spells one. There it is cut around the
 * parts. */
enum status tokenizer_encode_parts(const struct tokenizer *tokenizer, const char *text,
                                   size_t length, const struct byte_range *plain,
                                   size_t plain_count, bool add_special, struct token_ids *ids,
                                   struct error *err) WARN_UNUSED;

/* Largest id + 1. A model may have more rows than that (padding); not every id below it need have a
 * token. */
uint32_t tokenizer_vocab_size(const struct tokenizer *tokenizer);

/* The bytes that a token gives inside a text, not NUL-terminated and often not whole UTF-8; NULL
 * for an id without a token. */
const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t id, size_t *length);
const struct decoder *tokenizer_decoder(const struct tokenizer *tokenizer);
bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t id);

/* The id of a token by its spelling in tokenizer.json ("<|im_end|>", "Ġthe"); false when there is
 * none. */
bool tokenizer_id_of(const struct tokenizer *tokenizer, const char *spelling, uint32_t *id);

#endif
