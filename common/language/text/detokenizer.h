/* Token ids to text, at once or as they come. Text is always whole, valid UTF-8: a character that
 * several tokens share comes with the last of them, and bytes that never become one turn into
 * U+FFFD, as `tokenizers` does it. What a stream of pushes and the flush give together is what
 * detokenizer_decode gives, but for one case that no encoded text gives: with ByteFallback,
 * `tokenizers` turns a whole run of byte tokens into U+FFFD where any of it is malformed. Only the
 * whole text can know that; a stream gives each character of such a run as soon as it is there, and
 * U+FFFD for the malformed bytes.
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
/* Appends the text that this token completes: maybe none. */
void detokenizer_push(struct detokenizer *detokenizer, uint32_t id, struct str *text);
/* At the end: what is still held becomes U+FFFD. */
void detokenizer_flush(struct detokenizer *detokenizer, struct str *text);

/* Appends the whole text. STATUS_INVALID for an id that isn't below the vocabulary's size;
 * STATUS_LIMIT when `text` is full. */
enum status detokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count,
                               bool skip_special, struct str *text, struct error *err) WARN_UNUSED;

#endif
