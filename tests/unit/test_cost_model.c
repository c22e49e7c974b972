/* cost_model: the predicted cost of steps and swaps, and the effect of one measurement. */
#include "common/base/domain/cost_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void test_rows_cost_by_position(void **state)
{
    (void)state;
    struct cost_model model = cost_model_default();
    model.prefill_row_us = 10;
    model.prefill_position_us = 2;
    assert_true(near(cost_model_prefill_us(&model, 0, 1), 10));
    assert_true(near(cost_model_prefill_us(&model, 3, 1), 16));
    double one_by_one = 0;
    for (uint32_t position = 5; position < 12; position++)
        one_by_one += cost_model_prefill_us(&model, position, 1);
    assert_true(near(cost_model_prefill_us(&model, 5, 7), one_by_one));
    assert_true(cost_model_prefill_us(&model, 5, 0) == 0);
    assert_true(cost_model_decode_us(&model, 0) == 0);
}

static void test_rows_that_fit_a_time(void **state)
{
    (void)state;
    static const double slopes[] = {0, 0.1, 30};
    struct cost_model model = cost_model_default();
    model.prefill_row_us = 10;
    for (size_t i = 0; i < sizeof slopes / sizeof *slopes; i++)
        for (uint32_t first = 0; first < 5000; first = 3 * first + 1) {
            model.prefill_position_us = slopes[i];
            for (double us = 5; us < 1e6; us *= 7) {
                uint32_t rows = cost_model_prefill_rows(&model, first, us);
                assert_true(cost_model_prefill_us(&model, first, rows) <= us * (1 + 1e-9));
                assert_true(cost_model_prefill_us(&model, first, rows + 1) > us * (1 - 1e-9));
            }
        }
    assert_int_equal(cost_model_prefill_rows(&model, 7, 0), 0);
    model.prefill_position_us = 0;
    assert_int_equal(cost_model_prefill_rows(&model, 0, 80), 8);
    assert_int_equal(cost_model_prefill_rows(&model, 0, 1e18), UINT32_MAX);
}

/* 1.1B parameters. */
static const struct model_shape shape = {.layers = 22,
                                         .hidden = 2048,
                                         .ffn = 5632,
                                         .heads = 32,
                                         .kv_heads = 4,
                                         .head_dim = 64,
                                         .vocab = 32000};

/* Some 40 ms a row on one core, and 0.2 s to read them all. */
static void test_an_estimate_by_shape(void **state)
{
    (void)state;
    struct cost_model one = cost_model_estimate(&shape, 720896, 1),
                      four = cost_model_estimate(&shape, 720896, 4);
    assert_true(one.prefill_row_us > 30000 && one.prefill_row_us < 50000);
    assert_true(near(one.prefill_row_us, 4 * four.prefill_row_us));
    assert_true(near(one.prefill_position_us, 4.0 * 2048 * 22 / 50000));
    assert_true(one.step_us == four.step_us && one.step_us > 100000 && one.step_us < 300000);
    assert_true(cost_model_prefers_swap(&one, 1, 32));
    assert_true(one.prefill_scale == 1 && one.swap_scale == 1);
}

/* Rows that fill a step, of the same 1.1B: more where arithmetic is faster, or weights have more
 * bytes. */
static void test_saturation_by_what_was_measured(void **state)
{
    (void)state;
    double weights = 22 * 2048.0 * (2 * 2048 + 2 * 256 + 3 * 5632);
    static const struct {
        double bytes_of_weight, read_gbs, peak_gflops;
        uint32_t rows;
    } cases[] = {
        {2, 15, 150, 100}, {2, 15, 300, 200}, {2, 30, 150, 50},
        {1, 15, 600, 200}, {2, 3, 200, 667},  {2, 1e-9, 1e9, UINT32_MAX},
        {2, 15, 0, 0},     {2, 0, 150, 0},    {2, 15, (double)NAN, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(cost_model_saturation_rows(&shape,
                                                    (uint64_t)(cases[i].bytes_of_weight * weights),
                                                    cases[i].read_gbs, cases[i].peak_gflops),
                         cases[i].rows);
}

/* 8B parameters in bf16, and an H200: a copy's rate, and the peak of its linear layers. */
static const struct model_shape large_shape = {.layers = 32,
                                               .hidden = 4096,
                                               .ffn = 14336,
                                               .heads = 32,
                                               .kv_heads = 8,
                                               .head_dim = 128,
                                               .vocab = 128256};
static const struct cost_rates h200 = {.read_gbs = 4209,
                                       .peak_gflops = 700000,
                                       .weight_bytes = 15009841152,
                                       .block_bytes = 32 * 131072,
                                       .block_tokens = 32};

/* Steps as they were measured there (ms, contexts of 1024): of 2048 and 8192 prompt rows, and of 1,
 * 16 and 64 answers. Cores would be thousands of times slower, beyond all corrections. */
static void test_costs_of_a_device_by_its_rates(void **state)
{
    (void)state;
    struct cost_model device = cost_model_of_rates(&large_shape, &h200);
    static const struct {
        uint32_t prompt_rows, answers;
        double ms;
    } steps[] = {{2048, 0, 44.3}, {8192, 0, 229}, {0, 1, 4.54}, {0, 16, 5.41}, {0, 64, 7.34}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        double us = device.step_us + cost_model_prefill_us(&device, 0, steps[i].prompt_rows) +
                    cost_model_decode_us(&device, steps[i].answers);
        assert_true(us > 700 * steps[i].ms && us < 1200 * steps[i].ms);
    }
    assert_true(device.block_bytes == h200.block_bytes && device.prefill_scale == 1);
    /* So many rows fit 20 ms beside answers, from the first step on. */
    uint32_t rows = cost_model_prefill_rows(&device, 0, 20000);
    assert_in_range(rows, 700, 1000);
    struct cost_model cores = cost_model_estimate(&large_shape, h200.block_bytes, 1);
    for (int i = 0; i < 1000; i++)
        cost_model_learn_step(&cores, cost_model_prefill_us(&cores, 0, 512), 0, 11000);
    assert_true(cost_model_prefill_rows(&cores, 0, 20000) < 16);
    struct cost_rates unknown = h200; /* as without a measurement */
    unknown.read_gbs = 0;
    assert_true(near(cost_model_of_rates(&large_shape, &unknown).prefill_row_us,
                     cost_model_estimate(&large_shape, 1, 1).prefill_row_us));
}

/* Rows of a step by default: a GPU's are 512 to 2048 in 256s, a CPU's 128 to 512 in blocks. */
static void test_rows_of_a_chunk(void **state)
{
    (void)state;
    static const struct {
        double read_gbs, peak_gflops;
        uint32_t rows;
    } gpus[] = {{4209, 700000, 1792}, {3000, 650000, 2048}, {900, 20000, 512}, {0, 1, 512}};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        uint32_t fill = cost_model_saturation_rows(&large_shape, h200.weight_bytes,
                                                   gpus[i].read_gbs, gpus[i].peak_gflops);
        assert_int_equal(cost_model_chunk_rows(fill, 256, 512, 2048, 512), gpus[i].rows);
    }
    static const uint32_t cpus[][2] = {{1, 128},   {128, 128}, {129, 160},        {480, 480},
                                       {481, 512}, {513, 512}, {UINT32_MAX, 512}, {0, 512}};
    for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++)
        assert_int_equal(cost_model_chunk_rows(cpus[i][0], 32, 128, 512, 512), cpus[i][1]);
    /* A GPU with memory for fewer rows. */
    static const uint32_t fits[][2] = {{512, 512}, {518, 512}, {896, 768}, {1280, 1280}};
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++)
        assert_int_equal(cost_model_chunk_rows(1700, 256, 512, fits[i][0], 512), fits[i][1]);
}

static void test_swap_or_recompute(void **state)
{
    (void)state;
    struct cost_model model = cost_model_default();
    model.prefill_row_us = 100;
    model.prefill_position_us = 0;
    model.block_bytes = 1000;
    model.swap_bytes_per_us = 1;                          /* a block: 1 ms out, 1 ms in */
    assert_false(cost_model_prefers_swap(&model, 2, 32)); /* 4 ms against 3.2 */
    assert_true(cost_model_prefers_swap(&model, 1, 32));
    model.prefill_scale = 2; /* rows turned out to be dearer */
    assert_true(cost_model_prefers_swap(&model, 2, 32));
}

static void test_measurements_move_the_kind_they_are_of(void **state)
{
    (void)state;
    struct cost_model model = cost_model_default();
    model.step_us = 0;
    for (int i = 0; i < 400; i++)
        cost_model_learn_step(&model, cost_model_prefill_us(&model, 0, 8), 0, 3 * 8 * 1000.0);
    assert_true(fabs(model.prefill_scale - 3) < 0.1);
    assert_true(model.decode_scale == 1 && model.swap_scale == 1);
    for (int i = 0; i < 400; i++)
        cost_model_learn_swap(&model, 2, 0.5 * 2 * (1 << 20) / 10000.0);
    assert_true(fabs(model.swap_scale - 0.5) < 0.02);
}

/* Like tiles: 1.7 ms a row of int8 while the estimate from the shape is 39. */
static void test_a_core_may_be_far_from_the_estimate(void **state)
{
    (void)state;
    struct cost_model model = cost_model_estimate(&shape, 720896, 1);
    model.step_us = 0;
    for (int i = 0; i < 400; i++)
        cost_model_learn_step(&model, cost_model_prefill_us(&model, 0, 512), 0, 512 * 1740.0);
    double learned_us = cost_model_prefill_us(&model, 0, 512) / 512;
    assert_true(learned_us > 1700 && learned_us < 1780);
}

/* Runs steps with four answers and as many rows as fit 0.2 s, 16 at least. Returns the number of
 * steps until they take 0.2 s, give or take a half. `answers` steps without prompts come before
 * each. */
static int steps_to_learn(struct cost_model model, double row_us, double step_us, double decode_us,
                          int answers)
{
    int steps = 0;
    for (double took_us = 0; took_us < 100000 || took_us > 300000; steps++) {
        assert_true(steps < 100);
        double decodes_us = 4 * decode_us + step_us;
        for (int i = 0; i < answers; i++)
            cost_model_learn_step(&model, 0, cost_model_decode_us(&model, 4), decodes_us);
        uint32_t rows = cost_model_prefill_rows(&model, 0, 200000);
        took_us = (rows < 16 ? 16 : rows) * row_us;
        cost_model_learn_step(&model, cost_model_prefill_us(&model, 0, rows < 16 ? 16 : rows),
                              cost_model_decode_us(&model, 4), decodes_us + took_us);
    }
    return steps;
}

static void test_a_guess_far_off_is_corrected_within_few_steps(void **state)
{
    (void)state;
    struct cost_model large = cost_model_estimate(&shape, 720896, 1), small = cost_model_default();
    small.prefill_position_us = 0;
    for (int answers = 0; answers < 5; answers++) {
        assert_in_range(steps_to_learn(large, 1740, 60000, 2000, answers), 1, 25); /* tiles */
        assert_in_range(steps_to_learn(small, 10000, 5000, 5000, answers), 1, 10);
        assert_in_range(steps_to_learn(small, 100, 500, 500, answers), 2, 12);
    }
}

static void test_one_wild_measurement_moves_little(void **state)
{
    (void)state;
    struct cost_model model = cost_model_default();
    cost_model_learn_step(&model, 0, cost_model_decode_us(&model, 4), 1e12);
    assert_true(model.decode_scale > 1 && model.decode_scale < 1.2);
    for (int i = 0; i < 10000; i++)
        cost_model_learn_step(&model, 0, cost_model_decode_us(&model, 4), 1e12);
    assert_true(model.decode_scale == 64);
    for (int i = 0; i < 10000; i++)
        cost_model_learn_step(&model, 0, cost_model_decode_us(&model, 4), 1e-9);
    assert_true(model.decode_scale > 0 && model.decode_scale <= 1);
    double before = model.decode_scale;
    cost_model_learn_step(&model, 0, cost_model_decode_us(&model, 4), 0);
    cost_model_learn_step(&model, 0, 0, (double)NAN);
    assert_true(model.decode_scale == before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_cost_by_position),
        cmocka_unit_test(test_an_estimate_by_shape),
        cmocka_unit_test(test_saturation_by_what_was_measured),
        cmocka_unit_test(test_costs_of_a_device_by_its_rates),
        cmocka_unit_test(test_rows_of_a_chunk),
        cmocka_unit_test(test_swap_or_recompute),
        cmocka_unit_test(test_measurements_move_the_kind_they_are_of),
        cmocka_unit_test(test_a_core_may_be_far_from_the_estimate),
        cmocka_unit_test(test_rows_that_fit_a_time),
        cmocka_unit_test(test_a_guess_far_off_is_corrected_within_few_steps),
        cmocka_unit_test(test_one_wild_measurement_moves_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
