#include "common/language/chat/json_values.h"

#include "common/base/arena.h"
#include "common/base/json/json_write.h"
#include "common/base/str.h"
#include "common/language/template/value.h"

#include <float.h>
#include <string.h>

static enum status make(const struct json_values *values, const struct json_value *json, int depth,
                        struct value *out, struct error *err);

static enum status full(struct error *err)
{
    return error_set(err, STATUS_LIMIT, "the request takes too much memory");
}

static enum status make_string(const struct json_values *values, const char *text, size_t length,
                               struct value *out, struct error *err)
{
    if (values->copies && !(text = arena_copy(values->arena, text, length + 1)))
        return full(err);
    *out = value_string(text, length, true);
    return STATUS_OK;
}

static enum status make_list(const struct json_values *values, const struct json_value *json,
                             int depth, struct value *out, struct error *err)
{
    struct value_sequence *list = value_sequence_make(values->arena, "list", json_count(json));
    if (!list)
        return full(err);
    for (; list->count < json_count(json); list->count++) {
        enum status status =
            make(values, json_at(json, list->count), depth + 1, &list->items[list->count], err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "[%zu]", list->count);
    }
    *out = value_sequence(VALUE_LIST, list);
    return STATUS_OK;
}

static enum status make_dict(const struct json_values *values, const struct json_value *json,
                             int depth, struct value *out, struct error *err)
{
    struct value_dict *dict = value_dict_make(values->arena, json_count(json));
    if (!dict)
        return full(err);
    for (struct json_member m = {0}; json_next(json, &m);) {
        struct value key, value;
        TRY(make_string(values, m.key, strlen(m.key), &key, err));
        enum status status = make(values, m.value, depth + 1, &value, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"%.40s\"", m.key);
        if (!value_dict_add(values->arena, dict, key, value))
            return full(err);
    }
    *out = value_dict(dict);
    return STATUS_OK;
}

static enum status make(const struct json_values *values, const struct json_value *json, int depth,
                        struct value *out, struct error *err)
{
    const char *text;
    size_t length;
    bool boolean;
    int64_t integer;
    double real;
    if (depth > JSON_VALUES_LIMIT_DEPTH)
        return error_set(err, STATUS_LIMIT, "nested deeper than %d", JSON_VALUES_LIMIT_DEPTH);
    switch (json_kind(json)) {
    case JSON_BOOL:
        TRY(json_as_bool(json, &boolean, err));
        *out = value_bool(boolean);
        return STATUS_OK;
    case JSON_INTEGER: /* the smallest has no negative, which a template may compute */
        TRY(json_as_i64(json, INT64_MIN + 1, INT64_MAX, &integer, err));
        *out = value_int(integer);
        return STATUS_OK;
    case JSON_NUMBER:
        TRY(json_as_double(json, -DBL_MAX, DBL_MAX, &real, err));
        *out = value_float(real);
        return STATUS_OK;
    case JSON_STRING:
        TRY(json_as_string(json, &text, &length, err));
        return make_string(values, text, length, out, err);
    case JSON_ARRAY: return make_list(values, json, depth, out, err);
    case JSON_OBJECT: return make_dict(values, json, depth, out, err);
    default: *out = value_none(); return STATUS_OK;
    }
}

enum status json_values_make(const struct json_values *values, const struct json_value *json,
                             struct value *out, struct error *err)
{
    return make(values, json, 0, out, err);
}

/* --- messages of OpenAI's clients --- */

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
        return STATUS_OK; /* the template gets the client's text */
    enum status status = STATUS_OK;
    if (json_kind(json_root(json)) == JSON_OBJECT)
        status = json_values_make(&values, json_root(json), &parsed, err);
    if (status == STATUS_OK && json_kind(json_root(json)) == JSON_OBJECT)
        *arguments = parsed;
    json_destroy(json);
    return status;
}

/* Arguments that are an object become its text, as the request has it. */
static enum status write_arguments(struct arena *arena, const struct json_value *json,
                                   struct value *arguments, struct error *err)
{
    struct str text;
    str_init(&text, ARGUMENTS_LIMIT_BYTES);
    json_write(&text, json);
    const char *copy = text.truncated ? NULL : arena_copy(arena, text.data, text.length + 1);
    if (copy)
        *arguments = value_string(copy, text.length, true);
    str_deinit(&text);
    return copy ? STATUS_OK : full(err);
}

/* `json`: the message that `message` was made of. */
static enum status adapt_calls(struct arena *arena, const struct json_value *json,
                               struct value message, bool as_text, struct error *err)
{
    const struct value *calls = member_of(message, "tool_calls");
    if (!calls || calls->kind != VALUE_LIST)
        return STATUS_OK;
    for (size_t i = 0; i < calls->sequence->count; i++) {
        const struct json_value *call = json_at(json_find(json, "tool_calls"), i);
        const struct value *function = member_of(calls->sequence->items[i], "function");
        struct value *arguments = function ? member_of(*function, "arguments") : NULL;
        enum status status = STATUS_OK;
        if (!as_text && arguments && arguments->kind == VALUE_STRING)
            status = parse_arguments(arena, arguments, err);
        else if (as_text && arguments && arguments->kind == VALUE_DICT)
            status = write_arguments(arena, json_find(json_find(call, "function"), "arguments"),
                                     arguments, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "the arguments of a tool call");
    }
    return STATUS_OK;
}

static enum status join_parts(struct arena *arena, struct value message, struct error *err)
{
    struct value *content = member_of(message, "content");
    struct text_builder builder;
    if (!content || content->kind != VALUE_LIST)
        return STATUS_OK;
    text_builder_init(&builder, arena, arena->limit_bytes);
    for (size_t i = 0; i < content->sequence->count; i++) {
        struct value part = content->sequence->items[i]; /* {"type": "text", "text": "..."} */
        const struct value *type = member_of(part, "type"), *text = member_of(part, "text");
        if (!type || !text || !value_is_text(*type, "text") || text->kind != VALUE_STRING)
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

/* An assistant's content may be null or missing, mostly when it calls tools. Most templates search
 * in it, so it becomes "". A template that tests it for null keeps the null of a call. */
static enum status fill_content(struct arena *arena, struct value message, bool takes_null,
                                struct error *err)
{
    const struct value *role = member_of(message, "role");
    struct value *content = member_of(message, "content");
    uint64_t steps = UINT64_MAX;
    if (!role || !value_is_text(*role, "assistant") || (content && content->kind != VALUE_NONE))
        return STATUS_OK;
    const struct value *calls = member_of(message, "tool_calls");
    bool has_calls = calls && calls->kind == VALUE_LIST && calls->sequence->count > 0;
    struct value filled = takes_null && has_calls ? value_none() : value_literal("");
    if (!value_dict_put(arena, message.dict, value_literal("content"), filled, &steps))
        return error_set(err, STATUS_LIMIT, "the request takes too much memory");
    return STATUS_OK;
}

enum status openai_messages_adapt(struct arena *arena, const struct json_value *json,
                                  struct value messages, struct content_forms takes,
                                  struct error *err)
{
    for (size_t i = 0; i < messages.sequence->count; i++) {
        enum status status = adapt_calls(arena, json_at(json, i), messages.sequence->items[i],
                                         takes.text_arguments, err);
        if (status == STATUS_OK)
            status = fill_content(arena, messages.sequence->items[i], takes.null, err);
        if (status == STATUS_OK && !takes.parts)
            status = join_parts(arena, messages.sequence->items[i], err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"messages\"[%zu]", i);
    }
    return STATUS_OK;
}
