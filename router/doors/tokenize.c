#include "router/doors/tokenize.h"

#include "common/language/text/detokenizer.h"

#define MAX_SPECIAL_TOKENS 64 /* a tokenizer may put so many around a text */

enum reason prompt_tokens_make(const struct served_model *model, struct text text, bool add_special,
                               struct token_ids *ids, struct error *err)
{
    bool too_many = tokenizer_surely_exceeds(model->tokenizer, text.length, ids->limit_count);
    if (!too_many) {
        enum status status =
            tokenizer_encode(model->tokenizer, text.bytes, text.length, add_special, ids, err);
        if (status == STATUS_OK)
            return request_check_ids(&model->limits, "tokenized text", ids->data, ids->count, err);
        if (ids->count < ids->limit_count)
            return REASON_MALFORMED;
    }
    error_set(err, STATUS_LIMIT, "the text has more tokens than the model's context, which is %u",
              model->limits.context);
    return REASON_CONTEXT_LENGTH_EXCEEDED;
}

size_t tokenize_most_tokens(const struct served_model *model)
{
    return (size_t)model->limits.max_text_bytes + MAX_SPECIAL_TOKENS; /* no more than one a byte */
}

enum reason tokenize_text(const struct served_model *model, struct text text, bool add_special,
                          struct token_ids *ids, struct error *err)
{
    enum reason reason = request_check_text(&model->limits, text, err);
    return reason ? reason : prompt_tokens_make(model, text, add_special, ids, err);
}

enum reason detokenize_ids(const struct served_model *model, const uint32_t *ids, size_t count,
                           bool skip_special, struct str *text, struct error *err)
{
    const struct text none = {"", 0}; /* is there a tokenizer? */
    enum reason reason = request_check_text(&model->limits, none, err);
    if (reason)
        return reason;
    switch (detokenizer_decode(model->tokenizer, ids, count, skip_special, text, err)) {
    case STATUS_OK: return REASON_NONE;
    case STATUS_LIMIT: return REASON_ANSWER_TOO_LARGE;
    default: return REASON_INVALID_TOKEN_ID;
    }
}
