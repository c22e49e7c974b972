/* Token ids to text, all at once or as they come. Text is always whole, valid UTF-8: a character
 * that several tokens share comes with the last of them. As in `tokenizers`, bytes that never
 * become a character become U+FFFD.
 *
 * A stream of pushes and a flush give the same text as detokenizer_decode, except in one case that
 * no encoded text has. With ByteFallback, `tokenizers` turns a whole run of byte tokens into U+FFFD
 * if any of it is malformed. Only the whole text shows that. A stream gives each character of such
 * a run at once, and U+FFFD for the malformed bytes.
 *
 * An id without a token is no text (a model may have more rows than its tokenizer has tokens). A
 * plain value without memory of its own; one thread at a time. The tokenizer must outlive it. */
#ifndef BATON_LANGUAGE_TEXT_DETOKENIZER_H
#define BATON_LANGUAGE_TEXT_DETOKENIZER_H

#include "common/base/str.h"
#include "common/language/text/tokenizer.h"

struct detokenizer {
    const struct tokenizer *tokenizer;
    bool skip_special;  /* special tokens are no text */
    bool started;       /* a token was pushed that isn't skipped */
    uint8_t strip_left; /* characters that may still be taken off the start of the text */
    uint8_t held_count;
    char held[4]; /* the start of a character: at most 3 bytes */
};

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                      bool skip_special);
/* Appends the text that this token completes, maybe none. */
void detokenizer_push(struct detokenizer *detokenizer, uint32_t id, struct str *text);
/* Ends the text: bytes that are still held become U+FFFD. */
void detokenizer_flush(struct detokenizer *detokenizer, struct str *text);

/* Appends the whole text. STATUS_INVALID: an id isn't below the vocabulary's size. STATUS_LIMIT:
 * `text` is full. */
enum status detokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count,
                               bool skip_special, struct str *text, struct error *err) WARN_UNUSED;

/* The bytes that each token adds to an answer: a grammar of answers takes these. They are
 * detokenizer_push's if the bytes of all tokens together are valid UTF-8. Any thread. */

/* Returns false for a tokenizer without a decoder: it puts spaces between tokens, so no token has a
 * text of its own. */
bool token_text_is_known(const struct tokenizer *tokenizer);
/* Returns the bytes of the token inside an answer, or as its first token; not NUL-terminated. NULL
 * for a special token, for an id without a token, and if no token has a text of its own. */
const char *token_text(const struct tokenizer *tokenizer, uint32_t id, bool first, size_t *length);
/* Returns the spelling of a special token, which isn't text. NULL for all other tokens. */
const char *token_special_text(const struct tokenizer *tokenizer, uint32_t id, size_t *length);

#endif
