#include "router/doors/openai/openai_request_parts.h"

#include <stdio.h>
#include <string.h>

#define PREFIX_BYTES 64 /* bytes of "messages[1234].tool_calls[123]." */

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(word, *words))
            return true;
    return false;
}

/* One part of a content array. */
static void check_part(const struct openai_fields *fields, size_t index,
                       const struct json_value *part)
{
    static const char *const texts[] = {"text", "input_text", "output_text", "refusal", NULL};
    char prefix[PREFIX_BYTES + 16];
    const char *type = "text", *text;
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
    if (!openai_field_text(&inside, key, &text))
        openai_field_refuse(&inside, key, REASON_MALFORMED, "is missing");
}

static void check_content(const struct openai_fields *fields, bool needed)
{
    const struct json_value *content = openai_field(fields, "content");
    const char *text;
    if (json_kind(content) == JSON_ARRAY) {
        for (size_t i = 0; i < json_count(content); i++)
            check_part(fields, i, json_at(content, i));
    } else if (content) {
        openai_field_text(fields, "content", &text);
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
    if (json_kind(json_find(function, "arguments")) != JSON_OBJECT)
        openai_field_text(&members, "arguments", &text);
}

static void check_message(const struct openai_fields *fields, size_t index,
                          const struct json_value *message)
{
    static const char *const roles[] = {"system", "developer", "user",    "assistant",
                                        "tool",   "function",  "ipython", NULL};
    char prefix[PREFIX_BYTES];
    const char *role, *text;
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
    if (!is_one_of(role, roles)) {
        openai_field_refuse(&inside, "role", REASON_MALFORMED,
                            "\"%.40s\" is none of system, developer, user, assistant, tool", role);
        return;
    }
    openai_field_text(&inside, "name", &text);
    openai_field_text(&inside, "tool_call_id", &text);
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
        check_message(fields, i, json_at(request->messages, i));
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
    openai_field_array(fields, "documents", &request->documents);
    openai_field_object(fields, "chat_template_kwargs", &request->template_arguments);
    bool told = openai_field_bool(fields, "add_generation_prompt", &request->add_generation_prompt);
    openai_field_bool(fields, "continue_final_message", &request->continue_final_message);
    if (request->continue_final_message && !told)
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
