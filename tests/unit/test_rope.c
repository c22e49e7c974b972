/* model/rope: against libm, bits that must never change, scalings by their formulas, and rows in
 * parts. */
#include "common/base/fixed_math.h"
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/engine/model/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define POSITIONS 4096
#define HEAD_DIM  64

static float table[POSITIONS * HEAD_DIM];

static struct model_shape shape_of(double theta)
{
    return (struct model_shape){
        .head_dim = HEAD_DIM, .rope_theta = theta, .rope_scaling = {.factor = 1}};
}

static void test_sine_and_cosine_against_libm(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(3);
    double sine, cosine;
    for (int i = 0; i < 200000; i++) {
        double x = rng_unit(&rng) * (i % 3 == 0 ? 4 : i % 3 == 1 ? 1 << 20 : 1 << 24);
        double most = x < 1 << 20 ? 2e-16 : 2e-9;
        sine_cosine(x, &sine, &cosine);
        assert_true(fabs(sine - sin(x)) <= most);
        assert_true(fabs(cosine - cos(x)) <= most);
    }
    sine_cosine(0, &sine, &cosine);
    assert_true(sine == 0 && cosine == 1);
}

/* Around each multiple of pi/2 one of the two changes its sign. */
static void test_near_multiples_of_half_pi(void **state)
{
    (void)state;
    for (int n = 1; n < 100000; n++)
        for (int side = -1; side <= 1; side++) {
            double x = (double)(float)(n * M_PI_2) * (1 + side * 1e-7), sine, cosine;
            sine_cosine(x, &sine, &cosine);
            assert_true((float)sine == (float)sin(x) || fabs(sine - sin(x)) <= 2e-16);
            assert_true((float)cosine == (float)cos(x) || fabs(cosine - cos(x)) <= 2e-16);
        }
}

static void test_rows_against_libm(void **state)
{
    (void)state;
    const struct model_shape shape = shape_of(10000);
    rope_rows(&shape, POSITIONS, 0, POSITIONS, table);
    for (uint32_t position = 0; position < POSITIONS; position++)
        for (uint32_t i = 0; i < HEAD_DIM / 2; i++) {
            float exponent = (float)(2 * i) / HEAD_DIM;
            float angle = (float)position * (1.0f / (float)pow(10000, (double)exponent));
            assert_true(table[position * HEAD_DIM + i] == (float)cos((double)angle));
            assert_true(table[position * HEAD_DIM + HEAD_DIM / 2 + i] == (float)sin((double)angle));
        }
}

static void test_parts_make_the_whole(void **state)
{
    (void)state;
    static float parts[POSITIONS * HEAD_DIM];
    const struct model_shape shape = shape_of(500000);
    rope_rows(&shape, POSITIONS, 0, POSITIONS, table);
    rope_rows(&shape, POSITIONS, 0, 7, parts);
    rope_rows(&shape, POSITIONS, 7, 1000, parts);
    rope_rows(&shape, POSITIONS, 1000, POSITIONS, parts);
    assert_memory_equal(parts, table, sizeof table);
}

/* Wavelengths beyond the original context over low_freq_factor are stretched by the factor, those
 * below it over high_freq_factor kept. */
static void test_llama3_scaling(void **state)
{
    (void)state;
    struct model_shape shape = shape_of(500000);
    shape.rope_scaling = (struct rope_scaling){.type = ROPE_LLAMA3,
                                               .factor = 8,
                                               .low_freq_factor = 1,
                                               .high_freq_factor = 4,
                                               .original_context = 8192};
    rope_rows(&shape, POSITIONS, 1, 2, table);
    const float *row = table + HEAD_DIM;
    assert_true(row[0] == (float)cos(1));
    double last = 1 / pow(500000, (double)(HEAD_DIM - 2) / HEAD_DIM) / 8;
    assert_true(fabs((double)row[HEAD_DIM - 1] - sin(last)) < 1e-12);
}

/* Returns the largest difference of the row at position 1 from cosines and sines of the
 * frequencies, times `attention`. */
static double row_error(const struct model_shape *shape, uint32_t context,
                        const double *frequencies, double attention)
{
    double worst = 0;
    rope_rows(shape, context, 1, 2, table);
    for (uint32_t i = 0; i < HEAD_DIM / 2; i++) {
        const float *row = table + HEAD_DIM;
        worst = fmax(worst, fabs((double)row[i] - attention * cos(frequencies[i])));
        worst = fmax(worst, fabs((double)row[HEAD_DIM / 2 + i] - attention * sin(frequencies[i])));
    }
    return worst;
}

static double frequency(double theta, uint32_t i)
{
    return pow(theta, -2.0 * i / HEAD_DIM);
}

static void test_linear_and_dynamic_scaling(void **state)
{
    (void)state;
    double frequencies[HEAD_DIM / 2];
    struct model_shape shape = shape_of(10000);
    shape.rope_scaling = (struct rope_scaling){.type = ROPE_LINEAR, .factor = 4};
    for (uint32_t i = 0; i < HEAD_DIM / 2; i++)
        frequencies[i] = frequency(10000, i) / 4;
    assert_true(row_error(&shape, POSITIONS, frequencies, 1) < 1e-6);
    /* A row is a function of its position, whatever context is served. */
    shape.rope_scaling =
        (struct rope_scaling){.type = ROPE_DYNAMIC, .factor = 4, .original_context = POSITIONS};
    for (uint32_t i = 0; i < HEAD_DIM / 2; i++)
        frequencies[i] = frequency(10000, i);
    assert_true(row_error(&shape, POSITIONS, frequencies, 1) < 1e-6);
    assert_true(row_error(&shape, 64, frequencies, 1) < 1e-6);
}

/* YaRN by the text of its paper: dimensions that turn `beta_fast` times and more are kept, those
 * that turn `beta_slow` times and less divided. */
static void test_yarn_scaling(void **state)
{
    (void)state;
    double frequencies[HEAD_DIM / 2];
    struct model_shape shape = shape_of(10000);
    shape.rope_scaling = (struct rope_scaling){.type = ROPE_YARN,
                                               .factor = 8,
                                               .beta_fast = 32,
                                               .beta_slow = 1,
                                               .attention = 1.2,
                                               .original_context = 512};
    double low = HEAD_DIM * log(512 / (32 * 2 * M_PI)) / (2 * log(10000));
    double high = HEAD_DIM * log(512 / (2 * M_PI)) / (2 * log(10000));
    for (int truncate = 0; truncate < 2; truncate++) {
        shape.rope_scaling.truncate = truncate;
        double from = truncate ? floor(low) : low, to = truncate ? ceil(high) : high;
        uint32_t kept = 0, divided = 0;
        for (uint32_t i = 0; i < HEAD_DIM / 2; i++) {
            double ramp = fmin(fmax((i - from) / (to - from), 0), 1);
            kept += ramp == 0;
            divided += ramp == 1;
            frequencies[i] = frequency(10000, i) * (1 - ramp) + frequency(10000, i) / 8 * ramp;
        }
        assert_true(kept > 2 && divided > 2 && kept + divided < HEAD_DIM / 2);
        assert_true(row_error(&shape, POSITIONS, frequencies, 1.2) < 1e-6);
    }
}

/* The context that is served decides for all rows: workers of one cluster agree, and a row never
 * changes. */
static void test_longrope_scaling(void **state)
{
    (void)state;
    double shorter[HEAD_DIM / 2], longer[HEAD_DIM / 2];
    struct model_shape shape = shape_of(10000);
    struct rope_scaling *scaling = &shape.rope_scaling;
    *scaling = (struct rope_scaling){
        .type = ROPE_LONGROPE, .factor = 8, .attention = 1.1, .original_context = 512};
    for (uint32_t i = 0; i < HEAD_DIM / 2; i++) {
        scaling->short_factors[i] = 1 + (float)i / 64;
        scaling->long_factors[i] = 1 + (float)i;
        shorter[i] = frequency(10000, i) / (double)scaling->short_factors[i];
        longer[i] = frequency(10000, i) / (double)scaling->long_factors[i];
    }
    assert_true(row_error(&shape, 512, shorter, 1.1) < 1e-6);
    assert_true(row_error(&shape, 513, longer, 1.1) < 1e-6);
    assert_true(row_error(&shape, 512, longer, 1.1) > 0.01);
    assert_false(rope_is_long(&shape, 512));
    assert_true(rope_is_long(&shape, 513));
}

/* The rotations of the keys in every cache: a change of these bits is a change of numerics. */
static void test_these_bits_never_change(void **state)
{
    (void)state;
    const struct model_shape shape = shape_of(10000);
    rope_rows(&shape, POSITIONS, 0, POSITIONS, table);
    assert_int_equal(hash_bytes(table, sizeof table, HASH_SEED), UINT64_C(0xc8821f92a52fdcd3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sine_and_cosine_against_libm),
        cmocka_unit_test(test_near_multiples_of_half_pi),
        cmocka_unit_test(test_rows_against_libm),
        cmocka_unit_test(test_parts_make_the_whole),
        cmocka_unit_test(test_llama3_scaling),
        cmocka_unit_test(test_linear_and_dynamic_scaling),
        cmocka_unit_test(test_yarn_scaling),
        cmocka_unit_test(test_longrope_scaling),
        cmocka_unit_test(test_these_bits_never_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
