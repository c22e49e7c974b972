#include "router/openai/openai_request_parts.h"

#include <string.h>

/* What other servers take and this one doesn't, where passing over it would change the answer. Null, false and what is empty ask for nothing. */
struct refused {
    const char *key;
    const char *why;
    bool one_is_neutral; /* 1 asks for nothing, either */
};

static const struct refused both[] = {
    {"lora", "LoRA adapters are not offered", false},
    {"lora_request", "LoRA adapters are not offered", false},
    {"adapter_id", "LoRA adapters are not offered", false},
    {"prompt_logprobs", "log probabilities of the prompt are not offered", false},
    {"logits_processors", "not offered", false},
    {"truncate_prompt_tokens", "prompts are not cut: send a shorter one", false},
    {"include_stop_str_in_output", "a stop string is never part of the text", false},
    {"use_beam_search", "beam search is not offered", false},
    {"mm_processor_kwargs", "only text is offered", false},
    {"kv_transfer_params", "prefill and decode are placed by the router", false},
    {"typical_p", "not offered: temperature, top_k, top_p and min_p are", true},
    {"length_penalty", "beam search is not offered", true},
    {"bad_words", "not offered: logit_bias can ban tokens", false},
    {"allowed_token_ids", "not offered: structured output can bound an answer", false},
    {NULL, NULL, false},
};

static const struct refused of_completion[] = {
    {"suffix", "text behind the answer is not offered", false},
    {"prompt_embeds", "embeddings as prompts are not offered", false},
    {NULL, NULL, false},
};

static const struct refused of_chat[] = {
    {"audio", "only text is offered", false},
    {"functions", "deprecated: use tools", false},
    {"function_call", "deprecated: use tool_choice", false},
    {"web_search_options", "not offered", false},
    {"chat_template", "the model's own template is used", false},
    {"echo", "not offered for chats", false},
    {NULL, NULL, false},
};

static bool is_neutral(const struct json_value *value, bool one_is_neutral)
{
    const char *text;
    bool flag;
    double number;
    switch (json_kind(value)) {
    case JSON_NULL: return true;
    case JSON_BOOL: return json_as_bool(value, &flag, NULL) == STATUS_OK && !flag;
    case JSON_STRING: return json_as_string(value, &text, NULL, NULL) == STATUS_OK && !*text;
    case JSON_ARRAY:
    case JSON_OBJECT: return json_count(value) == 0;
    case JSON_INTEGER:
    case JSON_NUMBER:
        return one_is_neutral && json_as_double(value, 1, 1, &number, NULL) == STATUS_OK;
    }
    return false;
}

static void check(const struct openai_fields *fields, const struct refused *table)
{
    for (; table->key; table++) {
        const struct json_value *value = openai_field(fields, table->key);
        if (value && !is_neutral(value, table->one_is_neutral))
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
