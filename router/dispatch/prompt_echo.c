#include "router/dispatch/prompt_echo.h"

#include "router/dispatch/answer_deltas.h"

#include <stdlib.h>
#include <string.h>

static void write_text(struct str *text, const struct prompt_echo_config *config)
{
    struct detokenizer detokenizer;
    if (config->text) {
        str_add(text, config->text);
        return;
    }
    if (!config->tokenizer)
        return;
    detokenizer_init(&detokenizer, config->tokenizer, config->skip_special_tokens);
    for (uint32_t i = 0; i < config->count; i++)
        detokenizer_push(&detokenizer, config->ids[i], text);
    detokenizer_flush(&detokenizer, text);
}

enum status prompt_echo_init(struct prompt_echo *out, const struct prompt_echo_config *config)
{
    bool scores = config->logprobs && config->count > 1;
    *out = (struct prompt_echo){
        .echo = config->echo, .next = 1, .end = scores ? config->count : 1, .keep = config->keep};
    str_init(&out->text, ANSWER_DELTAS_MAX_TEXT_BYTES);
    if (out->echo)
        write_text(&out->text, config);
    if (scores && out->keep)
        out->kept = calloc(config->count - 1, sizeof *out->kept);
    if (!out->text.truncated && (!scores || !out->keep || out->kept))
        return STATUS_OK;
    prompt_echo_deinit(out);
    return STATUS_LIMIT;
}

void prompt_echo_deinit(struct prompt_echo *out)
{
    str_deinit(&out->text);
    free(out->kept);
    out->kept = NULL;
}

bool prompt_echo_waits(const struct prompt_echo *out)
{
    return out->next < out->end;
}

bool prompt_echo_take(struct prompt_echo *out, uint32_t first,
                      const struct token_logprobs *logprobs, uint32_t count)
{
    if (first != out->next || count > out->end - out->next)
        return false;
    if (out->kept)
        memcpy(out->kept + out->next - 1, logprobs, count * sizeof *logprobs);
    out->next += count;
    return true;
}
