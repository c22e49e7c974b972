#include "common/language/chat/chat_template.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/base/utf8.h"
#include "common/language/chat/json_values.h"
#include "common/language/template/python_text.h"
#include "common/language/template/value.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- a model's folder --- */

#define SPECIAL_TOKENS 7

struct chat_template {
    struct named_template {
        char name[64];
        struct template *template;
        char *source;
    } templates[CHAT_TEMPLATE_LIMIT_NAMED];
    size_t count;
    struct special_token {
        const char *name; /* "bos_token" */
        char *text;       /* NULL: the model has none */
        size_t length;
    } specials[SPECIAL_TOKENS];
    struct chat_forms forms;
};

#define CONFIG_DEPTH 32
#define PATH_BYTES   4096

static struct chat_template *make(void)
{
    static const char *const names[SPECIAL_TOKENS] = {
        "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
    struct chat_template *made = calloc(1, sizeof *made);
    ASSERT(made);
    for (size_t i = 0; i < SPECIAL_TOKENS; i++)
        made->specials[i].name = names[i];
    return made;
}

void chat_template_close(struct chat_template *chat)
{
    if (!chat)
        return;
    for (size_t i = 0; i < chat->count; i++) {
        template_destroy(chat->templates[i].template);
        free(chat->templates[i].source);
    }
    for (size_t i = 0; i < SPECIAL_TOKENS; i++)
        free(chat->specials[i].text);
    free(chat);
}

static const struct template *find_template(const struct chat_template *chat, const char *name)
{
    for (size_t i = 0; i < chat->count; i++)
        if (!strcmp(chat->templates[i].name, name))
            return chat->templates[i].template;
    return NULL;
}

bool chat_template_mentions(const struct chat_template *chat, const char *text)
{
    bool found = false;
    for (size_t i = 0; i < chat->count; i++)
        found |= strstr(chat->templates[i].source, text) != NULL;
    return found;
}

const struct chat_forms *chat_template_forms(const struct chat_template *chat)
{
    return &chat->forms;
}

static enum status add_template(struct chat_template *chat, const char *name, const char *source,
                                size_t length, struct error *err)
{
    if (chat->count == CHAT_TEMPLATE_LIMIT_NAMED)
        return error_set(err, STATUS_LIMIT, "more than %d chat templates",
                         CHAT_TEMPLATE_LIMIT_NAMED);
    struct named_template *named = &chat->templates[chat->count];
    if (strlen(name) >= sizeof named->name || find_template(chat, name))
        return error_set(err, STATUS_INVALID,
                         "\"%.40s\" is too long a name of a chat template, or is there twice",
                         name);
    enum status status = template_compile(source, length, &named->template, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "chat template \"%s\"", name);
    strcpy(named->name, name);
    named->source = strndup(source, length);
    ASSERT(named->source);
    chat->count++;
    return STATUS_OK;
}

/* --- files --- */

static enum status read_open(int fd, char **text, size_t *length, struct error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return error_set(err, STATUS_IO, "%s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return error_set(err, STATUS_INVALID, "not a regular file");
    if (info.st_size > TEMPLATE_LIMIT_SOURCE)
        return error_set(err, STATUS_LIMIT, "%lld bytes are over the limit of %u",
                         (long long)info.st_size, TEMPLATE_LIMIT_SOURCE);
    char *bytes = malloc((size_t)info.st_size + 1);
    ASSERT(bytes);
    size_t at = 0;
    while (at < (size_t)info.st_size) {
        ssize_t got = read(fd, bytes + at, (size_t)info.st_size - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            free(bytes);
            return error_set(err, STATUS_IO, "%s",
                             got ? strerror(errno) : "it became shorter while it was read");
        }
        at += (size_t)got;
    }
    *text = bytes;
    *length = at;
    return STATUS_OK;
}

static enum status read_template(const char *path, struct chat_template *chat, struct error *err)
{
    char *text = NULL;
    size_t length = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* don't wait at a pipe */
    if (fd < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: %s", path,
                         strerror(errno));
    enum status status = read_open(fd, &text, &length, err);
    close(fd);
    if (status == STATUS_OK) {
        status = add_template(chat, "default", text, length, err);
        free(text);
    }
    return status == STATUS_OK ? status : error_prefix(err, status, "%s", path);
}

enum status chat_template_open_file(const char *path, struct chat_template **chat,
                                    struct error *err)
{
    struct chat_template *made = make();
    enum status status = read_template(path, made, err);
    if (status != STATUS_OK) {
        chat_template_close(made);
        return status;
    }
    chat_forms_find(made, &made->forms);
    *chat = made;
    return STATUS_OK;
}

/* --- tokenizer_config.json --- */

/* Reads a string, or an object with "content". */
static enum status read_special(const struct json_value *root, struct special_token *special,
                                struct error *err)
{
    const struct json_value *token = json_find(root, special->name);
    const char *text;
    if (json_kind(token) == JSON_OBJECT)
        token = json_find(token, "content");
    if (!token)
        return STATUS_OK;
    enum status status = json_as_string(token, &text, &special->length, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "\"%s\"", special->name);
    special->text = malloc(special->length + 1);
    ASSERT(special->text);
    memcpy(special->text, text, special->length + 1);
    return STATUS_OK;
}

static enum status read_named(const struct json_value *json, struct chat_template *chat,
                              struct error *err)
{
    for (size_t i = 0; i < json_count(json); i++) {
        const char *name, *source;
        size_t length;
        TRY(json_get_string(json_at(json, i), "name", &name, NULL, err));
        TRY(json_get_string(json_at(json, i), "template", &source, &length, err));
        TRY(add_template(chat, name, source, length, err));
    }
    if (!find_template(chat, "default"))
        return error_set(err, STATUS_INVALID, "none of the named templates is \"default\"");
    return STATUS_OK;
}

static enum status read_config(const struct json_value *root, struct chat_template *chat,
                               struct error *err)
{
    const struct json_value *json = json_find(root, "chat_template");
    const char *source;
    size_t length;
    for (size_t i = 0; i < SPECIAL_TOKENS; i++)
        TRY(read_special(root, &chat->specials[i], err));
    if (chat->count || !json) /* a file of its own goes first */
        return STATUS_OK;
    if (json_kind(json) == JSON_ARRAY) {
        enum status status = read_named(json, chat, err);
        return status == STATUS_OK ? status : error_prefix(err, status, "\"chat_template\"");
    }
    enum status status = json_as_string(json, &source, &length, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "\"chat_template\"");
    return add_template(chat, "default", source, length, err);
}

static enum status read_folder(const char *folder, struct chat_template *chat, struct error *err)
{
    char path[PATH_BYTES];
    struct json *json;
    if (snprintf(path, sizeof path, "%s/chat_template.jinja", folder) >= (int)sizeof path - 16)
        return error_set(err, STATUS_LIMIT, "the folder's path is too long");
    enum status status = read_template(path, chat, err);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        return status;
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    struct json_limits limits = {.max_bytes = CHAT_TEMPLATE_LIMIT_FILE, .max_depth = CONFIG_DEPTH};
    status = json_read_file(path, limits, &json, err);
    if (status == STATUS_OK) {
        status = read_config(json_root(json), chat, err);
        json_destroy(json);
        if (status != STATUS_OK)
            return error_prefix(err, status, "%s", path);
    }
    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        return status;
    struct stat found;
    if (!chat->count && (stat(folder, &found) != 0 || !S_ISDIR(found.st_mode)))
        return error_set(err, STATUS_NOT_FOUND, "%s: no such folder", folder);
    if (!chat->count)
        return error_set(err, STATUS_NOT_FOUND,
                         "%s: no chat template, neither chat_template.jinja nor \"chat_template\" "
                         "in tokenizer_config.json",
                         folder);
    return STATUS_OK;
}

enum status chat_template_open(const char *folder, struct chat_template **chat, struct error *err)
{
    struct chat_template *made = make();
    enum status status = read_folder(folder, made, err);
    if (status != STATUS_OK) {
        chat_template_close(made);
        return status;
    }
    chat_forms_find(made, &made->forms);
    *chat = made;
    return STATUS_OK;
}

/* --- rendering --- */

#define FIXED_VARIABLES 4 /* messages, tools, documents, add_generation_prompt */
#define MAX_VARIABLES   (FIXED_VARIABLES + SPECIAL_TOKENS + CHAT_TEMPLATE_LIMIT_KWARGS)

struct rendering {
    const struct chat_template *chat;
    const struct chat_request *request;
    struct arena *arena;
    const struct template *template;
    struct template_variable variables[MAX_VARIABLES];
    size_t count;
    struct value messages;
};

/* A known role is the template's text, not the request's: "<|" + role + "|>" makes a token. */
static bool is_known_role(const char *role, size_t length)
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

/* --- variables --- */

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
            is_known_role(role->text.bytes, role->text.length))
            role->is_input = false;
    }
    if (request->openai) {
        struct content_forms takes = {
            .parts = template_loops_over(rendering->template, "content"),
            .null = template_asks_for_none(rendering->template, "content"),
            .text_arguments = request->text_arguments || rendering->chat->forms.text_arguments};
        TRY(openai_messages_adapt(rendering->arena, request->messages, rendering->messages, takes,
                                  err));
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
        rendering->template = find_template(rendering->chat, "tool_use");
    if (!rendering->template)
        rendering->template = find_template(rendering->chat, "default");
    ASSERT(rendering->template);
    TRY(add_messages(rendering, err));
    TRY(add_array(rendering, "tools", request->tools, err));
    TRY(add_array(rendering, "documents", request->documents, err));
    add_variable(rendering, "add_generation_prompt", value_bool(request->add_generation_prompt));
    add_specials(rendering);
    return add_kwargs(rendering, err);
}

/* --- continue_final_message --- */

/* Returns the text of the last message: its content, or its last part with a text. */
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

/* Returns the last place of `part`. Searches from behind, in time that is linear in both. */
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

/* Cuts the prompt behind the last message's text, as transformers: without white space that the
 * template has trimmed. */
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

/* --- the prompt --- */

static enum status finish(struct rendering *rendering, struct value text,
                          struct chat_prompt *prompt, struct error *err)
{
    if (rendering->request->continue_final_message)
        TRY(cut_behind_final(rendering, &text, err));
    if (text.text.length > CHAT_TEMPLATE_LIMIT_TEXT)
        return error_set(err, STATUS_LIMIT, "the prompt of %zu bytes is over the limit of %u",
                         text.text.length, CHAT_TEMPLATE_LIMIT_TEXT);
    size_t count = 0, runs = 0;
    for (size_t i = 0; i < text.text.length; i++)
        runs += text_is_input(text, i) && (i == 0 || !text_is_input(text, i - 1));
    struct byte_range *inputs = arena_take(rendering->arena, (runs + 1) * sizeof *inputs);
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

static enum status render(struct rendering *rendering, struct chat_prompt *prompt,
                          struct chat_failure *failure, struct error *err)
{
    struct template_output output;
    TRY(prepare(rendering, err));
    enum status status =
        template_render(rendering->template, rendering->arena, rendering->variables,
                        rendering->count, rendering->request->now, &output, err);
    if (status != STATUS_OK) {
        struct value_text message = output.message.text;
        size_t length =
            message.length <= TEMPLATE_LIMIT_MESSAGE ? message.length : TEMPLATE_LIMIT_MESSAGE;
        memcpy(failure->message, message.bytes, length);
        failure->message[length] = 0;
        failure->by_template = true;
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

enum status chat_encode(const struct tokenizer *tokenizer, const struct chat_prompt *prompt,
                        struct token_ids *ids, struct error *err)
{
    return tokenizer_encode_parts(tokenizer, prompt->text, prompt->length, prompt->inputs,
                                  prompt->input_count, false, ids, err);
}
