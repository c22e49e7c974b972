#include "common/base/domain/sampling.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

struct sampling sampling_default(void)
{
    return (struct sampling){
        .temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f, .max_tokens = 16};
}

/* Collects mistakes as one sentence. */
struct mistakes {
    char text[1024];
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

static void check_number(struct mistakes *all, const char *name, float value, double min,
                         double max)
{
    if (!isfinite(value) || (double)value < min || (double)value > max)
        add(all, "%s must be between %g and %g, got %g", name, min, max, (double)value);
}

/* Reports one mistake at most. */
static void check_biases(const struct sampling *s, struct mistakes *all)
{
    if (s->bias_count > SAMPLING_MAX_BIASES) {
        add(all, "logit_bias may name at most %d tokens, got %u", SAMPLING_MAX_BIASES,
            s->bias_count);
        return;
    }
    for (uint32_t i = 0; i < s->bias_count; i++) {
        const struct logit_bias *bias = &s->biases[i];
        if (!isfinite(bias->bias) || bias->bias < -100 || bias->bias > 100) {
            add(all, "logit_bias of token %u must be between -100 and 100, got %g", bias->id,
                (double)bias->bias);
            return;
        }
        if (i && bias->id <= s->biases[i - 1].id) {
            add(all, "logit_bias names token %u twice, or out of order", bias->id);
            return;
        }
    }
}

enum status sampling_validate(const struct sampling *s, struct error *err)
{
    struct mistakes all = {.length = 0}; /* room for all mistakes, with the longest numbers */
    check_number(&all, "temperature", s->temperature, 0, 100);
    if (!isfinite(s->top_p) || s->top_p <= 0 || s->top_p > 1)
        add(&all, "top_p must be above 0 and at most 1, got %g", (double)s->top_p);
    if (!isfinite(s->min_p) || s->min_p < 0 || s->min_p >= 1)
        add(&all, "min_p must be at least 0 and below 1, got %g", (double)s->min_p);
    check_number(&all, "presence_penalty", s->presence_penalty, -2, 2);
    check_number(&all, "frequency_penalty", s->frequency_penalty, -2, 2);
    check_number(&all, "repetition_penalty", s->repetition_penalty, (double)0.01f, 100);
    check_biases(s, &all);
    if (s->max_tokens < 1 || s->max_tokens > SAMPLING_MAX_TOKENS_LIMIT)
        add(&all, "max_tokens must be between 1 and %u%s, got %u", SAMPLING_MAX_TOKENS_LIMIT,
            s->max_tokens ? "" : " (0: with echo, for the prompt alone)", s->max_tokens);
    else if (s->min_tokens > s->max_tokens)
        add(&all, "min_tokens (%u) must not be above max_tokens (%u)", s->min_tokens,
            s->max_tokens);
    if (s->top_logprobs > LOGPROBS_MAX_TOP)
        add(&all, "logprobs must be between 0 and %d, got %u", LOGPROBS_MAX_TOP, s->top_logprobs);
    if (s->top_prompt_logprobs > LOGPROBS_MAX_TOP)
        add(&all, "prompt_logprobs must be between 0 and %d, got %u", LOGPROBS_MAX_TOP,
            s->top_prompt_logprobs);
    if (s->prompt_logprobs && s->prompt_logprobs_from < 1)
        add(&all, "a prompt's first token has no logprobs");
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
    case FINISH_COMPLETE: return "complete";
    }
    return "none";
}
