#include "common/model_config/config_json.h"

#include "common/json/json.h"

#include <stdio.h>
#include <string.h>

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

static enum status get_number(const struct json_value *object, const char *key, double min,
                              double max, double fallback, double *out, struct error *err)
{
    double value = fallback;
    if (fallback == 0 || json_find(object, key))
        TRY(json_get_double(object, key, min, max, &value, err));
    *out = value;
    return STATUS_OK;
}

/* The key's string must be `expected` where it is present (or, with `required`, in any case). */
static enum status expect_string(const struct json_value *object, const char *key,
                                 const char *expected, bool required, struct error *err)
{
    const char *found;
    if (!required && !json_find(object, key))
        return STATUS_OK;
    TRY(json_get_string(object, key, &found, NULL, err));
    if (strcmp(found, expected) != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"%s\": only \"%s\" is supported, found \"%.100s\"", key, expected,
                         found);
    return STATUS_OK;
}

static enum status expect_false(const struct json_value *object, const char *key, struct error *err)
{
    bool found = false;
    if (json_find(object, key))
        TRY(json_get_bool(object, key, &found, err));
    if (found)
        return error_set(err, STATUS_UNSUPPORTED, "\"%s\": only false is supported, found true",
                         key);
    return STATUS_OK;
}

static enum status expect_one(const struct json_value *object, const char *key, struct error *err)
{
    double found = 1;
    if (json_find(object, key))
        TRY(json_get_double(object, key, 0, 1, &found, err));
    if (found != 1)
        return error_set(err, STATUS_UNSUPPORTED, "\"%s\": only 1 is supported, found %g", key,
                         found);
    return STATUS_OK;
}

/* What would change the forward pass and isn't built. */
static enum status refuse_others(const struct json_value *root, struct error *err)
{
    TRY(expect_string(root, "model_type", "llama", true, err));
    const struct json_value *architectures = json_find(root, "architectures");
    if (json_count(architectures) > 0) {
        const char *name;
        TRY(json_as_string(json_at(architectures, 0), &name, NULL, err));
        if (strcmp(name, "LlamaForCausalLM") != 0)
            return error_set(
                err, STATUS_UNSUPPORTED,
                "\"architectures\": only [\"LlamaForCausalLM\"] is supported, found \"%.100s\"",
                name);
    }
    TRY(expect_string(root, "hidden_act", "silu", false, err));
    TRY(expect_false(root, "attention_bias", err));
    TRY(expect_false(root, "mlp_bias", err));
    TRY(expect_one(root, "partial_rotary_factor", err));
    if (json_find(root, "quantization_config"))
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"quantization_config\": only bf16 weights are supported, found %s",
                         json_kind_name(json_find(root, "quantization_config")));
    return STATUS_OK;
}

static enum status parse_llama3_scaling(const struct json_value *rope, struct rope_scaling *scaling,
                                        struct error *err)
{
    TRY(get_number(rope, "factor", 1, 1e6, 0, &scaling->factor, err));
    TRY(get_number(rope, "low_freq_factor", 1e-3, 1e6, 0, &scaling->low_freq_factor, err));
    TRY(get_number(rope, "high_freq_factor", 1e-3, 1e6, 0, &scaling->high_freq_factor, err));
    TRY(get_count(rope, "original_max_position_embeddings", MAX_CONTEXT, 0,
                  &scaling->original_context, err));
    if (scaling->high_freq_factor <= scaling->low_freq_factor)
        return error_set(err, STATUS_INVALID,
                         "\"high_freq_factor\" must be above low_freq_factor (%g), found %g",
                         scaling->low_freq_factor, scaling->high_freq_factor);
    return STATUS_OK;
}

/* `rope` is rope_parameters (which holds rope_theta too, and whose type is "default" where it is left out), rope_scaling, or NULL:
 * no scaling. */
static enum status parse_rope_type(const struct json_value *rope, bool type_needed,
                                   struct model_shape *shape, struct error *err)
{
    /* Files written before transformers 4.43 call it "type". */
    bool old = json_find(rope, "type") && !json_find(rope, "rope_type");
    const char *key = old ? "type" : "rope_type", *type = "default";
    shape->rope_scaling = (struct rope_scaling){.factor = 1};
    TRY(expect_one(rope, "partial_rotary_factor", err));
    if (rope && (type_needed || json_find(rope, key)))
        TRY(json_get_string(rope, key, &type, NULL, err));
    if (strcmp(type, "default") == 0)
        return STATUS_OK;
    if (strcmp(type, "llama3") == 0)
        return parse_llama3_scaling(rope, &shape->rope_scaling, err);
    return error_set(err, STATUS_UNSUPPORTED,
                     "\"%s\": only \"default\" and \"llama3\" are supported, found \"%.100s\"", key,
                     type);
}

static enum status parse_rope(const struct json_value *root, struct model_shape *shape,
                              struct error *err)
{
    bool newer = json_find(root, "rope_parameters") != NULL;
    const char *key = newer ? "rope_parameters" : "rope_scaling";
    const struct json_value *rope = json_find(root, key);
    if (rope)
        TRY(json_get_object(root, key, &rope, err));
    const struct json_value *holder = json_find(rope, "rope_theta") ? rope : root;
    TRY(get_number(holder, "rope_theta", 1, 1e12, 10000, &shape->rope_theta, err));
    enum status status = parse_rope_type(rope, !newer, shape, err);
    return status == STATUS_OK ? STATUS_OK : error_prefix(err, status, "\"%s\"", key);
}

static enum status parse_heads(const struct json_value *root, struct model_shape *shape,
                               struct error *err)
{
    TRY(get_count(root, "num_attention_heads", MAX_HEADS, 0, &shape->heads, err));
    TRY(get_count(root, "num_key_value_heads", MAX_HEADS, shape->heads, &shape->kv_heads, err));
    if (shape->heads % shape->kv_heads != 0)
        return error_set(err, STATUS_INVALID,
                         "\"num_key_value_heads\" must divide num_attention_heads (%u), found %u",
                         shape->heads, shape->kv_heads);
    if (!json_find(root, "head_dim") && shape->hidden % shape->heads != 0)
        return error_set(err, STATUS_INVALID,
                         "\"num_attention_heads\" must divide hidden_size (%u) where head_dim is "
                         "absent, found %u",
                         shape->hidden, shape->heads);
    uint32_t derived = shape->hidden / shape->heads;
    TRY(get_count(root, "head_dim", MAX_HEAD_DIM, derived, &shape->head_dim, err));
    if (shape->head_dim > MAX_HEAD_DIM || shape->head_dim % 2 != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"head_dim\" must be even and at most %d, found %u", MAX_HEAD_DIM,
                         shape->head_dim);
    return STATUS_OK;
}

static enum status parse_shape(const struct json_value *root, struct model_shape *shape,
                               struct error *err)
{
    TRY(refuse_others(root, err));
    TRY(get_count(root, "num_hidden_layers", MAX_LAYERS, 0, &shape->layers, err));
    TRY(get_count(root, "hidden_size", MAX_HIDDEN, 0, &shape->hidden, err));
    TRY(get_count(root, "intermediate_size", MAX_FFN, 0, &shape->ffn, err));
    TRY(get_count(root, "vocab_size", MAX_VOCAB, 0, &shape->vocab, err));
    TRY(get_count(root, "max_position_embeddings", MAX_CONTEXT, 0, &shape->context, err));
    TRY(get_number(root, "rms_norm_eps", 1e-12, 1, 1e-6, &shape->rms_eps, err));
    if (json_find(root, "tie_word_embeddings"))
        TRY(json_get_bool(root, "tie_word_embeddings", &shape->tied_embeddings, err));
    TRY(parse_heads(root, shape, err));
    return parse_rope(root, shape, err);
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

enum status config_json_read(const char *model_dir, struct model_shape *shape,
                             struct end_ids *end_ids, struct error *err)
{
    char path[MODEL_PATH_BYTES];
    struct model_shape read = {0};
    struct end_ids ids = {0};
    struct json *json;
    TRY(model_path(model_dir, "config.json", path, err));
    enum status status = json_read_file(path, LIMITS, &json, err);
    if (status == STATUS_NOT_FOUND)
        return error_set(err, status,
                         "%s: No such file or directory; a model is a folder in Hugging Face's "
                         "layout",
                         path);
    if (status != STATUS_OK)
        return status;
    status = parse_shape(json_root(json), &read, err);
    if (status == STATUS_OK)
        status = end_ids_parse(json_root(json), read.vocab, &ids, err);
    json_destroy(json);
    if (status != STATUS_OK)
        return error_prefix(err, status, "%s", path);
    *shape = read;
    *end_ids = ids;
    return STATUS_OK;
}
