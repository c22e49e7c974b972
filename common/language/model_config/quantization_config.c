#include "common/language/model_config/quantization_config.h"

#include "common/base/json/json.h"

#include <string.h>

static const struct {
    const char *name;
    enum model_quantization quantization;
    int64_t group_size; /* 0: none */
} TYPES[] = {{"int8", MODEL_INT8, 0}, {"int4", MODEL_INT4, QUANTIZATION_GROUP_SIZE}};

/* Of the member quantization_config. */
static enum status parse(const struct json_value *config, enum model_quantization *quantization,
                         struct error *err)
{
    const char *method, *name;
    int64_t number;
    TRY(json_get_string(config, "quant_method", &method, NULL, err));
    if (strcmp(method, QUANTIZATION_METHOD) != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"quant_method\": only \"" QUANTIZATION_METHOD
                         "\" is supported (baton quantize writes it), found \"%.40s\"",
                         method);
    TRY(json_get_i64(config, "version", QUANTIZATION_VERSION, QUANTIZATION_VERSION, &number, err));
    TRY(json_get_string(config, "weights", &name, NULL, err));
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        int64_t group = TYPES[i].group_size;
        if (strcmp(TYPES[i].name, name) != 0)
            continue;
        if (group)
            TRY(json_get_i64(config, "group_size", group, group, &number, err));
        *quantization = TYPES[i].quantization;
        return STATUS_OK;
    }
    return error_set(err, STATUS_UNSUPPORTED,
                     "\"weights\": expected \"int8\" or \"int4\", found \"%.40s\"", name);
}

enum status quantization_config_parse(const struct json_value *root,
                                      enum model_quantization *quantization, struct error *err)
{
    const struct json_value *config;
    *quantization = MODEL_FLOAT;
    if (!json_find(root, "quantization_config"))
        return STATUS_OK;
    TRY(json_get_object(root, "quantization_config", &config, err));
    enum status status = parse(config, quantization, err);
    return status == STATUS_OK ? STATUS_OK : error_prefix(err, status, "\"quantization_config\"");
}
