#include "common/language/chat/chat_request.h"

#include "common/base/json/json_quote.h"
#include "common/base/json/json_write.h"

#include <string.h>
#include <time.h>

enum status chat_request_read(const struct json_value *json, struct chat_request *request,
                              struct error *err)
{
    if (json_kind(json) != JSON_OBJECT)
        return error_set(err, STATUS_INVALID, "a chat request must be an object, not %s",
                         json_kind_name(json));
    request->messages = json_find(json, "messages");
    request->tools = json_find(json, "tools");
    request->documents = json_find(json, "documents");
    request->kwargs = json_find(json, "chat_template_kwargs");
    TRY(json_get_optional_bool(json, "continue_final_message", &request->continue_final_message,
                               err));
    request->add_generation_prompt = !request->continue_final_message;
    return json_get_optional_bool(json, "add_generation_prompt", &request->add_generation_prompt,
                                  err);
}

struct template_time chat_time_now(void)
{
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    return (struct template_time){.year = local.tm_year + 1900,
                                  .month = local.tm_mon + 1,
                                  .day = local.tm_mday,
                                  .hour = local.tm_hour,
                                  .minute = local.tm_min,
                                  .second = local.tm_sec,
                                  .microsecond = (int)(now.tv_nsec / 1000)};
}

#define ARGUMENTS_LIMIT_BYTES (8u << 20)
#define ARGUMENTS_LIMIT_DEPTH 100

enum chat_arguments chat_arguments_kind(const struct json_value *arguments, const char **found)
{
    struct json_limits limits = {.max_bytes = ARGUMENTS_LIMIT_BYTES,
                                 .max_depth = ARGUMENTS_LIMIT_DEPTH};
    struct json *json = NULL;
    const struct json_value *value = arguments;
    const char *text;
    size_t length;
    if (json_as_string(arguments, &text, &length, NULL) == STATUS_OK) {
        if (strspn(text, " \t\r\n") == length)
            return CHAT_ARGUMENTS_NONE;
        if (json_parse(text, length, limits, &json, NULL) != STATUS_OK)
            return CHAT_ARGUMENTS_TEXT;
        value = json_root(json);
    }
    enum chat_arguments kind = json_kind(value) == JSON_NULL     ? CHAT_ARGUMENTS_NONE
                               : json_kind(value) == JSON_OBJECT ? CHAT_ARGUMENTS_OBJECT
                                                                 : CHAT_ARGUMENTS_WRONG;
    if (kind == CHAT_ARGUMENTS_WRONG)
        *found = json_kind_name(value);
    json_destroy(json);
    return kind;
}

/* Returns the member's text; .bytes NULL: it has none. */
static struct text text_of(const struct json_value *object, const char *key)
{
    struct text text = {NULL, 0};
    (void)!json_get_string(object, key, &text.bytes, &text.length, NULL);
    return text;
}

static void add_text(struct str *out, const char *key, struct text text)
{
    if (!text.bytes)
        return;
    str_addf(out, ",\"%s\":", key);
    json_quote(out, text.bytes, text.length);
}

static void add_part(struct str *out, const struct json_value *part)
{
    struct text text;
    if (json_as_string(part, &text.bytes, &text.length, NULL) != STATUS_OK)
        text = text_of(part, "text");
    if (!text.bytes)
        text = text_of(part, "refusal");
    if (!text.bytes) {
        json_write(out, part);
        return;
    }
    str_add(out, "{\"type\":\"text\",\"text\":");
    json_quote(out, text.bytes, text.length);
    str_add(out, "}");
}

static void add_content(struct str *out, const struct json_value *message, bool has_calls)
{
    const struct json_value *content = json_find(message, "content");
    str_add(out, ",\"content\":");
    if (json_kind(content) == JSON_ARRAY) {
        str_add(out, "[");
        for (size_t i = 0; i < json_count(content); i++) {
            str_add(out, i ? "," : "");
            add_part(out, json_at(content, i));
        }
        str_add(out, "]");
    } else if (content) {
        json_write(out, content);
    } else {
        str_add(out, has_calls ? "null" : "\"\"");
    }
}

static void add_call(struct str *out, const struct json_value *call)
{
    const struct json_value *function = json_find(call, "function");
    const struct json_value *arguments = json_find(function, "arguments");
    struct text name = text_of(function, "name");
    const char *found;
    str_add(out, "{\"type\":\"function\"");
    add_text(out, "id", text_of(call, "id"));
    str_add(out, ",\"function\":{\"name\":");
    json_quote(out, name.bytes, name.length);
    str_add(out, ",\"arguments\":");
    if (chat_arguments_kind(arguments, &found) == CHAT_ARGUMENTS_NONE)
        str_add(out, "{}");
    else
        json_write(out, arguments);
    str_add(out, "}}");
}

static void add_message(struct str *out, const struct json_value *message)
{
    const struct json_value *calls = json_find(message, "tool_calls");
    size_t call_count = json_kind(calls) == JSON_ARRAY ? json_count(calls) : 0;
    struct text role = text_of(message, "role");
    if (!role.bytes) {
        json_write(out, message);
        return;
    }
    if (!strcmp(role.bytes, "developer"))
        role = text_from("system");
    str_add(out, "{\"role\":");
    json_quote(out, role.bytes, role.length);
    add_content(out, message, call_count != 0);
    struct text reasoning = text_of(message, "reasoning_content");
    if (!reasoning.bytes)
        reasoning = text_of(message, "reasoning");
    add_text(out, "reasoning_content", reasoning);
    add_text(out, "name", text_of(message, "name"));
    add_text(out, "tool_call_id", text_of(message, "tool_call_id"));
    for (size_t i = 0; i < call_count; i++) {
        str_add(out, i ? "," : ",\"tool_calls\":[");
        add_call(out, json_at(calls, i));
    }
    str_add(out, call_count ? "]}" : "}");
}

static void add_messages(struct str *out, const struct json_value *messages)
{
    str_add(out, "{\"messages\":");
    if (json_kind(messages) != JSON_ARRAY) {
        json_write(out, messages);
        return;
    }
    str_add(out, "[");
    for (size_t i = 0; i < json_count(messages); i++) {
        str_add(out, i ? "," : "");
        add_message(out, json_at(messages, i));
    }
    str_add(out, "]");
}

void chat_record_write(const struct chat_request *request, struct str *out)
{
    const struct json_value *tools = request->tools;
    bool none = json_kind(tools) == JSON_ARRAY && !json_count(tools);
    add_messages(out, request->messages);
    str_add(out, ",\"tools\":");
    json_write(out, none ? NULL : tools);
    str_add(out, ",\"documents\":");
    json_write(out, request->documents);
    str_addf(out, ",\"add_generation_prompt\":%s,\"continue_final_message\":%s",
             request->add_generation_prompt ? "true" : "false",
             request->continue_final_message ? "true" : "false");
    str_add(out, ",\"chat_template_kwargs\":");
    if (request->kwargs)
        json_write(out, request->kwargs);
    else
        str_add(out, "{}");
    str_add(out, "}");
}
