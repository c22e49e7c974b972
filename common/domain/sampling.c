#include "common/domain/sampling.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

struct sampling sampling_default(void)
{
    return (struct sampling){.temperature = 1.0f, .top_p = 1.0f, .max_tokens = 16};
}

/* The mistakes so far, as one sentence. */
struct mistakes {
    char text[512];
    size_t length;
};

static __attribute__((format(printf, 2, 3))) void add(struct mistakes *all, const char *format, ...)
{
    va_list args;
    if (all->length)
        all->length +=
            (size_t)snprintf(all->text + all->length, sizeof all->text - all->length, "; ");
    va_start(args, format);
    all->length +=
        (size_t)vsnprintf(all->text + all->length, sizeof all->text - all->length, format, args);
    va_end(args);
}

enum status sampling_validate(const struct sampling *s, struct error *err)
{
    struct mistakes all = {.length = 0}; /* room for every one of them, with the longest numbers */
    if (!isfinite(s->temperature) || s->temperature < 0 || s->temperature > 100)
        add(&all, "temperature must be between 0 and 100, got %g", (double)s->temperature);
    if (!isfinite(s->top_p) || s->top_p <= 0 || s->top_p > 1)
        add(&all, "top_p must be above 0 and at most 1, got %g", (double)s->top_p);
    if (!isfinite(s->min_p) || s->min_p < 0 || s->min_p >= 1)
        add(&all, "min_p must be at least 0 and below 1, got %g", (double)s->min_p);
    if (s->max_tokens < 1 || s->max_tokens > SAMPLING_MAX_TOKENS_LIMIT)
        add(&all, "max_tokens must be between 1 and %u, got %u", SAMPLING_MAX_TOKENS_LIMIT,
            s->max_tokens);
    else if (s->min_tokens > s->max_tokens)
        add(&all, "min_tokens (%u) must not be above max_tokens (%u)", s->min_tokens,
            s->max_tokens);
    if (s->stop_id_count > SAMPLING_MAX_STOP_IDS)
        add(&all, "at most %d stop_token_ids, got %u", SAMPLING_MAX_STOP_IDS, s->stop_id_count);
    return all.length ? error_set(err, STATUS_INVALID, "%s", all.text) : STATUS_OK;
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
