#include "router/doors/openai/openai_chat.h"

#include "common/base/json/json_quote.h"
#include "common/base/json/json_write.h"
#include "common/language/chat/chat_request.h"
#include "common/language/chat/chat_template.h"
#include "common/language/text/tokenizer.h"
#include "router/doors/openai/openai_fields.h"
#include "router/doors/openai/tool_shape.h"

#include <stdio.h>
#include <string.h>

#define PREFIX_BYTES 64          /* room for "messages[1234].tool_calls[123]." */
#define RECORD_BYTES (64u << 20) /* the template's input; a body's limit is lower */
#define NO_FORMAT                                                                                  \
    "tools: how model \"%s\" writes calls is not known: its chat template has none of the "        \
    "formats of Hermes and Qwen (<tool_call>), Mistral ([TOOL_CALLS]), Llama 3 and DeepSeek-R1"

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(word, *words))
            return true;
    return false;
}

/* Roles that every template is taken to know. */
static bool is_common_role(const char *role)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", NULL};
    return is_one_of(role, roles);
}

/* Checks one part of a content array. */
static void check_part(const struct openai_fields *fields, size_t index,
                       const struct json_value *part)
{
    static const char *const texts[] = {"text", "input_text", "output_text", "refusal", NULL};
    char prefix[PREFIX_BYTES + 16];
    const char *type = "text";
    struct text text;
    if (json_kind(part) == JSON_STRING)
        return;
    snprintf(prefix, sizeof prefix, "%scontent[%zu].", fields->prefix, index);
    struct openai_fields inside = {part, prefix, fields->refusal};
    openai_field_text(&inside, "type", &type);
    if (!is_one_of(type, texts)) {
        openai_field_refuse(&inside, "type", REASON_UNSUPPORTED_PARAMETER,
                            "\"%.40s\": images, audio and files are not offered, only text", type);
        return;
    }
    const char *key = strcmp(type, "refusal") != 0 ? "text" : "refusal";
    if (!openai_field_content(&inside, key, &text))
        openai_field_refuse(&inside, key, REASON_MALFORMED, "is missing");
}

static void check_content(const struct openai_fields *fields, bool needed)
{
    const struct json_value *content = openai_field(fields, "content");
    struct text text;
    if (json_kind(content) == JSON_ARRAY) {
        for (size_t i = 0; i < json_count(content); i++)
            check_part(fields, i, json_at(content, i));
    } else if (content) {
        openai_field_content(fields, "content", &text);
    } else if (needed) {
        openai_field_refuse(fields, "content", REASON_MALFORMED, "is missing");
    }
}

static void check_tool_call(const struct openai_fields *fields, size_t index,
                            const struct json_value *call)
{
    char prefix[PREFIX_BYTES + 32];
    const struct json_value *function = NULL;
    const char *text;
    snprintf(prefix, sizeof prefix, "%stool_calls[%zu].", fields->prefix, index);
    struct openai_fields inside = {call, prefix, fields->refusal};
    openai_field_text(&inside, "id", &text);
    if (!openai_field_object(&inside, "function", &function)) {
        openai_field_refuse(&inside, "function", REASON_MALFORMED, "is missing");
        return;
    }
    struct openai_fields members = {function, prefix, fields->refusal};
    if (!openai_field_text(&members, "name", &text))
        openai_field_refuse(&members, "name", REASON_MALFORMED, "is missing");
    if (chat_arguments_kind(json_find(function, "arguments"), &text) == CHAT_ARGUMENTS_WRONG)
        openai_field_refuse(&members, "arguments", REASON_MALFORMED,
                            "must be an object or the text of one, found %s", text);
}

static void check_message(const struct openai_fields *fields, size_t index,
                          const struct json_value *message, bool *other_roles)
{
    char prefix[PREFIX_BYTES];
    const char *role, *text;
    struct text reasoning;
    const struct json_value *calls = NULL;
    snprintf(prefix, sizeof prefix, "messages[%zu].", index);
    struct openai_fields inside = {message, prefix, fields->refusal};
    if (json_kind(message) != JSON_OBJECT) {
        openai_field_refuse(&inside, "role", REASON_MALFORMED, "a message must be an object");
        return;
    }
    if (!openai_field_text(&inside, "role", &role)) {
        openai_field_refuse(&inside, "role", REASON_MALFORMED, "is missing");
        return;
    }
    *other_roles |= !is_common_role(role);
    openai_field_text(&inside, "name", &text);
    openai_field_text(&inside, "tool_call_id", &text);
    openai_field_content(&inside, "reasoning_content", &reasoning);
    openai_field_content(&inside, "reasoning", &reasoning);
    if (openai_field_array(&inside, "tool_calls", &calls)) {
        for (size_t i = 0; i < json_count(calls); i++)
            check_tool_call(&inside, i, json_at(calls, i));
    }
    check_content(&inside, strcmp(role, "assistant") != 0);
}

static void read_messages(const struct openai_fields *fields, struct openai_request *request)
{
    if (!openai_field_array(fields, "messages", &request->messages)) {
        openai_field_refuse(fields, "messages", REASON_MISSING_INPUT, "is missing");
        return;
    }
    size_t count = json_count(request->messages);
    if (!count)
        openai_field_refuse(fields, "messages", REASON_EMPTY_PROMPT, "is empty");
    if (count > OPENAI_MAX_MESSAGES)
        openai_field_refuse(fields, "messages", REASON_MALFORMED, "%zu messages: at most %d", count,
                            OPENAI_MAX_MESSAGES);
    for (size_t i = 0; i < count && !fields->refusal->reason; i++)
        check_message(fields, i, json_at(request->messages, i), &request->other_roles);
}

static void check_tool(const struct openai_fields *fields, size_t index,
                       const struct json_value *tool)
{
    char prefix[PREFIX_BYTES];
    const char *type = "function", *name = "";
    const struct json_value *function = NULL, *parameters;
    snprintf(prefix, sizeof prefix, "tools[%zu].", index);
    struct openai_fields inside = {tool, prefix, fields->refusal};
    openai_field_text(&inside, "type", &type);
    if (strcmp(type, "function") != 0) {
        openai_field_refuse(&inside, "type", REASON_UNSUPPORTED_PARAMETER,
                            "\"%.40s\": only functions are offered", type);
        return;
    }
    if (!openai_field_object(&inside, "function", &function)) {
        openai_field_refuse(&inside, "function", REASON_MALFORMED, "is missing");
        return;
    }
    snprintf(prefix, sizeof prefix, "tools[%zu].function.", index);
    inside.object = function;
    openai_field_text(&inside, "name", &name);
    openai_field_object(&inside, "parameters", &parameters);
    if (!*name || strlen(name) > OPENAI_MAX_NAME)
        openai_field_refuse(&inside, "name", REASON_MALFORMED, "must have 1 to %d bytes",
                            OPENAI_MAX_NAME);
}

static void read_tools(const struct openai_fields *fields, struct openai_request *request)
{
    const struct json_value *tools;
    if (!openai_field_array(fields, "tools", &tools) || !json_count(tools))
        return;
    if (json_count(tools) > OPENAI_MAX_TOOLS)
        openai_field_refuse(fields, "tools", REASON_MALFORMED, "%zu tools: at most %d",
                            json_count(tools), OPENAI_MAX_TOOLS);
    for (size_t i = 0; i < json_count(tools) && !fields->refusal->reason; i++)
        check_tool(fields, i, json_at(tools, i));
    request->tools = tools;
    request->tool_choice = OPENAI_TOOLS_AUTO;
}

static bool has_tool(const struct json_value *tools, const char *name)
{
    for (size_t i = 0; i < json_count(tools); i++) {
        const char *text;
        if (json_get_string(json_find(json_at(tools, i), "function"), "name", &text, NULL, NULL) ==
                STATUS_OK &&
            !strcmp(text, name))
            return true;
    }
    return false;
}

static void read_named_tool(const struct openai_fields *fields, const struct json_value *choice,
                            struct openai_request *request)
{
    struct openai_fields inside = {choice, "tool_choice.", fields->refusal};
    const struct json_value *function = NULL;
    openai_field_object(&inside, "function", &function);
    inside = (struct openai_fields){function, "tool_choice.function.", fields->refusal};
    if (!openai_field_text(&inside, "name", &request->tool_name))
        openai_field_refuse(&inside, "name", REASON_MALFORMED, "is missing");
    else if (!has_tool(request->tools, request->tool_name))
        openai_field_refuse(&inside, "name", REASON_MALFORMED, "\"%.64s\" is not among the tools",
                            request->tool_name);
    request->tool_choice = OPENAI_TOOLS_NAMED;
}

static void read_tool_choice(const struct openai_fields *fields, struct openai_request *request)
{
    const struct json_value *choice = openai_field(fields, "tool_choice");
    const char *word;
    if (!choice)
        return;
    if (json_kind(choice) == JSON_OBJECT) {
        read_named_tool(fields, choice, request);
        return;
    }
    if (!openai_field_text(fields, "tool_choice", &word))
        return;
    if (!strcmp(word, "none")) {
        request->tool_choice = OPENAI_TOOLS_NONE;
        request->tools = NULL;
    } else if (!strcmp(word, "required")) {
        request->tool_choice = OPENAI_TOOLS_REQUIRED;
        if (!request->tools)
            openai_field_refuse(fields, "tool_choice", REASON_MALFORMED,
                                "is \"required\", but there are no tools");
    } else if (strcmp(word, "auto") != 0) {
        openai_field_refuse(fields, "tool_choice", REASON_MALFORMED,
                            "must be none, auto, required, or name a function, got \"%.40s\"",
                            word);
    }
}

void openai_read_chat(const struct openai_fields *fields, struct openai_request *request)
{
    bool parallel = true;
    read_messages(fields, request);
    read_tools(fields, request);
    read_tool_choice(fields, request);
    openai_field_bool(fields, "parallel_tool_calls", &parallel);
    request->one_call = !parallel;
    request->separate_reasoning = request->include_reasoning = true;
    openai_field_bool(fields, "separate_reasoning", &request->separate_reasoning);
    openai_field_bool(fields, "include_reasoning", &request->include_reasoning);
    openai_field_array(fields, "documents", &request->documents);
    openai_field_object(fields, "chat_template_kwargs", &request->template_arguments);
    bool given =
        openai_field_bool(fields, "add_generation_prompt", &request->add_generation_prompt);
    openai_field_bool(fields, "continue_final_message", &request->continue_final_message);
    if (request->continue_final_message && !given)
        request->add_generation_prompt = false;
    if (request->continue_final_message && request->add_generation_prompt)
        openai_field_refuse(fields, "continue_final_message", REASON_MALFORMED,
                            "and add_generation_prompt can't both be true");
}

struct chat_request openai_chat_request(const struct openai_request *request)
{
    return (struct chat_request){
        .messages = request->messages,
        .tools = request->tools,
        .documents = request->documents,
        .kwargs = request->template_arguments,
        .add_generation_prompt = request->add_generation_prompt,
        .continue_final_message = request->continue_final_message,
    };
}

bool openai_constrain_tools(const struct served_model *model, struct openai_request *request,
                            struct openai_refusal *refusal)
{
    if (request->tool_choice != OPENAI_TOOLS_REQUIRED && request->tool_choice != OPENAI_TOOLS_NAMED)
        return true;
    if (!model->chat)
        return true; /* openai_render refuses this request */
    if (model->tools == TOOL_FORMAT_NONE)
        return openai_refuse(refusal, REASON_UNSUPPORTED_PARAMETER, "tools", NO_FORMAT,
                             model->name);
    const struct tool_shape *shape = tool_shape_of(model->tools, chat_template_forms(model->chat));
    if (!shape)
        return openai_refuse(refusal, REASON_UNSUPPORTED_PARAMETER, "tool_choice",
                             "tool_choice: model \"%s\" writes ids into its calls, which no "
                             "constraint can ask for: use \"auto\"",
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
    if (!tokenizer_surely_exceeds(model->tokenizer, prompt->length, ids->limit_count)) {
        enum status status = chat_encode(model->tokenizer, prompt, ids, err);
        if (status == STATUS_OK)
            return request_check_ids(&model->limits, "tokenized text", ids->data, ids->count, err);
        if (ids->count < ids->limit_count)
            return REASON_MALFORMED;
    }
    error_set(err, STATUS_LIMIT,
              "the conversation has more tokens than the model's context, which is %u",
              model->limits.context);
    return REASON_CONTEXT_LENGTH_EXCEEDED;
}

static enum reason render(const struct served_model *model, const struct json_value *record,
                          struct openai_rendered *rendered, struct error *err)
{
    struct chat_request request = {.openai = true, .now = chat_time_now()};
    struct chat_prompt prompt;
    enum status status = chat_request_read(record, &request, err);
    if (status != STATUS_OK)
        return REASON_MALFORMED;
    status = chat_template_render(model->chat, &request, &prompt, NULL, err);
    if (status != STATUS_OK)
        return REASON_CHAT_REFUSED;
    enum reason reason = encode(model, &prompt, rendered->ids, err);
    rendered->reasoning = chat_prompt_reasoning(chat_template_forms(model->chat), &prompt,
                                                request.continue_final_message);
    chat_prompt_deinit(&prompt);
    return reason;
}

/* ---------------------------------------------------------------------------------- other roles */

/* Contents that stand for those of messages with other roles: nothing else in a chat has them, and
 * none of them is inside another. */
#define MARK_FORMAT "7301904628%06zu5"
#define MARK_BYTES  40

static void write_marked_message(struct str *out, size_t index, const struct json_value *message)
{
    char mark[MARK_BYTES];
    snprintf(mark, sizeof mark, MARK_FORMAT, index);
    str_addf(out, "{\"content\":\"%s\"", mark);
    for (struct json_member m = {0}; json_next(message, &m);) {
        if (!strcmp(m.key, "content"))
            continue;
        str_add(out, ",");
        json_quote(out, m.key, strlen(m.key));
        str_add(out, ":");
        json_write(out, m.value);
    }
    str_add(out, "}");
}

static const char *role_of(const struct json_value *message)
{
    const char *role = "";
    (void)!json_get_string(message, "role", &role, NULL, NULL);
    return role;
}

/* Writes the messages, with marks in those of other roles. */
static void write_marked(struct str *out, const struct json_value *messages)
{
    for (size_t i = 0; i < json_count(messages); i++) {
        str_add(out, i ? "," : "[");
        if (is_common_role(role_of(json_at(messages, i))))
            json_write(out, json_at(messages, i));
        else
            write_marked_message(out, i, json_at(messages, i));
    }
    str_add(out, "]");
}

/* Refuses the first message that the prompt lacks the mark of. */
static enum reason find_marks(const struct served_model *model, const struct json_value *messages,
                              const struct chat_prompt *prompt, struct error *err)
{
    for (size_t i = 0; i < json_count(messages); i++) {
        char mark[MARK_BYTES];
        const char *role = role_of(json_at(messages, i));
        snprintf(mark, sizeof mark, MARK_FORMAT, i);
        if (is_common_role(role) || memmem(prompt->text, prompt->length, mark, strlen(mark)))
            continue;
        error_set(
            err, STATUS_UNSUPPORTED,
            "messages[%zu].role: the chat template of model \"%s\" leaves out messages of the "
            "role \"%.40s\"",
            i, model->name, role);
        return REASON_CHAT_REFUSED;
    }
    return REASON_NONE;
}

static enum status parse_written(const struct str *text, struct json **json, struct error *err)
{
    static const struct json_limits limits = {.max_bytes = RECORD_BYTES, .max_depth = 1000};
    *json = NULL;
    return json_parse(text->data, text->length, limits, json, err);
}

/* Renders the chat with other contents in messages of other roles, and looks where they are: most
 * templates leave such a message out without a word. A template that raises an exception does so
 * for the chat itself, too, in its own words. */
static enum reason check_roles(const struct served_model *model,
                               const struct openai_request *request, struct error *err)
{
    struct json *messages = NULL, *record = NULL;
    struct chat_request chat = openai_chat_request(request),
                        made = {.openai = true, .now = chat_time_now()};
    struct chat_prompt prompt;
    struct str text;
    enum reason reason = REASON_NONE;
    str_init(&text, RECORD_BYTES);
    write_marked(&text, request->messages);
    if (parse_written(&text, &messages, NULL) != STATUS_OK)
        goto done;
    str_clear(&text);
    chat.messages = json_root(messages);
    chat.continue_final_message = false;
    chat_record_write(&chat, &text);
    if (parse_written(&text, &record, NULL) == STATUS_OK &&
        chat_request_read(json_root(record), &made, NULL) == STATUS_OK &&
        chat_template_render(model->chat, &made, &prompt, NULL, NULL) == STATUS_OK) {
        reason = find_marks(model, request->messages, &prompt, err);
        chat_prompt_deinit(&prompt);
    }
done:
    json_destroy(record);
    json_destroy(messages);
    str_deinit(&text);
    return reason;
}

enum reason openai_render(const struct served_model *model, const struct openai_request *request,
                          struct openai_rendered *rendered, struct error *err)
{
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
    if (request->tools && model->tools == TOOL_FORMAT_NONE) {
        error_set(err, STATUS_UNSUPPORTED, NO_FORMAT, model->name);
        return REASON_UNSUPPORTED_PARAMETER;
    }
    enum reason reason = request->other_roles ? check_roles(model, request, err) : REASON_NONE;
    if (reason)
        return reason;
    struct str text;
    struct json *json;
    str_init(&text, RECORD_BYTES);
    struct chat_request chat = openai_chat_request(request);
    chat_record_write(&chat, &text);
    enum status status = parse_written(&text, &json, err);
    reason = status == STATUS_OK ? render(model, json_root(json), rendered, err) : REASON_MALFORMED;
    json_destroy(json);
    str_deinit(&text);
    return reason;
}

void openai_begin_reasoning(const struct served_model *model, enum chat_reasoning reasoning,
                            struct openai_request *request)
{
    const struct chat_forms *forms = chat_template_forms(model->chat);
    struct reasoning_tags *tags = &request->reasoning;
    if (!request->separate_reasoning || reasoning == CHAT_REASONING_NONE)
        return;
    str_copy(tags->begin, sizeof tags->begin, forms->reasoning_begin);
    str_copy(tags->end, sizeof tags->end, forms->reasoning_end);
    tags->inside = reasoning == CHAT_REASONING_INSIDE;
    if (!request->message.constraint)
        return;
    baton__v1__reasoning__init(&request->behind);
    request->behind.begin = tags->begin;
    request->behind.end = tags->end;
    request->behind.inside = tags->inside;
    request->message.constraint->behind = &request->behind;
}
