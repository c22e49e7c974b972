#include "common/language/model_config/generation_config.h"

#include "common/base/domain/sampling.h"
#include "common/base/json/json.h"
#include "common/language/model_config/config_json.h"

#include <float.h>
#include <unistd.h>

static const struct json_limits LIMITS = {.max_bytes = 1 << 20, .max_depth = 32};

/* A number in [min, max], or absent. */
static enum status get_float(const struct json_value *root, const char *key, double min, double max,
                             bool *has, float *out, struct error *err)
{
    double value;
    if (!json_find(root, key))
        return STATUS_OK;
    TRY(json_get_double(root, key, min, max, &value, err));
    *has = true;
    *out = (float)value;
    return STATUS_OK;
}

static enum status parse_defaults(const struct json_value *root, struct generation_defaults *read,
                                  struct error *err)
{
    TRY(get_float(root, "temperature", 0, 100, &read->has_temperature, &read->temperature, err));
    TRY(get_float(root, "top_p", FLT_MIN, 1, &read->has_top_p, &read->top_p, err));
    TRY(get_float(root, "min_p", 0, 1 - FLT_EPSILON, &read->has_min_p, &read->min_p, err));
    if (json_find(root, "top_k")) {
        int64_t top_k;
        TRY(json_get_i64(root, "top_k", -1, INT32_MAX, &top_k, err)); /* vLLM spells off as -1 */
        read->has_top_k = true;
        read->top_k = top_k < 0 ? 0 : (uint32_t)top_k;
    }
    bool do_sample = true;
    TRY(json_get_optional_bool(root, "do_sample", &do_sample, err));
    if (!do_sample) {
        read->has_temperature = true;
        read->temperature = 0;
    }
    return STATUS_OK;
}

enum status generation_config_read(const char *model_dir, uint32_t vocab, struct end_ids *end_ids,
                                   struct generation_defaults *defaults, struct error *err)
{
    char path[MODEL_PATH_BYTES];
    struct generation_defaults read = {0};
    struct end_ids ids = *end_ids;
    struct json *json;
    TRY(model_path(model_dir, "generation_config.json", path, err));
    if (access(path, F_OK) != 0) {
        *defaults = read;
        return STATUS_OK;
    }
    TRY(json_read_file(path, LIMITS, &json, err));
    enum status status = parse_defaults(json_root(json), &read, err);
    if (status == STATUS_OK)
        status = end_ids_parse(json_root(json), vocab, &ids, err);
    json_destroy(json);
    if (status != STATUS_OK)
        return error_prefix(err, status, "%s", path);
    *defaults = read;
    *end_ids = ids;
    return STATUS_OK;
}
