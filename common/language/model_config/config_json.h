/* config.json -> the model's shape: counts, heads and end ids here, the family (model_family.h) and
 * the rotary embedding (rope_config.h) beside it. Part of model_config.h, which says how it
 * fails. */
#ifndef BATON_LANGUAGE_MODEL_CONFIG_CONFIG_JSON_H
#define BATON_LANGUAGE_MODEL_CONFIG_CONFIG_JSON_H

#include "common/language/model_config/model_config.h"

#define MODEL_PATH_BYTES 4096

struct json_value;

enum status config_json_read(const char *model_dir, struct model_shape *shape,
                             enum model_quantization *quantization, struct end_ids *end_ids,
                             struct error *err) WARN_UNUSED;

/* The member eos_token_id of `object`: an id, a list of ids, or absent (then `end_ids` stays as it
 * is). */
enum status end_ids_parse(const struct json_value *object, uint32_t vocab, struct end_ids *end_ids,
                          struct error *err) WARN_UNUSED;

/* path = "model_dir/name". STATUS_LIMIT if that is longer than MODEL_PATH_BYTES. */
enum status model_path(const char *model_dir, const char *name, char path[MODEL_PATH_BYTES],
                       struct error *err) WARN_UNUSED;

#endif
