#include "router/doors/openai/openai_logprobs.h"

#include "common/base/json/json_quote.h"
#include "common/base/utf8.h"

#include <string.h>

static void add_logprob(struct str *out, const struct openai_token *token)
{
    if (token->has_logprob)
        str_addf(out, "%.9g", (double)token->logprob);
    else
        str_add(out, "null");
}

static void add_bytes(struct str *out, const struct openai_token *token)
{
    str_add(out, "[");
    for (size_t i = 0; i < token->length; i++)
        str_addf(out, "%s%u", i ? "," : "", (unsigned char)token->bytes[i]);
    str_add(out, "]");
}

static void add_token(struct str *out, const struct openai_token *token)
{
    str_add(out, "{\"token\":");
    json_quote(out, token->bytes, token->length);
    str_add(out, ",\"logprob\":");
    add_logprob(out, token);
    str_add(out, ",\"bytes\":");
    add_bytes(out, token);
}

void openai_logprobs_chat(struct str *out, const struct openai_token *tokens, size_t count)
{
    str_add(out, "{\"content\":[");
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? "," : "");
        add_token(out, &tokens[i]);
        str_add(out, ",\"top_logprobs\":[");
        for (size_t t = 0; t < tokens[i].top_count; t++) {
            str_add(out, t ? "," : "");
            add_token(out, &tokens[i].top[t]);
            str_add(out, "}");
        }
        str_add(out, "]}");
    }
    str_add(out, "],\"refusal\":null}");
}

size_t openai_characters(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t at = 0; at < length; count++)
        at += utf8_next(text + at, length - at).length;
    return count;
}

/* Of tokens with the same text the first, which is the likelier, stays: no key twice. */
static bool is_among(const struct openai_token *top, size_t count, const struct openai_token *token)
{
    for (size_t i = 0; i < count; i++)
        if (top[i].length == token->length && !memcmp(top[i].bytes, token->bytes, token->length))
            return true;
    return false;
}

/* The likeliest, and the token itself, where it is none of them. */
static void add_top(struct str *out, const struct openai_token *token)
{
    if (!token->has_logprob) {
        str_add(out, "null");
        return;
    }
    str_add(out, "{");
    for (size_t t = 0; t <= token->top_count; t++) {
        const struct openai_token *one = t < token->top_count ? &token->top[t] : token;
        if (is_among(token->top, t, one))
            continue;
        str_add(out, t ? "," : "");
        json_quote(out, one->bytes, one->length);
        str_add(out, ":");
        add_logprob(out, one);
    }
    str_add(out, "}");
}

void openai_logprobs_completion(struct str *out, const struct openai_token *tokens, size_t count,
                                size_t *offset)
{
    str_add(out, "{\"tokens\":[");
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? "," : "");
        json_quote(out, tokens[i].bytes, tokens[i].length);
    }
    str_add(out, "],\"token_logprobs\":[");
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? "," : "");
        add_logprob(out, &tokens[i]);
    }
    str_add(out, "],\"top_logprobs\":[");
    for (size_t i = 0; i < count; i++) {
        str_add(out, i ? "," : "");
        add_top(out, &tokens[i]);
    }
    str_add(out, "],\"text_offset\":[");
    for (size_t i = 0; i < count; i++) {
        str_addf(out, "%s%zu", i ? "," : "", *offset);
        *offset += openai_characters(tokens[i].bytes, tokens[i].length);
    }
    str_add(out, "]}");
}
