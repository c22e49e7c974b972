#include "router/doors/openai/openai_request_parts.h"

#include <string.h>

/* What asks for nothing, beside null, false, "" and []. */
enum neutral {
    NEUTRAL_EMPTY = 0, /* {} */
    NEUTRAL_ONE,       /* and 1 */
    NEUTRAL_ZERO,      /* and 0 */
    NEUTRAL_NO_OBJECT, /* not even {} */
};

/* What other servers take and this one doesn't, where passing over it would change the answer. */
struct refused {
    const char *key;
    const char *why;
    enum neutral neutral;
};

static const struct refused both[] = {
    {"lora", "LoRA adapters are not offered", NEUTRAL_EMPTY},
    {"lora_request", "LoRA adapters are not offered", NEUTRAL_EMPTY},
    {"adapter_id", "LoRA adapters are not offered", NEUTRAL_EMPTY},
    {"prompt_logprobs", "not offered: echo with logprobs scores the prompt of a completion",
     NEUTRAL_EMPTY},
    {"logits_processors", "not offered", NEUTRAL_EMPTY},
    {"truncate_prompt_tokens", "prompts are not cut: send a shorter one", NEUTRAL_EMPTY},
    {"include_stop_str_in_output", "a stop string is never part of the text", NEUTRAL_EMPTY},
    {"use_beam_search", "beam search is not offered", NEUTRAL_EMPTY},
    {"mm_processor_kwargs", "only text is offered", NEUTRAL_EMPTY},
    {"kv_transfer_params", "prefill and decode are placed by the router", NEUTRAL_EMPTY},
    {"typical_p", "not offered: temperature, top_k, top_p and min_p are", NEUTRAL_ONE},
    {"n_predict", "not offered: use max_tokens", NEUTRAL_EMPTY},
    {"repeat_penalty", "not offered: use repetition_penalty", NEUTRAL_ONE},
    {"n_probs", "not offered: use logprobs", NEUTRAL_ZERO},
    {"length_penalty", "beam search is not offered", NEUTRAL_ONE},
    {"bad_words", "not offered: logit_bias can ban tokens", NEUTRAL_EMPTY},
    {"allowed_token_ids", "not offered: structured output can bound an answer", NEUTRAL_EMPTY},
    {"grammar", "grammars are not offered: response_format or structured_outputs bound an answer",
     NEUTRAL_EMPTY},
    {"json_schema", "not offered: use response_format", NEUTRAL_NO_OBJECT},
    {"regex", "not offered: use structured_outputs", NEUTRAL_EMPTY},
    {"ebnf", "grammars are not offered: response_format or structured_outputs bound an answer",
     NEUTRAL_EMPTY},
    {"structural_tag", "not offered: use response_format", NEUTRAL_EMPTY},
    {"return_tokens_as_token_ids", "not offered: tokens of logprobs are their text", NEUTRAL_EMPTY},
    {"mirostat", "not offered: temperature, top_k, top_p and min_p are", NEUTRAL_ZERO},
    {"dry_multiplier", "not offered: repetition_penalty is", NEUTRAL_ZERO},
    {"web_search_options", "not offered", NEUTRAL_NO_OBJECT},
    {NULL, NULL, NEUTRAL_EMPTY},
};

static const struct refused of_completion[] = {
    {"suffix", "text behind the answer is not offered", NEUTRAL_EMPTY},
    {"prompt_embeds", "embeddings as prompts are not offered", NEUTRAL_EMPTY},
    {NULL, NULL, NEUTRAL_EMPTY},
};

static const struct refused of_chat[] = {
    {"audio", "only text is offered", NEUTRAL_EMPTY},
    {"functions", "deprecated: use tools", NEUTRAL_EMPTY},
    {"function_call", "deprecated: use tool_choice", NEUTRAL_EMPTY},
    {"chat_template", "the model's own template is used", NEUTRAL_EMPTY},
    {"echo", "not offered for chats", NEUTRAL_EMPTY},
    {NULL, NULL, NEUTRAL_EMPTY},
};

static bool is_neutral(const struct json_value *value, enum neutral neutral)
{
    const char *text;
    bool flag;
    double number;
    switch (json_kind(value)) {
    case JSON_NULL: return true;
    case JSON_BOOL: return json_as_bool(value, &flag, NULL) == STATUS_OK && !flag;
    case JSON_STRING: return json_as_string(value, &text, NULL, NULL) == STATUS_OK && !*text;
    case JSON_ARRAY: return json_count(value) == 0;
    case JSON_OBJECT: return json_count(value) == 0 && neutral != NEUTRAL_NO_OBJECT;
    case JSON_INTEGER:
    case JSON_NUMBER:
        return json_as_double(value, -1, 1, &number, NULL) == STATUS_OK &&
               ((neutral == NEUTRAL_ONE && number == 1) ||
                (neutral == NEUTRAL_ZERO && number == 0));
    }
    return false;
}

static void check(const struct openai_fields *fields, const struct refused *table)
{
    for (; table->key; table++) {
        const struct json_value *value = openai_field(fields, table->key);
        if (value && !is_neutral(value, table->neutral))
            openai_field_refuse(fields, table->key, REASON_UNSUPPORTED_PARAMETER, "%s", table->why);
    }
}

/* ["text"] is what some clients always send. */
static void check_modalities(const struct openai_fields *fields)
{
    const struct json_value *modalities;
    if (!openai_field_array(fields, "modalities", &modalities))
        return;
    for (size_t i = 0; i < json_count(modalities); i++) {
        const char *name;
        if (json_as_string(json_at(modalities, i), &name, NULL, NULL) != STATUS_OK ||
            strcmp(name, "text") != 0)
            openai_field_refuse(fields, "modalities", REASON_UNSUPPORTED_PARAMETER,
                                "only text is offered");
    }
}

void openai_read_refused(const struct openai_fields *fields, enum openai_kind kind)
{
    check(fields, both);
    check(fields, kind == OPENAI_CHAT ? of_chat : of_completion);
    check_modalities(fields);
}
