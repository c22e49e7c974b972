/* The files of a quantized model folder beside its weights: tokenizer and settings as they are, config.json with what was done to
 * the weights. STATUS_IO: the file system said no; STATUS_LIMIT: a path or a file is too long. Errors name the file. */
#ifndef BATON_ENGINE_MODEL_QUANTIZE_FILES_H
#define BATON_ENGINE_MODEL_QUANTIZE_FILES_H

#include "common/base/status.h"
#include "kernels/kernels.h"

struct quantize_files {
    const char *model_dir, *out_dir;
    enum weight_type layers; /* quantized; what config.json says */
};

/* Makes the folder where there is none. STATUS_INVALID: a model is in it already. */
enum status quantize_files_make_target(const char *out_dir, struct error *err) WARN_UNUSED;
/* config.json, last of all, is what makes a folder a model: who is stopped on the way leaves none. */
enum status quantize_files_copy(const struct quantize_files *files, struct error *err) WARN_UNUSED;
/* After a failure: config.json and the weights. */
void quantize_files_remove_model(const char *out_dir);

#endif
