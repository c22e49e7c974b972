/* Makes a quantized model folder (weight_types.h) from a folder of floats. It loads to the same
 * bytes as quantizing at load. The new folder has one model.safetensors, a config.json with
 * quantization_config, and copies of the small files (tokenizer, generation_config.json, chat
 * template) of the source.
 *
 * The source is checked as a worker checks it before anything is written. Weights and
 * config.json get their names when they are whole (whole_file.h), config.json last: a folder
 * that was left half-way holds no model, and the next run succeeds. One thread for each CPU of
 * this process converts. A bar or log lines show the progress (load_progress.h). Any thread may
 * call it, one at a time for a folder. Failures: one sentence, which names the file; everything
 * written is removed. */
#ifndef BATON_ENGINE_MODEL_QUANTIZE_FOLDER_H
#define BATON_ENGINE_MODEL_QUANTIZE_FOLDER_H

#include "common/language/model_config/model_config.h"

struct quantize_report {
    uint32_t matrices;
    uint64_t source_bytes, written_bytes; /* all tensors */
};

/* Makes `out_dir` if it isn't there. Refuses one that holds a model, or a file that would be
 * overwritten. quantization: not MODEL_FLOAT. */
enum status quantize_folder(const char *model_dir, enum model_quantization quantization,
                            const char *out_dir, struct quantize_report *report,
                            struct error *err) WARN_UNUSED;

#endif
