#include "router/openai/openai_record.h"

#include "common/json/json_quote.h"
#include "common/json/json_write.h"

#include <string.h>

static const char *text_of(const struct json_value *object, const char *key)
{
    const char *text;
    return json_get_string(object, key, &text, NULL, NULL) == STATUS_OK ? text : NULL;
}

static void add_text(struct str *out, const char *key, const char *text)
{
    if (!text)
        return;
    str_addf(out, ",\"%s\":", key);
    json_quote(out, text, strlen(text));
}

static const char *part_text(const struct json_value *part)
{
    const char *text;
    if (json_as_string(part, &text, NULL, NULL) == STATUS_OK)
        return text;
    text = text_of(part, "text");
    return text ? text : text_of(part, "refusal");
}

static void add_parts(struct str *out, const struct json_value *parts)
{
    for (size_t i = 0; i < json_count(parts); i++) {
        const char *text = part_text(json_at(parts, i));
        str_add(out, i ? ",{\"type\":\"text\",\"text\":" : "[{\"type\":\"text\",\"text\":");
        json_quote(out, text ? text : "", text ? strlen(text) : 0);
        str_add(out, "}");
    }
    str_add(out, json_count(parts) ? "]" : "[]");
}

static void add_content(struct str *out, const struct json_value *message, bool has_calls)
{
    const struct json_value *content = json_find(message, "content");
    str_add(out, ",\"content\":");
    if (json_kind(content) == JSON_ARRAY)
        add_parts(out, content);
    else if (content)
        json_write(out, content);
    else
        str_add(out, has_calls ? "null" : "\"\"");
}

/* Their text where that isn't an object: what the model wrote then. */
static void add_arguments(struct str *out, const struct json_value *arguments)
{
    static const struct json_limits limits = {.max_bytes = REQUEST_MAX_TEXT_BYTES,
                                              .max_depth = OPENAI_MAX_DEPTH};
    struct json *json = NULL;
    const char *text;
    size_t length;
    if (json_as_string(arguments, &text, &length, NULL) == STATUS_OK &&
        json_parse(text, length, limits, &json, NULL) == STATUS_OK &&
        json_kind(json_root(json)) == JSON_OBJECT)
        json_write(out, json_root(json));
    else if (arguments)
        json_write(out, arguments);
    else
        str_add(out, "{}");
    json_destroy(json);
}

static void add_call(struct str *out, const struct json_value *call)
{
    const struct json_value *function = json_find(call, "function");
    const char *name = text_of(function, "name");
    str_add(out, "{\"type\":\"function\"");
    add_text(out, "id", text_of(call, "id"));
    str_add(out, ",\"function\":{\"name\":");
    json_quote(out, name ? name : "", name ? strlen(name) : 0);
    str_add(out, ",\"arguments\":");
    add_arguments(out, json_find(function, "arguments"));
    str_add(out, "}}");
}

static void add_message(struct str *out, const struct json_value *message)
{
    const struct json_value *calls = json_find(message, "tool_calls");
    const char *role = text_of(message, "role");
    bool developer = role && !strcmp(role, "developer");
    str_add(out, "{\"role\":");
    json_quote(out, developer ? "system" : role, strlen(developer ? "system" : role));
    add_content(out, message, json_count(calls) != 0);
    add_text(out, "reasoning_content", text_of(message, "reasoning_content"));
    add_text(out, "name", text_of(message, "name"));
    add_text(out, "tool_call_id", text_of(message, "tool_call_id"));
    for (size_t i = 0; i < json_count(calls); i++) {
        str_add(out, i ? "," : ",\"tool_calls\":[");
        add_call(out, json_at(calls, i));
    }
    str_add(out, json_count(calls) ? "]}" : "}");
}

void openai_record_write(const struct openai_request *request, struct str *out)
{
    str_add(out, "{\"messages\":[");
    for (size_t i = 0; i < json_count(request->messages); i++) {
        str_add(out, i ? "," : "");
        add_message(out, json_at(request->messages, i));
    }
    str_add(out, "],\"tools\":");
    json_write(out, request->tools); /* null where there are none */
    str_addf(out, ",\"add_generation_prompt\":%s,\"continue_final_message\":%s",
             request->add_generation_prompt ? "true" : "false",
             request->continue_final_message ? "true" : "false");
    str_add(out, ",\"chat_template_kwargs\":");
    if (request->template_arguments)
        json_write(out, request->template_arguments);
    else
        str_add(out, "{}");
    str_add(out, "}");
}
