#include "common/domain/sampling.h"

#include <math.h>

struct sampling sampling_default(void)
{
    return (struct sampling){.temperature = 1.0f, .top_p = 1.0f, .max_tokens = 16};
}

enum status sampling_validate(const struct sampling *s, struct error *err)
{
    if (!isfinite(s->temperature) || s->temperature < 0 || s->temperature > 100)
        return error_set(err, STATUS_INVALID, "temperature must be between 0 and 100, got %g",
                         (double)s->temperature);
    if (!isfinite(s->top_p) || s->top_p <= 0 || s->top_p > 1)
        return error_set(err, STATUS_INVALID, "top_p must be above 0 and at most 1, got %g",
                         (double)s->top_p);
    if (!isfinite(s->min_p) || s->min_p < 0 || s->min_p >= 1)
        return error_set(err, STATUS_INVALID, "min_p must be at least 0 and below 1, got %g",
                         (double)s->min_p);
    if (s->max_tokens < 1 || s->max_tokens > SAMPLING_MAX_TOKENS_LIMIT)
        return error_set(err, STATUS_INVALID, "max_tokens must be between 1 and %u, got %u",
                         SAMPLING_MAX_TOKENS_LIMIT, s->max_tokens);
    if (s->min_tokens > s->max_tokens)
        return error_set(err, STATUS_INVALID, "min_tokens (%u) must not be above max_tokens (%u)",
                         s->min_tokens, s->max_tokens);
    if (s->stop_id_count > SAMPLING_MAX_STOP_IDS)
        return error_set(err, STATUS_INVALID, "at most %d stop_token_ids, got %u",
                         SAMPLING_MAX_STOP_IDS, s->stop_id_count);
    return STATUS_OK;
}

const char *finish_reason_name(enum finish_reason reason)
{
    switch (reason) {
    case FINISH_NONE: return "none";
    case FINISH_EOS: return "eos";
    case FINISH_STOP_TOKEN: return "stop_token";
    case FINISH_STOP_STRING: return "stop_string";
    case FINISH_MAX_TOKENS: return "max_tokens";
    case FINISH_CONTEXT: return "context";
    }
    return "none";
}
