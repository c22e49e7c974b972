#include "router/served_models.h"

#include "common/base/log.h"
#include "common/base/str.h"
#include "common/language/model_config/model_config.h"
#include "common/language/text/detokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMES_BYTES 300 /* the names in one sentence */

/* Finds how the template writes calls, and says so with its tags of reasoning. */
static void find_forms(struct served_model *model)
{
    const struct chat_forms *forms = chat_template_forms(model->chat);
    char quoted[2 * CHAT_TAG_BYTES];
    model->tools = tool_format_of(forms);
    log_info("served_model", "model=%s tools=%s reasoning=%s msg=\"chat template\"", model->name,
             tool_format_names[model->tools],
             *forms->reasoning_begin ? log_quote(forms->reasoning_begin, quoted, sizeof quoted)
                                     : "none");
    if (*forms->calls && model->tools == TOOL_FORMAT_NONE)
        log_warn("served_model",
                 "model=%s msg=\"the chat template writes calls of tools in a way that is not "
                 "known: requests with tools are refused\"",
                 model->name);
}

/* A model with an invalid chat template is served too: completions work. */
static void open_chat_template(const char *dir, struct served_model *model)
{
    struct error why;
    enum status status = chat_template_open(dir, &model->chat, &why);
    if (status == STATUS_OK) {
        find_forms(model);
        return;
    }
    char quoted[600];
    model->chat = NULL;
    if (status == STATUS_NOT_FOUND)
        log_info("served_model", "model=%s msg=\"no chat template: completions only\"",
                 model->name);
    else
        log_error("served_model",
                  "model=%s why=%s msg=\"the chat template can't be used: completions only\"",
                  model->name, log_quote(why.text, quoted, sizeof quoted));
}

static void log_end_ids(const struct served_model *model, const struct end_ids *end_ids)
{
    char quoted[1024];
    struct str line;
    str_init(&line, sizeof quoted / 2);
    end_ids_describe(end_ids, &line);
    log_quote(line.data, quoted, sizeof quoted);
    log_write(*end_ids->note.text ? LOG_WARN : LOG_INFO, "served_model",
              "model=%s end_tokens=%s msg=\"these tokens end an answer\"", model->name, quoted);
    str_deinit(&line);
}

/* `name` "": the folder's. The caller of a failed call has nothing to close. */
static enum status open_model(const char *dir, const char *name, struct served_model *out,
                              struct error *err)
{
    char path[PATH_MAX];
    struct served_model model = {.tokenizer = NULL};
    if (!*name)
        TRY(model_folder_name(dir, model.name, sizeof model.name, err));
    else if (!str_copy(model.name, sizeof model.name, name))
        return error_set(err, STATUS_INVALID, "the model's name is longer than %zu bytes",
                         sizeof model.name - 1);
    for (const char *c = model.name; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\')
            return error_set(err, STATUS_INVALID,
                             "the model's name may hold only printable ASCII without blanks and "
                             "quotes: give it one, --model NAME=DIR");
    struct model_config config;
    TRY(model_config_read(dir, &config, err));
    log_end_ids(&model, &config.end_ids);
    if (snprintf(path, sizeof path, "%s/tokenizer.json", dir) >= (int)sizeof path)
        return error_set(err, STATUS_INVALID, "the model folder's path is too long");
    if (!access(path, F_OK))
        TRY(tokenizer_open(path, &model.tokenizer, err));
    model.limits = (struct request_model){.context = config.shape.context,
                                          .vocab = config.shape.vocab,
                                          .has_tokenizer = model.tokenizer != NULL,
                                          .tokens_have_text = model.tokenizer &&
                                                              token_text_is_known(model.tokenizer),
                                          .defaults = config.defaults};
    open_chat_template(dir, &model);
    model.config_hash = model_file_hash(dir, "config.json");
    model.tokenizer_hash = model_file_hash(dir, "tokenizer.json");
    *out = model;
    out->limits.name = out->name;
    return STATUS_OK;
}

static enum status open_one(const struct model_entry *entry, struct served_models *models,
                            struct error *err)
{
    struct served_model *model = &models->items[models->count];
    enum status status = open_model(entry->dir, entry->name, model, err);
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
    while (models->count) {
        struct served_model *model = &models->items[--models->count];
        chat_template_close(model->chat);
        tokenizer_close(model->tokenizer);
        model->chat = NULL;
        model->tokenizer = NULL;
    }
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
