/* The same request gives the same bytes: 64-bit hashes of the fp32 logits of each of 64 tokens (32
 * without BATON_LONG), drawn at temperature 1, are equal whatever ran beside it, however its prompt
 * was cut and however many threads computed. Runs on llama-wide (several segments of every kind),
 * the shipped model, prompts much longer than a sliding window, and models with biases and with
 * norms of heads. Covers fp32 and both bf16 paths, quantized weights, quantized keys and values. */
#include "common/base/rng.h"
#include "kernels/cpu/isa.h"
#include "tests/golden/golden_streams.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ANSWER (getenv("BATON_LONG") ? STREAM_MAX_ANSWER : STREAM_MAX_ANSWER / 2)

struct path {
    const char *name;
    bool f32;
    enum isa isa;
    enum weight_choice weights;
    enum kv_choice kv;
    /* Only on the model with several segments of every kind, the one with biases, and one with wide
     * heads. */
    bool few;
};

/* PORTABLE stands for the widest of the sets that share its bits (test_golden_models.c holds them
 * against each other). */
static const struct path PATHS[] = {
    {"f32", true, ISA_AUTO, WEIGHTS_AUTO, KV_CHOICE_AUTO, false},
    {"bf16-portable", false, ISA_PORTABLE, WEIGHTS_AUTO, KV_CHOICE_AUTO, false},
    {"bf16-avx512bf16", false, ISA_AVX512BF16, WEIGHTS_AUTO, KV_CHOICE_AUTO, false},
    {"bf16-amx", false, ISA_AMX, WEIGHTS_AUTO, KV_CHOICE_AUTO, false},
    {"bf16-portable, int8", false, ISA_PORTABLE, WEIGHTS_INT8, KV_CHOICE_AUTO, true},
    {"bf16-portable, int4", false, ISA_PORTABLE, WEIGHTS_INT4, KV_CHOICE_AUTO, true},
    {"bf16-amx, int8", false, ISA_AMX, WEIGHTS_INT8, KV_CHOICE_AUTO, true},
    {"bf16-amx, int4", false, ISA_AMX, WEIGHTS_INT4, KV_CHOICE_AUTO, true},
    {"bf16-portable, KV int8", false, ISA_PORTABLE, WEIGHTS_AUTO, KV_CHOICE_INT8, true},
};
enum { PATHS_COUNT = sizeof PATHS / sizeof *PATHS };

struct model {
    const char *dir;
    uint32_t longest_prompt; /* the first stream's; several attention segments */
};

static const struct model WIDE = {"tests/golden/models/llama-wide", 600};
static const struct model SHIPPED = {"deploy/local/tiny-shakespeare", 300};
static const struct model WINDOW = {"tests/golden/models/mistral-window", 530};
static const struct model QWEN2 = {"tests/golden/models/qwen2", 270};
static const struct model QWEN3 = {"tests/golden/models/qwen3", 270};

/* Request `number`: a prompt and a seed that are functions of the number alone. */
static void make_request(struct stream *s, const struct model *model, uint32_t number,
                         uint32_t vocab)
{
    struct rng rng = rng_seeded(1000 + number);
    memset(s, 0, sizeof *s);
    s->prompt_count =
        number == 0 ? model->longest_prompt : 1 + (uint32_t)rng_below(&rng, 40 + 20 * (number % 4));
    for (uint32_t i = 0; i < s->prompt_count; i++)
        s->tokens[i] = (uint32_t)rng_below(&rng, vocab);
    s->answer_limit = ANSWER;
    s->sampling = sampling_default();
    s->sampling.seed = rng_next(&rng);
    s->sampling.ignore_eos = true;
}

static struct engine *open_path(const struct model *model, const struct path *path,
                                uint32_t threads)
{
    enum isa isa = path->isa;
    if (isa == ISA_PORTABLE && isa_reports_avx2())
        isa = isa_reports_avx512() ? ISA_AVX512 : ISA_AVX2;
    return streams_open_with(
        model->dir, path->weights, path->kv,
        (struct kernels_config){.f32 = path->f32, .isa = isa, .threads = threads}, 512);
}

static void expect_equal(const struct stream *s, const struct stream *expected, const char *path,
                         const char *way, uint32_t request)
{
    for (uint32_t i = 0; i < s->answer_limit; i++)
        if (s->hashes[i] != expected->hashes[i] || s->drawn[i] != expected->drawn[i])
            fail_msg(
                "%s, request %u, %s: token %u is %u (logits %016llx), alone it was %u (%016llx)",
                path, request, way, i, s->drawn[i], (unsigned long long)s->hashes[i],
                expected->drawn[i], (unsigned long long)expected->hashes[i]);
}

/* Requests 0 .. count, each alone, or all side by side. */
static void run_and_compare(struct engine *engine, const struct model *model,
                            const struct path *path, uint32_t count, uint32_t chunk,
                            bool side_by_side, const struct stream *expected, const char *way)
{
    uint32_t vocab = engine_shape(engine)->vocab;
    struct stream *streams = calloc(count, sizeof *streams);
    assert_non_null(streams);
    for (uint32_t i = 0; i < count; i++)
        make_request(&streams[i], model, i, vocab);
    if (side_by_side)
        streams_run(engine, streams, count, chunk);
    for (uint32_t i = 0; !side_by_side && i < count; i++)
        streams_run(engine, &streams[i], 1, chunk);
    for (uint32_t i = 0; i < count; i++)
        expect_equal(&streams[i], &expected[i], path->name, way, i);
    free(streams);
}

static void check_path(const struct model *model, const struct path *path)
{
    struct engine *one = open_path(model, path, 1);
    if (!one) {
        assert_true(path->isa == ISA_AVX512BF16 || path->isa == ISA_AMX);
        print_message("%s: this CPU can't run %s\n", model->dir, path->name);
        return;
    }
    /* The expected answers: each request alone, its prompt whole, one thread. */
    struct stream *expected = calloc(STREAM_MAX_STREAMS, sizeof *expected);
    assert_non_null(expected);
    for (uint32_t i = 0; i < STREAM_MAX_STREAMS; i++) {
        make_request(&expected[i], model, i, engine_shape(one)->vocab);
        streams_run(one, &expected[i], 1, STREAM_MAX_ROWS);
    }
    for (uint32_t i = 1; i < STREAM_MAX_STREAMS;
         i++) /* equal hashes of different requests would prove nothing */
        assert_int_not_equal(expected[i].hashes[0], expected[0].hashes[0]);

    run_and_compare(one, model, path, 1, 512, false, expected, "alone, chunks of 512");
    run_and_compare(one, model, path, 2, 64, false, expected, "alone, chunks of 64");
    run_and_compare(one, model, path, 2, 16, false, expected, "alone, chunks of 16");
    run_and_compare(one, model, path, STREAM_MAX_STREAMS, 64, true, expected,
                    "16 at once, chunks of 64");
    engine_close(one);

    struct engine *two = open_path(model, path, 2);
    assert_non_null(two);
    run_and_compare(two, model, path, 1, 512, false, expected, "alone, 2 threads");
    run_and_compare(two, model, path, STREAM_MAX_STREAMS, 16, true, expected,
                    "16 at once, chunks of 16, 2 threads");
    engine_close(two);
    free(expected);
}

/* Eight answers side by side give on a device the bytes of the backend that it wraps. */
static void test_on_a_device(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    static const struct path paths[] = {
        {"f32", true, ISA_AUTO, WEIGHTS_AUTO, KV_CHOICE_AUTO, false},
        {"bf16-portable, int8, KV int8", false, ISA_PORTABLE, WEIGHTS_INT8, KV_CHOICE_INT8, false},
    };
    struct stream *streams = calloc(2 * COUNT, sizeof *streams), *expected = streams + COUNT;
    assert_non_null(streams);
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++)
        for (enum device device = DEVICE_CPU; device <= DEVICE_DEFERRED_LATE; device++) {
            struct engine *engine = streams_open_with(
                QWEN3.dir, paths[p].weights, paths[p].kv,
                (struct kernels_config){
                    .device = device, .f32 = paths[p].f32, .isa = paths[p].isa, .threads = 2},
                512);
            assert_non_null(engine);
            struct stream *run = device == DEVICE_CPU ? expected : streams;
            for (uint32_t i = 0; i < COUNT; i++)
                make_request(&run[i], &QWEN3, i, engine_shape(engine)->vocab);
            streams_run(engine, run, COUNT, 64);
            for (uint32_t i = 0; i < COUNT; i++)
                expect_equal(&run[i], &expected[i], paths[p].name, device_names[device], i);
            engine_close(engine);
        }
    free(streams);
}

static void test_llama_wide(void **state)
{
    check_path(&WIDE, *state);
}

static void test_shipped_model(void **state)
{
    check_path(&SHIPPED, *state);
}

static void test_window(void **state)
{
    check_path(&WINDOW, *state);
}

static void test_qwen2(void **state)
{
    check_path(&QWEN2, *state);
}

static void test_qwen3(void **state)
{
    check_path(&QWEN3, *state);
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction test;
    } models[] = {{"llama-wide", test_llama_wide},
                  {"qwen2", test_qwen2},
                  {"qwen3", test_qwen3},
                  {"shipped", test_shipped_model},
                  {"window", test_window}};
    enum { MODELS = sizeof models / sizeof *models, FEW = 3 };
    struct CMUnitTest tests[PATHS_COUNT * MODELS + 1];
    char names[PATHS_COUNT * MODELS][64];
    size_t count = 0;
    for (int p = 0; p < PATHS_COUNT; p++)
        for (int m = 0; m < (PATHS[p].few ? FEW : MODELS); m++, count++) {
            snprintf(names[count], sizeof names[0], "%s, %s", PATHS[p].name, models[m].name);
            tests[count] = (struct CMUnitTest){names[count], models[m].test, NULL, NULL,
                                               (void *)(uintptr_t)&PATHS[p]};
        }
    tests[count++] = (struct CMUnitTest){"on a device", test_on_a_device, NULL, NULL, NULL};
    return _cmocka_run_group_tests("byte equality", tests, count, NULL, NULL);
}
