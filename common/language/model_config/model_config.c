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

/* --- fp8 --- */

static enum status refuse_fp8(struct error *err, const char *key, const char *wanted,
                              const char *found, const char *code)
{
    return error_set(err, STATUS_UNSUPPORTED, "\"%s\": %s is read, found %.40s%s (config_fp8_%s)",
                     key, wanted, found, REFUSED_ADVICE, code);
}

/* Refuses a member that isn't the text; an absent one passes. */
static enum status expect_text(const struct json_value *object, const char *key, const char *wanted,
                               const char *code, struct error *err)
{
    const char *text;
    if (!json_find(object, key))
        return STATUS_OK;
    TRY(json_get_string(object, key, &text, NULL, err));
    return strcmp(text, wanted) == 0 ? STATUS_OK : refuse_fp8(err, key, wanted, text, code);
}

/* Reads a block size; *found is false without one. */
static enum status parse_blocks(const struct json_value *object, const char *key, bool *found,
                                struct error *err)
{
    const struct json_value *sizes;
    int64_t size[2] = {0, 0};
    *found = json_find(object, key) != NULL;
    if (!*found)
        return STATUS_OK;
    TRY(json_get_array(object, key, &sizes, err));
    for (size_t i = 0; i < 2 && json_count(sizes) == 2; i++)
        TRY(json_as_i64(json_at(sizes, i), 1, INT32_MAX, &size[i], err));
    return size[0] == 128 && size[1] == 128
               ? STATUS_OK
               : refuse_fp8(err, key, "[128, 128]", "another size", "block_size");
}

static enum status parse_fp8(const struct json_value *config, enum model_quantization *quantization,
                             struct error *err)
{
    const char *scheme;
    bool blocks;
    TRY(expect_text(config, "fmt", "e4m3", "format", err));
    TRY(expect_text(config, "scale_fmt", "float", "scale_format", err));
    if (json_find(config, "kv_cache_scheme"))
        return refuse_fp8(err, "kv_cache_scheme", "null", "a scheme for keys and values",
                          "kv_cache");
    TRY(parse_blocks(config, "weight_block_size", &blocks, err));
    TRY(json_get_string(config, "activation_scheme", &scheme, NULL, err));
    bool fixed = strcmp(scheme, "static") == 0;
    if ((!fixed && strcmp(scheme, "dynamic") != 0) || (fixed && blocks))
        return refuse_fp8(err, "activation_scheme",
                          blocks ? "\"dynamic\"" : "\"dynamic\" or \"static\"", scheme,
                          "activations");
    *quantization = blocks ? MODEL_FP8_BLOCK : fixed ? MODEL_FP8_STATIC : MODEL_FP8;
    return STATUS_OK;
}

/* Reads "weights" or "input_activations" of a group: 8-bit floats, and their strategy. */
static enum status parse_tensors(const struct json_value *group, const char *key,
                                 const struct json_value **scheme, const char **strategy,
                                 struct error *err)
{
    int64_t bits;
    if (!json_find(group, key))
        return refuse_fp8(err, key, "an 8-bit float", "null", "activations");
    TRY(json_get_object(group, key, scheme, err));
    TRY(json_get_i64(*scheme, "num_bits", 1, 64, &bits, err));
    TRY(expect_text(*scheme, "type", "float", "format", err));
    if (bits != 8)
        return refuse_fp8(err, "num_bits", "8", bits == 4 ? "4" : "another number", "format");
    return json_get_string(*scheme, "strategy", strategy, NULL, err);
}

static enum status parse_group(const struct json_value *group,
                               enum model_quantization *quantization, struct error *err)
{
    const struct json_value *weights, *inputs;
    const char *of_weights, *of_inputs;
    bool dynamic = false, blocks;
    int64_t size = 0;
    TRY(parse_tensors(group, "weights", &weights, &of_weights, err));
    TRY(parse_tensors(group, "input_activations", &inputs, &of_inputs, err));
    TRY(json_get_optional_bool(inputs, "dynamic", &dynamic, err));
    if (strcmp(of_weights, "block") == 0) {
        TRY(parse_blocks(weights, "block_structure", &blocks, err));
        if (json_find(inputs, "group_size"))
            TRY(json_get_i64(inputs, "group_size", 1, INT32_MAX, &size, err));
        if (!blocks || !dynamic || strcmp(of_inputs, "group") != 0 || size != 128)
            return refuse_fp8(err, "strategy", "\"block\" of 128 with dynamic groups of 128",
                              "another one", "block_size");
        *quantization = MODEL_FP8_BLOCK;
        return STATUS_OK;
    }
    if (strcmp(of_weights, "tensor") != 0 && strcmp(of_weights, "channel") != 0)
        return refuse_fp8(err, "strategy", "\"tensor\", \"channel\" or \"block\"", of_weights,
                          "strategy");
    if (strcmp(of_inputs, dynamic ? "token" : "tensor") != 0)
        return refuse_fp8(err, "strategy", dynamic ? "\"token\"" : "\"tensor\"", of_inputs,
                          "activations");
    *quantization = dynamic ? MODEL_FP8 : MODEL_FP8_STATIC;
    return STATUS_OK;
}

static enum status parse_compressed(const struct json_value *config,
                                    enum model_quantization *quantization, struct error *err)
{
    const struct json_value *groups, *targets;
    const char *target = "";
    TRY(expect_text(config, "format", "float-quantized", "format", err));
    if (json_find(config, "kv_cache_scheme"))
        return refuse_fp8(err, "kv_cache_scheme", "null", "a scheme for keys and values",
                          "kv_cache");
    TRY(json_get_object(config, "config_groups", &groups, err));
    struct json_member group = {0};
    if (json_count(groups) != 1 || !json_next(groups, &group) ||
        json_kind(group.value) != JSON_OBJECT)
        return refuse_fp8(err, "config_groups", "one group", "another number", "groups");
    TRY(json_get_array(group.value, "targets", &targets, err));
    if (json_count(targets) == 1)
        TRY(json_as_string(json_at(targets, 0), &target, NULL, err));
    if (strcmp(target, "Linear") != 0)
        return refuse_fp8(err, "targets", "[\"Linear\"]", "other layers", "groups");
    return parse_group(group.value, quantization, err);
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
    if (strcmp(method, "fp8") == 0)
        return parse_fp8(config, quantization, err);
    if (strcmp(method, "compressed-tensors") == 0)
        return parse_compressed(config, quantization, err);
    if (strcmp(method, QUANTIZATION_METHOD) != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"quant_method\": only \"" QUANTIZATION_METHOD
                         "\" (baton quantize writes it), \"fp8\" and \"compressed-tensors\" are "
                         "supported, found \"%.40s\" (config_quant_method)",
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
