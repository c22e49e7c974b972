#include "router/doors/tokenize.h"

#include "common/language/text/detokenizer.h"
#include "router/doors/prompt_tokens.h"

#define MAX_SPECIAL_TOKENS 64 /* that a tokenizer puts around a text */

size_t tokenize_most_tokens(const struct served_model *model)
{
    return (size_t)model->limits.max_text_bytes + MAX_SPECIAL_TOKENS; /* no more than one a byte */
}

enum reason tokenize_text(const struct served_model *model, const char *text, bool add_special,
                          struct token_ids *ids, struct error *err)
{
    enum reason reason = request_check_text(&model->limits, text, err);
    return reason ? reason : prompt_tokens_make(model, text, add_special, ids, err);
}

enum reason detokenize_ids(const struct served_model *model, const uint32_t *ids, size_t count,
                           bool skip_special, struct str *text, struct error *err)
{
    enum reason reason = request_check_text(&model->limits, "", err); /* is there a tokenizer? */
    if (reason)
        return reason;
    switch (detokenizer_decode(model->tokenizer, ids, count, skip_special, text, err)) {
    case STATUS_OK: return REASON_NONE;
    case STATUS_LIMIT: return REASON_ANSWER_TOO_LARGE;
    default: return REASON_INVALID_TOKEN_ID;
    }
}
