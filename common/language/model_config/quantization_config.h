/* config.json's quantization_config: the folders that `baton quantize` writes, and no others. Part
 * of model_config.h, which says how it fails.
 *
 *     {"quant_method": "baton", "version": 1, "weights": "int8" | "int4", "group_size": 128}
 *
 * group_size: of int4 alone. What the tensors of such a folder are:
 * common/engine/model/weight_types.h. */
#ifndef BATON_LANGUAGE_MODEL_CONFIG_QUANTIZATION_CONFIG_H
#define BATON_LANGUAGE_MODEL_CONFIG_QUANTIZATION_CONFIG_H

#include "common/language/model_config/model_config.h"

#define QUANTIZATION_METHOD     "baton"
#define QUANTIZATION_VERSION    1
#define QUANTIZATION_GROUP_SIZE 128

struct json_value;

enum status quantization_config_parse(const struct json_value *root,
                                      enum model_quantization *quantization,
                                      struct error *err) WARN_UNUSED;

#endif
