/* The configuration of a model in a Hugging Face folder, without its weights: config.json and, if
 * they exist, generation_config.json and the end token of tokenizer_config.json. Also the folder's
 * name, and hashes of its small files.
 *
 * Any thread. Errors are one sentence that names the file, the key, the expected value and the
 * value found. STATUS_NOT_FOUND: no config.json, or a required key is missing. STATUS_INVALID:
 * malformed or out of range. STATUS_UNSUPPORTED: valid, but not built. */
#ifndef BATON_LANGUAGE_MODEL_CONFIG_MODEL_CONFIG_H
#define BATON_LANGUAGE_MODEL_CONFIG_MODEL_CONFIG_H

#include "common/base/domain/model_shape.h"
#include "common/base/status.h"
#include "common/language/model_config/end_ids.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sampling of requests that don't set it. A field that the model leaves out too is
 * sampling_default()'s. */
struct generation_defaults {
    bool has_temperature, has_top_p, has_top_k, has_min_p;
    float temperature; /* [0, 100]; 0 if do_sample is false: the model asks for greedy */
    float top_p;       /* (0, 1] */
    uint32_t top_k;    /* 0: off */
    float min_p;       /* [0, 1) */
};

/* How the folder holds its matrices: as floats, quantized by `baton quantize`, or as e4m3 of other
 * tools. FP8: inputs get a scale row by row; FP8_STATIC: one scale, which the folder has.
 * FP8_BLOCK: weights have scales for blocks of 128 x 128, inputs for 128 of a row. */
enum model_quantization {
    MODEL_FLOAT,
    MODEL_INT8,
    MODEL_INT4,
    MODEL_FP8,
    MODEL_FP8_STATIC,
    MODEL_FP8_BLOCK
};

/* `baton quantize` writes this member of config.json:
 *
 *     {"quant_method": "baton", "version": 1, "weights": "int8" | "int4", "group_size": 128}
 *
 * group_size comes only with int4. These two are read as well (fp8 of vLLM and transformers;
 * compressed-tensors with one group of all "Linear" layers):
 *
 *     {"quant_method": "fp8", "activation_scheme": "dynamic" | "static", "fmt": "e4m3",
 *      "weight_block_size": [128, 128]}
 *     {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"": {
 *      "weights": {"num_bits": 8, "type": "float", "strategy": "tensor" | "channel" | "block",
 *      "block_structure": [128, 128]}, "input_activations": {"num_bits": 8, "type": "float",
 *      "strategy": "tensor" | "token" | "group", "group_size": 128, "dynamic": true | false}}}}
 *
 * Lists of modules that aren't quantized aren't read: a tensor's dtype says it. Refusals end with a
 * code, config_fp8_... common/engine/model/weight_types.h describes the tensors. */
#define QUANTIZATION_METHOD     "baton"
#define QUANTIZATION_VERSION    1
#define QUANTIZATION_GROUP_SIZE 128

struct model_config {
    struct model_shape shape;
    enum model_quantization quantization;
    struct end_ids end_ids; /* may be none */
    struct generation_defaults defaults;
};

enum status model_config_read(const char *model_dir, struct model_config *config,
                              struct error *err) WARN_UNUSED;
/* The first two steps of model_config_read; end_ids_add_token is the last. config_json_read reads
 * config.json and sets all fields except `defaults`. generation_config_read reads
 * generation_config.json, if it exists: sets `defaults`, and adds the file's end ids. On errors
 * neither changes *config. */
enum status config_json_read(const char *model_dir, struct model_config *config,
                             struct error *err) WARN_UNUSED;
enum status generation_config_read(const char *model_dir, struct model_config *config,
                                   struct error *err) WARN_UNUSED;

struct json_value;

/* Reads the shape of a config.json (model_shape.c). On errors *shape may be half set. For
 * config_json_read only. */
enum status model_shape_parse(const struct json_value *root, struct model_shape *shape,
                              struct error *err) WARN_UNUSED;

/* Returns the last part of the folder's real path, so that ".", "models/x/" and links have the same
 * name for all processes. STATUS_NOT_FOUND: no such folder. STATUS_INVALID: the folder is "/", or
 * its name has more than `size` - 1 bytes. */
enum status model_folder_name(const char *dir, char *name, size_t size,
                              struct error *err) WARN_UNUSED;
/* Returns a hash of the file's bytes, by which two processes compare their folders. 0: the file
 * doesn't exist, or can't be read. */
uint64_t model_file_hash(const char *dir, const char *name);

#endif
