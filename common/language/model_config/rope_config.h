/* The rotary embedding of config.json, in both spellings: rope_theta with rope_scaling
 * (transformers 4) and rope_parameters (transformers 5). Types "default" and "llama3"; an unknown
 * type or member is refused by its name. Part of model_config.h, which says how it fails. */
#ifndef BATON_LANGUAGE_MODEL_CONFIG_ROPE_CONFIG_H
#define BATON_LANGUAGE_MODEL_CONFIG_ROPE_CONFIG_H

#include "common/base/domain/model_shape.h"
#include "common/base/status.h"

struct json_value;

/* theta_needed: an absent rope_theta is refused, else it is 10000. */
enum status rope_config_parse(const struct json_value *root, bool theta_needed,
                              struct model_shape *shape, struct error *err) WARN_UNUSED;

#endif
