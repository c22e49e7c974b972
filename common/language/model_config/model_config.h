/* What a Hugging Face folder says of its model, without the weights: config.json and, where it
 * exists, generation_config.json. Any thread. Failures: one sentence that names file, key, what was
 * expected and what was found. */
#ifndef BATON_LANGUAGE_MODEL_CONFIG_MODEL_CONFIG_H
#define BATON_LANGUAGE_MODEL_CONFIG_MODEL_CONFIG_H

#include "common/base/domain/model_shape.h"
#include "common/base/status.h"

#include <stdbool.h>

#define MODEL_MAX_END_IDS 32

/* Ids that end an answer, each < vocab. */
struct end_ids {
    uint32_t count;
    uint32_t ids[MODEL_MAX_END_IDS];
};

/* What a request gets where it says nothing; what the model leaves out too falls to
 * sampling_default(). */
struct generation_defaults {
    bool has_temperature, has_top_p, has_top_k, has_min_p;
    float temperature; /* [0, 100]; 0 where do_sample is false: the model asks for greedy */
    float top_p;       /* (0, 1] */
    uint32_t top_k;    /* 0: off */
    float min_p;       /* [0, 1) */
};

/* How the folder holds its matrices: as floats, or quantized by `baton quantize`. */
enum model_quantization { MODEL_FLOAT, MODEL_INT8, MODEL_INT4 };

struct model_config {
    struct model_shape shape;
    enum model_quantization quantization;
    struct end_ids end_ids; /* generation_config.json's, else config.json's; may be none */
    struct generation_defaults defaults;
};

/* STATUS_NOT_FOUND: no config.json, or a key that must be there is not; STATUS_INVALID: malformed
 * or out of range; STATUS_UNSUPPORTED: valid, but not built. */
enum status model_config_read(const char *model_dir, struct model_config *config,
                              struct error *err) WARN_UNUSED;

#endif
