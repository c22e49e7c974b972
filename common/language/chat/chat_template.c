#include "common/language/chat/chat_template.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/base/utf8.h"
#include "common/language/chat/json_values.h"
#include "common/language/chat/model_templates.h"
#include "common/language/chat/openai_messages.h"
#include "common/language/template/python_text.h"
#include "common/language/template/value.h"

#include <string.h>

#define FIXED_VARIABLES 4 /* messages, tools, documents, add_generation_prompt */
#define MAX_VARIABLES   (FIXED_VARIABLES + SPECIAL_TOKENS + CHAT_TEMPLATE_LIMIT_KWARGS)

/* One rendering. */
struct rendering {
    const struct chat_template *chat;
    const struct chat_request *request;
    struct arena *arena;
    const struct template *template;
    struct template_variable variables[MAX_VARIABLES];
    size_t count;
    struct value messages;
};

bool chat_role_is_known(const char *role, size_t length)
{
    static const char *const roles[] = {"system", "developer", "user",         "assistant",
                                        "tool",   "function",  "tool_results", "ipython"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strlen(roles[i]) == length && !memcmp(roles[i], role, length))
            return true;
    return false;
}

static void add_variable(struct rendering *rendering, const char *name, struct value value)
{
    ASSERT(rendering->count < MAX_VARIABLES);
    rendering->variables[rendering->count++] = (struct template_variable){name, value};
}

static enum status make_value(struct rendering *rendering, const char *key,
                              const struct json_value *json, struct value *out, struct error *err)
{
    struct json_values values = {.arena = rendering->arena};
    enum status status = json_values_make(&values, json, out, err);
    return status == STATUS_OK ? status : error_prefix(err, status, "\"%s\"", key);
}

/* -------------------------------------------------------------------------------------
 * variables */

static enum status check_messages(const struct chat_request *request, struct error *err)
{
    if (json_kind(request->messages) != JSON_ARRAY || json_count(request->messages) == 0)
        return error_set(err, STATUS_INVALID,
                         "\"messages\" must be an array with at least one message");
    for (size_t i = 0; i < json_count(request->messages); i++)
        if (json_kind(json_at(request->messages, i)) != JSON_OBJECT)
            return error_set(err, STATUS_INVALID, "\"messages\"[%zu] must be an object, not %s", i,
                             json_kind_name(json_at(request->messages, i)));
    return STATUS_OK;
}

static enum status add_messages(struct rendering *rendering, struct error *err)
{
    const struct chat_request *request = rendering->request;
    TRY(check_messages(request, err));
    TRY(make_value(rendering, "messages", request->messages, &rendering->messages, err));
    for (size_t i = 0; i < rendering->messages.sequence->count; i++) {
        struct value *role = member_of(rendering->messages.sequence->items[i], "role");
        if (role && role->kind == VALUE_STRING &&
            chat_role_is_known(role->text.bytes, role->text.length))
            role->is_input = false;
    }
    if (request->openai) {
        struct content_forms takes = {.parts = template_loops_over(rendering->template, "content"),
                                      .null =
                                          template_asks_for_none(rendering->template, "content")};
        TRY(openai_messages_adapt(rendering->arena, rendering->messages, takes, err));
    }
    add_variable(rendering, "messages", rendering->messages);
    return STATUS_OK;
}

static enum status add_array(struct rendering *rendering, const char *name,
                             const struct json_value *json, struct error *err)
{
    struct value value = value_none();
    if (json && json_kind(json) != JSON_ARRAY)
        return error_set(err, STATUS_INVALID, "\"%s\" must be an array, not %s", name,
                         json_kind_name(json));
    if (json)
        TRY(make_value(rendering, name, json, &value, err));
    add_variable(rendering, name, value);
    return STATUS_OK;
}

static void add_specials(struct rendering *rendering)
{
    const struct chat_request *request = rendering->request;
    for (size_t i = 0; i < SPECIAL_TOKENS; i++) {
        const struct special_token *special = &rendering->chat->specials[i];
        const char *given = !strcmp(special->name, "bos_token")   ? request->bos
                            : !strcmp(special->name, "eos_token") ? request->eos
                                                                  : NULL;
        if (given)
            add_variable(rendering, special->name, value_literal(given));
        else if (special->text)
            add_variable(rendering, special->name,
                         value_string(special->text, special->length, false));
    }
}

static enum status add_kwargs(struct rendering *rendering, struct error *err)
{
    const struct json_value *kwargs = rendering->request->kwargs;
    if (kwargs && json_kind(kwargs) != JSON_OBJECT)
        return error_set(err, STATUS_INVALID, "the template's arguments must be an object, not %s",
                         json_kind_name(kwargs));
    if (json_count(kwargs) > CHAT_TEMPLATE_LIMIT_KWARGS)
        return error_set(err, STATUS_LIMIT, "more than %d arguments of the template",
                         CHAT_TEMPLATE_LIMIT_KWARGS);
    for (struct json_member m = {0}; json_next(kwargs, &m);) {
        struct value value;
        for (size_t i = 0; i < FIXED_VARIABLES; i++)
            if (!strcmp(rendering->variables[i].name, m.key))
                return error_set(err, STATUS_INVALID,
                                 "\"%s\" is a field of its own, not an argument of the template",
                                 m.key);
        TRY(make_value(rendering, m.key, m.value, &value, err));
        add_variable(rendering, m.key, value);
    }
    return STATUS_OK;
}

static enum status prepare(struct rendering *rendering, struct error *err)
{
    const struct chat_request *request = rendering->request;
    if (request->add_generation_prompt && request->continue_final_message)
        return error_set(err, STATUS_INVALID,
                         "add_generation_prompt starts a new message, and continue_final_message "
                         "goes on with the last one: ask for one of them");
    if (request->tools)
        rendering->template = model_templates_find(rendering->chat, "tool_use");
    if (!rendering->template)
        rendering->template = model_templates_find(rendering->chat, "default");
    ASSERT(rendering->template);
    TRY(add_messages(rendering, err));
    TRY(add_array(rendering, "tools", request->tools, err));
    TRY(add_array(rendering, "documents", request->documents, err));
    add_variable(rendering, "add_generation_prompt", value_bool(request->add_generation_prompt));
    add_specials(rendering);
    return add_kwargs(rendering, err);
}

/* -------------------------------------------------------------------------------------
 * continue_final_message */

/* The text of the last message: its content, or the last of its parts that has one. */
static const struct value *final_text(const struct rendering *rendering)
{
    const struct value_sequence *messages = rendering->messages.sequence;
    const struct value *content = member_of(messages->items[messages->count - 1], "content");
    if (!content || content->kind == VALUE_STRING)
        return content;
    for (size_t i = value_is_sequence(*content) ? content->sequence->count : 0; i-- > 0;) {
        const struct value *text = member_of(content->sequence->items[i], "text");
        if (text && text->kind == VALUE_STRING)
            return text;
    }
    return NULL;
}

static char *reversed(struct arena *arena, const char *text, size_t length)
{
    char *out = arena_take(arena, length + 1);
    for (size_t i = 0; out && i < length; i++)
        out[i] = text[length - 1 - i];
    return out;
}

/* Where the last one is: looked for from behind, in time that is linear in both. */
static enum status find_last(struct arena *arena, struct value text, struct value part, size_t *at,
                             struct error *err)
{
    char *back = reversed(arena, text.text.bytes, text.text.length);
    char *wanted = reversed(arena, part.text.bytes, part.text.length);
    if (!back || !wanted)
        return error_set(err, STATUS_LIMIT, "the prompt takes too much memory");
    const char *found = memmem(back, text.text.length, wanted, part.text.length);
    if (!found)
        return error_set(err, STATUS_INVALID,
                         "continue_final_message: the template doesn't write the last message as "
                         "it is, so it can't be continued");
    *at = text.text.length - (size_t)(found - back) - part.text.length;
    return STATUS_OK;
}

static size_t leading_spaces(struct value text)
{
    size_t at = 0;
    while (at < text.text.length) {
        struct utf8_char next = utf8_next(text.text.bytes + at, text.text.length - at);
        if (!python_is_space(next.code))
            break;
        at += next.length;
    }
    return at;
}

/* As transformers: up to the end of the last message's text, without white space that the template
 * has trimmed. */
static enum status cut_behind_final(struct rendering *rendering, struct value *text,
                                    struct error *err)
{
    const struct value *final = final_text(rendering);
    size_t at = 0;
    if (!final)
        return error_set(err, STATUS_INVALID,
                         "continue_final_message: the last message has no text to continue");
    size_t end = python_stripped_length(final->text.bytes, final->text.length);
    size_t from = leading_spaces(value_part(*final, 0, end)), whole = final->text.length - from;
    TRY(find_last(rendering->arena, *text, value_part(*final, from, end), &at, err));
    bool kept = from == 0 && text->text.length - at >= whole &&
                !memcmp(text->text.bytes + at, final->text.bytes, whole);
    *text = value_part(*text, 0, at + (kept ? whole : end - from));
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------- the
 * prompt */

static size_t count_runs(struct value text)
{
    size_t runs = 0;
    for (size_t i = 0; i < text.text.length; i++)
        runs += text_is_input(text, i) && (i == 0 || !text_is_input(text, i - 1));
    return runs;
}

static enum status finish(struct rendering *rendering, struct value text,
                          struct chat_prompt *prompt, struct error *err)
{
    if (rendering->request->continue_final_message)
        TRY(cut_behind_final(rendering, &text, err));
    if (text.text.length > CHAT_TEMPLATE_LIMIT_TEXT)
        return error_set(err, STATUS_LIMIT, "the prompt of %zu bytes is over the limit of %u",
                         text.text.length, CHAT_TEMPLATE_LIMIT_TEXT);
    size_t count = 0;
    struct byte_range *inputs =
        arena_take(rendering->arena, (count_runs(text) + 1) * sizeof *inputs);
    if (!inputs)
        return error_set(err, STATUS_LIMIT, "the prompt takes too much memory");
    for (size_t i = 0; i < text.text.length; i++) {
        if (!text_is_input(text, i))
            continue;
        if (i == 0 || !text_is_input(text, i - 1))
            inputs[count++].from = i;
        inputs[count - 1].to = i + 1;
    }
    *prompt = (struct chat_prompt){.text = text.text.bytes,
                                   .length = text.text.length,
                                   .inputs = inputs,
                                   .input_count = count};
    return STATUS_OK;
}

static void tell(struct chat_failure *failure, const struct template_output *output)
{
    struct value_text message = output->message.text;
    size_t length =
        message.length <= TEMPLATE_LIMIT_MESSAGE ? message.length : TEMPLATE_LIMIT_MESSAGE;
    memcpy(failure->message, message.bytes, length);
    failure->message[length] = 0;
    failure->by_template = true;
}

static enum status render(struct rendering *rendering, struct chat_prompt *prompt,
                          struct chat_failure *failure, struct error *err)
{
    struct template_output output;
    TRY(prepare(rendering, err));
    enum status status =
        template_render(rendering->template, rendering->arena, rendering->variables,
                        rendering->count, rendering->request->now, &output, err);
    if (status != STATUS_OK) {
        tell(failure, &output);
        return status;
    }
    return finish(rendering, output.text, prompt, err);
}

enum status chat_template_render(const struct chat_template *chat,
                                 const struct chat_request *request, struct chat_prompt *prompt,
                                 struct chat_failure *failure, struct error *err)
{
    struct arena arena;
    struct error own_err = {""};
    struct chat_failure own_failure;
    if (!failure)
        failure = &own_failure;
    *failure = (struct chat_failure){0};
    arena_init(&arena, CHAT_TEMPLATE_LIMIT_MEMORY);
    struct rendering rendering = {.chat = chat, .request = request, .arena = &arena};
    enum status status = render(&rendering, prompt, failure, &own_err);
    if (status == STATUS_OK) {
        prompt->arena = arena;
        return STATUS_OK;
    }
    arena_deinit(&arena);
    if (!failure->by_template)
        str_copy(failure->message, sizeof failure->message, own_err.text);
    return error_set(err, status, "%s", own_err.text);
}

void chat_prompt_deinit(struct chat_prompt *prompt)
{
    arena_deinit(&prompt->arena);
    *prompt = (struct chat_prompt){0};
}
