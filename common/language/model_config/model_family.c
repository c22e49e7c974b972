#include "common/language/model_config/model_family.h"

#include "common/base/json/json.h"

#include <string.h>

static const struct model_family FAMILIES[] = {
    {.model_type = "llama", .architecture = "LlamaForCausalLM", .window = WINDOW_NEVER},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .needs_kv_heads = true,
     .window = WINDOW_ALWAYS},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .qkv_bias = true,
     .needs_theta = true,
     .needs_kv_heads = true,
     .window = WINDOW_SWITCHED},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .qk_norm = true,
     .needs_theta = true,
     .needs_kv_heads = true,
     .needs_head_dim = true,
     .window = WINDOW_SWITCHED},
};
#define SUPPORTED "llama, mistral, qwen2 and qwen3 are supported"

#define MAX_WINDOW             (1 << 24)
#define MISTRAL_DEFAULT_WINDOW 4096
#define QWEN_DEFAULT_FROM      28 /* max_window_layers where it is absent */

/* Any of these above 1 makes a mixture of experts. */
static const char *const EXPERT_COUNTS[] = {"num_local_experts", "num_experts", "n_routed_experts",
                                            "moe_num_experts", "num_experts_per_tok"};

/* Switches of other forward passes: absent or off. */
static const char *const SWITCHES[] = {
    "mlp_bias",         "use_qk_norm", "is_encoder_decoder",          "add_cross_attention",
    "use_mrope",        "alibi",       "use_bidirectional_attention", "use_parallel_residual",
    "rope_interleaved",
};

/* Numbers and lists of other forward passes; a number may be there if it does nothing. */
static const struct {
    const char *key;
    double neutral; /* 0: there is none */
} OTHERS[] = {
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"query_pre_attn_scalar", 0},
    {"attention_multiplier", 0},
    {"residual_multiplier", 1},
    {"embedding_multiplier", 1},
    {"logits_scaling", 1},
    {"logit_scale", 1},
    {"scale_emb", 1},
    {"scale_depth", 0},
    {"clip_qkv", 0},
    {"attention_chunk_size", 0},
    {"rope_local_base_freq", 0},
    {"no_rope_layers", 0},
    {"kv_lora_rank", 0},
    {"partial_rotary_factor", 1},
    {"compression_config", 0},
    {"dual_chunk_attention_config", 0},
};

static enum status refuse_experts(const struct json_value *root, const char *model_type,
                                  const char *architecture, struct error *err)
{
    bool experts = strstr(model_type, "moe") || strcmp(model_type, "mixtral") == 0;
    for (size_t i = 0; i < sizeof EXPERT_COUNTS / sizeof *EXPERT_COUNTS; i++) {
        int64_t count;
        const struct json_value *value = json_find(root, EXPERT_COUNTS[i]);
        experts |= value && (json_as_i64(value, INT64_MIN, INT64_MAX, &count, NULL) != STATUS_OK ||
                             count > 1);
    }
    if (!experts)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "\"model_type\": \"%.60s\" (%.100s) is a mixture of experts, which is not "
                     "supported; " SUPPORTED,
                     model_type, architecture);
}

static enum status expect_architecture(const struct json_value *root,
                                       const struct model_family *family, struct error *err)
{
    const struct json_value *list = json_find(root, "architectures");
    if (list)
        TRY(json_get_array(root, "architectures", &list, err));
    for (size_t i = 0; i < json_count(list); i++) {
        const char *name;
        enum status status = json_as_string(json_at(list, i), &name, NULL, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"architectures\"");
        if (strcmp(name, family->architecture) != 0)
            return error_set(err, STATUS_UNSUPPORTED,
                             "\"architectures\": only [\"%s\"] is supported with model_type "
                             "\"%s\", found \"%.100s\"",
                             family->architecture, family->model_type, name);
    }
    return STATUS_OK;
}

static enum status expect_bool(const struct json_value *root, const char *key, bool expected,
                               struct error *err)
{
    bool found = expected;
    TRY(json_get_optional_bool(root, key, &found, err));
    if (found != expected)
        return error_set(err, STATUS_UNSUPPORTED, "\"%s\": only %s is supported, found %s", key,
                         expected ? "true" : "false", found ? "true" : "false");
    return STATUS_OK;
}

static enum status expect_neutral(const struct json_value *root, const char *key, double neutral,
                                  struct error *err)
{
    double found = 0;
    const struct json_value *value = json_find(root, key);
    if (!value)
        return STATUS_OK;
    if (!neutral)
        return error_set(err, STATUS_UNSUPPORTED, "\"%s\": not supported, found %s", key,
                         json_kind_name(value));
    TRY(json_get_double(root, key, -1e30, 1e30, &found, err));
    if (found != neutral)
        return error_set(err, STATUS_UNSUPPORTED, "\"%s\": only %g is supported, found %g", key,
                         neutral, found);
    return STATUS_OK;
}

/* What would change the forward pass and isn't built. */
static enum status refuse_variants(const struct json_value *root, const struct model_family *family,
                                   struct error *err)
{
    TRY(expect_architecture(root, family, err));
    const char *activation = "silu";
    if (json_find(root, "hidden_act"))
        TRY(json_get_string(root, "hidden_act", &activation, NULL, err));
    if (strcmp(activation, "silu") != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"hidden_act\": only \"silu\" is supported, found \"%.100s\"",
                         activation);
    TRY(expect_bool(root, "attention_bias", family->qkv_bias, err));
    for (size_t i = 0; i < sizeof SWITCHES / sizeof *SWITCHES; i++)
        TRY(expect_bool(root, SWITCHES[i], false, err));
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++)
        TRY(expect_neutral(root, OTHERS[i].key, OTHERS[i].neutral, err));
    return STATUS_OK;
}

enum status model_family_find(const struct json_value *root, const struct model_family **family,
                              struct error *err)
{
    const char *model_type, *architecture = "no architecture is named";
    TRY(json_get_string(root, "model_type", &model_type, NULL, err));
    const struct json_value *list = json_find(root, "architectures");
    if (json_kind(list) == JSON_ARRAY && json_count(list) > 0)
        (void)!json_as_string(json_at(list, 0), &architecture, NULL, NULL);
    TRY(refuse_experts(root, model_type, architecture, err));
    for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++) {
        if (strcmp(FAMILIES[i].model_type, model_type) != 0)
            continue;
        TRY(refuse_variants(root, &FAMILIES[i], err));
        *family = &FAMILIES[i];
        return STATUS_OK;
    }
    return error_set(err, STATUS_UNSUPPORTED, "\"model_type\": " SUPPORTED ", found \"%.100s\"",
                     model_type);
}

/* --- the window --- */

/* What layer_types says of all layers. */
enum layer_kind { LAYERS_UNSAID, LAYERS_FULL, LAYERS_SLIDING };

static enum status parse_layer_types(const struct json_value *root, uint32_t layers,
                                     enum layer_kind *kind, struct error *err)
{
    const struct json_value *list = json_find(root, "layer_types");
    *kind = LAYERS_UNSAID;
    if (!list)
        return STATUS_OK;
    TRY(json_get_array(root, "layer_types", &list, err));
    if (json_count(list) != layers)
        return error_set(err, STATUS_INVALID,
                         "\"layer_types\": expected one of each layer (%u), found %zu", layers,
                         json_count(list));
    const char *first = "", *name;
    for (size_t i = 0; i < layers; i++) {
        enum status status = json_as_string(json_at(list, i), &name, NULL, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"layer_types\"");
        first = i ? first : name;
        if (strcmp(name, "full_attention") != 0 && strcmp(name, "sliding_attention") != 0)
            return error_set(err, STATUS_UNSUPPORTED,
                             "\"layer_types\": only \"full_attention\" and \"sliding_attention\" "
                             "are supported, found \"%.100s\"",
                             name);
        if (strcmp(name, first) != 0)
            return error_set(err, STATUS_UNSUPPORTED,
                             "\"layer_types\": only layers that are all alike are supported, found "
                             "\"%s\" and \"%s\"",
                             first, name);
    }
    *kind = strcmp(first, "full_attention") == 0 ? LAYERS_FULL : LAYERS_SLIDING;
    return STATUS_OK;
}

/* json_find doesn't tell null from absent. */
static bool has_key(const struct json_value *root, const char *key)
{
    for (struct json_member m = {0}; json_next(root, &m);)
        if (strcmp(m.key, key) == 0)
            return true;
    return false;
}

static enum status window_of_switch(const struct json_value *root, uint32_t layers,
                                    enum layer_kind kind, uint32_t *window, struct error *err)
{
    bool on = false;
    int64_t from = QWEN_DEFAULT_FROM;
    TRY(json_get_optional_bool(root, "use_sliding_window", &on, err));
    if (json_find(root, "max_window_layers"))
        TRY(json_get_i64(root, "max_window_layers", 0, INT32_MAX, &from, err));
    if (!on || !*window) {
        *window = 0;
        return STATUS_OK;
    }
    if (kind == LAYERS_UNSAID && from > 0 && from < layers)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"max_window_layers\": only layers that are all alike are supported, "
                         "found %lld of %u with \"use_sliding_window\"",
                         (long long)from, layers);
    if (kind == LAYERS_FULL || (kind == LAYERS_UNSAID && from >= layers))
        *window = 0;
    return STATUS_OK;
}

enum status model_family_window(const struct model_family *family, const struct json_value *root,
                                uint32_t layers, uint32_t *out, struct error *err)
{
    enum layer_kind kind;
    int64_t value = 0;
    TRY(parse_layer_types(root, layers, &kind, err));
    if (json_find(root, "sliding_window"))
        TRY(json_get_i64(root, "sliding_window", 1, MAX_WINDOW, &value, err));
    else if (family->window == WINDOW_ALWAYS && !has_key(root, "sliding_window"))
        value = MISTRAL_DEFAULT_WINDOW;
    uint32_t window = (uint32_t)value;
    if (family->window == WINDOW_NEVER) {
        TRY(expect_bool(root, "use_sliding_window", false, err));
        TRY(expect_neutral(root, "sliding_window", 0, err));
    } else if (family->window == WINDOW_ALWAYS) {
        TRY(expect_bool(root, "use_sliding_window", true, err));
    } else {
        TRY(window_of_switch(root, layers, kind, &window, err));
    }
    if ((kind == LAYERS_SLIDING && !window) || (kind == LAYERS_FULL && window))
        return error_set(err, STATUS_INVALID,
                         "\"layer_types\": \"%s\", but the other keys say a window of %u (0: none)",
                         kind == LAYERS_FULL ? "full_attention" : "sliding_attention", window);
    *out = window;
    return STATUS_OK;
}
