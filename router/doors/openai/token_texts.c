#include "router/doors/openai/token_texts.h"

#include <stdlib.h>

static struct openai_token shown(const struct tokenizer *tokenizer, uint32_t id)
{
    struct openai_token token = {.bytes = ""};
    const char *bytes = tokenizer ? tokenizer_token_bytes(tokenizer, id, &token.length) : NULL;
    if (bytes)
        token.bytes = bytes;
    else
        token.length = 0;
    return token;
}

struct openai_token *token_texts_make(const struct tokenizer *tokenizer, const uint32_t *ids,
                                      const struct token_logprobs *logprobs, size_t count)
{
    size_t tops = 0;
    for (size_t i = 0; logprobs && i < count; i++)
        tops += logprobs[i].top_count;
    struct openai_token *tokens = count ? malloc((count + tops) * sizeof *tokens) : NULL;
    if (!tokens)
        return NULL;
    struct openai_token *top = tokens + count;
    for (size_t i = 0; i < count; i++) {
        tokens[i] = shown(tokenizer, ids[i]);
        if (!logprobs || !logprobs[i].given)
            continue;
        tokens[i].has_logprob = true;
        tokens[i].logprob = logprobs[i].logprob;
        tokens[i].top = top;
        tokens[i].top_count = logprobs[i].top_count;
        for (uint32_t t = 0; t < logprobs[i].top_count; t++, top++) {
            *top = shown(tokenizer, logprobs[i].top_ids[t]);
            top->has_logprob = true;
            top->logprob = logprobs[i].top_logprobs[t];
        }
    }
    return tokens;
}
