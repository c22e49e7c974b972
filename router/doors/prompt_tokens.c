#include "router/doors/prompt_tokens.h"

#include <string.h>

enum reason prompt_tokens_make(const struct served_model *model, const char *text, bool add_special,
                               struct token_ids *ids, struct error *err)
{
    enum status status =
        tokenizer_encode(model->tokenizer, text, strlen(text), add_special, ids, err);
    if (status == STATUS_OK)
        return request_check_ids(&model->limits, "tokenized text", ids->data, ids->count, err);
    if (ids->count < ids->limit_count)
        return REASON_MALFORMED;
    error_set(err, status, "the text has more tokens than the model's context, which is %u",
              model->limits.context);
    return REASON_CONTEXT_LENGTH_EXCEEDED;
}
