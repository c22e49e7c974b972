/* Folders that `baton quantize` writes. They load to the same bytes as quantizing at load, and
 * compute by their own weights. A damaged folder, or one of another kind than requested, is refused
 * with a sentence. */
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/engine/model/quantize_folder.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_convert.h"
#include "tests/golden/golden_streams.h"
#include "tests/unit/model_mutation.h"

#include <inttypes.h>
#include <math.h>

#define GOLDEN "tests/golden/models/"

static char other_folder[] = "/tmp/baton_test_other_XXXXXX";

static const struct {
    const char *name;
    enum model_quantization quantization;
    enum weight_choice choice;
} TYPES[] = {{"int8", MODEL_INT8, WEIGHTS_INT8}, {"int4", MODEL_INT4, WEIGHTS_INT4}};

/* Shards, a tied head, biases, K segments and tail groups. */
static const char *const MODELS[] = {"llama-mha", "llama3-rope", "qwen2", "qwen3", "llama-wide"};
enum { MODEL_COUNT = sizeof MODELS / sizeof *MODELS, STREAMS = 3, ANSWER = 12, VOCAB = 384 };

static const struct kernels_config FAST = {.threads = 1}, F32 = {.f32 = true, .threads = 1};

static const char *golden(const char *model)
{
    static char path[256];
    snprintf(path, sizeof path, GOLDEN "%s", model);
    return path;
}

static void quantize(const char *model, size_t type)
{
    struct quantize_report report;
    struct error err;
    model_clear(model_folder);
    if (quantize_folder(golden(model), TYPES[type].quantization, model_folder, &report, &err) !=
        STATUS_OK)
        fail_msg("%s: %s", model, err.text);
    assert_true(report.matrices >= 15);
    assert_true(report.written_bytes < report.source_bytes * 6 / 10);
}

struct answers {
    struct stream streams[STREAMS];
    float first_logits[STREAMS][VOCAB];
};

/* A few prompts side by side; the answers' hashes and the first logits. free(). */
static struct answers *answer(const char *folder, enum weight_choice weights,
                              struct kernels_config kernels)
{
    struct answers *answers = calloc(1, sizeof *answers);
    assert_non_null(answers);
    struct engine *engine = streams_open_with(folder, weights, KV_CHOICE_AUTO, kernels, 64);
    assert_non_null(engine);
    assert_int_equal(engine_shape(engine)->vocab, VOCAB);
    for (uint32_t i = 0; i < STREAMS; i++) {
        struct stream *s = &answers->streams[i];
        struct rng rng = rng_seeded(i);
        s->prompt_count = 5 + 60 * i;
        for (uint32_t t = 0; t < s->prompt_count; t++)
            s->tokens[t] = (uint32_t)rng_below(&rng, VOCAB);
        s->answer_limit = ANSWER;
        s->sampling = sampling_default();
        s->sampling.seed = i;
        s->sampling.ignore_eos = true;
        s->first_logits = answers->first_logits[i];
    }
    streams_run(engine, answers->streams, STREAMS, 32);
    engine_close(engine);
    return answers;
}

static void test_a_folder_gives_the_bytes_of_quantizing_at_load(void **state)
{
    (void)state;
    for (size_t m = 0; m < MODEL_COUNT; m++)
        for (size_t t = 0; t < sizeof TYPES / sizeof *TYPES; t++) {
            quantize(MODELS[m], t);
            for (int f32 = 0; f32 < 2; f32++) {
                struct kernels_config kernels = f32 ? F32 : FAST;
                struct answers *want = answer(golden(MODELS[m]), TYPES[t].choice, kernels);
                struct answers *got = answer(model_folder, WEIGHTS_AUTO, kernels);
                for (uint32_t i = 0; i < STREAMS; i++)
                    assert_memory_equal(got->streams[i].hashes, want->streams[i].hashes,
                                        sizeof want->streams[i].hashes);
                assert_int_not_equal(want->streams[0].hashes[0], want->streams[1].hashes[0]);
                free(want);
                free(got);
            }
        }
}

/* --- the same weights as floats --- */

static float *dequantized(const struct safetensors *files, const struct tensor_info *info)
{
    bool int8 = strcmp(info->dtype, "I8") == 0;
    size_t rows = info->shape[0], width = info->shape[1], columns = int8 ? width : 2 * width;
    float *out = calloc(rows * columns, sizeof *out);
    struct tensor_info scale = {0};
    char name[256];
    snprintf(name, sizeof name, "%s.scale", info->name);
    for (size_t i = 0; i < safetensors_count(files); i++)
        if (strcmp(safetensors_at(files, i).name, name) == 0)
            scale = safetensors_at(files, i);
    assert_true(out && scale.bytes);
    size_t groups = int8 ? 1 : scale.shape[1];
    float *scales = calloc(rows * groups, sizeof *scales);
    assert_non_null(scales);
    weight_convert(int8 ? FLOAT_F32 : FLOAT_BF16, scale.bytes, rows * groups, WEIGHT_F32, scales);
    for (size_t i = 0; i < rows * columns; i++) {
        size_t n = i / columns, k = i % columns;
        if (int8)
            out[i] = (int8_t)info->bytes[i] * scales[n];
        else
            out[i] = ((info->bytes[n * width + k / 2] >> (k % 2 * 4) & 15) - 8) *
                     scales[n * groups + k / 128];
    }
    free(scales);
    return out;
}

/* other_folder: `model` with the weights of model_folder, which is quantized, as fp32. */
static void write_floats(const char *model)
{
    struct safetensors *files;
    struct str header, data;
    model_copy(model, other_folder);
    for (struct dirent *entry; model;) { /* its tensors go */
        DIR *listed = opendir(other_folder);
        while ((entry = readdir(listed)) && !strstr(entry->d_name, ".safetensors"))
            ;
        char path[512];
        if (entry)
            snprintf(path, sizeof path, "%s/%s", other_folder, entry->d_name);
        closedir(listed);
        if (!entry)
            break;
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(safetensors_open(model_folder, &files, NULL), STATUS_OK);
    str_init(&header, 1 << 20);
    str_init(&data, 64 << 20);
    for (size_t i = 0; i < safetensors_count(files); i++) {
        struct tensor_info info = safetensors_at(files, i);
        bool matrix = info.rank == 2 && !strstr(info.name, ".scale");
        size_t begin = data.length;
        if (strstr(info.name, ".scale"))
            continue;
        if (matrix) {
            float *floats = dequantized(files, &info);
            size_t columns = info.shape[1] * (strcmp(info.dtype, "U8") == 0 ? 2 : 1);
            str_append(&data, floats, info.shape[0] * columns * sizeof *floats);
            str_addf(&header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%" PRIu64 ",%zu],",
                     header.length ? "," : "{", info.name, info.shape[0], columns);
            free(floats);
        } else {
            str_append(&data, info.bytes, info.byte_count);
            str_addf(&header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64 "],",
                     header.length ? "," : "{", info.name, info.dtype, info.shape[0]);
        }
        str_addf(&header, "\"data_offsets\":[%zu,%zu]}", begin, data.length);
    }
    str_add(&header, "}");
    uint64_t length = header.length;
    struct str file;
    str_init(&file, 128 << 20);
    str_append(&file, &length, sizeof length);
    str_append(&file, header.data, header.length);
    str_append(&file, data.data, data.length);
    assert_false(header.truncated || data.truncated || file.truncated);
    model_write(other_folder, "model.safetensors", file.data, file.length);
    str_deinit(&file);
    str_deinit(&header);
    str_deinit(&data);
    safetensors_close(files);
}

/* Compared with fp32 arithmetic on the same weights, only the rounding of a layer's inputs is left.
 * Rounding to s8 by a row's largest (about 3 sigma here) errs by 0.7% of sigma, to bf16 by 0.1%:
 * seven times the bound of the bf16 path on these models (0.02 of the spread,
 * test_golden_models.c). */
#define INPUT_ROUNDING 0.14

static void test_quantized_weights_compute_what_they_say(void **state)
{
    (void)state;
    for (size_t m = 0; m < MODEL_COUNT; m++)
        for (size_t t = 0; t < sizeof TYPES / sizeof *TYPES; t++) {
            quantize(MODELS[m], t);
            write_floats(MODELS[m]);
            struct answers *want = answer(other_folder, WEIGHTS_AUTO, F32);
            struct answers *got = answer(model_folder, WEIGHTS_AUTO, F32);
            double worst = 0;
            for (uint32_t i = 0; i < STREAMS; i++) {
                double error = 0;
                for (int v = 0; v < VOCAB; v++)
                    error = fmax(error,
                                 fabs((double)got->first_logits[i][v] - want->first_logits[i][v]));
                worst = fmax(worst, error / want->streams[i].spread[0]);
            }
            print_message("%s %s: error %.4f of the spread\n", MODELS[m], TYPES[t].name, worst);
            assert_true(worst <= INPUT_ROUNDING);
            free(want);
            free(got);
        }
}

/* --- refusals --- */

static enum status open_folder(const char *folder, enum weight_choice weights, bool f32,
                               struct error *err)
{
    struct engine_config config = {.model_dir = folder,
                                   .weights = weights,
                                   .kernels = {.f32 = f32, .threads = 1},
                                   .block_tokens = 16,
                                   .block_count = 8,
                                   .max_rows = 8,
                                   .max_sequences = 2};
    struct engine *engine = NULL;
    enum status status = engine_open(&config, &engine, err);
    engine_close(engine);
    return status;
}

static void expect_sentence(enum status status, const struct error *err, const char *sentence)
{
    print_message("%s\n", err->text);
    assert_int_not_equal(status, STATUS_OK);
    if (!strstr(err->text, sentence))
        fail_msg("expected \"%s\" in \"%s\"", sentence, err->text);
}

static void test_choices_that_do_not_fit_the_folder(void **state)
{
    (void)state;
    static const struct {
        bool quantized, f32;
        enum weight_choice choice;
        const char *sentence;
    } cases[] = {
        {true, false, WEIGHTS_BF16, "weights bf16: the model folder is quantized to int8 already"},
        {true, false, WEIGHTS_INT4, "weights int4: the model folder is quantized to int8 already"},
        {false, true, WEIGHTS_BF16, "weights bf16: compute f32 holds float weights as f32"},
    };
    struct error err;
    quantize("llama", 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_sentence(open_folder(cases[i].quantized ? model_folder : golden("llama"),
                                    cases[i].choice, cases[i].f32, &err),
                        &err, cases[i].sentence);
    assert_int_equal(open_folder(model_folder, WEIGHTS_INT8, false, &err), STATUS_OK);
}

#define TENSOR "model.layers.1.mlp.down_proj.weight"

static void test_malformed_folders_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t type;
        struct mutation mutation;
        const char *sentence;
    } cases[] = {
        {0,
         {HEADER, "model.safetensors", TENSOR ".scale", TENSOR ".scalf", 0},
         "tensor " TENSOR ".scale: expected, but not found"},
        {0,
         {HEADER, "model.safetensors", "\"" TENSOR "\":{\"dtype\":\"I8\"",
          "\"" TENSOR "\":{\"dtype\":\"U8\"", 0},
         "tensor " TENSOR ": expected I8, found U8"},
        {1,
         {HEADER, "model.safetensors", "\"" TENSOR "\":{\"dtype\":\"U8\"",
          "\"" TENSOR "\":{\"dtype\":\"I8\"", 0},
         "tensor " TENSOR ": expected U8, found I8"},
        {1,
         {HEADER, "model.safetensors", "\"" TENSOR ".scale\":{\"dtype\":\"BF16\"",
          "\"" TENSOR ".scale\":{\"dtype\":\"F16\"", 0},
         "tensor " TENSOR ".scale: expected BF16, found F16"},
        {0,
         {SWAP, "config.json", "\"int8\"", "\"int4\",\"group_size\":128", 0},
         "expected U8, found I8"},
        {1, {SWAP, "config.json", "\"int4\"", "\"int8\"", 0}, "expected I8, found U8"},
        {1,
         {SWAP, "config.json", "\"group_size\": 128", "\"group_size\": 64", 0},
         "\"quantization_config\": \"group_size\": 64 is not within 128..128"},
        {0,
         {SWAP, "config.json", "\"quantization_config\"", "\"another_config\"", 0},
         "expected BF16, F16 or F32, found I8"},
        {0, {CUT, "model.safetensors", NULL, NULL, -1}, "cut short?"},
        {0,
         {SWAP, "config.json", "\"intermediate_size\": 192", "\"intermediate_size\": 190", 0},
         "by config.json, found ["},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {""};
        quantize("llama", cases[i].type);
        model_mutate(model_folder, &cases[i].mutation);
        expect_sentence(open_folder(model_folder, WEIGHTS_AUTO, true, &err), &err,
                        cases[i].sentence);
    }
}

/* A scale of the file becomes infinite, the next number above the largest that is allowed, and that
 * one. */
static void test_scales_that_are_out_of_range(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        struct error err = {""};
        quantize("llama", t);
        struct model_bytes bytes = model_read(model_folder, "model.safetensors");
        uint64_t header;
        memcpy(&header, bytes.data, sizeof header);
        struct safetensors *files;
        assert_int_equal(safetensors_open(model_folder, &files, NULL), STATUS_OK);
        uint64_t first_scale = 0;
        for (size_t i = 0; i < safetensors_count(files); i++) {
            struct tensor_info info = safetensors_at(files, i);
            if (strcmp(info.name, "model.layers.0.mlp.up_proj.weight.scale") != 0)
                continue;
            char *at = memmem(bytes.data + 8 + header, bytes.length - 8 - header, info.bytes,
                              info.byte_count);
            assert_non_null(at);
            first_scale = (uint64_t)(at - bytes.data);
        }
        safetensors_close(files);
        /* f32 of int8, bf16 of int4 */
        static const unsigned char scales[3][2][4] = {
            {{0, 0, 0x80, 0x7f}, {0x80, 0x7f, 0x80, 0x7f}},
            {{1, 0, 0x80, 0x71}, {0x81, 0x71, 0x81, 0x71}},
            {{0, 0, 0x80, 0x71}, {0x80, 0x71, 0x80, 0x71}},
        };
        assert_true(first_scale > 0);
        for (size_t i = 0; i < 3; i++) {
            memcpy(bytes.data + first_scale, scales[i][t], 4);
            model_write(model_folder, "model.safetensors", bytes.data, bytes.length);
            enum status status = open_folder(model_folder, WEIGHTS_AUTO, false, &err);
            if (i < 2)
                expect_sentence(status, &err,
                                "tensor model.layers.0.mlp.up_proj.weight.scale: the scale of row "
                                "0 isn't finite, or is beyond 2^100");
            else
                assert_int_equal(status, STATUS_OK);
        }
        free(bytes.data);
    }
}

static void test_what_cannot_be_quantized(void **state)
{
    (void)state;
    struct quantize_report report;
    struct error err = {""};
    quantize("llama", 0);
    expect_sentence(quantize_folder(golden("llama"), MODEL_INT8, model_folder, &report, &err), &err,
                    "config.json: it is there already");
    model_clear(other_folder);
    model_write(other_folder, "model.safetensors", "somebody's", 10);
    expect_sentence(quantize_folder(golden("llama"), MODEL_INT8, other_folder, &report, &err), &err,
                    "model.safetensors: it is there already");
    model_clear(other_folder);
    expect_sentence(quantize_folder(model_folder, MODEL_INT8, other_folder, &report, &err), &err,
                    "it is quantized already");
    expect_sentence(quantize_folder("tests", MODEL_INT8, other_folder, &report, &err), &err,
                    "tests/config.json: No such file or directory");
    model_copy("llama", model_folder);
    model_clear(other_folder);
    struct model_bytes bytes = model_read(model_folder, "model.safetensors");
    uint64_t header;
    memcpy(&header, bytes.data, sizeof header);
    memset(bytes.data + 8 + header, 0xff, bytes.length - 8 - header); /* NaN everywhere */
    model_write(model_folder, "model.safetensors", bytes.data, bytes.length);
    free(bytes.data);
    expect_sentence(
        quantize_folder(model_folder, MODEL_INT4, other_folder, &report, &err), &err,
        "row 0 has a number that isn't finite, or is beyond 2^100: it can't be quantized");
    expect_sentence(open_folder(other_folder, WEIGHTS_AUTO, true, &err), &err,
                    "config.json: No such file or directory");
    expect_sentence(
        open_folder(model_folder, WEIGHTS_INT8, true, &err), &err,
        "row 0 has a number that isn't finite, or is beyond 2^100: it can't be quantized");
}

static int make_folders(void **state)
{
    return model_folder_make(state) == 0 && mkdtemp(other_folder) ? 0 : -1;
}

static int drop_folders(void **state)
{
    model_clear(other_folder);
    return rmdir(other_folder) == 0 ? model_folder_drop(state) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_folder_gives_the_bytes_of_quantizing_at_load),
        cmocka_unit_test(test_quantized_weights_compute_what_they_say),
        cmocka_unit_test(test_choices_that_do_not_fit_the_folder),
        cmocka_unit_test(test_malformed_folders_are_refused),
        cmocka_unit_test(test_scales_that_are_out_of_range),
        cmocka_unit_test(test_what_cannot_be_quantized),
    };
    return cmocka_run_group_tests(tests, make_folders, drop_folders);
}
