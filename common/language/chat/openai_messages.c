#include "common/language/chat/openai_messages.h"

#include "common/language/chat/json_values.h"
#include "common/language/template/value.h"

#define ARGUMENTS_LIMIT_BYTES (8u << 20)

struct value *member_of(struct value object, const char *key)
{
    uint64_t steps = UINT64_MAX;
    if (object.kind != VALUE_DICT)
        return NULL;
    return (struct value *)value_dict_find(object.dict, value_literal(key), &steps);
}

static enum status parse_arguments(struct arena *arena, struct value *arguments, struct error *err)
{
    struct json *json;
    struct json_limits limits = {.max_bytes = ARGUMENTS_LIMIT_BYTES,
                                 .max_depth = JSON_VALUES_LIMIT_DEPTH};
    struct json_values values = {.arena = arena, .copies = true};
    struct value parsed;
    if (json_parse(arguments->text.bytes, arguments->text.length, limits, &json, NULL) != STATUS_OK)
        return STATUS_OK; /* the template gets what the client sent */
    enum status status = STATUS_OK;
    if (json_kind(json_root(json)) == JSON_OBJECT)
        status = json_values_make(&values, json_root(json), &parsed, err);
    if (status == STATUS_OK && json_kind(json_root(json)) == JSON_OBJECT)
        *arguments = parsed;
    json_destroy(json);
    return status;
}

static enum status adapt_calls(struct arena *arena, struct value message, struct error *err)
{
    const struct value *calls = member_of(message, "tool_calls");
    if (!calls || calls->kind != VALUE_LIST)
        return STATUS_OK;
    for (size_t i = 0; i < calls->sequence->count; i++) {
        const struct value *function = member_of(calls->sequence->items[i], "function");
        struct value *arguments = function ? member_of(*function, "arguments") : NULL;
        if (!arguments || arguments->kind != VALUE_STRING)
            continue;
        enum status status = parse_arguments(arena, arguments, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "the arguments of a tool call");
    }
    return STATUS_OK;
}

/* {"type": "text", "text": "..."}: its text, or NULL. */
static const struct value *text_of_part(struct value part)
{
    const struct value *type = member_of(part, "type"), *text = member_of(part, "text");
    bool good = type && text && value_is_text(*type, "text") && text->kind == VALUE_STRING;
    return good ? text : NULL;
}

static enum status join_parts(struct arena *arena, struct value message, struct error *err)
{
    struct value *content = member_of(message, "content");
    struct text_builder builder;
    if (!content || content->kind != VALUE_LIST)
        return STATUS_OK;
    text_builder_init(&builder, arena, arena->limit_bytes);
    for (size_t i = 0; i < content->sequence->count; i++) {
        const struct value *text = text_of_part(content->sequence->items[i]);
        if (!text)
            return STATUS_OK;
        if (i)
            text_builder_add(&builder, "\n", 1, true);
        text_builder_string(&builder, *text);
    }
    if (builder.full)
        return error_set(err, STATUS_LIMIT, "the request takes too much memory");
    *content = text_builder_finish(&builder);
    return STATUS_OK;
}

static bool has_calls(struct value message)
{
    const struct value *calls = member_of(message, "tool_calls");
    return calls && calls->kind == VALUE_LIST && calls->sequence->count > 0;
}

/* That of an assistant's message may be null or left out, as where it calls tools: templates look
 * for things in it, but for those that know by the null that it calls. */
static enum status fill_content(struct arena *arena, struct value message, bool takes_null,
                                struct error *err)
{
    const struct value *role = member_of(message, "role");
    struct value *content = member_of(message, "content");
    uint64_t steps = UINT64_MAX;
    if (!role || !value_is_text(*role, "assistant") || (content && content->kind != VALUE_NONE))
        return STATUS_OK;
    struct value filled = takes_null && has_calls(message) ? value_none() : value_literal("");
    if (!value_dict_put(arena, message.dict, value_literal("content"), filled, &steps))
        return error_set(err, STATUS_LIMIT, "the request takes too much memory");
    return STATUS_OK;
}

enum status openai_messages_adapt(struct arena *arena, struct value messages,
                                  struct content_forms takes, struct error *err)
{
    for (size_t i = 0; i < messages.sequence->count; i++) {
        enum status status = adapt_calls(arena, messages.sequence->items[i], err);
        if (status == STATUS_OK)
            status = fill_content(arena, messages.sequence->items[i], takes.null, err);
        if (status == STATUS_OK && !takes.parts)
            status = join_parts(arena, messages.sequence->items[i], err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"messages\"[%zu]", i);
    }
    return STATUS_OK;
}
