/* Models on the emulated driver: the engine, its queues and its memory, down to the launches. Their
 * logits are near the reference's, and an answer has the same bytes whatever runs beside it. */
#include "common/base/domain/cost_model.h"
#include "common/engine/engine.h"
#include "common/engine/model/load_progress.h"
#include "common/engine/model/weight_loader.h"
#include "kernels/cuda/driver.h"
#include "tests/golden/fp8_folder.h"
#include "tests/golden/golden_streams.h"
#include "tests/unit/model_mutation.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 3, VOCAB_LIMIT = 1024, POOL_BLOCKS = 64 };

static const uint32_t prompt_counts[COUNT] = {5, 18, 33};

static void use_emulated(const char *settings)
{
    setenv(CUDA_LIBRARY_VARIABLE, EMULATED_DRIVER, 1);
    setenv("BATON_CUDA_EMULATED", settings, 1);
}

static struct engine *open_model(const char *model, const char *settings,
                                 struct kernels_config kernels)
{
    use_emulated(settings);
    kernels.threads = 1;
    struct engine *engine = streams_open(model, kernels, POOL_BLOCKS);
    assert_non_null(engine);
    assert_true(engine_shape(engine)->vocab <= VOCAB_LIMIT);
    return engine;
}

static void make_prompts(struct stream *streams, float (*logits)[VOCAB_LIMIT], uint32_t vocab)
{
    memset(streams, 0, COUNT * sizeof *streams);
    for (uint32_t i = 0; i < COUNT; i++) {
        streams[i].prompt_count = prompt_counts[i];
        streams[i].answer_limit = 2;
        streams[i].sampling = sampling_default();
        streams[i].sampling.temperature = i == 1 ? 1 : 0; /* drawn on the device, too */
        streams[i].first_logits = logits ? logits[i] : NULL;
        for (uint32_t t = 0; t < prompt_counts[i]; t++)
            streams[i].tokens[t] = (7 * i + 13 * t + t * t) % vocab;
    }
}

/* The rms error, as a part of the rms of the expected logits. */
static double distance(const float *logits, const float *expected, uint32_t vocab)
{
    double error = 0, norm = 0;
    for (uint32_t v = 0; v < vocab; v++) {
        error += pow((double)logits[v] - (double)expected[v], 2);
        norm += pow((double)expected[v], 2);
    }
    return sqrt(error / norm);
}

/* fp8: the portable kernels don't compute it. */
static void check_model(const char *model, bool fp8)
{
    static struct stream expected[COUNT], streams[COUNT];
    static float reference[COUNT][VOCAB_LIMIT], logits[COUNT][VOCAB_LIMIT];
    struct kernels_config f32 = {.device = DEVICE_CPU, .f32 = true}, cuda = {.device = DEVICE_CUDA};
    struct engine *engine = open_model(model, "", f32);
    uint32_t vocab = engine_shape(engine)->vocab;
    make_prompts(streams, reference, vocab);
    streams_run(engine, streams, COUNT, 64);
    engine_close(engine);

    engine = open_model(model, "sms=2,memory=64", cuda);
    const char *name = fp8 ? "cuda-bf16-sm90/w-fp8" : "cuda-bf16-sm90/";
    assert_ptr_equal(strstr(engine_numerics_name(engine), name), engine_numerics_name(engine));
    make_prompts(expected, logits, vocab);
    for (int i = 0; i < COUNT; i++) { /* alone, whole */
        streams_run(engine, &expected[i], 1, STREAM_MAX_ROWS);
        double off = distance(logits[i], reference[i], vocab);
        if (!(off < (fp8 ? 0.3 : 0.03))) /* e4m3 has steps of 6 to 12%, which layers amplify */
            fail_msg("%s: logits of prompt %d are off by %g", model, i, off);
    }
    engine_close(engine);

    /* Side by side, in chunks, on other devices: the kernels of sm_90a, and the portable ones. */
    static const struct {
        const char *settings, *isa;
        uint32_t chunk;
    } others[] = {{"late=1,seed=5,sms=3,memory=64", "sm_90", 16},
                  {"capability=86,sms=5,memory=64", "sm_86", 7}};
    for (int other = 0; other < (fp8 ? 1 : 2); other++) {
        engine = open_model(model, others[other].settings, cuda);
        assert_string_equal(engine_isa(engine), others[other].isa);
        make_prompts(streams, NULL, vocab);
        streams_run(engine, streams, COUNT, others[other].chunk);
        for (int i = 0; i < COUNT; i++) {
            assert_memory_equal(streams[i].hashes, expected[i].hashes, 2 * sizeof(uint64_t));
            assert_memory_equal(streams[i].drawn, expected[i].drawn, 2 * sizeof(uint32_t));
            assert_int_not_equal(expected[i].hashes[0], expected[(i + 1) % COUNT].hashes[0]);
        }
        engine_close(engine);
    }
}

static void test_a_model_with_heads_of_16(void **state)
{
    (void)state;
    check_model("tests/golden/models/rope-linear", false);
}

static void test_a_model_with_norms_of_heads(void **state)
{
    (void)state;
    if (!getenv("BATON_LONG"))
        skip();
    check_model("tests/golden/models/qwen3", false);
}

static void test_a_model_with_biases(void **state)
{
    (void)state;
    if (!getenv("BATON_LONG"))
        skip();
    check_model("tests/golden/models/qwen2", false);
}

static void test_models_in_fp8(void **state)
{
    (void)state;
    check_model("tests/golden/models/llama-fp8", true);
    check_model("tests/golden/models/llama-fp8-blocks", true);
    for (enum fp8_kind kind = 0; kind < FP8_KINDS && getenv("BATON_LONG"); kind++) {
        fp8_folder_make("mistral-headdim", kind, model_folder);
        check_model(model_folder, true);
    }
}

/* A load that ends early frees its pinned memory once the device has read it. */
static void test_a_load_that_ends_early(void **state)
{
    (void)state;
    const uint32_t rows = 384, columns = 64;
    struct kernels_config config = {.device = DEVICE_CUDA, .threads = 1};
    struct weight_types types = {.layers = WEIGHT_BF16, .ends = WEIGHT_BF16};
    struct load_progress progress = load_progress_begin("loading", 0, NULL, 0);
    struct weight_loader loader;
    struct kernels *kernels;
    struct safetensors *files;
    struct linear linear;
    struct error err = {""};
    use_emulated("late=1,memory=64");
    assert_int_equal(kernels_open(&config, &kernels, &err), STATUS_OK);
    assert_int_equal(safetensors_open("tests/golden/models/rope-linear", &files, &err), STATUS_OK);
    assert_int_equal(kernels_linear_create(kernels, WEIGHT_BF16, rows, columns, &linear),
                     STATUS_OK);
    assert_int_equal(weight_loader_init(&loader, kernels, files, types, false, &err), STATUS_OK);
    loader.progress = &progress;
    assert_int_equal(weight_loader_matrix(&loader, "model.embed_tokens.weight", rows, columns,
                                          (struct weight_target){.linear = &linear}),
                     STATUS_OK);
    weight_loader_deinit(&loader);
    assert_true(loader.staging.behind[0] > 0);
    assert_true(kernels_passed(kernels, KERNELS_STEPS, loader.staging.behind[0]));
    kernels_linear_destroy(kernels, &linear);
    safetensors_close(files);
    kernels_close(kernels);
}

/* A device without the tensor cores refuses fp8, and takes it widened. */
static void test_fp8_on_an_older_device(void **state)
{
    (void)state;
    fp8_folder_make("mistral-headdim", FP8_BLOCKS, model_folder);
    setenv(CUDA_LIBRARY_VARIABLE, EMULATED_DRIVER, 1);
    setenv("BATON_CUDA_EMULATED", "capability=86,memory=64", 1);
    struct engine_config config = {.model_dir = model_folder,
                                   .kernels = {.device = DEVICE_CUDA, .threads = 1},
                                   .block_tokens = 16,
                                   .block_count = 8,
                                   .max_rows = 16,
                                   .max_sequences = 2};
    struct engine *engine;
    struct error err = {""};
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "device cuda: fp8 weights need the tensor cores of compute "
                                  "capability 9.0: use weights bf16, which widens them, or device "
                                  "cpu (cuda_no_kernel)");
    config.weights = WEIGHTS_BF16;
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
    assert_non_null(strstr(engine_numerics_name(engine), "cuda-bf16-sm86/w-bf16-of-fp8/"));
    engine_close(engine);
}

/* A device that is too small for the pool: the sentence has the largest that fits. */
static void test_a_pool_that_fits_is_told(void **state)
{
    (void)state;
    use_emulated("memory=64");
    struct engine_config config = {.model_dir = "tests/golden/models/rope-linear",
                                   .kernels = {.device = DEVICE_CUDA, .threads = 1},
                                   .block_tokens = 16,
                                   .block_count = 1 << 20,
                                   .max_rows = 64,
                                   .max_sequences = 4};
    struct engine *engine;
    struct error err = {""};
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "of the device's memory are needed"));
    const char *told = strstr(err.text, "; kv-tokens ");
    assert_non_null(told);
    uint32_t tokens = (uint32_t)strtoul(told + strlen("; kv-tokens "), NULL, 10);
    assert_true(tokens > 0 && tokens % config.block_tokens == 0);
    config.block_count = tokens / config.block_tokens + 1;
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_LIMIT);
    config.block_count--;
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
    engine_close(engine);
}

/* The kernels' scratch belongs to the share: weights, pool, steps and scratch end just within it,
 * where the driver rounds the pool up. */
static void test_a_share_holds_the_scratch(void **state)
{
    (void)state;
    enum { DEVICE_BYTES = 64 << 20, ROUNDED_TO = 2 << 20 };
    use_emulated("memory=64");
    struct engine_config config = {.model_dir = "tests/golden/models/rope-linear",
                                   .kernels = {.device = DEVICE_CUDA, .threads = 1},
                                   .block_tokens = 16,
                                   .block_count = 1 << 20,
                                   .memory_share = 0.25,
                                   .max_rows = 64,
                                   .max_sequences = 4};
    struct engine *engine;
    struct error err = {""};
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "are its share (device-memory-share)"));
    const char *told = strstr(err.text, "; kv-tokens ");
    assert_non_null(told);
    config.block_count = (uint32_t)strtoul(told + strlen("; kv-tokens "), NULL, 10) / 16;
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
    assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
    struct engine_limits limits = engine_measure_limits(engine);
    assert_in_range(limits.device_bytes, DEVICE_BYTES / 4 - ROUNDED_TO + 1, DEVICE_BYTES / 4);
    /* A prefill worker's chunks follow from these measurements. */
    assert_true(cost_model_saturation_rows(engine_shape(engine), limits.weight_bytes,
                                           limits.read_gbs, limits.peak_gflops) > 0);
    engine_close(engine);
}

/* A GPU gets the rows that are wanted for it, or fewer, which fit beside the rest. */
static void test_rows_of_a_gpu_fit(void **state)
{
    (void)state;
    static const struct {
        enum device device;
        uint32_t wanted, least, most;
    } cases[] = {{DEVICE_CUDA, 4096, 4096, 4096},
                 {DEVICE_CUDA, 65536, 65, 65535},
                 {DEVICE_CPU, 4096, 64, 64}};
    use_emulated("memory=64");
    for (int i = 0; i < 3; i++) {
        struct engine_config config = {.model_dir = "tests/golden/models/rope-linear",
                                       .kernels = {.device = cases[i].device, .threads = 1},
                                       .block_tokens = 16,
                                       .block_count = 8,
                                       .max_rows = 64,
                                       .gpu_rows = cases[i].wanted,
                                       .max_sequences = 4};
        struct engine *engine;
        struct error err = {""};
        assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
        assert_in_range(engine_max_rows(engine), cases[i].least, cases[i].most);
        engine_close(engine);
    }
}

/* Rows that no step will have take no memory: another engine on the device gets what they took. */
static void test_rows_that_are_not_kept_take_no_memory(void **state)
{
    (void)state;
    enum { WANTED = 8192, KEPT = 128 };
    uint32_t rows_of_other[2];
    use_emulated("memory=64");
    for (int keeps = 0; keeps < 2; keeps++) {
        struct engine_config config = {.model_dir = "tests/golden/models/rope-linear",
                                       .kernels = {.device = DEVICE_CUDA, .threads = 1},
                                       .block_tokens = 16,
                                       .block_count = 8,
                                       .max_rows = 64,
                                       .gpu_rows = WANTED,
                                       .max_sequences = 4,
                                       .draft_tokens = 63}; /* draws of more rows than are kept */
        struct engine *engine, *other;
        struct error err = {""};
        assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
        if (keeps)
            assert_int_equal(engine_keep_rows(engine, KEPT, &err), STATUS_OK);
        assert_int_equal(engine_keep_rows(engine, WANTED, &err), STATUS_OK); /* not more again */
        assert_int_equal(engine_max_rows(engine), keeps ? KEPT : WANTED);
        assert_int_equal(engine_attach_pool(engine, NULL, &err), STATUS_OK);
        config.gpu_rows = 65536;
        assert_int_equal(engine_open(&config, &other, &err), STATUS_OK);
        rows_of_other[keeps] = engine_max_rows(other);
        engine_close(other);
        engine_close(engine);
    }
    assert_true(rows_of_other[1] > rows_of_other[0]);
}

/* A model without kernels: `auto` takes the CPU, and the device's name insists. */
static void test_auto_takes_the_cpu_without_kernels(void **state)
{
    (void)state;
    use_emulated("memory=64");
    struct engine_config config = {.model_dir = "tests/golden/models/rope-linear",
                                   .kernels = {.device = DEVICE_CUDA, .threads = 1},
                                   .weights = WEIGHTS_INT4,
                                   .block_tokens = 16,
                                   .block_count = 4,
                                   .max_rows = 64,
                                   .max_sequences = 4};
    struct engine *engine;
    struct error err = {""};
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "(cuda_no_kernel)"));
    config.kernels.device = DEVICE_AUTO;
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
    assert_false(engine_has_device_memory(engine));
    assert_non_null(strstr(engine_numerics_name(engine), "/w-int4/"));
    engine_close(engine);
    config.weights = WEIGHTS_AUTO;
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
    assert_true(engine_has_device_memory(engine));
    engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_with_heads_of_16),
        cmocka_unit_test(test_a_model_with_norms_of_heads),
        cmocka_unit_test(test_a_model_with_biases),
        cmocka_unit_test(test_models_in_fp8),
        cmocka_unit_test(test_a_load_that_ends_early),
        cmocka_unit_test(test_fp8_on_an_older_device),
        cmocka_unit_test(test_a_pool_that_fits_is_told),
        cmocka_unit_test(test_a_share_holds_the_scratch),
        cmocka_unit_test(test_rows_of_a_gpu_fit),
        cmocka_unit_test(test_rows_that_are_not_kept_take_no_memory),
        cmocka_unit_test(test_auto_takes_the_cpu_without_kernels),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_drop);
}
