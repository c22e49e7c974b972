#include "router/doors/openai/openai_render.h"

#include "common/language/chat/chat_encode.h"
#include "common/language/chat/chat_record.h"
#include "common/language/chat/chat_request.h"
#include "common/language/chat/chat_time.h"
#include "router/doors/openai/tool_shape.h"

#define RECORD_BYTES (64u << 20) /* bodies are bounded before */
#define NO_FORMAT                                                                                  \
    "tools: how model \"%s\" writes calls is not known: its chat template has none of the "        \
    "formats "                                                                                     \
    "of Hermes and Qwen (<tool_call>), Mistral ([TOOL_CALLS]) and Llama 3"

enum tool_format openai_tool_format(const struct served_model *model)
{
    return model->chat ? tool_format_of(chat_template_source(model->chat)) : TOOL_FORMAT_NONE;
}

bool openai_constrain_tools(const struct served_model *model, struct openai_request *request,
                            struct openai_refusal *refusal)
{
    if (request->tool_choice != OPENAI_TOOLS_REQUIRED && request->tool_choice != OPENAI_TOOLS_NAMED)
        return true;
    if (!model->chat)
        return true; /* openai_render says so */
    enum tool_format format = openai_tool_format(model);
    if (format == TOOL_FORMAT_NONE)
        return openai_refuse(refusal, REASON_UNSUPPORTED_PARAMETER, "tools", NO_FORMAT,
                             model->name);
    const struct tool_shape *shape = tool_shape_of(format, chat_template_source(model->chat));
    if (!shape)
        return openai_refuse(refusal, REASON_UNSUPPORTED_PARAMETER, "tool_choice",
                             "tool_choice: model \"%s\" writes ids into its calls, which answers "
                             "can't be kept to: use \"auto\"",
                             model->name);
    return tool_shape_constrain(shape, request, refusal);
}

static enum reason encode(const struct served_model *model, const struct chat_prompt *prompt,
                          struct token_ids *ids, struct error *err)
{
    if (prompt->length > model->limits.max_text_bytes) {
        error_set(err, STATUS_LIMIT,
                  "the prompt that the chat template makes has %zu bytes, over the limit of %llu",
                  prompt->length, (unsigned long long)model->limits.max_text_bytes);
        return REASON_TEXT_TOO_LONG;
    }
    enum status status = chat_encode(model->tokenizer, prompt, ids, err);
    if (status == STATUS_OK)
        return request_check_ids(&model->limits, "tokenized text", ids->data, ids->count, err);
    if (ids->count < ids->limit_count)
        return REASON_MALFORMED;
    error_set(err, status, "the conversation has more tokens than the model's context, which is %u",
              model->limits.context);
    return REASON_CONTEXT_LENGTH_EXCEEDED;
}

static enum reason render(const struct served_model *model, const struct json_value *record,
                          struct token_ids *ids, struct error *err)
{
    struct chat_request request = {.openai = true, .now = chat_time_now()};
    struct chat_prompt prompt;
    enum status status = chat_request_read(record, &request, err);
    if (status != STATUS_OK)
        return REASON_MALFORMED;
    status = chat_template_render(model->chat, &request, &prompt, NULL, err);
    if (status != STATUS_OK)
        return REASON_CHAT_REFUSED;
    enum reason reason = encode(model, &prompt, ids, err);
    chat_prompt_deinit(&prompt);
    return reason;
}

enum reason openai_render(const struct served_model *model, const struct openai_request *request,
                          struct token_ids *ids, struct error *err)
{
    static const struct json_limits limits = {.max_bytes = RECORD_BYTES, .max_depth = 1000};
    if (!model->tokenizer) {
        error_set(err, STATUS_UNSUPPORTED,
                  "model \"%s\" has no tokenizer.json, so messages can't become a prompt: "
                  "/v1/completions takes token ids",
                  model->name);
        return REASON_NO_TOKENIZER;
    }
    if (!model->chat) {
        error_set(err, STATUS_UNSUPPORTED,
                  "model \"%s\" has no chat template that can be used: /v1/completions takes text",
                  model->name);
        return REASON_NO_CHAT_TEMPLATE;
    }
    if (request->tools && openai_tool_format(model) == TOOL_FORMAT_NONE) {
        error_set(err, STATUS_UNSUPPORTED, NO_FORMAT, model->name);
        return REASON_UNSUPPORTED_PARAMETER;
    }
    struct str text;
    struct json *json = NULL;
    str_init(&text, RECORD_BYTES);
    struct chat_request chat = openai_chat_request(request);
    chat_record_write(&chat, &text);
    enum status status = json_parse(text.data, text.length, limits, &json, err);
    enum reason reason =
        status == STATUS_OK ? render(model, json_root(json), ids, err) : REASON_MALFORMED;
    json_destroy(json);
    str_deinit(&text);
    return reason;
}
