/* The engine against transformers' fp32 logits and greedy ids; tests/golden/models/README.md has
 * the rules. */
#include "common/base/json/json.h"
#include "kernels/cpu/isa.h"
#include "tests/device.h"
#include "tests/golden/golden_streams.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GREEDY 32
#define VOCAB  384
#define WHOLE  STREAM_MAX_ROWS

struct golden_prompt {
    uint32_t ids[STREAM_MAX_TOKENS], count;
    uint32_t greedy[GREEDY];
    double margins[GREEDY];
    double first_logits[VOCAB];
    double spread; /* spread of first_logits */
};

static void read_ids(const struct json_value *object, const char *key, uint32_t *ids, size_t limit,
                     uint32_t *count)
{
    const struct json_value *array;
    assert_int_equal(json_get_array(object, key, &array, NULL), STATUS_OK);
    assert_true(json_count(array) <= limit);
    for (size_t i = 0; i < json_count(array); i++) {
        int64_t id;
        assert_int_equal(json_as_i64(json_at(array, i), 0, VOCAB - 1, &id, NULL), STATUS_OK);
        ids[i] = (uint32_t)id;
    }
    *count = (uint32_t)json_count(array);
}

static void read_numbers(const struct json_value *object, const char *key, double *numbers,
                         size_t count)
{
    const struct json_value *array;
    assert_int_equal(json_get_array(object, key, &array, NULL), STATUS_OK);
    assert_int_equal(json_count(array), count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(json_as_double(json_at(array, i), -1e6, 1e6, &numbers[i], NULL),
                         STATUS_OK);
}

static uint32_t read_golden(const char *model_dir, struct golden_prompt *prompts, uint32_t limit)
{
    char path[512];
    struct json *json;
    struct error err;
    const struct json_value *list;
    snprintf(path, sizeof path, "%s/golden.json", model_dir);
    if (json_read_file(path, (struct json_limits){1 << 20, 16}, &json, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(json_get_array(json_root(json), "prompts", &list, NULL), STATUS_OK);
    assert_true(json_count(list) <= limit);
    uint32_t count = (uint32_t)json_count(list);
    for (uint32_t i = 0; i < count; i++) {
        struct golden_prompt *p = &prompts[i];
        uint32_t greedy_count;
        read_ids(json_at(list, i), "ids", p->ids, STREAM_MAX_TOKENS - GREEDY, &p->count);
        read_ids(json_at(list, i), "greedy", p->greedy, GREEDY, &greedy_count);
        assert_int_equal(greedy_count, GREEDY);
        read_numbers(json_at(list, i), "margins", p->margins, GREEDY);
        read_numbers(json_at(list, i), "first_logits", p->first_logits, VOCAB);
        double low = INFINITY, high = -INFINITY;
        for (int v = 0; v < VOCAB; v++) {
            low = fmin(low, p->first_logits[v]);
            high = fmax(high, p->first_logits[v]);
        }
        p->spread = high - low;
    }
    json_destroy(json);
    return count;
}

static void start(struct stream *stream, const struct golden_prompt *prompt, float *first_logits)
{
    memset(stream, 0, sizeof *stream);
    memcpy(stream->tokens, prompt->ids, sizeof prompt->ids);
    stream->prompt_count = prompt->count;
    stream->answer_limit = GREEDY;
    stream->sampling = sampling_default();
    stream->sampling.temperature = 0;
    stream->first_logits = first_logits;
}

/* The greatest difference of the first row, as a part of the reference's spread. */
static double first_row_error(const struct golden_prompt *prompt, const float *logits)
{
    double worst = 0;
    for (int v = 0; v < VOCAB; v++)
        worst = fmax(worst, fabs((double)logits[v] - prompt->first_logits[v]));
    return worst / prompt->spread;
}

struct fixture {
    const char *model;
    struct golden_prompt prompts[4];
    uint32_t prompt_count;
    struct stream streams[4];
    float first_logits[4][VOCAB];
};

static const char *model_dir(const char *model)
{
    static char path[256];
    snprintf(path, sizeof path, "tests/golden/models/%s", model);
    return path;
}

/* All prompts of a model side by side, in chunks of `chunk` rows. */
static void run_side_by_side(struct engine *engine, struct fixture *f, uint32_t chunk, bool forced)
{
    for (uint32_t i = 0; i < f->prompt_count; i++) {
        start(&f->streams[i], &f->prompts[i], f->first_logits[i]);
        f->streams[i].forced = forced ? f->prompts[i].greedy : NULL;
    }
    streams_run(engine, f->streams, f->prompt_count, chunk);
}

static void check_f32(struct fixture *f, uint32_t chunk)
{
    for (uint32_t i = 0; i < f->prompt_count; i++) {
        double error = first_row_error(&f->prompts[i], f->first_logits[i]);
        print_message("%s f32 chunk=%u prompt=%u: error %.2e of the spread\n", f->model, chunk,
                      f->prompts[i].count, error);
        assert_true(error <= 1e-4);
        assert_memory_equal(f->streams[i].drawn, f->prompts[i].greedy, sizeof f->prompts[i].greedy);
    }
}

static void test_f32_free_running(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    static const uint32_t chunks[] = {WHOLE, 64, 5};
    f->model = *state;
    f->prompt_count = read_golden(model_dir(f->model), f->prompts, 4);
    struct engine *engine =
        streams_open(model_dir(f->model), (struct kernels_config){.f32 = true, .threads = 2}, 512);
    assert_non_null(engine);
    bool wide =
        f->prompts[f->prompt_count - 1].count > 1000; /* chunks of 5: only where it's quick */
    for (int i = 0; i < (wide ? 2 : 3); i++) {
        run_side_by_side(engine, f, chunks[i], false);
        check_f32(f, chunks[i]);
    }
    engine_close(engine);
    free(f);
}

/* On queues that run late: a wait that is missing shows in every run. */
static void test_f32_on_a_device(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->model = *state;
    f->prompt_count = read_golden(model_dir(f->model), f->prompts, 4);
    struct engine *engine = streams_open(
        model_dir(f->model),
        (struct kernels_config){.device = DEVICE_DEFERRED_LATE, .f32 = true, .threads = 2}, 512);
    assert_non_null(engine);
    run_side_by_side(engine, f, 64, false);
    check_f32(f, 64);
    engine_close(engine);
    free(f);
}

/* No id may differ that has a margin of `least` of the spread, or more. */
static void check_bf16(struct fixture *f, const char *isa, int most_flips, double least)
{
    int flips = 0;
    for (uint32_t i = 0; i < f->prompt_count; i++) {
        const struct stream *s = &f->streams[i];
        double error = first_row_error(&f->prompts[i], f->first_logits[i]);
        print_message("%s %s prompt=%u: error %.4f of the spread\n", f->model, isa,
                      f->prompts[i].count, error);
        assert_true(error <= 0.02);
        for (int k = 0; k < GREEDY; k++) {
            if (s->drawn[k] == f->prompts[i].greedy[k])
                continue;
            flips++;
            assert_true(f->prompts[i].margins[k] < least * (double)s->spread[k]);
        }
    }
    print_message("%s %s: %d other ids of %u\n", f->model, isa, flips, f->prompt_count * GREEDY);
    assert_true(flips <= most_flips);
}

/* Every instruction set that this CPU has. Sets of one numerics id give the same bits; others may
 * differ. */
static void test_fast_on_the_references_ids(void **state)
{
    const struct {
        enum isa isa;
        bool here;
        /* near ties that it decides otherwise, all of less than the allowed margin */
        int most_flips;
    } paths[] = {{ISA_PORTABLE, true, 5},
                 {ISA_AVX2, isa_reports_avx2(), 5},
                 {ISA_AVX512, isa_reports_avx512(), 5},
                 {ISA_AVX512BF16, isa_executes_avx512bf16(), 5},
                 {ISA_AMX, isa_allows_amx(), 6}};
    struct fixture *f = calloc(1, sizeof *f), *first = calloc(1, sizeof *first);
    uint64_t first_numerics = 0;
    f->model = *state;
    f->prompt_count = read_golden(model_dir(f->model), f->prompts, 4);
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        const char *name = isa_names[paths[p].isa];
        struct engine *engine = streams_open(
            model_dir(f->model), (struct kernels_config){.isa = paths[p].isa, .threads = 2}, 512);
        assert_int_equal(engine != NULL, paths[p].here);
        if (!engine) {
            print_message("%s: this CPU can't run %s\n", f->model, name);
            continue;
        }
        run_side_by_side(engine, f, WHOLE, true);
        check_bf16(f, name, paths[p].most_flips, 0.02);
        if (p == 0) {
            *first = *f;
            first_numerics = engine_numerics_id(engine);
        }
        bool same = engine_numerics_id(engine) == first_numerics;
        assert_int_equal(same, paths[p].isa != ISA_AVX512BF16 && paths[p].isa != ISA_AMX);
        for (uint32_t i = 0; same && i < f->prompt_count; i++)
            assert_memory_equal(f->streams[i].hashes, first->streams[i].hashes,
                                sizeof f->streams[i].hashes);
        engine_close(engine);
    }
    free(first);
    free(f);
}

/* The bound on the change of the first logits by quantized weights, or keys and values, as a part
 * of their spread. int8: weights and inputs, each rounded by the largest of a row (about 3 sigma
 * here), err by 0.7% of sigma, together by 1%; rounding to bf16 by 0.1%; so the bound is nine times
 * that of bf16 above. int4 has no such bound here: these models' random weights lose 9% of sigma,
 * which changes logits by up to half of the spread. An assertion that allows so much would prove
 * nothing. test_quantized_folder.c compares both types with fp32 arithmetic on the stored weights.
 * int8 keys and values are rounded by the largest of a head, as coarsely as weights, but softmax
 * averages over them: 0.025 at worst on these models. */
static const struct {
    enum weight_choice weights;
    enum kv_choice kv;
    double bound;
} QUANTIZED[] = {{WEIGHTS_INT8, KV_CHOICE_AUTO, 0.18},
                 {WEIGHTS_INT4, KV_CHOICE_AUTO, INFINITY},
                 {WEIGHTS_AUTO, KV_CHOICE_INT8, 0.05}};

/* The prompts on the reference's ids; false where this CPU can't. */
static bool run_quantized(struct fixture *f, size_t q, bool f32, enum isa isa)
{
    struct engine *engine =
        streams_open_with(model_dir(f->model), QUANTIZED[q].weights, QUANTIZED[q].kv,
                          (struct kernels_config){.f32 = f32, .isa = isa, .threads = 2}, 512);
    if (!engine)
        return false;
    run_side_by_side(engine, f, WHOLE, true);
    double worst = 0;
    for (uint32_t i = 0; i < f->prompt_count; i++)
        worst = fmax(worst, first_row_error(&f->prompts[i], f->first_logits[i]));
    print_message("%s %s: error %.4f of the spread\n", f->model, engine_numerics_name(engine),
                  worst);
    assert_true(worst <= QUANTIZED[q].bound);
    engine_close(engine);
    return true;
}

/* Near the reference in both arithmetics, and the same bits on all sets of one numerics id. */
static void test_quantized_weights(void **state)
{
    static const enum isa isas[] = {ISA_AVX2, ISA_AVX512};
    struct fixture *f = calloc(1, sizeof *f), *first = calloc(1, sizeof *first);
    f->model = *state;
    f->prompt_count = read_golden(model_dir(f->model), f->prompts, 4);
    /* Weights don't depend on how long a prompt is: without BATON_LONG short ones are enough. */
    bool wide = f->prompts[f->prompt_count - 1].count > 1000;
    for (size_t q = 0; q < sizeof QUANTIZED / sizeof *QUANTIZED; q++) {
        if (wide && QUANTIZED[q].weights != WEIGHTS_AUTO && !getenv("BATON_LONG"))
            continue;
        assert_true(run_quantized(f, q, true, ISA_PORTABLE));
        assert_true(run_quantized(f, q, false, ISA_PORTABLE));
        *first = *f;
        for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
            bool here = run_quantized(f, q, false, isas[i]);
            for (uint32_t s = 0; here && s < f->prompt_count; s++)
                assert_memory_equal(f->streams[s].hashes, first->streams[s].hashes,
                                    sizeof f->streams[s].hashes);
        }
    }
    free(first);
    free(f);
}

/* With BATON_TEST_DEVICE=cuda: a GPU, or the emulated driver. Chunks give the bytes of whole
 * prompts. Models that differ in their scheme of RoPE are computed in bf16 here alone: rope-yarn
 * has an id of a margin of 0.0213 that differs, as it does in bf16 on a CPU. */
static void test_on_a_gpu(void **state)
{
    struct fixture *whole = calloc(1, sizeof *whole), *f = calloc(1, sizeof *f);
    assert_true(whole && f);
    whole->model = *state;
    whole->prompt_count = read_golden(model_dir(whole->model), whole->prompts, 4);
    *f = *whole;
    struct engine *engine = streams_open(
        model_dir(f->model), (struct kernels_config){.device = DEVICE_CUDA, .threads = 1}, 512);
    assert_non_null(engine);
    run_side_by_side(engine, whole, WHOLE, true);
    check_bf16(whole, engine_numerics_name(engine), 6, 0.025);
    run_side_by_side(engine, f, 64, true);
    for (uint32_t i = 0; i < f->prompt_count; i++)
        assert_memory_equal(f->streams[i].hashes, whole->streams[i].hashes,
                            sizeof f->streams[i].hashes);
    engine_close(engine);
    free(whole);
    free(f);
}

/* An argument chooses tests by name, with wildcards. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    /* One of each family first: quantized, too. Schemes of RoPE last: exact arithmetic shows their
     * table. */
    static const char *const models[] = {"llama-wide",    "qwen2",
                                         "qwen3",         "mistral-window",
                                         "llama",         "llama-mha",
                                         "llama3-rope",   "mistral-headdim",
                                         "rope-linear",   "rope-dynamic",
                                         "rope-yarn",     "rope-yarn-mscale",
                                         "rope-longrope", "rope-longrope-short"};
    enum { MODELS = sizeof models / sizeof *models, QUANTIZED_MODELS = 4, WHOLE_MODELS = 8 };
    struct CMUnitTest tests[3 * MODELS + 1];
    char names[3 * MODELS][64];
    size_t count = 0;
    for (int m = 0; m < MODELS; m++) {
        static const struct {
            const char *name;
            CMUnitTestFunction test;
        } kinds[] = {{"f32, free running", test_f32_free_running},
                     {"fast, on the reference's ids", test_fast_on_the_references_ids},
                     {"quantized weights", test_quantized_weights}};
        bool gpu = test_device() == DEVICE_CUDA;
        for (int k = 0; k < (gpu || m >= WHOLE_MODELS ? 1 : m < QUANTIZED_MODELS ? 3 : 2); k++) {
            char *name = names[count];
            snprintf(name, sizeof names[0], "%s: %s", gpu ? "on a GPU" : kinds[k].name, models[m]);
            tests[count++] = (struct CMUnitTest){name, gpu ? test_on_a_gpu : kinds[k].test, NULL,
                                                 NULL, (void *)(uintptr_t)models[m]};
        }
    }
    if (test_device() == DEVICE_CUDA)
        return _cmocka_run_group_tests("models", tests, count, NULL, NULL);
    tests[count++] =
        (struct CMUnitTest){"f32, on a device: llama", test_f32_on_a_device, NULL, NULL, "llama"};
    return _cmocka_run_group_tests("models", tests, count, NULL, NULL);
}
