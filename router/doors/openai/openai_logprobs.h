/* Log probabilities in the two shapes of OpenAI: of chats {"content": [...]}, of completions
 * parallel arrays. PURE. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_LOGPROBS_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_LOGPROBS_H

#include "router/doors/openai/openai_answer.h"

/* What doesn't belong to a whole character in a token's bytes is U+FFFD in its text; "bytes" has it
 * as it is. */
void openai_logprobs_chat(struct str *out, const struct openai_token *tokens, size_t count);
/* `offset`: characters of text before the first token; becomes that behind the last. */
void openai_logprobs_completion(struct str *out, const struct openai_token *tokens, size_t count,
                                size_t *offset);
size_t openai_characters(const char *text, size_t length);

#endif
