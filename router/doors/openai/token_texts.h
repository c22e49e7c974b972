/* Tokens with their logprobs as the answer shows them: ids become what they are as text. */
#ifndef BATON_ROUTER_DOORS_OPENAI_TOKEN_TEXTS_H
#define BATON_ROUTER_DOORS_OPENAI_TOKEN_TEXTS_H

#include "common/base/domain/logprobs.h"
#include "common/language/text/tokenizer.h"
#include "router/doors/openai/openai_answer.h"

/* [count] in one piece, to be freed; NULL: no memory, or none. Without logprobs (NULL) tokens have
 * none. */
struct openai_token *token_texts_make(const struct tokenizer *tokenizer, const uint32_t *ids,
                                      const struct token_logprobs *logprobs, size_t count);

#endif
