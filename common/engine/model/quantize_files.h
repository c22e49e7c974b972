/* The files of a quantized model folder beside its weights: tokenizer and settings as they are,
 * config.json with what was done to the weights. STATUS_IO: the file system said no; STATUS_LIMIT:
 * a path or a file is too long. Errors name the file. */
#ifndef BATON_ENGINE_MODEL_QUANTIZE_FILES_H
#define BATON_ENGINE_MODEL_QUANTIZE_FILES_H

#include "common/engine/model/whole_file.h"
#include "kernels/kernels.h"

struct quantize_files {
    const char *model_dir, *out_dir;
    enum weight_type layers;   /* quantized; what config.json says */
    struct whole_file *config; /* begun: config.json; the caller ends it */
};

/* Makes the folder where there is none. STATUS_INVALID: a model is in it already, or a file that
 * would be written over. What a run that was stopped left is none: config.json.tmp says that what
 * is beside it is of such a run, even under its name. */
enum status quantize_files_make_target(const char *model_dir, const char *out_dir,
                                       struct error *err) WARN_UNUSED;
/* The small files, and what config.json will hold. */
enum status quantize_files_copy(const struct quantize_files *files, struct error *err) WARN_UNUSED;
/* After a failure: all that was written, where quantize_files_make_target found the place free. */
void quantize_files_remove(const char *model_dir, const char *out_dir);

#endif
