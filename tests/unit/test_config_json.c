/* model_config: config.json in both spellings, generation_config.json, and the sentence for each
 * thing that is refused. */
#include "common/language/model_config/model_config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ABSENT NULL

struct member {
    const char *key, *value;
};

/* A model as transformers 5 would write it. */
static const struct member BASE[] = {
    {"model_type", "\"llama\""},
    {"architectures", "[\"LlamaForCausalLM\"]"},
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"hidden_act", "\"silu\""},
    {"num_hidden_layers", "3"},
    {"hidden_size", "128"},
    {"intermediate_size", "192"},
    {"num_attention_heads", "8"},
    {"num_key_value_heads", "2"},
    {"head_dim", "16"},
    {"vocab_size", "384"},
    {"max_position_embeddings", "2048"},
    {"rms_norm_eps", "1e-05"},
    {"rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 10000.0}"},
    {"tie_word_embeddings", "false"},
    {"dtype", "\"bfloat16\""},
    {"eos_token_id", "2"},
    {"rope_theta", ABSENT},
    {"rope_scaling", ABSENT},
    {"original_max_position_embeddings", ABSENT},
    {"quantization_config", ABSENT},
    {"partial_rotary_factor", ABSENT},
    {"sliding_window", ABSENT},
    {"use_sliding_window", ABSENT},
    {"max_window_layers", ABSENT},
    {"layer_types", ABSENT},
    {"num_experts", ABSENT},
    {"num_local_experts", ABSENT},
    {"use_qk_norm", ABSENT},
    {"is_encoder_decoder", ABSENT},
    {"final_logit_softcapping", ABSENT},
    {"embedding_multiplier", ABSENT},
    {"clip_qkv", ABSENT},
};
#define BASE_COUNT (sizeof BASE / sizeof *BASE)

static char folder[] = "/tmp/baton_test_config_XXXXXX";

static void write_text(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void remove_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

/* BASE with some members changed; every key in `changes` must be one of BASE's. */
static void write_config(const struct member *changes, size_t count)
{
    char text[4096] = "{";
    size_t used = 0;
    for (size_t i = 0; i < BASE_COUNT; i++) {
        const char *value = BASE[i].value;
        for (size_t c = 0; c < count; c++)
            if (strcmp(changes[c].key, BASE[i].key) == 0) {
                value = changes[c].value;
                used++;
            }
        if (value)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n  \"%s\": %s",
                     strlen(text) > 1 ? "," : "", BASE[i].key, value);
    }
    assert_int_equal(used, count);
    strcat(text, "\n}\n");
    write_text("config.json", text);
}

static struct model_config read_config(void)
{
    struct model_config config;
    struct error err;
    if (model_config_read(folder, &config, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return config;
}

static void expect_refusal(enum status status, const char *file, const char *sentence)
{
    struct model_config config = {.shape.layers = 77};
    struct error err = {0};
    char expected[512];
    enum status found = model_config_read(folder, &config, &err);
    snprintf(expected, sizeof expected, "%s/%s: %s", folder, file, sentence);
    assert_string_equal(err.text, expected);
    assert_int_equal(found, status);
    assert_int_equal(config.shape.layers, 77);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    remove_file("config.json");
    return rmdir(folder);
}

static void test_the_newer_spelling(void **state)
{
    (void)state;
    write_config(NULL, 0);
    struct model_config config = read_config();
    const struct model_shape *s = &config.shape;
    assert_int_equal(s->layers, 3);
    assert_int_equal(s->hidden, 128);
    assert_int_equal(s->ffn, 192);
    assert_int_equal(s->heads, 8);
    assert_int_equal(s->kv_heads, 2);
    assert_int_equal(s->head_dim, 16);
    assert_int_equal(s->vocab, 384);
    assert_int_equal(s->context, 2048);
    assert_true(s->rms_eps == 1e-5 && s->rope_theta == 10000 && s->rope_scaling.factor == 1);
    assert_false(s->tied_embeddings);
    assert_int_equal(config.end_ids.count, 1);
    assert_int_equal(config.end_ids.ids[0], 2);
    assert_false(config.defaults.has_temperature);
}

static void test_the_older_spelling_with_llama3_scaling(void **state)
{
    (void)state;
    const struct member older[] = {
        {"rope_parameters", ABSENT},
        {"rope_theta", "500000.0"},
        {"rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                         "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}"},
        {"tie_word_embeddings", "true"},
        {"eos_token_id", "[2, 5]"},
    };
    write_config(older, 5);
    struct model_config config = read_config();
    assert_true(config.shape.rope_theta == 500000);
    assert_true(config.shape.rope_scaling.factor == 8);
    assert_true(config.shape.rope_scaling.low_freq_factor == 1);
    assert_true(config.shape.rope_scaling.high_freq_factor == 4);
    assert_int_equal(config.shape.rope_scaling.original_context, 8192);
    assert_true(config.shape.tied_embeddings);
    assert_int_equal(config.end_ids.count, 2);
    assert_int_equal(config.end_ids.ids[1], 5);
}

static void test_what_may_be_left_out(void **state)
{
    (void)state;
    const struct member sparse[] = {
        {"num_key_value_heads", ABSENT}, {"head_dim", "null"},
        {"rms_norm_eps", ABSENT},        {"rope_parameters", ABSENT},
        {"rope_scaling", "null"},        {"eos_token_id", "null"},
        {"architectures", ABSENT},       {"tie_word_embeddings", ABSENT},
    };
    write_config(sparse, 8);
    struct model_config config = read_config();
    assert_int_equal(config.shape.kv_heads, 8);
    assert_int_equal(config.shape.head_dim, 16);
    assert_true(config.shape.rms_eps == 1e-6 && config.shape.rope_theta == 10000);
    assert_false(config.shape.tied_embeddings);
    assert_int_equal(config.end_ids.count, 0);
    const struct member untyped[] = {{"rope_parameters", "{\"rope_theta\": 500000.0}"}};
    write_config(untyped, 1);
    config = read_config();
    assert_true(config.shape.rope_theta == 500000 && config.shape.rope_scaling.factor == 1);
}

static struct rope_scaling read_rope(const char *rope)
{
    const struct member changes[] = {
        {"rope_parameters", ABSENT}, {"rope_theta", "500000.0"}, {"rope_scaling", rope}};
    write_config(changes, 3);
    return read_config().shape.rope_scaling;
}

/* Each scheme with its defaults, which are transformers'. head_dim is 16, the context 2048. */
static void test_rope_schemes(void **state)
{
    (void)state;
    struct rope_scaling linear = read_rope("{\"type\": \"linear\", \"factor\": 4}");
    assert_true(linear.type == ROPE_LINEAR && linear.factor == 4 && linear.attention == 0);
    struct rope_scaling dynamic = read_rope("{\"rope_type\": \"dynamic\", \"factor\": 2}");
    assert_true(dynamic.type == ROPE_DYNAMIC && dynamic.original_context == 2048);
    struct rope_scaling yarn =
        read_rope("{\"type\": \"yarn\", \"original_max_position_embeddings\": 512}");
    assert_true(yarn.type == ROPE_YARN && yarn.factor == 4 && yarn.original_context == 512);
    assert_true(yarn.beta_fast == 32 && yarn.beta_slow == 1 && yarn.truncate);
    assert_true(fabs(yarn.attention - (0.1 * log(4) + 1)) < 1e-12);
    yarn = read_rope("{\"rope_type\": \"yarn\", \"factor\": 40, \"mscale\": 2,"
                     "\"mscale_all_dim\": 0.5, \"beta_fast\": 16, \"beta_slow\": 2,"
                     "\"truncate\": false}");
    assert_true(yarn.factor == 40 && yarn.original_context == 2048 && !yarn.truncate);
    assert_true(yarn.beta_fast == 16 && yarn.beta_slow == 2);
    assert_true(fabs(yarn.attention - (0.2 * log(40) + 1) / (0.05 * log(40) + 1)) < 1e-12);
    yarn = read_rope("{\"rope_type\": \"yarn\", \"factor\": 4, \"attention_factor\": 1.5}");
    assert_true(yarn.attention == 1.5);
    struct rope_scaling longrope =
        read_rope("{\"rope_type\": \"longrope\", \"original_max_position_embeddings\": 256,"
                  "\"short_factor\": [1,1,1,1,1,1,1,1.5], \"long_factor\": [1,2,3,4,5,6,7,8]}");
    assert_true(longrope.type == ROPE_LONGROPE && longrope.factor == 8);
    assert_true(longrope.short_factors[7] == 1.5f && longrope.long_factors[7] == 8);
    assert_true(fabs(longrope.attention - sqrt(1 + log(8) / log(256))) < 1e-12);
    /* Beside the scheme, as Phi-3 writes it, it counts first. */
    const struct member outer[] = {{"rope_parameters",
                                    "{\"rope_theta\": 10000.0, \"rope_type\": \"yarn\","
                                    "\"original_max_position_embeddings\": 64}"},
                                   {"original_max_position_embeddings", "1024"}};
    write_config(outer, 2);
    assert_int_equal(read_config().shape.rope_scaling.original_context, 1024);
}

/* Folders of tools that leave config.json as it was. */
static void test_quantizations_of_other_tools(void **state)
{
    (void)state;
    write_config(NULL, 0);
    write_text("quantize_config.json", "{\"bits\": 4}");
    expect_refusal(STATUS_UNSUPPORTED, "quantize_config.json",
                   "\"gptq\" (GPTQ) packs 2 to 8 bits by columns, in tensors qweight, qzeros and "
                   "scales, which aren't read: give the folder with the floats, and let baton "
                   "quantize make int8 or int4 of it");
    remove_file("quantize_config.json");
    read_config();
}

#define ROPE(text) "{\"rope_theta\": 10000.0, " text "}"

static const struct {
    struct member change;
    enum status status;
    const char *sentence;
} REFUSALS[] = {
    {{"model_type", "\"mamba\""},
     STATUS_UNSUPPORTED,
     "\"model_type\": llama, mistral, qwen2 and qwen3 are supported, found \"mamba\""},
    {{"model_type", "\"phi3\""},
     STATUS_UNSUPPORTED,
     "\"model_type\": \"phi3\" (Phi-3 and Phi-4) is not supported: its q, k and v, and its gate "
     "and "
     "up, are one fused tensor each; llama, mistral, qwen2 and qwen3 are supported"},
    {{"model_type", "\"olmo2\""},
     STATUS_UNSUPPORTED,
     "\"model_type\": \"olmo2\" (OLMo 2) is not supported: its norms stand behind attention and "
     "feed-forward, not before them; llama, mistral, qwen2 and qwen3 are supported"},
    {{"model_type", "\"mixtral\""},
     STATUS_UNSUPPORTED,
     "\"model_type\": \"mixtral\" (LlamaForCausalLM) is a mixture of experts, which is not "
     "supported; llama, mistral, qwen2 and qwen3 are supported"},
    {{"num_local_experts", "8"},
     STATUS_UNSUPPORTED,
     "\"model_type\": \"llama\" (LlamaForCausalLM) is a mixture of experts, which is not "
     "supported; llama, mistral, qwen2 and qwen3 are supported"},
    {{"model_type", "\"qwen2\""},
     STATUS_UNSUPPORTED,
     "\"architectures\": only [\"Qwen2ForCausalLM\"] is supported with model_type \"qwen2\", found "
     "\"LlamaForCausalLM\""},
    {{"architectures", "\"LlamaForCausalLM\""},
     STATUS_INVALID,
     "\"architectures\": expected an array, found a string"},
    {{"architectures", "[7]"},
     STATUS_INVALID,
     "\"architectures\": expected a string, found an integer"},
    {{"sliding_window", "4096"},
     STATUS_UNSUPPORTED,
     "\"sliding_window\": not supported, found an integer"},
    {{"use_sliding_window", "true"},
     STATUS_UNSUPPORTED,
     "\"use_sliding_window\": only false is supported, found true"},
    {{"layer_types", "[\"full_attention\"]"},
     STATUS_INVALID,
     "\"layer_types\": expected one for each layer (3), found 1"},
    {{"layer_types", "[\"linear_attention\", \"full_attention\", \"full_attention\"]"},
     STATUS_UNSUPPORTED,
     "\"layer_types\": only \"full_attention\" and \"sliding_attention\" are supported, found "
     "\"linear_attention\""},
    {{"use_qk_norm", "true"},
     STATUS_UNSUPPORTED,
     "\"use_qk_norm\": only false is supported, found true"},
    {{"is_encoder_decoder", "true"},
     STATUS_UNSUPPORTED,
     "\"is_encoder_decoder\": only false is supported, found true"},
    {{"final_logit_softcapping", "30.0"},
     STATUS_UNSUPPORTED,
     "\"final_logit_softcapping\": not supported, found a number with a point or an exponent"},
    {{"embedding_multiplier", "12.0"},
     STATUS_UNSUPPORTED,
     "\"embedding_multiplier\": only 1 is supported, found 12"},
    {{"clip_qkv", "[1]"}, STATUS_UNSUPPORTED, "\"clip_qkv\": not supported, found an array"},
    {{"model_type", ABSENT}, STATUS_NOT_FOUND, "\"model_type\" is missing"},
    {{"architectures", "[\"LlamaForSequenceClassification\"]"},
     STATUS_UNSUPPORTED,
     "\"architectures\": only [\"LlamaForCausalLM\"] is supported with model_type \"llama\", found "
     "\"LlamaForSequenceClassification\""},
    {{"hidden_act", "\"gelu\""},
     STATUS_UNSUPPORTED,
     "\"hidden_act\": only \"silu\" is supported, found \"gelu\""},
    {{"attention_bias", "true"},
     STATUS_UNSUPPORTED,
     "\"attention_bias\": only false is supported, found true"},
    {{"mlp_bias", "true"}, STATUS_UNSUPPORTED, "\"mlp_bias\": only false is supported, found true"},
    {{"mlp_bias", "1"}, STATUS_INVALID, "\"mlp_bias\": expected true or false, found an integer"},
    {{"quantization_config", "7"},
     STATUS_INVALID,
     "\"quantization_config\": expected an object, found an integer"},
    {{"quantization_config", "{}"},
     STATUS_NOT_FOUND,
     "\"quantization_config\": \"quant_method\" is missing"},
    {{"quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}"},
     STATUS_UNSUPPORTED,
     "\"quantization_config\": \"quant_method\": \"gptq\" (GPTQ) packs 2 to 8 bits by columns, in "
     "tensors qweight, qzeros and scales, which aren't read: give the folder with the floats, and "
     "let baton quantize make int8 or int4 of it"},
    {{"quantization_config", "{\"quant_method\": \"awq\", \"bits\": 4}"},
     STATUS_UNSUPPORTED,
     "\"quantization_config\": \"quant_method\": \"awq\" (AWQ) packs 4 bits in an order of its "
     "own, "
     "in tensors qweight, qzeros and scales, which aren't read: give the folder with the floats, "
     "and let baton quantize make int8 or int4 of it"},
    {{"quantization_config", "{\"quant_method\": \"quanto\"}"},
     STATUS_UNSUPPORTED,
     "\"quantization_config\": \"quant_method\": only \"baton\" (baton quantize writes it), "
     "\"fp8\" and \"compressed-tensors\" are supported, found \"quanto\" (config_quant_method)"},
    {{"quantization_config", "{\"quant_method\": \"baton\", \"version\": 2}"},
     STATUS_INVALID,
     "\"quantization_config\": \"version\": 2 is not within 1..1"},
    {{"quantization_config",
      "{\"quant_method\": \"baton\", \"version\": 1, \"weights\": \"int3\"}"},
     STATUS_UNSUPPORTED,
     "\"quantization_config\": \"weights\": expected \"int8\" or \"int4\", found \"int3\""},
    {{"quantization_config", "{\"quant_method\": \"baton\", \"version\": 1, \"weights\": "
                             "\"int4\", \"group_size\": 32}"},
     STATUS_INVALID,
     "\"quantization_config\": \"group_size\": 32 is not within 128..128"},
    {{"partial_rotary_factor", "0.5"},
     STATUS_UNSUPPORTED,
     "\"partial_rotary_factor\": only 1 is supported, found 0.5"},
    {{"num_hidden_layers", ABSENT}, STATUS_NOT_FOUND, "\"num_hidden_layers\" is missing"},
    {{"num_hidden_layers", "1025"},
     STATUS_INVALID,
     "\"num_hidden_layers\": 1025 is not within 1..1024"},
    {{"hidden_size", "0"}, STATUS_INVALID, "\"hidden_size\": 0 is not within 1..131072"},
    {{"intermediate_size", "-1"},
     STATUS_INVALID,
     "\"intermediate_size\": -1 is not within 1..1048576"},
    {{"vocab_size", "\"many\""},
     STATUS_INVALID,
     "\"vocab_size\": expected an integer, found a string"},
    {{"vocab_size", "384.5"},
     STATUS_INVALID,
     "\"vocab_size\": expected an integer, found a fraction"},
    {{"vocab_size", "1e30"},
     STATUS_INVALID,
     "\"vocab_size\": expected an integer, found a number with a point or an exponent"},
    {{"max_position_embeddings", "16777217"},
     STATUS_INVALID,
     "\"max_position_embeddings\": 16777217 is not within 1..16777216"},
    {{"num_key_value_heads", "3"},
     STATUS_INVALID,
     "\"num_key_value_heads\" must divide num_attention_heads (8), found 3"},
    {{"head_dim", "15"}, STATUS_UNSUPPORTED, "\"head_dim\" must be even and at most 256, found 15"},
    {{"head_dim", "258"}, STATUS_INVALID, "\"head_dim\": 258 is not within 1..256"},
    {{"rms_norm_eps", "2"}, STATUS_INVALID, "\"rms_norm_eps\": 2 is not within 1e-12..1"},
    {{"rms_norm_eps", "0e-05"}, STATUS_INVALID, "\"rms_norm_eps\": 0 is not within 1e-12..1"},
    {{"rope_parameters", ROPE("\"rope_type\": \"mrope\"")},
     STATUS_UNSUPPORTED,
     "\"rope_parameters\": \"rope_type\": only \"default\", \"linear\", \"dynamic\", \"llama3\", "
     "\"yarn\" and \"longrope\" are supported, found \"mrope\""},
    {{"rope_parameters", ROPE("\"type\": \"linear\"")},
     STATUS_NOT_FOUND,
     "\"rope_parameters\": \"factor\" is missing"},
    {{"rope_parameters", ROPE("\"type\": \"linear\", \"factor\": 0.5")},
     STATUS_INVALID,
     "\"rope_parameters\": \"factor\": 0.5 is not within 1..1e+06"},
    {{"rope_parameters", ROPE("\"rope_type\": \"linear\", \"factor\": 2, \"beta_fast\": 32")},
     STATUS_UNSUPPORTED,
     "\"rope_parameters\": \"beta_fast\": not supported, found an integer"},
    {{"rope_parameters", ROPE("\"rope_type\": \"dynamic\", \"factor\": 2, "
                              "\"original_max_position_embeddings\": 64")},
     STATUS_UNSUPPORTED,
     "\"rope_parameters\": \"original_max_position_embeddings\" is below max_position_embeddings "
     "(2048), found 64: beyond it \"dynamic\" turns every key anew for each length, which no "
     "cached "
     "key can follow; use \"yarn\", or the smaller max_position_embeddings"},
    {{"rope_parameters",
      ROPE("\"rope_type\": \"yarn\", \"original_max_position_embeddings\": 4096")},
     STATUS_INVALID,
     "\"rope_parameters\": \"original_max_position_embeddings\" is above max_position_embeddings "
     "(2048), found 4096"},
    {{"rope_parameters", ROPE("\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 1, "
                              "\"beta_slow\": 32")},
     STATUS_INVALID,
     "\"rope_parameters\": \"beta_fast\" must not be below beta_slow (32), found 1"},
    {{"rope_parameters", "{\"rope_type\": \"yarn\", \"rope_theta\": 1, \"factor\": 4}"},
     STATUS_INVALID,
     "\"rope_parameters\": \"rope_theta\" must be above 1 with \"yarn\""},
    {{"rope_parameters", ROPE("\"rope_type\": \"longrope\", \"short_factor\": [1], "
                              "\"long_factor\": [1]")},
     STATUS_INVALID,
     "\"rope_parameters\": \"short_factor\": expected one for each pair of dimensions (8), found "
     "1"},
    {{"rope_parameters", ROPE("\"rope_type\": \"longrope\", \"short_factor\": [1,1,1,1,1,1,1,0]")},
     STATUS_INVALID,
     "\"rope_parameters\": \"short_factor\": 0 is not within 0.001..1e+06"},
    {{"rope_parameters", ROPE("\"rope_type\": \"llama3\"")},
     STATUS_NOT_FOUND,
     "\"rope_parameters\": \"factor\" is missing"},
    {{"rope_parameters", ROPE("\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
                              "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64")},
     STATUS_INVALID,
     "\"rope_parameters\": \"high_freq_factor\" must be above low_freq_factor (4), found 4"},
    {{"rope_parameters", ROPE("\"mrope_section\": [16, 24, 24]")},
     STATUS_UNSUPPORTED,
     "\"rope_parameters\": \"mrope_section\": not supported, found an array"},
    {{"rope_parameters", "{\"full_attention\": {\"rope_type\": \"default\"}}"},
     STATUS_UNSUPPORTED,
     "\"rope_parameters\": \"full_attention\": not supported, found an object"},
    {{"rope_parameters", ROPE("\"partial_rotary_factor\": 0.25")},
     STATUS_UNSUPPORTED,
     "\"rope_parameters\": \"partial_rotary_factor\": only 1 is supported, found 0.25"},
    {{"rope_theta", "20000.0"},
     STATUS_INVALID,
     "\"rope_theta\": found 20000 and, in rope_parameters, 10000"},
    {{"rope_scaling", "{\"rope_type\": \"default\"}"},
     STATUS_UNSUPPORTED,
     "\"rope_scaling\": not supported together with \"rope_parameters\""},
    {{"rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 0}"},
     STATUS_INVALID,
     "\"rope_theta\": 0 is not within 1..1e+12"},
    {{"rope_parameters", "[]"},
     STATUS_INVALID,
     "\"rope_parameters\": expected an object, found an array"},
    {{"eos_token_id", "384"}, STATUS_INVALID, "\"eos_token_id\": 384 is not within 0..383"},
    {{"eos_token_id", "[2, -1]"}, STATUS_INVALID, "\"eos_token_id\": -1 is not within 0..383"},
    {{"eos_token_id", "[0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2]"},
     STATUS_LIMIT,
     "\"eos_token_id\": at most 32 ids, found 33"},
};

static void test_refusals_are_one_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof REFUSALS / sizeof *REFUSALS; i++) {
        write_config(&REFUSALS[i].change, 1);
        expect_refusal(REFUSALS[i].status, "config.json", REFUSALS[i].sentence);
    }
}

#define MISTRAL                                                                                    \
    {"model_type", "\"mistral\""},                                                                 \
    {                                                                                              \
        "architectures", "[\"MistralForCausalLM\"]"                                                \
    }
#define QWEN2                                                                                      \
    {"model_type", "\"qwen2\""}, {"architectures", "[\"Qwen2ForCausalLM\"]"},                      \
    {                                                                                              \
        "attention_bias", ABSENT                                                                   \
    }
#define QWEN3                                                                                      \
    {"model_type", "\"qwen3\""},                                                                   \
    {                                                                                              \
        "architectures", "[\"Qwen3ForCausalLM\"]"                                                  \
    }
#define FULL    "\"full_attention\""
#define SLIDING "\"sliding_attention\""

/* The keys of each family decide its windows, biases and norms. */
static void test_families(void **state)
{
    (void)state;
    static const struct {
        struct member changes[8];
        uint32_t window;
        bool qkv_bias, qk_norm;
    } cases[] = {
        {{MISTRAL, {"sliding_window", "24"}}, 24, false, false},
        {{MISTRAL, {"sliding_window", "null"}}, 0, false, false},
        {{MISTRAL}, 4096, false, false}, /* absent: the library's default */
        {{MISTRAL,
          {"sliding_window", "24"},
          {"layer_types", "[" SLIDING "," SLIDING "," SLIDING "]"}},
         24,
         false,
         false},
        {{QWEN2, {"sliding_window", "24"}}, 0, true, false}, /* not switched on */
        {{QWEN2, {"sliding_window", "24"}, {"use_sliding_window", "true"}},
         0,
         true,
         false}, /* from layer 28 on */
        {{QWEN2,
          {"sliding_window", "24"},
          {"use_sliding_window", "true"},
          {"max_window_layers", "0"}},
         24,
         true,
         false},
        {{QWEN2,
          {"sliding_window", "24"},
          {"use_sliding_window", "true"},
          {"max_window_layers", "3"}},
         0,
         true,
         false},
        {{QWEN3, {"use_sliding_window", "false"}, {"layer_types", "[" FULL "," FULL "," FULL "]"}},
         0,
         false,
         true},
        {{QWEN3,
          {"sliding_window", "24"},
          {"use_sliding_window", "true"},
          {"max_window_layers", "2"},
          {"layer_types", "[" SLIDING "," SLIDING "," SLIDING "]"}},
         24,
         false,
         true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t count = 0;
        while (count < 8 && cases[i].changes[count].key)
            count++;
        write_config(cases[i].changes, count);
        struct model_config config = read_config();
        assert_int_equal(config.shape.window, cases[i].window);
        assert_int_equal(config.shape.qkv_bias, cases[i].qkv_bias);
        assert_int_equal(config.shape.qk_norm, cases[i].qk_norm);
    }
}

static void test_families_that_are_mixed_up(void **state)
{
    (void)state;
    static const struct {
        struct member changes[8];
        enum status status;
        const char *sentence;
    } cases[] = {
        {{MISTRAL, {"num_key_value_heads", ABSENT}},
         STATUS_NOT_FOUND,
         "\"num_key_value_heads\" is missing"},
        {{MISTRAL, {"sliding_window", "0"}},
         STATUS_INVALID,
         "\"sliding_window\": 0 is not within 1..16777216"},
        {{MISTRAL, {"sliding_window", "24"}, {"use_sliding_window", "false"}},
         STATUS_UNSUPPORTED,
         "\"use_sliding_window\": only true is supported, found false"},
        {{MISTRAL, {"sliding_window", "24"}, {"layer_types", "[" FULL "," FULL "," FULL "]"}},
         STATUS_INVALID,
         "\"layer_types\": \"full_attention\", but the other keys set a window of 24 (0: none)"},
        {{MISTRAL, {"sliding_window", "24"}, {"layer_types", "[" FULL "," SLIDING "," FULL "]"}},
         STATUS_UNSUPPORTED,
         "\"layer_types\": only layers that are all alike are supported, found \"full_attention\" "
         "and "
         "\"sliding_attention\""},
        {{QWEN2,
          {"sliding_window", "24"},
          {"use_sliding_window", "true"},
          {"max_window_layers", "2"}},
         STATUS_UNSUPPORTED,
         "\"max_window_layers\": only layers that are all alike are supported, found 2 of 3 with "
         "\"use_sliding_window\""},
        {{QWEN2, {"layer_types", "[" SLIDING "," SLIDING "," SLIDING "]"}},
         STATUS_INVALID,
         "\"layer_types\": \"sliding_attention\", but the other keys set a window of 0 (0: none)"},
        {{QWEN2, {"rope_parameters", ABSENT}}, STATUS_NOT_FOUND, "\"rope_theta\" is missing"},
        {{{"model_type", "\"qwen2\""}, {"architectures", ABSENT}},
         STATUS_UNSUPPORTED,
         "\"attention_bias\": only true is supported, found false"},
        {{QWEN3, {"attention_bias", "true"}},
         STATUS_UNSUPPORTED,
         "\"attention_bias\": only false is supported, found true"},
        {{QWEN3, {"head_dim", ABSENT}}, STATUS_NOT_FOUND, "\"head_dim\" is missing"},
        {{{"model_type", "\"qwen3_moe\""}, {"architectures", "[\"Qwen3MoeForCausalLM\"]"}},
         STATUS_UNSUPPORTED,
         "\"model_type\": \"qwen3_moe\" (Qwen3MoeForCausalLM) is a mixture of experts, which is "
         "not "
         "supported; llama, mistral, qwen2 and qwen3 are supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t count = 0;
        while (count < 8 && cases[i].changes[count].key)
            count++;
        write_config(cases[i].changes, count);
        expect_refusal(cases[i].status, "config.json", cases[i].sentence);
    }
}

static void test_files_that_are_no_config(void **state)
{
    (void)state;
    remove_file("config.json");
    expect_refusal(STATUS_NOT_FOUND, "config.json",
                   "No such file or directory; a model is a folder in Hugging Face's layout");
    char snapshots[256];
    snprintf(snapshots, sizeof snapshots, "%s/snapshots", folder);
    assert_int_equal(mkdir(snapshots, 0700), 0);
    expect_refusal(STATUS_NOT_FOUND, "config.json",
                   "No such file or directory; a model is a folder in Hugging Face's layout, "
                   "which a cache has in snapshots/HASH");
    assert_int_equal(rmdir(snapshots), 0);
    write_text("config.json", "[]");
    expect_refusal(STATUS_INVALID, "config.json", "expected an object, found an array");
    char file[256];
    struct model_config config;
    struct error err;
    snprintf(file, sizeof file, "%s/config.json", folder);
    assert_int_equal(model_config_read(file, &config, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "config.json: a model is a folder in Hugging Face's layout, "
                                     "and this is a file: give a folder"));
    snprintf(file, sizeof file, "%s/x.gguf", folder);
    write_text("x.gguf", "GGUF");
    assert_int_equal(model_config_read(file, &config, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "x.gguf: a model is a folder in Hugging Face's layout, and "
                                     "this is a file (GGUF isn't read)"));
    remove_file("x.gguf");
    assert_int_equal(model_config_read("no/such", &config, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "no/such: no such folder"));
    const struct member odd_heads[] = {{"head_dim", ABSENT}, {"num_attention_heads", "6"}};
    write_config(odd_heads, 2);
    expect_refusal(
        STATUS_INVALID, "config.json",
        "\"num_attention_heads\" must divide hidden_size (128) where head_dim is absent, "
        "found 6");
    const struct member untyped[] = {{"rope_parameters", ABSENT},
                                     {"rope_scaling", "{\"factor\": 2.0}"}};
    write_config(untyped, 2);
    expect_refusal(STATUS_NOT_FOUND, "config.json", "\"rope_scaling\": \"rope_type\" is missing");
}

static void test_generation_config(void **state)
{
    (void)state;
    write_config(NULL, 0);
    write_text("generation_config.json", "{\"eos_token_id\": [0, 7, 9], \"temperature\": 0.5, "
                                         "\"top_p\": 0.75, \"top_k\": 40, \"min_p\": 0.25}");
    struct model_config config = read_config();
    assert_int_equal(config.end_ids.count, 4); /* config.json's, too */
    assert_int_equal(config.end_ids.ids[3], 9);
    assert_true(config.defaults.has_temperature && config.defaults.temperature == 0.5f);
    assert_true(config.defaults.has_top_p && config.defaults.top_p == 0.75f);
    assert_true(config.defaults.has_top_k && config.defaults.top_k == 40);
    assert_true(config.defaults.has_min_p && config.defaults.min_p == 0.25f);

    write_text("generation_config.json",
               "{\"do_sample\": false, \"temperature\": 0.5, \"top_k\": -1}");
    config = read_config();
    assert_int_equal(config.end_ids.ids[0], 2); /* config.json's */
    assert_true(config.defaults.has_temperature && config.defaults.temperature == 0);
    assert_true(config.defaults.has_top_k && config.defaults.top_k == 0);
    assert_false(config.defaults.has_top_p || config.defaults.has_min_p);

    static const struct {
        const char *text;
        enum status status;
        const char *sentence;
    } bad[] = {
        {"{\"eos_token_id\": 384}", STATUS_INVALID, "\"eos_token_id\": 384 is not within 0..383"},
        {"{\"temperature\": -1}", STATUS_INVALID, "\"temperature\": -1 is not within 0..100"},
        {"{\"top_p\": 1.5}", STATUS_INVALID, "\"top_p\": 1.5 is not within 1.17549e-38..1"},
        {"{\"do_sample\": 0}", STATUS_INVALID,
         "\"do_sample\": expected true or false, found an integer"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text("generation_config.json", bad[i].text);
        expect_refusal(bad[i].status, "generation_config.json", bad[i].sentence);
    }
    remove_file("generation_config.json");
}

/* The files' members, and the line that tells the end tokens. A missing file is NULL. */
static const struct {
    const char *generation, *tokenizer_config, *tokenizer, *line;
} ends[] = {
    {NULL, NULL, NULL, "2 (config.json)"},
    {"{\"eos_token_id\":[7,2]}", NULL, NULL,
     "2 (config.json, generation_config.json), 7 (generation_config.json)"},
    {"{\"eos_token_id\":2}",
     "{\"eos_token\":\"<|end|>\",\"added_tokens_decoder\":{\"9\":{\"content\":\"<|end|>\"},\"2\":{"
     "\"content\":\"</s>\"},\"x\":{\"content\":\"<|end|>\"}}}",
     NULL,
     "2 \"</s>\" (config.json, generation_config.json), 9 \"<|end|>\" (tokenizer_config.json)"},
    {NULL, "{\"eos_token\":{\"content\":\"e\",\"lstrip\":false}}",
     "{\"added_tokens\":[{\"id\":383,\"content\":\"e\"},{\"id\":2,\"content\":\"</s>\"}]}",
     "2 \"</s>\" (config.json), 383 \"e\" (tokenizer_config.json)"},
    {NULL, "{\"eos_token\":\"e\"}", "{\"model\":{\"vocab\":{\"d\":1,\"e\":5}}}",
     "2 (config.json), 5 \"e\" (tokenizer_config.json)"},
    {NULL, "{\"eos_token\":\"</s>\"}", "{\"added_tokens\":[{\"id\":2,\"content\":\"</s>\"}]}",
     "2 \"</s>\" (config.json, tokenizer_config.json)"},
    {NULL, "{\"eos_token\":null}", "{}", "2 (config.json)"},
    {NULL, "{\"eos_token\":\"\",\"added_tokens_decoder\":7}", NULL, "2 (config.json)"},
    {NULL, "{\"eos_token\":\"gone\"}", "{\"added_tokens\":[7],\"model\":{\"vocab\":[]}}",
     "2 (config.json); eos_token \"gone\" of tokenizer_config.json is no token of tokenizer.json"},
    {NULL, "{\"eos_token\":\"e\",\"added_tokens_decoder\":{\"384\":{\"content\":\"e\"}}}", NULL,
     "2 (config.json); eos_token \"e\" has id 384, but the model's ids end at 383"},
    {"{\"eos_token_id\":[10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,"
     "34,"
     "35,36,37,38,39,40]}",
     "{\"eos_token\":\"e\"}", "{\"model\":{\"vocab\":{\"e\":5}}}",
     "40 (generation_config.json); eos_token \"e\" is one end token too many: at most 32"},
};

static void write_or_remove(const char *name, const char *text)
{
    if (text)
        write_text(name, text);
    else
        remove_file(name);
}

static void test_end_tokens_of_three_files(void **state)
{
    (void)state;
    struct str line;
    str_init(&line, 8192);
    write_config(NULL, 0);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        write_or_remove("generation_config.json", ends[i].generation);
        write_or_remove("tokenizer_config.json", ends[i].tokenizer_config);
        write_or_remove("tokenizer.json", ends[i].tokenizer);
        struct model_config config = read_config();
        str_clear(&line);
        end_ids_describe(&config.end_ids, &line);
        size_t told = strlen(ends[i].line); /* the end of a long line */
        if (line.length < told || strcmp(line.data + line.length - told, ends[i].line) != 0)
            fail_msg("row %zu: %s", i, line.data);
    }
    write_text("tokenizer_config.json", "{\"eos_token\":");
    struct model_config config = read_config();
    assert_non_null(strstr(config.end_ids.note.text, "tokenizer_config.json: not JSON"));
    write_text("generation_config.json",
               "{\"eos_token_id\":[10,11,12,13,14,15,16,17,18,19,20,21,22,"
               "23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41]}");
    expect_refusal(STATUS_LIMIT, "generation_config.json",
                   "\"eos_token_id\": at most 32 ids in all files together");
    remove_file("generation_config.json");
    remove_file("tokenizer_config.json");
    remove_file("tokenizer.json");
    const struct member none[] = {{"eos_token_id", "[]"}};
    write_config(none, 1);
    config = read_config();
    str_clear(&line);
    end_ids_describe(&config.end_ids, &line);
    assert_string_equal(line.data, "none: an answer ends at its limit of tokens");
    str_deinit(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end_tokens_of_three_files),
        cmocka_unit_test(test_the_newer_spelling),
        cmocka_unit_test(test_the_older_spelling_with_llama3_scaling),
        cmocka_unit_test(test_what_may_be_left_out),
        cmocka_unit_test(test_rope_schemes),
        cmocka_unit_test(test_refusals_are_one_sentence),
        cmocka_unit_test(test_quantizations_of_other_tools),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_families_that_are_mixed_up),
        cmocka_unit_test(test_files_that_are_no_config),
        cmocka_unit_test(test_generation_config),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
