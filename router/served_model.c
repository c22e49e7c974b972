#include "router/served_model.h"

#include "common/base/log.h"
#include "common/base/str.h"
#include "common/language/model_config/model_files.h"
#include "common/language/text/token_text.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum status open_tokenizer(const char *dir, struct tokenizer **tokenizer, struct error *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/tokenizer.json", dir) >= (int)sizeof path)
        return error_set(err, STATUS_INVALID, "the model folder's path is too long");
    *tokenizer = NULL;
    if (access(path, F_OK))
        return STATUS_OK;
    return tokenizer_open(path, tokenizer, err);
}

/* One that can't be used is no reason not to serve: completions work. */
static void open_chat_template(const char *dir, struct served_model *model)
{
    struct error why;
    enum status status = chat_template_open(dir, &model->chat, &why);
    if (status == STATUS_OK)
        return;
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

enum status served_model_open(const char *dir, const char *name, struct served_model *out,
                              struct error *err)
{
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
    TRY(open_tokenizer(dir, &model.tokenizer, err));
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

void served_model_close(struct served_model *model)
{
    chat_template_close(model->chat);
    model->chat = NULL;
    tokenizer_close(model->tokenizer);
    model->tokenizer = NULL;
}
