/* engine: its description of itself, and models that can't be opened; on the shipped model, f32. */
#include "tests/unit/engine_fixture.h"

#include "common/engine/model/llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_facts(void **state)
{
    struct engine *engine = *state;
    uint32_t count;
    const uint32_t *end_ids = engine_end_ids(engine, &count);
    assert_int_equal(count, 2);
    assert_int_equal(end_ids[0], 0);
    assert_int_equal(end_ids[1], 2);
    assert_int_equal(engine_context(engine), 64);
    assert_int_equal(engine_shape(engine)->layers, 6);
    assert_string_equal(engine_numerics_name(engine), "f32/w-f32/kv-f32/k4/seg256/sampler1/tp1");
    assert_int_equal(engine_pool_bytes(engine), 8 * 6 * 2 * 2 * 16 * 64 * 4);
    assert_int_equal(engine_pool_address(engine) != NULL, test_device() == DEVICE_CPU);
}

/* Twice the rows of a pass take only the memory of each row: the stream and its norm. */
static void test_feed_forward_layers_have_room_for_the_rows_of_a_pass(void **state)
{
    (void)state;
    const struct model_shape shape = {
        .hidden = 64, .heads = 2, .kv_heads = 1, .head_dim = 32, .ffn = 4096};
    for (int f32 = 0; f32 <= 1; f32++) {
        struct kernels_config config = {.f32 = f32, .threads = 1};
        struct kernels *kernels;
        struct error err;
        assert_int_equal(kernels_open(&config, &kernels, &err), STATUS_OK);
        uint32_t rows = kernels_info(kernels).pass_rows;
        size_t half = llama_bytes(kernels, &shape, rows / 2, 1);
        size_t whole = llama_bytes(kernels, &shape, rows, 1);
        size_t twice = llama_bytes(kernels, &shape, 2 * rows, 1);
        assert_int_equal(twice - whole, 2 * rows * shape.hidden * sizeof(float));
        assert_true(whole - half > rows * shape.ffn * sizeof(float));
        kernels_close(kernels);
    }
}

static void test_hashes_tell_models_and_arithmetic_apart(void **state)
{
    struct engine *engine = *state;
    static const struct {
        const char *model;
        bool f32, same_model, same_numerics;
        uint32_t threads, block_tokens;
        enum kv_choice kv;
    } cases[] = {
        /* threads and block size leave no trace in the bytes */
        {MODEL, true, true, true, 2, 32, KV_CHOICE_AUTO},
        {"tests/golden/models/llama", true, false, false, 1, 16, KV_CHOICE_AUTO},
        {MODEL, false, true, false, 1, 16, KV_CHOICE_AUTO},
        {MODEL, true, true, false, 1, 16, KV_CHOICE_INT8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine_config config = CONFIG;
        struct engine *other;
        struct error err;
        config.model_dir = cases[i].model;
        config.kernels.f32 = cases[i].f32;
        config.kernels.isa = ISA_PORTABLE;
        config.kernels.threads = cases[i].threads;
        config.block_tokens = cases[i].block_tokens;
        config.kv = cases[i].kv;
        config.context_limit = 0;
        if (engine_open(&config, &other, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_int_equal(engine_model_hash(engine) == engine_model_hash(other),
                         cases[i].same_model);
        assert_int_equal(engine_numerics_id(engine) == engine_numerics_id(other),
                         cases[i].same_numerics);
        engine_close(other);
    }
}

/* Workers pair by the numerics id. Schemes of RoPE scaling are in its name; longrope's choice
 * depends on the served context, and differs with it. */
static void test_numerics_have_the_rope_scaling(void **state)
{
    (void)state;
    static const struct {
        const char *model, *end;
        uint32_t context;
    } cases[] = {{"llama3-rope", "/tp1", 64},
                 {"rope-linear", "/tp1/rope-linear", 64},
                 {"rope-dynamic", "/tp1/rope-dynamic", 64},
                 {"rope-yarn", "/tp1/rope-yarn", 64},
                 {"rope-longrope", "/tp1/rope-longrope-long", 33},
                 {"rope-longrope", "/tp1/rope-longrope-short", 32}};
    enum { CASES = sizeof cases / sizeof *cases };
    uint64_t ids[CASES];
    for (size_t i = 0; i < CASES; i++) {
        struct engine_config config = CONFIG;
        struct engine *engine;
        struct error err;
        char dir[128];
        snprintf(dir, sizeof dir, "tests/golden/models/%s", cases[i].model);
        config.model_dir = dir;
        config.context_limit = cases[i].context;
        if (engine_open(&config, &engine, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        const char *name = engine_numerics_name(engine);
        assert_string_equal(name + strlen(name) - strlen(cases[i].end), cases[i].end);
        ids[i] = engine_numerics_id(engine);
        for (size_t before = 0; before < i; before++)
            assert_true(ids[before] != ids[i]);
        engine_close(engine);
    }
}

/* Layers of integers have the same bits by every set, tiles included: their workers may be
 * paired. */
static void test_quantized_numerics_of_all_sets(void **state)
{
    (void)state;
    static const enum isa sets[] = {ISA_PORTABLE, ISA_AVX512, ISA_AMX};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct engine_config config = CONFIG;
        struct engine *engine;
        struct error err;
        config.kernels.isa = sets[i];
        config.kernels.f32 = false;
        config.weights = WEIGHTS_INT8;
        enum status status = engine_open(&config, &engine, &err);
        if (status == STATUS_UNSUPPORTED && sets[i] != ISA_PORTABLE)
            continue; /* not on this CPU */
        if (status != STATUS_OK)
            fail_msg("%s", err.text);
        assert_string_equal(engine_numerics_name(engine),
                            "bf16-portable/w-int8/kv-bf16/k4/seg256/sampler1/tp1");
        engine_close(engine);
    }
}

/* A byte a number and four a scale; the rest of the engine sees other sizes only. */
static void test_int8_keys_and_values(void **state)
{
    (void)state;
    for (int f32 = 0; f32 < 2; f32++) {
        struct engine_config config = CONFIG;
        config.kernels.f32 = f32;
        config.kv = KV_CHOICE_INT8;
        struct engine *engine;
        struct error err;
        if (engine_open(&config, &engine, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_non_null(strstr(engine_numerics_name(engine), "/kv-int8/"));
        assert_int_equal(engine_pool_bytes(engine), 8 * 6 * 2 * 2 * 16 * (64 + 4));
        engine_close(engine);
    }
}

static void test_configurations_that_are_refused(void **state)
{
    (void)state;
    struct engine_config bad[6] = {CONFIG, CONFIG, CONFIG, CONFIG, CONFIG, CONFIG};
    static const char *const sentences[] = {
        "block_tokens must be a power of two from 8 to 256, got 24",
        "block_count must be from 1 to 268435456, got 0",
        "max_rows must be from 1 to 65536, got 65537",
        "max_sequences must be from 1 to 4096, got 0",
        "tests/config.json: No such file or directory; a model is a folder in Hugging Face's "
        "layout",
        "kv bf16: compute f32 holds keys and values as f32; take auto or int8",
    };
    bad[0].block_tokens = 24;
    bad[1].block_count = 0;
    bad[2].max_rows = 65537;
    bad[3].max_sequences = 0;
    bad[4].model_dir = "tests";
    bad[5].kv = KV_CHOICE_BF16;
    for (int i = 0; i < 6; i++) {
        struct engine *engine;
        struct error err;
        assert_int_not_equal(engine_open(&bad[i], &engine, &err), STATUS_OK);
        assert_string_equal(err.text, sentences[i]);
    }
}

/* Refused before any memory is taken: a pool of terabytes, activations of too many rows, a table of
 * logits. */
static void test_what_no_machine_holds_is_refused(void **state)
{
    (void)state;
    struct engine_config bad[3] = {CONFIG, CONFIG, CONFIG};
    static const char *const sentences[] = {
        "393216.0 GiB of memory are needed (weights 0.0, KV pool of 68719476736 tokens "
        "393216.0, steps of 24 rows 0.0), ",
        "GiB of memory are needed (weights 0.0, KV pool of 4294967296 tokens ",
        "393216.0 GiB of memory are needed (weights 0.0, KV pool of 2048 tokens 0.0, steps of 24 "
        "rows 0.0, swapped blocks 393216.0), ",
    };
    bad[0].swap_blocks = 0;
    bad[0].block_count = bad[2].swap_blocks = 1u << 28;
    bad[0].block_tokens = bad[2].block_tokens = 256;
    bad[1].block_count = 1u << 28;
    bad[1].max_rows = 65536;
    bad[1].max_sequences = 4096;
    for (int i = 0; i < 3; i++) {
        struct engine *engine;
        struct error err = {""};
        assert_int_equal(engine_open(&bad[i], &engine, &err), STATUS_LIMIT);
        print_message("%s\n", err.text);
        assert_non_null(strstr(err.text, sentences[i]));
        assert_non_null(strstr(err.text, "are available here: a smaller pool (kv-tokens), shorter "
                                         "chunks (chunk-tokens) or another machine"));
    }
}

/* A device has memory of its own: each of the two is named for itself. */
static void test_memory_of_the_device_and_of_the_host_are_told_apart(void **state)
{
    (void)state;
    struct engine_config bad[2] = {CONFIG, CONFIG};
    static const char *const sentences[] = {
        "393216.0 GiB of the device's memory are needed (weights 0.0, KV pool of 68719476736 "
        "tokens 393216.0, steps of 24 rows 0.0), ",
        "393216.0 GiB of host memory are needed (steps in flight 0.0, swapped blocks 393216.0, "
        "staging 0.0, the device's 0.0), ",
    };
    bad[0].block_count = bad[1].swap_blocks = 1u << 28;
    for (int i = 0; i < 2; i++) {
        struct engine *engine;
        struct error err = {""};
        bad[i].block_tokens = 256;
        bad[i].kernels.device = DEVICE_DEFERRED;
        assert_int_equal(engine_open(&bad[i], &engine, &err), STATUS_LIMIT);
        assert_ptr_equal(strstr(err.text, sentences[i]), err.text);
    }
}

/* Two processes can share a device: each takes its share of the whole at most. */
static void test_a_share_of_the_device_bounds_the_pool(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct engine_config config = CONFIG;
        struct engine *engine;
        struct error err = {""};
        config.kernels.device = i ? DEVICE_DEFERRED : DEVICE_CPU;
        config.memory_share = 1e-9;
        assert_int_equal(engine_open(&config, &engine, &err), STATUS_LIMIT);
        assert_non_null(strstr(err.text, "0.0 are its share (device-memory-share): "));
        assert_non_null(strstr(err.text, " or a larger share"));
        config.memory_share = 0.9;
        assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
        engine_close(engine);
    }
}

/* Memory of the device and of the host that each would fit, and don't fit together. */
static void test_memory_that_a_device_takes_from_the_host(void **state)
{
    (void)state;
    struct kernels *kernels;
    struct engine *engine;
    struct error err = {""};
    struct engine_config config = CONFIG;
    assert_int_equal(kernels_open(&config.kernels, &kernels, &err), STATUS_OK);
    uint64_t half = kernels_host_available_bytes(kernels) / 10 * 7;
    kernels_close(kernels);
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_OK);
    uint64_t block_bytes = kv_layout_block_bytes(engine_layout(engine));
    engine_close(engine);
    config.kernels.device = DEVICE_DEFERRED;
    config.block_count = config.swap_blocks = (uint32_t)(half / block_bytes);
    assert_int_equal(engine_open(&config, &engine, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, " GiB of host memory are needed (steps in flight "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_hashes_tell_models_and_arithmetic_apart),
        cmocka_unit_test(test_feed_forward_layers_have_room_for_the_rows_of_a_pass),
        cmocka_unit_test(test_numerics_have_the_rope_scaling),
        cmocka_unit_test(test_quantized_numerics_of_all_sets),
        cmocka_unit_test(test_int8_keys_and_values),
        cmocka_unit_test(test_configurations_that_are_refused),
        cmocka_unit_test(test_what_no_machine_holds_is_refused),
        cmocka_unit_test(test_memory_of_the_device_and_of_the_host_are_told_apart),
        cmocka_unit_test(test_a_share_of_the_device_bounds_the_pool),
        cmocka_unit_test(test_memory_that_a_device_takes_from_the_host),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
