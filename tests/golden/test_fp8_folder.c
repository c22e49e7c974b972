/* Folders of fp8 as other tools write them: compute f32 computes each kind exactly, bf16 widens it,
 * with the same bytes however it is batched. A damaged folder is refused with a sentence and a
 * code. */
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weights.h"
#include "common/language/model_config/model_config.h"
#include "tests/golden/fp8_folder.h"
#include "tests/golden/golden_streams.h"
#include "tests/unit/model_mutation.h"

#include <inttypes.h>
#include <math.h>

#define MODEL "mistral-headdim"
enum { STREAMS = 2, ANSWER = 3, VOCAB = 384, POOL_BLOCKS = 64 };

static const struct kernels_config F32 = {.device = DEVICE_CPU, .f32 = true, .threads = 1};
static const struct kernels_config BF16 = {.device = DEVICE_CPU, .threads = 1};

struct answers {
    struct stream streams[STREAMS];
    float first_logits[STREAMS][VOCAB];
};

static void run(struct engine *engine, uint32_t chunk, struct answers *answers)
{
    memset(answers, 0, sizeof *answers);
    for (uint32_t i = 0; i < STREAMS; i++) {
        struct stream *s = &answers->streams[i];
        s->prompt_count = 4 + 17 * i;
        for (uint32_t t = 0; t < s->prompt_count; t++)
            s->tokens[t] = (7 * i + 13 * t + t * t) % VOCAB;
        s->answer_limit = ANSWER;
        s->sampling = sampling_default();
        s->first_logits = answers->first_logits[i];
        if (!chunk)
            streams_run(engine, s, 1, STREAM_MAX_ROWS);
    }
    if (chunk)
        streams_run(engine, answers->streams, STREAMS, chunk);
    engine_close(engine);
}

/* Two prompts, side by side by `chunk` rows, or one after the other (0). `name`: a part of the
 * numerics' name. */
static void answer(const char *folder, enum weight_choice weights, struct kernels_config kernels,
                   uint32_t chunk, const char *name, struct answers *answers)
{
    struct engine *engine =
        streams_open_with(folder, weights, KV_CHOICE_AUTO, kernels, POOL_BLOCKS);
    assert_non_null(engine);
    assert_non_null(strstr(engine_numerics_name(engine), name));
    run(engine, chunk, answers);
}

/* The rms difference of the first logits, as a part of their rms. */
static double distance(const struct answers *a, const struct answers *b)
{
    double error = 0, norm = 0;
    for (int i = 0; i < STREAMS; i++)
        for (int v = 0; v < VOCAB; v++) {
            double x = (double)a->first_logits[i][v], y = (double)b->first_logits[i][v];
            error += (x - y) * (x - y);
            norm += y * y;
        }
    return sqrt(error / norm);
}

static void test_kinds_compute_what_they_say(void **state)
{
    (void)state;
    static struct answers floats, exact, chunked, widened;
    answer("tests/golden/models/" MODEL, WEIGHTS_AUTO, F32, 0, "/w-f32/", &floats);
    for (enum fp8_kind kind = 0; kind < FP8_KINDS; kind++) {
        const char *name = kind == FP8_BLOCKS ? "/w-fp8b-p128-s3584/" : "/w-fp8-p128-s3584/";
        fp8_folder_make(MODEL, kind, model_folder);
        answer(model_folder, WEIGHTS_AUTO, F32, 0, name, &exact);
        answer(model_folder, WEIGHTS_AUTO, F32, 5, name, &chunked);
        answer(model_folder, WEIGHTS_AUTO, BF16, 0, "/w-bf16-of-fp8/", &widened);
        for (int i = 0; i < STREAMS; i++)
            assert_memory_equal(exact.streams[i].hashes, chunked.streams[i].hashes,
                                sizeof exact.streams[i].hashes);
        assert_int_not_equal(exact.streams[0].hashes[0], exact.streams[1].hashes[0]);
        /* e4m3 has steps of 6 to 12%, which the layers of this random model amplify. */
        double from_floats = distance(&widened, &floats), from_widened = distance(&exact, &widened);
        if (!(from_floats > 0.005 && from_floats < 0.3 && from_widened > 0.005 &&
              from_widened < 0.3))
            fail_msg("kind %d: widened weights are off by %g, and the inputs' rounding by %g", kind,
                     from_floats, from_widened);
    }
}

/* Packed weights that are kept in a file, and scales of inputs that aren't in it; random
 * weights. */
static void test_weights_that_are_not_read(void **state)
{
    (void)state;
    static struct answers first, kept;
    struct engine_config config = {.model_dir = model_folder,
                                   .kernels = F32,
                                   .weight_cache = "beside",
                                   .block_tokens = STREAM_BLOCK_TOKENS,
                                   .block_count = POOL_BLOCKS,
                                   .max_rows = STREAM_MAX_ROWS,
                                   .max_sequences = STREAM_MAX_STREAMS};
    struct engine *engine;
    struct error err = {""};
    char packed[256];
    snprintf(packed, sizeof packed, "%s/baton.reference-1.fp8-f32.packed", model_folder);
    fp8_folder_make(MODEL, FP8_STATIC, model_folder);
    for (int i = 0; i < 3; i++) {
        config.random_weights = i == 2;
        assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
        assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
        assert_non_null(strstr(engine_numerics_name(engine), "/w-fp8-p128-s3584/"));
        run(engine, 0, i == 0 ? &first : &kept);
        assert_int_equal(access(packed, F_OK), 0);
        bool equal = first.streams[1].hashes[0] == kept.streams[1].hashes[0];
        assert_true(i == 0 || equal == (i == 1));
    }
}

/* The folders that make_fp8.py wrote: the bits of their logits stay, and blocks have those of a
 * folder that is made here, by another program. */
static void test_golden_folders(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *name;
        uint64_t hash; /* all logits that draw tokens */
    } golden[] = {{"llama-fp8", "/w-fp8-p128-s3584/", 0xb2344dbeda327d11},
                  {"llama-fp8-blocks", "/w-fp8b-p128-s3584/", 0x79afa90799437c74}};
    static struct answers answers, made;
    for (size_t g = 0; g < sizeof golden / sizeof *golden; g++) {
        char folder[64];
        snprintf(folder, sizeof folder, "tests/golden/models/%s", golden[g].folder);
        answer(folder, WEIGHTS_AUTO, F32, 5, golden[g].name, &answers);
        uint64_t hash = 0;
        for (int i = 0; i < STREAMS * ANSWER; i++)
            hash = hash * 31 + answers.streams[i / ANSWER].hashes[i % ANSWER];
        if (hash != golden[g].hash)
            fail_msg("%s: 0x%016" PRIx64, golden[g].folder, hash);
    }
    fp8_folder_make("llama", FP8_BLOCKS, model_folder);
    answer(model_folder, WEIGHTS_AUTO, F32, 0, golden[1].name, &made);
    for (int i = 0; i < STREAMS; i++)
        assert_memory_equal(made.streams[i].hashes, answers.streams[i].hashes,
                            ANSWER * sizeof *made.streams[i].hashes);
}

/* A layer that is fused of matrices in both is of floats, and nothing else is. */
static void test_a_layer_with_floats_is_of_floats(void **state)
{
    (void)state;
    struct model_config model;
    struct kernels *kernels;
    struct safetensors *files;
    struct weight_types types;
    struct weights weights;
    struct error err = {""};
    uint64_t bytes;
    fp8_folder_make(MODEL, FP8_MIXED, model_folder);
    assert_int_equal(model_config_read(model_folder, &model, &err), STATUS_OK);
    assert_int_equal(kernels_open(&F32, &kernels, &err), STATUS_OK);
    assert_int_equal(safetensors_open(model_folder, &files, &err), STATUS_OK);
    assert_int_equal(
        weight_types_choose(WEIGHTS_AUTO, model.quantization, WEIGHT_F32, &types, &err), STATUS_OK);
    assert_int_equal(weights_check(kernels, &model.shape, types, 64, files, &bytes, &err),
                     STATUS_OK);
    assert_int_equal(weights_load(kernels, &model.shape, types, 64, files, "", &weights, &err),
                     STATUS_OK);
    for (uint32_t l = 0; l < weights.layer_count; l++) {
        const struct layer_weights *layer = &weights.layers[l];
        enum weight_type fused = l == 1 ? WEIGHT_F32 : WEIGHT_FP8;
        assert_int_equal(layer->qkv.type, fused);
        assert_int_equal(layer->gate_up.type, fused);
        assert_true((layer->qkv.input_scale > 0) == (fused == WEIGHT_FP8));
        assert_int_equal(layer->attention_out.type, WEIGHT_FP8);
        assert_int_equal(layer->down.type, WEIGHT_FP8);
    }
    weights_unload(kernels, &weights);
    safetensors_close(files);
    kernels_close(kernels);
}

static enum status open_with(enum weight_choice weights, struct kernels_config kernels,
                             struct error *err)
{
    struct engine_config config = {.model_dir = model_folder,
                                   .kernels = kernels,
                                   .weights = weights,
                                   .block_tokens = 16,
                                   .block_count = 8,
                                   .max_rows = 16,
                                   .max_sequences = 2};
    struct engine *engine = NULL;
    enum status status = engine_open(&config, &engine, err);
    engine_close(engine);
    return status;
}

#define Q_PROJ "model.layers.1.self_attn.q_proj."
static const struct {
    enum fp8_kind kind;
    struct mutation mutation;
    enum status status;
    const char *sentence; /* its end */
} damages[] = {
    {FP8_TENSOR,
     {HEADER, "model.safetensors", Q_PROJ "weight_scale\"", Q_PROJ "weight_other\"", 0},
     STATUS_NOT_FOUND,
     "tensor " Q_PROJ "weight_scale: expected, but not found (fp8_scale_missing)"},
    {FP8_STATIC,
     {HEADER, "model.safetensors", Q_PROJ "input_scale\"", Q_PROJ "input_other\"", 0},
     STATUS_NOT_FOUND,
     "tensor " Q_PROJ "input_scale: expected, but not found (fp8_scale_missing)"},
    {FP8_BLOCKS,
     {HEADER, "model.safetensors", Q_PROJ "weight_scale_inv\"", Q_PROJ "weight_scales\"", 0},
     STATUS_NOT_FOUND,
     "tensor " Q_PROJ "weight_scale: expected, but not found (fp8_scale_missing)"},
    {FP8_BLOCKS,
     {HEADER, "model.safetensors", Q_PROJ "weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[2,2]",
      Q_PROJ "weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[4]", 0},
     STATUS_INVALID,
     "tensor " Q_PROJ "weight_scale_inv: expected 2 x 2 scales, found 4 in 1 dimensions "
     "(fp8_scale_shape)"},
    {FP8_CHANNEL,
     {HEADER, "model.safetensors", Q_PROJ "weight_scale\":{\"dtype\":\"BF16\",\"shape\":[256,1]",
      Q_PROJ "weight_scale\":{\"dtype\":\"BF16\",\"shape\":[128,2]", 0},
     STATUS_INVALID,
     "tensor " Q_PROJ "weight_scale: expected one scale, or 256 x 1 scales, found 256 in 2 "
     "dimensions (fp8_scale_shape)"},
    {FP8_CHANNEL,
     {HEADER, "model.safetensors", Q_PROJ "weight_scale\":{\"dtype\":\"BF16\"",
      Q_PROJ "weight_scale\":{\"dtype\":\"I16\"", 0},
     STATUS_UNSUPPORTED,
     "tensor " Q_PROJ "weight_scale: expected BF16, F16 or F32, found I16 (fp8_scale_missing)"},
    {FP8_TENSOR,
     {HEADER, "model.safetensors", Q_PROJ "weight\":{\"dtype\":\"F8_E4M3\"",
      Q_PROJ "weight\":{\"dtype\":\"F8_E5M2\"", 0},
     STATUS_UNSUPPORTED,
     "tensor " Q_PROJ "weight: expected F8_E4M3, found F8_E5M2 (fp8_weight)"},
    {FP8_TENSOR,
     {HEADER, "model.safetensors", "self_attn.k_proj.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[64",
      "self_attn.k_proj.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[32,2", 0},
     STATUS_INVALID,
     "expected the shape [64, 160] by config.json, found [32, 2, 160] (fp8_weight)"},
    {FP8_TENSOR,
     {SWAP, "config.json", "\"dynamic\"", "\"static\"", 0},
     STATUS_NOT_FOUND,
     "input_scale: expected, but not found (fp8_scale_missing)"},
    {FP8_STATIC,
     {SWAP, "config.json", "\"tensor\",\"symmetric\":true,\"dynamic\":false}}",
      "\"token\",\"symmetric\":true,\"dynamic\":true}}", 0},
     STATUS_UNSUPPORTED,
     "tensors are never left out silently"},
};

static void test_damaged_folders_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        struct error err = {""};
        fp8_folder_make(MODEL, damages[i].kind, model_folder);
        model_mutate(model_folder, &damages[i].mutation);
        for (int f32 = 0; f32 < 2; f32++) {
            assert_int_equal(open_with(WEIGHTS_AUTO, f32 ? F32 : BF16, &err), damages[i].status);
            size_t length = strlen(err.text), tail = strlen(damages[i].sentence);
            if (length < tail || strcmp(err.text + length - tail, damages[i].sentence) != 0)
                fail_msg("%s\nexpected at its end: %s", err.text, damages[i].sentence);
        }
    }
}

/* --- quantization_config --- */

#define FP8(MEMBERS) "{\"quant_method\": \"fp8\", " MEMBERS "}"
#define EIGHT(STRATEGY, BITS)                                                                      \
    "{\"num_bits\": " BITS ", \"type\": \"float\", \"strategy\": \"" STRATEGY "\"}"
#define COMPRESSED(WEIGHTS, INPUTS)                                                                \
    "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"a\": {\"targets\": "         \
    "[\"Linear\"], \"weights\": " WEIGHTS ", \"input_activations\": " INPUTS "}}}"
#define FP8_ADVICE                                                                                 \
    ": give the folder with the floats, and let baton quantize make int8 or int4 of it "
static const struct {
    const char *text;
    enum status status;
    const char *sentence;
} configs[] = {
    {"{\"quant_method\": \"fp8\"}", STATUS_NOT_FOUND, "\"activation_scheme\" is missing"},
    {FP8("\"fmt\": \"e5m2\""), STATUS_UNSUPPORTED,
     "\"fmt\": e4m3 is read, found e5m2" FP8_ADVICE "(config_fp8_format)"},
    {FP8("\"scale_fmt\": \"ue8m0\""), STATUS_UNSUPPORTED,
     "\"scale_fmt\": float is read, found ue8m0" FP8_ADVICE "(config_fp8_scale_format)"},
    {FP8("\"kv_cache_scheme\": \"static\""), STATUS_UNSUPPORTED,
     "\"kv_cache_scheme\": null is read, found a scheme for keys and "
     "values" FP8_ADVICE "(config_fp8_kv_cache)"},
    {FP8("\"weight_block_size\": [128, 64]"), STATUS_UNSUPPORTED,
     "\"weight_block_size\": [128, 128] is read, found another "
     "size" FP8_ADVICE "(config_fp8_block_size)"},
    {FP8("\"activation_scheme\": \"none\""), STATUS_UNSUPPORTED,
     "\"activation_scheme\": \"dynamic\" or \"static\" is read, found "
     "none" FP8_ADVICE "(config_fp8_activations)"},
    {FP8("\"activation_scheme\": \"static\", \"weight_block_size\": [128, 128]"),
     STATUS_UNSUPPORTED,
     "\"activation_scheme\": \"dynamic\" is read, found static" FP8_ADVICE
     "(config_fp8_activations)"},
    {"{\"quant_method\": \"compressed-tensors\", \"format\": "
     "\"pack-quantized\"}",
     STATUS_UNSUPPORTED,
     "\"format\": float-quantized is read, found "
     "pack-quantized" FP8_ADVICE "(config_fp8_format)"},
    {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": "
     "{\"a\": {}, \"b\": {}}}",
     STATUS_UNSUPPORTED,
     "\"config_groups\": one group is read, found another "
     "number" FP8_ADVICE "(config_fp8_groups)"},
    {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": "
     "{\"a\": {\"targets\": [\"re:.*mlp.*\"]}}}",
     STATUS_UNSUPPORTED,
     "\"targets\": [\"Linear\"] is read, found other layers" FP8_ADVICE "(config_fp8_groups)"},
    {COMPRESSED(EIGHT("channel", "8"), "null"), STATUS_UNSUPPORTED,
     "\"input_activations\": an 8-bit float is read, found "
     "null" FP8_ADVICE "(config_fp8_activations)"},
    {COMPRESSED(EIGHT("group", "4"), "null"), STATUS_UNSUPPORTED,
     "\"num_bits\": 8 is read, found 4" FP8_ADVICE "(config_fp8_format)"},
    {COMPRESSED(EIGHT("group", "8"), EIGHT("token", "8")), STATUS_UNSUPPORTED,
     "\"strategy\": \"tensor\", \"channel\" or \"block\" is read, found "
     "group" FP8_ADVICE "(config_fp8_strategy)"},
    {COMPRESSED(EIGHT("channel", "8"), EIGHT("token", "8")), STATUS_UNSUPPORTED,
     "\"strategy\": \"tensor\" is read, found token" FP8_ADVICE "(config_fp8_activations)"},
    {COMPRESSED(EIGHT("block", "8"), EIGHT("token", "8")), STATUS_UNSUPPORTED,
     "\"strategy\": \"block\" of 128 with dynamic groups of 128 is read, "
     "found another one" FP8_ADVICE "(config_fp8_block_size)"},
};

static void test_configs_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        struct model_config config;
        struct error err = {""};
        char sentence[1024];
        model_copy(MODEL, model_folder);
        fp8_folder_configure(model_folder, configs[i].text);
        assert_int_equal(model_config_read(model_folder, &config, &err), configs[i].status);
        snprintf(sentence, sizeof sentence, "%s/config.json: \"quantization_config\": %s",
                 model_folder, configs[i].sentence);
        assert_string_equal(err.text, sentence);
    }
}

/* Changes the first number of a tensor of f32. */
static void set_first(const char *name, float value)
{
    struct safetensors *files;
    struct tensor_view view;
    struct tensor_info info;
    struct error err;
    assert_int_equal(safetensors_open(model_folder, &files, &err), STATUS_OK);
    assert_int_equal(safetensors_find_any(files, name, &view, &info, &err), STATUS_OK);
    uint64_t offset = info.file_offset;
    safetensors_close(files);
    struct model_bytes bytes = model_read(model_folder, "model.safetensors");
    memcpy(bytes.data + offset, &value, sizeof value);
    model_write(model_folder, "model.safetensors", bytes.data, bytes.length);
    free(bytes.data);
}

static void test_scales_out_of_range(void **state)
{
    (void)state;
    static const struct {
        float value;
        bool is_sound;
    } cases[] = {{NAN, false}, {INFINITY, false}, {-1, false}, {0x1p101f, false}, {0, true}};
    struct error err = {""};
    fp8_folder_make(MODEL, FP8_BLOCKS, model_folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_first(Q_PROJ "weight_scale_inv", cases[i].value);
        enum status status = open_with(WEIGHTS_AUTO, F32, &err);
        assert_int_equal(status, cases[i].is_sound ? STATUS_OK : STATUS_INVALID);
        assert_true(cases[i].is_sound || strstr(err.text, "(fp8_scale_value)"));
    }
    fp8_folder_make(MODEL, FP8_STATIC, model_folder);
    set_first(Q_PROJ "input_scale", 0);
    assert_int_equal(open_with(WEIGHTS_AUTO, BF16, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "the scale of inputs is 0, or below 2^-90 (fp8_scale_value)"));
}

static void test_choices(void **state)
{
    (void)state;
    struct error err = {""};
    fp8_folder_make(MODEL, FP8_TENSOR, model_folder);
    assert_int_equal(open_with(WEIGHTS_BF16, BF16, &err), STATUS_OK);
    assert_int_equal(open_with(WEIGHTS_INT8, BF16, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "weights int8: the model folder is quantized to fp8 already"));
    assert_int_equal(open_with(WEIGHTS_BF16, F32, &err), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds_compute_what_they_say),
        cmocka_unit_test(test_weights_that_are_not_read),
        cmocka_unit_test(test_golden_folders),
        cmocka_unit_test(test_a_layer_with_floats_is_of_floats),
        cmocka_unit_test(test_damaged_folders_are_refused),
        cmocka_unit_test(test_configs_are_refused),
        cmocka_unit_test(test_scales_out_of_range),
        cmocka_unit_test(test_choices),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_drop);
}
