#include "common/language/model_config/config_json.h"

#include "common/base/json/json.h"
#include "common/language/model_config/model_family.h"
#include "common/language/model_config/quantization_config.h"
#include "common/language/model_config/rope_config.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct json_limits LIMITS = {.max_bytes = 1 << 20, .max_depth = 32};

/* Ranges: far above any published model, far below where products of them overflow 64 bits. */
#define MAX_LAYERS   1024
#define MAX_HIDDEN   (1 << 17)
#define MAX_FFN      (1 << 20)
#define MAX_HEADS    4096
#define MAX_HEAD_DIM 256
#define MAX_VOCAB    (1 << 22)
#define MAX_CONTEXT  (1 << 24)

enum status model_path(const char *model_dir, const char *name, char path[MODEL_PATH_BYTES],
                       struct error *err)
{
    int length = snprintf(path, MODEL_PATH_BYTES, "%s/%s", model_dir, name);
    if (length < 0 || length >= MODEL_PATH_BYTES)
        return error_set(err, STATUS_LIMIT, "the path of %s is longer than %d bytes", name,
                         MODEL_PATH_BYTES - 1);
    return STATUS_OK;
}

/* A count in [min, max]; `fallback` where it is absent and may be (fallback > 0). */
static enum status get_count(const struct json_value *object, const char *key, uint32_t max,
                             uint32_t fallback, uint32_t *out, struct error *err)
{
    int64_t value = fallback;
    if (!fallback || json_find(object, key))
        TRY(json_get_i64(object, key, 1, max, &value, err));
    *out = (uint32_t)value;
    return STATUS_OK;
}

static enum status parse_heads(const struct json_value *root, const struct model_family *family,
                               struct model_shape *shape, struct error *err)
{
    TRY(get_count(root, "num_attention_heads", MAX_HEADS, 0, &shape->heads, err));
    TRY(get_count(root, "num_key_value_heads", MAX_HEADS, family->needs_kv_heads ? 0 : shape->heads,
                  &shape->kv_heads, err));
    if (shape->heads % shape->kv_heads != 0)
        return error_set(err, STATUS_INVALID,
                         "\"num_key_value_heads\" must divide num_attention_heads (%u), found %u",
                         shape->heads, shape->kv_heads);
    bool derive = !family->needs_head_dim;
    if (derive && !json_find(root, "head_dim") && shape->hidden % shape->heads != 0)
        return error_set(err, STATUS_INVALID,
                         "\"num_attention_heads\" must divide hidden_size (%u) where head_dim is "
                         "absent, found %u",
                         shape->hidden, shape->heads);
    uint32_t derived = shape->hidden / shape->heads;
    TRY(get_count(root, "head_dim", MAX_HEAD_DIM, derive ? derived : 0, &shape->head_dim, err));
    if (shape->head_dim > MAX_HEAD_DIM || shape->head_dim % 2 != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"head_dim\" must be even and at most %d, found %u", MAX_HEAD_DIM,
                         shape->head_dim);
    return STATUS_OK;
}

static enum status parse_shape(const struct json_value *root, struct model_shape *shape,
                               struct error *err)
{
    const struct model_family *family;
    TRY(model_family_find(root, &family, err));
    TRY(get_count(root, "num_hidden_layers", MAX_LAYERS, 0, &shape->layers, err));
    TRY(get_count(root, "hidden_size", MAX_HIDDEN, 0, &shape->hidden, err));
    TRY(get_count(root, "intermediate_size", MAX_FFN, 0, &shape->ffn, err));
    TRY(get_count(root, "vocab_size", MAX_VOCAB, 0, &shape->vocab, err));
    TRY(get_count(root, "max_position_embeddings", MAX_CONTEXT, 0, &shape->context, err));
    shape->rms_eps = 1e-6;
    if (json_find(root, "rms_norm_eps"))
        TRY(json_get_double(root, "rms_norm_eps", 1e-12, 1, &shape->rms_eps, err));
    TRY(json_get_optional_bool(root, "tie_word_embeddings", &shape->tied_embeddings, err));
    shape->qkv_bias = family->qkv_bias;
    shape->qk_norm = family->qk_norm;
    TRY(parse_heads(root, family, shape, err));
    TRY(model_family_window(family, root, shape->layers, &shape->window, err));
    return rope_config_parse(root, family->needs_theta, shape, err);
}

enum status end_ids_parse(const struct json_value *object, uint32_t vocab, struct end_ids *end_ids,
                          struct error *err)
{
    const struct json_value *value = json_find(object, "eos_token_id");
    if (!value)
        return STATUS_OK;
    bool list = json_kind(value) == JSON_ARRAY;
    size_t count = list ? json_count(value) : 1;
    if (count > MODEL_MAX_END_IDS)
        return error_set(err, STATUS_LIMIT, "\"eos_token_id\": at most %d ids, found %zu",
                         MODEL_MAX_END_IDS, count);
    struct end_ids read = {.count = (uint32_t)count};
    for (size_t i = 0; i < count; i++) {
        int64_t id;
        enum status status =
            json_as_i64(list ? json_at(value, i) : value, 0, (int64_t)vocab - 1, &id, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"eos_token_id\"");
        read.ids[i] = (uint32_t)id;
    }
    *end_ids = read;
    return STATUS_OK;
}

/* What people have instead of a model's folder. */
static enum status check_folder(const char *dir, struct error *err)
{
    struct stat found;
    bool there = stat(dir, &found) == 0;
    if (!there)
        return error_set(err, STATUS_NOT_FOUND,
                         "%s: no such folder; a model is a folder in Hugging Face's layout that is "
                         "here, nothing is downloaded",
                         dir);
    if (S_ISDIR(found.st_mode))
        return STATUS_OK;
    const char *dot = strrchr(dir, '.');
    bool gguf = dot && !strcmp(dot, ".gguf");
    return error_set(
        err, STATUS_INVALID,
        "%s: a model is a folder in Hugging Face's layout, and this is a file%s: give a "
        "folder with config.json and *.safetensors",
        dir, gguf ? " (GGUF isn't read)" : "");
}

/* Hugging Face's cache keeps each model in DIR/snapshots/HASH. */
static bool is_cache(const char *dir)
{
    char path[MODEL_PATH_BYTES];
    struct error none;
    struct stat found;
    return model_path(dir, "snapshots", path, &none) == STATUS_OK && stat(path, &found) == 0 &&
           S_ISDIR(found.st_mode);
}

enum status config_json_read(const char *model_dir, struct model_shape *shape,
                             enum model_quantization *quantization, struct end_ids *end_ids,
                             struct error *err)
{
    char path[MODEL_PATH_BYTES];
    struct model_shape read = {0};
    struct end_ids ids = {0};
    enum model_quantization quantized = MODEL_FLOAT;
    struct json *json;
    TRY(check_folder(model_dir, err));
    TRY(model_path(model_dir, "config.json", path, err));
    enum status status = json_read_file(path, LIMITS, &json, err);
    if (status == STATUS_NOT_FOUND)
        return error_set(err, status,
                         "%s: No such file or directory; a model is a folder in Hugging Face's "
                         "layout%s",
                         path, is_cache(model_dir) ? ", which a cache has in snapshots/HASH" : "");
    if (status != STATUS_OK)
        return status;
    status = parse_shape(json_root(json), &read, err);
    if (status == STATUS_OK)
        status = quantization_config_parse(json_root(json), &quantized, err);
    if (status == STATUS_OK)
        status = end_ids_parse(json_root(json), read.vocab, &ids, err);
    json_destroy(json);
    if (status != STATUS_OK)
        return error_prefix(err, status, "%s", path);
    *shape = read;
    *quantization = quantized;
    *end_ids = ids;
    return STATUS_OK;
}
