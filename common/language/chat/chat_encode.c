#include "common/language/chat/chat_encode.h"

enum status chat_encode(const struct tokenizer *tokenizer, const struct chat_prompt *prompt,
                        struct token_ids *ids, struct error *err)
{
    return tokenizer_encode_parts(tokenizer, prompt->text, prompt->length, prompt->inputs,
                                  prompt->input_count, false, ids, err);
}
