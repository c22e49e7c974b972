#include "common/cli/up_models.h"

#include "common/base/str.h"
#include "common/engine/engine_choices.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_cache.h"
#include "common/language/model_config/model_config.h"
#include "common/language/model_config/model_files.h"
#include "common/worker/worker_config.h"

#include <string.h>

struct names {
    char items[MODEL_LIST_MAX][MODEL_MAX_NAME_BYTES];
};

static enum status check_name(struct names *names, const struct up_settings *settings, size_t index,
                              struct error *err)
{
    const struct model_entry *entry = &settings->list.items[index];
    char *name = names->items[index];
    if (*entry->name)
        str_copy(name, sizeof names->items[index], entry->name);
    else
        TRY(model_folder_name(entry->dir, name, sizeof names->items[index], err));
    for (size_t i = 0; i < index; i++)
        if (!strcmp(name, names->items[i]))
            return error_set(err, STATUS_INVALID,
                             "two models are called %s, the second is of %.200s: give one of them "
                             "another name, NAME=DIR",
                             name, entry->dir);
    return STATUS_OK;
}

/* That they are there, and no more than heads: not a second of it is for large ones. */
static enum status check_weights(const struct up_settings *settings, const char *dir,
                                 struct error *err)
{
    char kept[WEIGHT_CACHE_PATH_BYTES];
    struct model_config model;
    struct safetensors *tensors;
    struct weight_types types = {0};
    TRY(model_config_read(dir, &model, err));
    TRY(engine_check_weights(settings->compute == COMPUTE_F32,
                             (enum weight_choice)settings->weights, model.quantization, err));
    TRY(weight_cache_path(settings->weight_cache, dir, "", types, kept, err));
    TRY(safetensors_open(dir, &tensors, err));
    safetensors_close(tensors);
    return STATUS_OK;
}

enum status up_models_check(const struct up_settings *settings, struct error *err)
{
    struct names names;
    for (size_t i = 0; i < settings->list.count; i++) {
        TRY(check_name(&names, settings, i, err));
        TRY(check_weights(settings, settings->list.items[i].dir, err));
    }
    return STATUS_OK;
}
