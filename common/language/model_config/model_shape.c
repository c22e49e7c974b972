/* The shape of a model by its config.json: counts, heads, family, window and rotary embedding.
 * Refuses, by its name, each key that changes the forward pass and isn't built. */
#include "common/base/json/json.h"
#include "common/language/model_config/model_config.h"

#include <math.h>
#include <string.h>

/* Limits far above any published model. Products of them don't overflow 64 bits. */
#define MAX_LAYERS   1024
#define MAX_HIDDEN   (1 << 17)
#define MAX_FFN      (1 << 20)
#define MAX_HEADS    4096
#define MAX_HEAD_DIM 256
#define MAX_VOCAB    (1 << 22)
#define MAX_CONTEXT  (1 << 24)

/* ------------------------------------------------------------------------------------- families */

enum family_window {
    WINDOW_NEVER,    /* the family has none */
    WINDOW_ALWAYS,   /* by sliding_window; if the key is absent: MISTRAL_DEFAULT_WINDOW */
    WINDOW_SWITCHED, /* use_sliding_window turns it on, from layer max_window_layers upwards */
};

/* A family of models, by model_type. */
struct model_family {
    const char *model_type, *architecture;
    bool qkv_bias, qk_norm;
    /* Keys that must be there, as libraries differ in their defaults for them: */
    bool needs_theta, needs_kv_heads, needs_head_dim;
    enum family_window window;
};

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

/* Families that are often asked for, and what their forward pass has that isn't built. */
static const struct {
    const char *model_type, *name, *reason;
} REFUSED_FAMILIES[] = {
    {"phi3", "Phi-3 and Phi-4", "its q, k and v, and its gate and up, are one fused tensor each"},
    {"phi4mm", "Phi-4 multimodal", "its q, k and v are one fused tensor, and it reads pictures"},
    {"phi", "Phi-1 and Phi-2", "its attention and feed-forward run in parallel"},
    {"olmo", "OLMo", "its norms have no weights"},
    {"olmo2", "OLMo 2", "its norms stand behind attention and feed-forward, not before them"},
    {"olmo3", "OLMo 3", "its norms stand behind attention and feed-forward, not before them"},
};

#define MAX_WINDOW             (1 << 24)
#define MISTRAL_DEFAULT_WINDOW 4096
#define QWEN_DEFAULT_FROM      28 /* max_window_layers where it is absent */

/* A value above 1 of any of these means a mixture of experts. */
static const char *const EXPERT_COUNTS[] = {"num_local_experts", "num_experts", "n_routed_experts",
                                            "moe_num_experts", "num_experts_per_tok"};

/* Switches of other forward passes: must be absent or off. */
static const char *const SWITCHES[] = {
    "mlp_bias",         "use_qk_norm", "is_encoder_decoder",          "add_cross_attention",
    "use_mrope",        "alibi",       "use_bidirectional_attention", "use_parallel_residual",
    "rope_interleaved",
};

/* Numbers and lists of other forward passes: must be absent, or the number that changes nothing. */
static const struct {
    const char *key;
    double neutral; /* the number that changes nothing; 0: there is none */
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

/* Refuses keys that change the forward pass and aren't built. */
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

/* Finds the family by model_type. Refuses every key that another family or variant has. */
static enum status find_family(const struct json_value *root, const struct model_family **family,
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
    for (size_t i = 0; i < sizeof REFUSED_FAMILIES / sizeof *REFUSED_FAMILIES; i++)
        if (strcmp(REFUSED_FAMILIES[i].model_type, model_type) == 0)
            return error_set(err, STATUS_UNSUPPORTED,
                             "\"model_type\": \"%s\" (%s) is not supported: %s; " SUPPORTED,
                             model_type, REFUSED_FAMILIES[i].name, REFUSED_FAMILIES[i].reason);
    return error_set(err, STATUS_UNSUPPORTED, "\"model_type\": " SUPPORTED ", found \"%.100s\"",
                     model_type);
}

/* ---------------------------------------------------------------------------------- the window */

/* The kind of all layers, by layer_types. */
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
                         "\"layer_types\": expected one for each layer (%u), found %zu", layers,
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

/* Sets *window to 0 unless use_sliding_window turns it on for all layers. */
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

/* Sets *out to the window of all layers; 0: none. Refuses layers that differ. */
static enum status parse_window(const struct model_family *family, const struct json_value *root,
                                uint32_t layers, uint32_t *out, struct error *err)
{
    enum layer_kind kind;
    int64_t value = 0;
    TRY(parse_layer_types(root, layers, &kind, err));
    if (json_find(root, "sliding_window")) {
        TRY(json_get_i64(root, "sliding_window", 1, MAX_WINDOW, &value, err));
    } else if (family->window == WINDOW_ALWAYS) {
        value = MISTRAL_DEFAULT_WINDOW;
        for (struct json_member m = {0}; json_next(root, &m);)
            if (strcmp(m.key, "sliding_window") == 0)
                value = 0; /* null, which json_find takes for absent */
    }
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
                         "\"layer_types\": \"%s\", but the other keys set a window of %u (0: none)",
                         kind == LAYERS_FULL ? "full_attention" : "sliding_attention", window);
    *out = window;
    return STATUS_OK;
}

/* ------------------------------------------------------------------------- the rotary embedding */

#define DEFAULT_THETA   10000
#define MAX_THETA       1e12
#define MAX_ROPE_FACTOR 1e6

/* Reads a count of 1..max. If the key is absent: `fallback`, or an error if that is 0. */
static enum status get_count(const struct json_value *object, const char *key, uint32_t max,
                             uint32_t fallback, uint32_t *out, struct error *err)
{
    int64_t value = fallback;
    if (!fallback || json_find(object, key))
        TRY(json_get_i64(object, key, 1, max, &value, err));
    *out = (uint32_t)value;
    return STATUS_OK;
}

/* Known members of a rotary embedding, and the types that have them. */
#define EVERY_TYPE (~0u)
static const struct {
    const char *name;
    unsigned types; /* bits of rope_type */
} MEMBERS[] = {
    {"rope_type", EVERY_TYPE},
    {"type", EVERY_TYPE},
    {"rope_theta", EVERY_TYPE},
    {"factor", EVERY_TYPE},
    {"low_freq_factor", EVERY_TYPE},
    {"high_freq_factor", EVERY_TYPE},
    {"original_max_position_embeddings", EVERY_TYPE},
    {"partial_rotary_factor", EVERY_TYPE},
    {"attention_factor", 1u << ROPE_YARN | 1u << ROPE_LONGROPE},
    {"beta_fast", 1u << ROPE_YARN},
    {"beta_slow", 1u << ROPE_YARN},
    {"mscale", 1u << ROPE_YARN},
    {"mscale_all_dim", 1u << ROPE_YARN},
    {"truncate", 1u << ROPE_YARN},
    {"short_factor", 1u << ROPE_LONGROPE},
    {"long_factor", 1u << ROPE_LONGROPE},
};

static enum status refuse_other_members(const struct json_value *rope, enum rope_type type,
                                        struct error *err)
{
    for (struct json_member m = {0}; json_next(rope, &m);) {
        bool known = !m.value;
        for (size_t i = 0; i < sizeof MEMBERS / sizeof *MEMBERS; i++)
            known |= strcmp(MEMBERS[i].name, m.key) == 0 && MEMBERS[i].types >> type & 1;
        if (!known)
            return error_set(err, STATUS_UNSUPPORTED, "\"%.100s\": not supported, found %s", m.key,
                             json_kind_name(m.value));
    }
    double part = 1;
    if (json_find(rope, "partial_rotary_factor"))
        TRY(json_get_double(rope, "partial_rotary_factor", 0, 1, &part, err));
    if (part != 1)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"partial_rotary_factor\": only 1 is supported, found %g", part);
    return STATUS_OK;
}

static enum status parse_llama3(const struct json_value *rope, struct rope_scaling *scaling,
                                struct error *err)
{
    int64_t context;
    TRY(json_get_double(rope, "factor", 1, MAX_ROPE_FACTOR, &scaling->factor, err));
    TRY(json_get_double(rope, "low_freq_factor", 1e-3, 1e6, &scaling->low_freq_factor, err));
    TRY(json_get_double(rope, "high_freq_factor", 1e-3, 1e6, &scaling->high_freq_factor, err));
    TRY(json_get_i64(rope, "original_max_position_embeddings", 1, MAX_CONTEXT, &context, err));
    scaling->original_context = (uint32_t)context;
    if (scaling->high_freq_factor <= scaling->low_freq_factor)
        return error_set(err, STATUS_INVALID,
                         "\"high_freq_factor\" must be above low_freq_factor (%g), found %g",
                         scaling->low_freq_factor, scaling->high_freq_factor);
    return STATUS_OK;
}

/* Refuses what would make the frequencies depend on a request's length. Within the trained context
 * they don't. */
static enum status parse_dynamic(const struct json_value *rope, uint32_t context,
                                 struct rope_scaling *scaling, struct error *err)
{
    TRY(json_get_double(rope, "factor", 1, MAX_ROPE_FACTOR, &scaling->factor, err));
    TRY(get_count(rope, "original_max_position_embeddings", MAX_CONTEXT, context,
                  &scaling->original_context, err));
    if (scaling->original_context < context)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"original_max_position_embeddings\" is below max_position_embeddings "
                         "(%u), found %u: beyond it \"dynamic\" turns every key anew for each "
                         "length, which no cached key can follow; use \"yarn\", or the smaller "
                         "max_position_embeddings",
                         context, scaling->original_context);
    return STATUS_OK;
}

/* Reads original_max_position_embeddings, outside `rope` (which counts first) or inside, and the
 * factor, by default the ratio of the contexts: as transformers does for yarn and longrope. */
static enum status parse_contexts(const struct json_value *root, const struct json_value *rope,
                                  uint32_t context, struct rope_scaling *scaling, struct error *err)
{
    const char *key = "original_max_position_embeddings";
    TRY(get_count(json_find(root, key) ? root : rope, key, MAX_CONTEXT, context,
                  &scaling->original_context, err));
    scaling->factor = (double)context / scaling->original_context;
    if (json_find(rope, "factor"))
        TRY(json_get_double(rope, "factor", 1, MAX_ROPE_FACTOR, &scaling->factor, err));
    if (scaling->factor < 1)
        return error_set(err, STATUS_INVALID,
                         "\"original_max_position_embeddings\" is above max_position_embeddings "
                         "(%u), found %u",
                         context, scaling->original_context);
    return STATUS_OK;
}

/* Reads a number in [min, max]; `fallback` if it is absent. */
static enum status get_number(const struct json_value *rope, const char *key, double min,
                              double max, double fallback, double *out, struct error *err)
{
    *out = fallback;
    return json_find(rope, key) ? json_get_double(rope, key, min, max, out, err) : STATUS_OK;
}

/* Returns YaRN's attention temperature for a scale. */
static double yarn_mscale(double scale, double mscale)
{
    return scale <= 1 ? 1 : 0.1 * mscale * log(scale) + 1;
}

static enum status parse_yarn(const struct json_value *rope, struct rope_scaling *scaling,
                              struct error *err)
{
    double fast = 0, slow = 0, mscale, all;
    TRY(get_number(rope, "beta_fast", 0, 1e6, 0, &fast, err));
    TRY(get_number(rope, "beta_slow", 0, 1e6, 0, &slow, err));
    scaling->beta_fast = fast > 0 ? fast : 32; /* 0 counts as absent, in transformers too */
    scaling->beta_slow = slow > 0 ? slow : 1;
    scaling->truncate = true;
    TRY(json_get_optional_bool(rope, "truncate", &scaling->truncate, err));
    TRY(get_number(rope, "mscale", 0, 1e3, 0, &mscale, err));
    TRY(get_number(rope, "mscale_all_dim", 0, 1e3, 0, &all, err));
    double inferred = mscale > 0 && all > 0
                          ? yarn_mscale(scaling->factor, mscale) / yarn_mscale(scaling->factor, all)
                          : yarn_mscale(scaling->factor, 1);
    TRY(get_number(rope, "attention_factor", 1e-3, 1e3, inferred, &scaling->attention, err));
    if (scaling->beta_fast < scaling->beta_slow)
        return error_set(err, STATUS_INVALID,
                         "\"beta_fast\" must not be below beta_slow (%g), found %g",
                         scaling->beta_slow, scaling->beta_fast);
    return STATUS_OK;
}

/* Reads a factor for each frequency. */
static enum status parse_factors(const struct json_value *rope, const char *key, uint32_t count,
                                 float *factors, struct error *err)
{
    const struct json_value *list;
    TRY(json_get_array(rope, key, &list, err));
    if (json_count(list) != count)
        return error_set(err, STATUS_INVALID,
                         "\"%s\": expected one for each pair of dimensions (%u), found %zu", key,
                         count, json_count(list));
    for (uint32_t i = 0; i < count; i++) {
        double factor;
        enum status status = json_as_double(json_at(list, i), 1e-3, MAX_ROPE_FACTOR, &factor, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"%s\"", key);
        factors[i] = (float)factor;
    }
    return STATUS_OK;
}

static enum status parse_longrope(const struct json_value *rope, uint32_t frequencies,
                                  struct rope_scaling *scaling, struct error *err)
{
    double inferred = 1;
    TRY(parse_factors(rope, "short_factor", frequencies, scaling->short_factors, err));
    TRY(parse_factors(rope, "long_factor", frequencies, scaling->long_factors, err));
    if (scaling->factor > 1 && scaling->original_context > 1)
        inferred = sqrt(1 + log(scaling->factor) / log(scaling->original_context));
    return get_number(rope, "attention_factor", 1e-3, 1e3, inferred, &scaling->attention, err);
}

static enum status parse_scaling(const struct json_value *root, const struct json_value *rope,
                                 struct model_shape *shape, struct error *err)
{
    struct rope_scaling *scaling = &shape->rope_scaling;
    switch (scaling->type) {
    case ROPE_DEFAULT: return STATUS_OK;
    case ROPE_LINEAR:
        return json_get_double(rope, "factor", 1, MAX_ROPE_FACTOR, &scaling->factor, err);
    case ROPE_DYNAMIC: return parse_dynamic(rope, shape->context, scaling, err);
    case ROPE_LLAMA3: return parse_llama3(rope, scaling, err);
    case ROPE_YARN:
        TRY(parse_contexts(root, rope, shape->context, scaling, err));
        return parse_yarn(rope, scaling, err);
    case ROPE_LONGROPE:
        TRY(parse_contexts(root, rope, shape->context, scaling, err));
        return parse_longrope(rope, shape->head_dim / 2, scaling, err);
    }
    return STATUS_OK;
}

/* Reads the type and its members. `rope` is rope_parameters, which has the type "default" unless it
 * names one, or rope_scaling. NULL: no scaling. */
static enum status parse_type(const struct json_value *root, const struct json_value *rope,
                              bool type_needed, struct model_shape *shape, struct error *err)
{
    /* Files from before transformers 4.43 name it "type". */
    bool old = json_find(rope, "type") && !json_find(rope, "rope_type");
    const char *key = old ? "type" : "rope_type", *name = "default";
    shape->rope_scaling = (struct rope_scaling){.factor = 1};
    if (rope && (type_needed || json_find(rope, key)))
        TRY(json_get_string(rope, key, &name, NULL, err));
    enum rope_type type = ROPE_DEFAULT;
    while (type <= ROPE_LONGROPE && strcmp(rope_type_name(type), name) != 0)
        type++;
    if (type > ROPE_LONGROPE)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"%s\": only \"default\", \"linear\", \"dynamic\", \"llama3\", \"yarn\" "
                         "and \"longrope\" are supported, found \"%.100s\"",
                         key, name);
    shape->rope_scaling.type = type;
    TRY(refuse_other_members(rope, type, err));
    return parse_scaling(root, rope, shape, err);
}

/* Reads rope_theta: inside `rope`, outside, or the same value in both places. */
static enum status parse_theta(const struct json_value *root, const struct json_value *rope,
                               bool needed, double *theta, struct error *err)
{
    double outer = DEFAULT_THETA, inner;
    bool has_inner = json_find(rope, "rope_theta"), has_outer = json_find(root, "rope_theta");
    if (has_outer || (needed && !has_inner))
        TRY(json_get_double(root, "rope_theta", 1, MAX_THETA, &outer, err));
    inner = outer;
    if (has_inner)
        TRY(json_get_double(rope, "rope_theta", 1, MAX_THETA, &inner, err));
    if (has_outer && inner != outer)
        return error_set(err, STATUS_INVALID,
                         "\"rope_theta\": found %g and, in rope_parameters, %g", outer, inner);
    *theta = inner;
    return STATUS_OK;
}

/* Reads rope_theta with rope_scaling (transformers 4), or rope_parameters (transformers 5). Refuses
 * unknown types and members. `theta_needed`: rope_theta must be there, otherwise it is 10000 by
 * default. */
static enum status parse_rope(const struct json_value *root, bool theta_needed,
                              struct model_shape *shape, struct error *err)
{
    bool newer = json_find(root, "rope_parameters") != NULL;
    const char *key = newer ? "rope_parameters" : "rope_scaling";
    const struct json_value *rope = json_find(root, key);
    if (newer && json_find(root, "rope_scaling"))
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"rope_scaling\": not supported together with \"rope_parameters\"");
    if (rope)
        TRY(json_get_object(root, key, &rope, err));
    TRY(parse_theta(root, rope, theta_needed, &shape->rope_theta, err));
    enum status status = parse_type(root, rope, !newer, shape, err);
    if (status == STATUS_OK && shape->rope_scaling.type == ROPE_YARN && shape->rope_theta <= 1)
        status = error_set(err, STATUS_INVALID, "\"rope_theta\" must be above 1 with \"yarn\"");
    return status == STATUS_OK ? STATUS_OK : error_prefix(err, status, "\"%s\"", key);
}

/* ------------------------------------------------------------------------------------ the shape */

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

enum status model_shape_parse(const struct json_value *root, struct model_shape *shape,
                              struct error *err)
{
    const struct model_family *family = NULL;
    TRY(find_family(root, &family, err));
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
    TRY(parse_window(family, root, shape->layers, &shape->window, err));
    return parse_rope(root, family->needs_theta, shape, err);
}
