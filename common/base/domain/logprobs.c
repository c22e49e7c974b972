#include "common/base/domain/logprobs.h"

#include <string.h>

static bool is_logprob(float value)
{
    return value >= LOGPROB_FLOOR && value <= 0; /* false for NaN */
}

bool token_logprobs_read(const struct logprobs_lists *lists, struct token_logprobs *out)
{
    size_t count = lists->id_count;
    if (count > LOGPROBS_MAX_TOP || count != lists->logprob_count || !is_logprob(lists->logprob))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!is_logprob(lists->logprobs[i]))
            return false;
    *out = (struct token_logprobs){
        .given = true, .logprob = lists->logprob, .top_count = (uint32_t)count};
    if (count) {
        memcpy(out->top_ids, lists->ids, count * sizeof *out->top_ids);
        memcpy(out->top_logprobs, lists->logprobs, count * sizeof *out->top_logprobs);
    }
    return true;
}

bool token_logprobs_fit(const struct token_logprobs *logprobs, uint32_t vocab)
{
    for (uint32_t i = 0; logprobs->given && i < logprobs->top_count; i++)
        if (logprobs->top_ids[i] >= vocab)
            return false;
    return true;
}
