#include "common/language/model_config/model_list.h"

#include "common/base/str.h"

#include <string.h>

/* Reads one entry of `length` bytes. */
static enum status parse_entry(const char *text, size_t length, struct model_entry *entry,
                               struct error *err)
{
    int shown = length < 200 ? (int)length : 200;
    size_t name = 0;
    while (name < length && text[name] != '=' && text[name] != '/')
        name++;
    bool named = name < length && text[name] == '=';
    const char *dir = named ? text + name + 1 : text;
    size_t dir_length = named ? length - name - 1 : length;
    *entry = (struct model_entry){.name = ""};
    if (!dir_length)
        return error_set(err, STATUS_INVALID,
                         "'%.*s' names no folder: a model is DIR, or NAME=DIR, several with commas",
                         shown, text);
    if (named && !name)
        return error_set(err, STATUS_INVALID,
                         "'%.*s' has no name before the equals sign: write NAME=DIR, or ./ before "
                         "a folder of that name",
                         shown, text);
    if ((named && name >= sizeof entry->name) || dir_length >= sizeof entry->dir)
        return error_set(err, STATUS_INVALID,
                         "'%.*s...' is too long: a name has %zu bytes at most, a folder's path %zu",
                         shown, text, sizeof entry->name - 1, sizeof entry->dir - 1);
    if (named)
        memcpy(entry->name, text, name);
    memcpy(entry->dir, dir, dir_length);
    return STATUS_OK;
}

enum status model_list_parse(const char *text, struct model_list *out, struct error *err)
{
    struct model_list list = {.count = 0};
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (list.count == MODEL_LIST_MAX)
            return error_set(err, STATUS_LIMIT, "more than %d models", MODEL_LIST_MAX);
        struct model_entry *entry = &list.items[list.count];
        TRY(parse_entry(at, length, entry, err));
        for (size_t i = 0; i < list.count; i++)
            if (*entry->name && !strcmp(entry->name, list.items[i].name))
                return error_set(err, STATUS_INVALID, "two models are called %s: %.200s and %.200s",
                                 entry->name, list.items[i].dir, entry->dir);
        list.count++;
        at += length;
        if (!*at)
            break;
    }
    *out = list;
    return STATUS_OK;
}

enum status model_list_name(struct model_list *list, const char *name, struct error *err)
{
    if (!*name)
        return STATUS_OK;
    if (list->count != 1)
        return error_set(err, STATUS_INVALID,
                         "--model-name %.100s, but --model has %zu models: give each its name "
                         "there, NAME=DIR",
                         name, list->count);
    if (*list->items[0].name && strcmp(list->items[0].name, name))
        return error_set(err, STATUS_INVALID,
                         "--model-name is %.100s but --model has the name %s: set one of them",
                         name, list->items[0].name);
    if (!str_copy(list->items[0].name, sizeof list->items[0].name, name))
        return error_set(err, STATUS_INVALID, "the model's name is longer than %zu bytes",
                         sizeof list->items[0].name - 1);
    return STATUS_OK;
}

enum status model_list_check(const char *text, struct error *err)
{
    struct model_list list;
    return model_list_parse(text, &list, err);
}
