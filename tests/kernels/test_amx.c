/* Linear layers by AMX: the documented arithmetic of tdpbf16ps bit for bit, for any number of rows.
 * Skipped on a CPU without AMX. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "tests/kernels/fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP 32 /* k of one instruction */

static const struct variant amx = {.name = "amx", .isa = ISA_AMX};

static int need_amx(void **state)
{
    (void)state;
    if (!isa_allows_amx())
        print_message("this CPU has no AMX, which test_open.c sees refused\n");
    return 0;
}

/* Subnormal numbers are zeros, on the way in and out. */
static float flushed(float value)
{
    return fabsf(value) < 0x1p-126f ? copysignf(0, value) : value;
}

/* One instruction, one output: even and odd numbers apart from zero, then both, then the sum. */
static float dot(const float *row, const float *weights, size_t count, float sum)
{
    float part[2] = {0, 0};
    for (size_t i = 0; i < STEP; i++) {
        float a = i < count ? flushed(row[i]) : 0, b = i < count ? flushed(weights[i]) : 0;
        part[i % 2] = flushed(fmaf(a, b, part[i % 2]));
    }
    return flushed(sum + flushed(part[0] + part[1]));
}

/* The same with segments of K, which are added one by one: alone, and to `before`. */
static void in_documented_arithmetic(const float *row, const float *weights, size_t k, float before,
                                     float *alone, float *accumulated)
{
    *accumulated = before;
    for (size_t begin = 0; begin < k; begin += LINEAR_SEGMENT) {
        size_t end = begin + LINEAR_SEGMENT < k ? begin + LINEAR_SEGMENT : k;
        float sum = 0;
        for (size_t i = begin; i < end; i += STEP)
            sum = dot(row + i, weights + i, end - i, sum);
        *alone = begin > 0 ? *alone + sum : sum;
        *accumulated += sum;
    }
}

struct numbers {
    uint32_t rows, n, k;
    uint16_t *weights;
    float *in;
    float *before;  /* [rows][n]: outputs before accumulation */
    float *want[2]; /* [rows][n]: alone, and accumulated */
};

static float *widened(const uint16_t *bf16, size_t count)
{
    float *wide = malloc(count * sizeof *wide);
    assert_non_null(wide);
    for (size_t i = 0; i < count; i++)
        wide[i] = naive_widen(bf16[i]);
    return wide;
}

/* If `tiny`, numbers of all sizes: some factors and some products are subnormal. */
static struct numbers make_numbers(uint32_t rows, uint32_t n, uint32_t k, bool tiny)
{
    static const float sizes[] = {1, 0x1p-60f, 0x1p-64f, 0x1p-66f, 0x1p-126f, 0x1p-128f};
    struct rng rng = rng_seeded(rows + n + k);
    struct numbers numbers = {.rows = rows,
                              .n = n,
                              .k = k,
                              .weights = fixture_bf16(&rng, (size_t)n * k, 0.5f),
                              .in = fixture_floats(&rng, (size_t)rows * k, 2),
                              .before = fixture_floats(&rng, (size_t)rows * n, 3)};
    for (size_t i = 0; tiny && i < (size_t)rows * k; i++)
        numbers.in[i] *= sizes[i % k % 7 ? 2 + rng_below(&rng, 4) : 1];
    for (size_t i = 0; tiny && i < (size_t)n * k; i++)
        numbers.weights[i] =
            naive_round(naive_widen(numbers.weights[i]) * sizes[1 + rng_below(&rng, 5)]);
    for (size_t i = 0; tiny && i < (size_t)rows * n; i++)
        numbers.before[i] *= 0x1p-126f;
    float *wide = widened(numbers.weights, (size_t)n * k);
    float *row = malloc(k * sizeof *row);
    for (int i = 0; i < 2; i++)
        numbers.want[i] = malloc((size_t)rows * n * sizeof *numbers.want[i]);
    assert_true(row && numbers.want[0] && numbers.want[1]);
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < k; i++)
            row[i] = naive_widen(naive_round(numbers.in[r * k + i]));
        for (size_t i = r * n; i < (r + 1) * n; i++)
            in_documented_arithmetic(row, wide + (i - r * n) * k, k, numbers.before[i],
                                     &numbers.want[0][i], &numbers.want[1][i]);
    }
    free(wide);
    free(row);
    return numbers;
}

static void free_numbers(struct numbers *numbers)
{
    free(numbers->weights);
    free(numbers->in);
    free(numbers->before);
    free(numbers->want[0]);
    free(numbers->want[1]);
}

static void check(struct kernels *kernels, const struct numbers *numbers, uint32_t rows,
                  bool accumulate)
{
    struct linear linear = fixture_linear(kernels, numbers->weights, numbers->n, numbers->k);
    struct buffer in =
        fixture_buffer(kernels, numbers->in, (size_t)rows * numbers->k * sizeof(float));
    struct buffer out = fixture_buffer(kernels, accumulate ? numbers->before : NULL,
                                       (size_t)rows * numbers->n * sizeof(float));
    assert_int_equal(kernels_linear(kernels, &linear, &in, rows, accumulate, &out), STATUS_OK);
    fixture_assert_no_tiles();
    float *got = fixture_download(kernels, &out);
    char what[64];
    snprintf(what, sizeof what, "%u rows, [%u, %u]", rows, numbers->n, numbers->k);
    fixture_assert_same_bits(got, numbers->want[accumulate], (size_t)rows * numbers->n, what);
    free(got);
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
    kernels_linear_destroy(kernels, &linear);
}

static void check_every_size(bool tiny)
{
    static const uint32_t counts[] = {1, 3, 15, 16, 17, 31, 32, 33, 47, 49, 100, 270, 512, 530};
    static const struct {
        uint32_t most_rows, n, k;
    } shapes[] = {{49, 1, 1},
                  {530, 33, 31},
                  {33, 32, 32},
                  {530, 3, 1025},
                  {100, 48, 2048},
                  {270, 35, 2051},
                  /* one row: four panels side by side, and the rest */
                  {3, 128, 32},
                  {3, 161, 1056},
                  {1, 320, 2080},
                  {2, 3233, 64}}; /* several of each stream, in shares that begin later */
    if (!isa_allows_amx())
        skip();
    struct kernels *kernels[] = {fixture_open(&amx, 1), fixture_open(&amx, 3)};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct numbers numbers = make_numbers(shapes[s].most_rows, shapes[s].n, shapes[s].k, tiny);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int way = 0; counts[c] <= shapes[s].most_rows && way < 4; way++)
                check(kernels[way / 2], &numbers, counts[c], way % 2);
        free_numbers(&numbers);
    }
    kernels_close(kernels[0]);
    kernels_close(kernels[1]);
}

static void test_products_are_the_documented_ones(void **state)
{
    (void)state;
    check_every_size(false);
}

static void test_subnormal_numbers_are_zeros(void **state)
{
    (void)state;
    check_every_size(true);
}

/* A NaN stays in its row, and numbers beyond K and N aren't read. */
static void test_a_row_of_nan_is_alone(void **state)
{
    (void)state;
    if (!isa_allows_amx())
        skip();
    struct kernels *kernels = fixture_open(&amx, 1);
    for (uint32_t rows = 2; rows <= 40; rows++) {
        struct numbers numbers = make_numbers(rows, 33, 35, false);
        uint32_t bad = rows / 2;
        for (uint32_t i = 0; i < numbers.k; i++)
            numbers.in[(size_t)bad * numbers.k + i] = i % 2 ? NAN : INFINITY;
        struct linear linear = fixture_linear(kernels, numbers.weights, numbers.n, numbers.k);
        struct buffer in =
            fixture_buffer(kernels, numbers.in, (size_t)rows * numbers.k * sizeof(float));
        struct buffer out =
            fixture_buffer(kernels, numbers.before, (size_t)rows * numbers.n * sizeof(float));
        assert_int_equal(kernels_linear(kernels, &linear, &in, rows, true, &out), STATUS_OK);
        float *got = fixture_download(kernels, &out);
        for (uint32_t i = 0; i < numbers.n; i++)
            assert_true(isnan(got[(size_t)bad * numbers.n + i]));
        memcpy(got + (size_t)bad * numbers.n, numbers.want[1] + (size_t)bad * numbers.n,
               numbers.n * sizeof *got);
        fixture_assert_same_bits(got, numbers.want[1], (size_t)rows * numbers.n, "beside NaN");
        free(got);
        kernels_free(kernels, &in);
        kernels_free(kernels, &out);
        kernels_linear_destroy(kernels, &linear);
        free_numbers(&numbers);
    }
    kernels_close(kernels);
}

/* The product of the first `rows` rows alone; the caller frees it. */
static float *product(const struct numbers *numbers, uint32_t rows)
{
    struct kernels *kernels = fixture_open(&amx, 1);
    struct linear linear = fixture_linear(kernels, numbers->weights, numbers->n, numbers->k);
    struct buffer in =
        fixture_buffer(kernels, numbers->in, (size_t)rows * numbers->k * sizeof(float));
    struct buffer out = fixture_buffer(kernels, NULL, (size_t)rows * numbers->n * sizeof(float));
    assert_int_equal(kernels_linear(kernels, &linear, &in, rows, false, &out), STATUS_OK);
    float *got = fixture_download(kernels, &out);
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
    kernels_linear_destroy(kernels, &linear);
    kernels_close(kernels);
    return got;
}

/* One row: its panels are read side by side. */
static void test_a_weight_of_nan_is_alone(void **state)
{
    (void)state;
    if (!isa_allows_amx())
        skip();
    struct numbers numbers = make_numbers(1, 161, 64, false);
    numbers.weights[5 * numbers.k + 3] = 0x7fc0;
    float *got = product(&numbers, 1);
    assert_true(isnan(got[5]));
    got[5] = numbers.want[0][5];
    fixture_assert_same_bits(got, numbers.want[0], numbers.n, "beside NaN");
    free(got);
    free_numbers(&numbers);
}

/* Sums just below the smallest normal number, which would be rounded to it. One row gives the same
 * as two rows, which tiles compute. */
static void test_one_row_is_as_two_beside_the_smallest_normal_number(void **state)
{
    (void)state;
    if (!isa_allows_amx())
        skip();
    struct numbers numbers = make_numbers(2, 128, 32, false);
    memset(numbers.in, 0, (size_t)2 * numbers.k * sizeof *numbers.in);
    memset(numbers.weights, 0, (size_t)numbers.n * numbers.k * sizeof *numbers.weights);
    for (uint32_t row = 0; row < 2; row++) {
        numbers.in[row * numbers.k] = 0x1p-63f;
        numbers.in[row * numbers.k + 2] = -0x1p-75f;
    }
    for (uint32_t n = 0; n < numbers.n; n++) { /* 1 to 2 times 2^-76, by the exponent and 7 bits */
        numbers.weights[n * numbers.k] = (127 - 63) << 7;
        numbers.weights[n * numbers.k + 2] = (uint16_t)((127 - 76) << 7 | n);
    }
    float *one = product(&numbers, 1), *two = product(&numbers, 2);
    fixture_assert_same_bits(one, two, numbers.n, "one row and two");
    free(one);
    free(two);
    free_numbers(&numbers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_are_the_documented_ones),
        cmocka_unit_test(test_subnormal_numbers_are_zeros),
        cmocka_unit_test(test_a_row_of_nan_is_alone),
        cmocka_unit_test(test_a_weight_of_nan_is_alone),
        cmocka_unit_test(test_one_row_is_as_two_beside_the_smallest_normal_number),
    };
    return cmocka_run_group_tests(tests, need_amx, NULL);
}
