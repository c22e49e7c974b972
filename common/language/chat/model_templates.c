#include "common/language/chat/model_templates.h"

#include "common/base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

const struct template *model_templates_find(const struct chat_template *chat, const char *name)
{
    for (size_t i = 0; i < chat->count; i++)
        if (!strcmp(chat->templates[i].name, name))
            return chat->templates[i].template;
    return NULL;
}

const char *chat_template_source(const struct chat_template *chat)
{
    for (size_t i = 0; i < chat->count; i++)
        if (!strcmp(chat->templates[i].name, "tool_use"))
            return chat->templates[i].source;
    return chat->count ? chat->templates[0].source : "";
}

static enum status add_template(struct chat_template *chat, const char *name, const char *source,
                                size_t length, struct error *err)
{
    if (chat->count == CHAT_TEMPLATE_LIMIT_NAMED)
        return error_set(err, STATUS_LIMIT, "more than %d chat templates",
                         CHAT_TEMPLATE_LIMIT_NAMED);
    struct named_template *named = &chat->templates[chat->count];
    if (strlen(name) >= sizeof named->name || model_templates_find(chat, name))
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

/* ------------------------------------------------------------------------------------- files */

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
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not to wait at a pipe */
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
    *chat = made;
    return STATUS_OK;
}

/* -------------------------------------------------------------------------------------
 * tokenizer_config.json */

/* A string, or an object with "content". */
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
    if (!model_templates_find(chat, "default"))
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
    *chat = made;
    return STATUS_OK;
}
