/* What each token adds to the text of an answer: the bytes that a grammar of answers must take. It
 * is what detokenizer.h gives, where the bytes of all tokens together are valid UTF-8. Any
 * thread. */
#ifndef BATON_LANGUAGE_TEXT_TOKEN_TEXT_H
#define BATON_LANGUAGE_TEXT_TOKEN_TEXT_H

#include "common/language/text/tokenizer.h"

/* False for a tokenizer without a decoder: it puts spaces between tokens, so no token has a text of
 * its own. */
bool token_text_is_known(const struct tokenizer *tokenizer);

/* The bytes of the token inside an answer, or as its first token; not NUL-terminated. NULL for a
 * special token, for an id without a token, and where the text isn't known. */
const char *token_text(const struct tokenizer *tokenizer, uint32_t id, bool first, size_t *length);
/* The spelling of a special token, which is no text of its own; NULL for all others. */
const char *token_special_text(const struct tokenizer *tokenizer, uint32_t id, size_t *length);

#endif
