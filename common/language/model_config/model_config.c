#include "common/language/model_config/model_config.h"

#include "common/base/domain/sampling.h"
#include "common/base/json/json.h"
#include "common/base/str.h"

#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define PART_BYTES 65536 /* a file is read in parts of this size */

static const struct json_limits LIMITS = {.max_bytes = 1 << 20, .max_depth = 32};

/* Sets path to "model_dir/name". STATUS_LIMIT: it is too long. */
static enum status model_path(const char *model_dir, const char *name, char path[PATH_BYTES],
                              struct error *err)
{
    int length = snprintf(path, PATH_BYTES, "%s/%s", model_dir, name);
    if (length < 0 || length >= PATH_BYTES)
        return error_set(err, STATUS_LIMIT, "the path of %s is longer than %d bytes", name,
                         PATH_BYTES - 1);
    return STATUS_OK;
}

static const struct {
    const char *name;
    enum model_quantization quantization;
    int64_t group_size; /* 0: none */
} QUANTIZED_TYPES[] = {{"int8", MODEL_INT8, 0}, {"int4", MODEL_INT4, QUANTIZATION_GROUP_SIZE}};

/* Quantizations of other tools. A folder of theirs has `file`, also where its config.json doesn't
 * name the method; NULL: it has none. */
static const struct {
    const char *method, *file, *reason;
} REFUSED_METHODS[] = {
    {"gptq", "quantize_config.json",
     "\"gptq\" (GPTQ) packs 2 to 8 bits by columns, in tensors qweight, qzeros and scales, which "
     "aren't read"},
    {"awq", "quant_config.json",
     "\"awq\" (AWQ) packs 4 bits in an order of its own, in tensors qweight, qzeros and scales, "
     "which aren't read"},
    {"bitsandbytes", NULL,
     "\"bitsandbytes\" packs 4 or 8 bits in blocks of its own, which aren't "
     "read"},
};
#define REFUSED_ADVICE                                                                             \
    ": give the folder with the floats, and let baton quantize make int8 or int4 of it"

/* Refuses a folder of another tool's quantization that config.json doesn't mention. */
static enum status refuse_quantized_files(const char *model_dir, struct error *err)
{
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof REFUSED_METHODS / sizeof *REFUSED_METHODS; i++) {
        if (!REFUSED_METHODS[i].file)
            continue;
        TRY(model_path(model_dir, REFUSED_METHODS[i].file, path, err));
        if (access(path, F_OK) == 0)
            return error_set(err, STATUS_UNSUPPORTED, "%s: %s" REFUSED_ADVICE, path,
                             REFUSED_METHODS[i].reason);
    }
    return STATUS_OK;
}

/* Reads the value of quantization_config. */
static enum status parse_quantized(const struct json_value *config,
                                   enum model_quantization *quantization, struct error *err)
{
    const char *method, *name;
    int64_t number;
    TRY(json_get_string(config, "quant_method", &method, NULL, err));
    for (size_t i = 0; i < sizeof REFUSED_METHODS / sizeof *REFUSED_METHODS; i++)
        if (strcmp(method, REFUSED_METHODS[i].method) == 0)
            return error_set(err, STATUS_UNSUPPORTED, "\"quant_method\": %s" REFUSED_ADVICE,
                             REFUSED_METHODS[i].reason);
    if (strcmp(method, QUANTIZATION_METHOD) != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"quant_method\": only \"" QUANTIZATION_METHOD
                         "\" is supported (baton quantize writes it), found \"%.40s\"",
                         method);
    TRY(json_get_i64(config, "version", QUANTIZATION_VERSION, QUANTIZATION_VERSION, &number, err));
    TRY(json_get_string(config, "weights", &name, NULL, err));
    for (size_t i = 0; i < sizeof QUANTIZED_TYPES / sizeof *QUANTIZED_TYPES; i++) {
        int64_t group = QUANTIZED_TYPES[i].group_size;
        if (strcmp(QUANTIZED_TYPES[i].name, name) != 0)
            continue;
        if (group)
            TRY(json_get_i64(config, "group_size", group, group, &number, err));
        *quantization = QUANTIZED_TYPES[i].quantization;
        return STATUS_OK;
    }
    return error_set(err, STATUS_UNSUPPORTED,
                     "\"weights\": expected \"int8\" or \"int4\", found \"%.40s\"", name);
}

static enum status parse_quantization(const struct json_value *root,
                                      enum model_quantization *quantization, struct error *err)
{
    const struct json_value *config;
    *quantization = MODEL_FLOAT;
    if (!json_find(root, "quantization_config"))
        return STATUS_OK;
    TRY(json_get_object(root, "quantization_config", &config, err));
    enum status status = parse_quantized(config, quantization, err);
    return status == STATUS_OK ? STATUS_OK : error_prefix(err, status, "\"quantization_config\"");
}

/* Refuses a path that isn't a folder, with advice. */
static enum status check_folder(const char *dir, struct error *err)
{
    struct stat found;
    if (stat(dir, &found) != 0)
        return error_set(err, STATUS_NOT_FOUND,
                         "%s: no such folder; a model is a folder in Hugging Face's layout that is "
                         "here, nothing is downloaded",
                         dir);
    if (S_ISDIR(found.st_mode))
        return STATUS_OK;
    const char *dot = strrchr(dir, '.');
    return error_set(
        err, STATUS_INVALID,
        "%s: a model is a folder in Hugging Face's layout, and this is a file%s: give a "
        "folder with config.json and *.safetensors",
        dir, dot && !strcmp(dot, ".gguf") ? " (GGUF isn't read)" : "");
}

enum status config_json_read(const char *model_dir, struct model_config *config, struct error *err)
{
    char path[PATH_BYTES], snapshots[PATH_BYTES];
    struct model_config read = {0};
    struct json *json;
    TRY(check_folder(model_dir, err));
    TRY(model_path(model_dir, "config.json", path, err));
    enum status status = json_read_file(path, LIMITS, &json, err);
    if (status == STATUS_NOT_FOUND) {
        /* Hugging Face's cache keeps each model in DIR/snapshots/HASH. */
        struct stat found;
        struct error none;
        bool is_cache = model_path(model_dir, "snapshots", snapshots, &none) == STATUS_OK &&
                        stat(snapshots, &found) == 0 && S_ISDIR(found.st_mode);
        return error_set(err, status,
                         "%s: No such file or directory; a model is a folder in Hugging Face's "
                         "layout%s",
                         path, is_cache ? ", which a cache has in snapshots/HASH" : "");
    }
    if (status != STATUS_OK)
        return status;
    status = model_shape_parse(json_root(json), &read.shape, err);
    if (status == STATUS_OK)
        status = parse_quantization(json_root(json), &read.quantization, err);
    if (status == STATUS_OK)
        status =
            end_ids_add(&read.end_ids, json_root(json), END_FROM_CONFIG, read.shape.vocab, err);
    json_destroy(json);
    if (status != STATUS_OK)
        return error_prefix(err, status, "%s", path);
    if (read.quantization == MODEL_FLOAT)
        TRY(refuse_quantized_files(model_dir, err));
    config->shape = read.shape;
    config->quantization = read.quantization;
    config->end_ids = read.end_ids;
    return STATUS_OK;
}

/* Reads a number in [min, max]. If the key is absent, *has and *out stay as they are. */
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

enum status generation_config_read(const char *model_dir, struct model_config *config,
                                   struct error *err)
{
    char path[PATH_BYTES];
    struct generation_defaults defaults = {0};
    struct end_ids end_ids = config->end_ids;
    struct json *json;
    TRY(model_path(model_dir, "generation_config.json", path, err));
    if (access(path, F_OK) == 0) {
        TRY(json_read_file(path, LIMITS, &json, err));
        enum status status = parse_defaults(json_root(json), &defaults, err);
        if (status == STATUS_OK)
            status = end_ids_add(&end_ids, json_root(json), END_FROM_GENERATION,
                                 config->shape.vocab, err);
        json_destroy(json);
        if (status != STATUS_OK)
            return error_prefix(err, status, "%s", path);
    }
    config->defaults = defaults;
    config->end_ids = end_ids;
    return STATUS_OK;
}

enum status model_config_read(const char *model_dir, struct model_config *config, struct error *err)
{
    struct model_config read = {0};
    TRY(config_json_read(model_dir, &read, err));
    TRY(generation_config_read(model_dir, &read, err));
    end_ids_add_token(&read.end_ids, model_dir, read.shape.vocab);
    *config = read;
    return STATUS_OK;
}

enum status model_folder_name(const char *dir, char *name, size_t size, struct error *err)
{
    char path[PATH_MAX];
    if (!realpath(dir, path))
        return error_set(err, STATUS_NOT_FOUND,
                         "%s: no such model folder (nothing is downloaded: give the folder of a "
                         "model that is here%s)",
                         dir,
                         strchr(dir, '=') ? "; a name with a slash in it can't stand before the "
                                            "equals sign: --model-name gives it"
                                          : "");
    const char *slash = strrchr(path, '/');
    if (!slash[1] || !str_copy(name, size, slash + 1))
        return error_set(err, STATUS_INVALID,
                         "%s: give the model a name, NAME=DIR or with --model-name", dir);
    return STATUS_OK;
}

uint64_t model_file_hash(const char *dir, const char *name)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    uint64_t hash = HASH_SEED;
    char part[PART_BYTES];
    for (size_t count; (count = fread(part, 1, sizeof part, file)) > 0;)
        hash = hash_bytes(part, count, hash);
    uint64_t result = ferror(file) ? 0 : hash ? hash : 1;
    fclose(file);
    return result;
}
