#include "router/served_models.h"

#include "common/base/str.h"

#include <stdio.h>
#include <string.h>

#define NAMES_BYTES 300 /* of one sentence */

static enum status open_one(const struct model_entry *entry, struct served_models *models,
                            struct error *err)
{
    struct served_model *model = &models->items[models->count];
    enum status status = served_model_open(entry->dir, entry->name, model, err);
    if (status != STATUS_OK)
        return *entry->name ? error_prefix(err, status, "model %s", entry->name) : status;
    bool known = served_models_index(models, model->name) < models->count;
    models->count++;
    if (!known)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "two models are called %s, the second is of %.200s: give one of them another "
                     "name, NAME=DIR",
                     model->name, entry->dir);
}

enum status served_models_open(const struct model_list *list, struct served_models *models,
                               struct error *err)
{
    models->count = 0;
    for (size_t i = 0; i < list->count; i++) {
        enum status status = open_one(&list->items[i], models, err);
        if (status != STATUS_OK) {
            served_models_close(models);
            return status;
        }
    }
    return STATUS_OK;
}

void served_models_close(struct served_models *models)
{
    while (models->count)
        served_model_close(&models->items[--models->count]);
}

size_t served_models_index(const struct served_models *models, const char *name)
{
    size_t index = 0;
    while (index < models->count && strcmp(models->items[index].name, name))
        index++;
    return index;
}

void served_models_names(const struct served_models *models, char *text, size_t size)
{
    struct str names;
    str_init(&names, size - 1);
    for (size_t i = 0; i < models->count; i++) {
        size_t left = models->count - i;
        const char *before = !i ? "" : left == 1 ? " and " : ", ";
        if (i && left > 1 && names.length + strlen(models->items[i].name) > NAMES_BYTES / 2) {
            str_addf(&names, " and %zu more", left);
            break;
        }
        str_addf(&names, "%s\"%s\"", before, models->items[i].name);
    }
    str_copy(text, size, names.data);
    str_deinit(&names);
}

enum reason served_models_find(const struct served_models *models, const char *name, size_t *index,
                               struct error *err)
{
    char names[NAMES_BYTES];
    size_t found = *name || models->count > 1 ? served_models_index(models, name) : 0;
    if (found < models->count) {
        *index = found;
        return REASON_NONE;
    }
    served_models_names(models, names, sizeof names);
    if (!*name) {
        error_set(err, STATUS_INVALID, "the request names no model, and several are served: %s",
                  names);
        return REASON_MISSING_MODEL;
    }
    error_set(err, STATUS_NOT_FOUND, "model \"%.64s\" is not served here; %s %s", name, names,
              models->count == 1 ? "is" : "are");
    return REASON_MODEL_NOT_FOUND;
}

void served_models_say_full(const struct served_models *models, size_t index, struct error *err)
{
    if (models->count == 1)
        error_set(err, STATUS_LIMIT, "%s", reason_when(REASON_OVERLOADED));
    else
        error_set(err, STATUS_LIMIT,
                  "too many requests for model \"%s\" are here: what is free is kept for other "
                  "models; try again later",
                  models->items[index].name);
}
