/* A model folder of floats becomes a quantized one (weight_types.h) that loads to the very bytes
 * that quantizing at load gives. The new folder has one model.safetensors, a config.json with
 * quantization_config, and copies of the small files (tokenizer, generation_config.json, chat
 * template) that are there.
 *
 * The source is checked as a worker would check it, before anything is written. Weights and
 * config.json get their names when they are whole (whole_file.h), config.json last: a folder that
 * was left half-way holds no model, and the next run goes through. Threads convert, one for each
 * CPU that this process may run on, and a bar or log lines tell how far it is (load_progress.h).
 * Any thread, one at a time for a folder. Failures: one sentence; what was written is removed. */
#ifndef BATON_ENGINE_MODEL_QUANTIZE_FOLDER_H
#define BATON_ENGINE_MODEL_QUANTIZE_FOLDER_H

#include "common/language/model_config/model_config.h"

struct quantize_report {
    uint32_t matrices;
    uint64_t source_bytes, written_bytes; /* of tensors */
};

/* `out_dir` is made where it isn't there; one that holds a model already, or a file that would be
 * written, is refused. quantization: not MODEL_FLOAT. */
enum status quantize_folder(const char *model_dir, enum model_quantization quantization,
                            const char *out_dir, struct quantize_report *report,
                            struct error *err) WARN_UNUSED;

#endif
