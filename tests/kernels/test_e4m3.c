/* e4m3 and the model of the tensor core that adds it (kernels/cpu/e4m3.h): against definitions in
 * double arithmetic, and sums worked out by hand. */
#include "kernels/cpu/e4m3.h"
#include "tests/kernels/fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A number by its definition: (-1)^s 2^(e - 7) (1 + f / 8), or 2^-6 f / 8 with e = 0. */
static double defined(uint8_t code)
{
    int e = code >> 3 & 15, f = code & 7;
    double size = e ? ldexp(1 + f / 8.0, e - 7) : ldexp(f / 8.0, -6);
    return (code & 0x7f) == 0x7f ? (double)NAN : code & 0x80 ? -size : size;
}

static void test_values(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        double got = (double)e4m3_value((uint8_t)code), want = defined((uint8_t)code);
        assert_true(isnan(want) ? isnan(got) : got == want && signbit(got) == signbit(want));
        struct e4m3_terms terms;
        uint8_t one = (uint8_t)code;
        e4m3_read(&one, 1, &terms);
        assert_true(isnan(want) ? isnan(terms.value[0]) : (double)terms.value[0] == want);
        if (!isnan(want))
            assert_int_equal(e4m3_round((float)want), code);
    }
}

/* Each midpoint of two neighbours goes to the even one, and what is beside it to the nearer. */
static void test_rounding(void **state)
{
    (void)state;
    for (int code = 0; code < 0x7e; code++) {
        float middle = (float)((defined((uint8_t)code) + defined((uint8_t)(code + 1))) / 2);
        assert_int_equal(e4m3_round(middle), code + (code & 1));
        assert_int_equal(e4m3_round(nextafterf(middle, 0)), code);
        assert_int_equal(e4m3_round(nextafterf(middle, INFINITY)), code + 1);
        assert_int_equal(e4m3_round(-nextafterf(middle, INFINITY)), 0x80 | (code + 1));
    }
    static const struct {
        float value;
        uint8_t code;
    } ends[] = {{448.5f, 0x7e}, {1e30f, 0x7e}, {INFINITY, 0x7e}, {-1e30f, 0xfe},
                {NAN, 0x7f},    {1e-30f, 0},   {-0.0f, 0x80}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        assert_int_equal(e4m3_round(ends[i].value), ends[i].code);
}

/* A step in double arithmetic, term by term. */
static float step_in_double(float sum, const uint8_t *a, const uint8_t *b)
{
    int most = -1000, own;
    (void)frexp((double)sum, &own);
    if (sum != 0)
        most = own - 1;
    for (int i = 0; i < E4M3_STEP; i++) {
        int ea = a[i] >> 3 & 15, eb = b[i] >> 3 & 15;
        int exponent = (ea ? ea - 7 : -6) + (eb ? eb - 7 : -6);
        if (defined(a[i]) != 0 && defined(b[i]) != 0 && exponent > most)
            most = exponent;
    }
    if (most == -1000)
        return 0;
    double total = trunc(ldexp((double)sum, 13 - most));
    for (int i = 0; i < E4M3_STEP; i++)
        total += trunc(ldexp(defined(a[i]) * defined(b[i]), 13 - most));
    double value = ldexp(total, most - 13);
    (void)frexp(value, &own);
    return value == 0 ? 0 : (float)ldexp(trunc(ldexp(value, 14 - own)), own - 14);
}

static float step(float sum, const uint8_t *a, const uint8_t *b)
{
    struct e4m3_terms x, y;
    e4m3_read(a, E4M3_STEP, &x);
    e4m3_read(b, E4M3_STEP, &y);
    return e4m3_step(sum, &x, &y);
}

/* Random numbers of all sizes, with zeros among them. The hash keeps the bits as they are. */
static void test_steps(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(31);
    uint64_t hash = 0;
    for (int chain = 0; chain < 500; chain++) {
        float sum = 0;
        for (int i = 0; i < 8; i++) {
            uint8_t a[E4M3_STEP], b[E4M3_STEP];
            uint32_t mask = chain % 3 == 0 ? 0xff : chain % 3 == 1 ? 0xbf : 0x8f;
            for (int k = 0; k < E4M3_STEP; k++) {
                a[k] = (uint8_t)(rng_next(&rng) & mask);
                b[k] = (uint8_t)(rng_next(&rng) & 0xff);
                a[k] = (a[k] & 0x7f) == 0x7f ? 0 : a[k];
                b[k] = (b[k] & 0x7f) == 0x7f ? 0x80 : b[k];
            }
            float next = step(sum, a, b);
            assert_true(next == step_in_double(sum, a, b));
            sum = next;
            hash = hash * 31 + e4m3_to_bits(sum);
        }
    }
    if (hash != 0x32c160c3d3825800)
        fail_msg("0x%016llx", (unsigned long long)hash);
}

/* 2^16 and a term of 2^(16 - j): seen down to j = 13, and cut towards zero. */
static void test_cuts(void **state)
{
    (void)state;
    uint8_t a[E4M3_STEP] = {0x78}, b[E4M3_STEP] = {0x78}; /* 256 * 256 */
    for (int j = 1; j < 16; j++) {
        float term = ldexpf(1, 16 - j), whole = 65536.0f;
        a[5] = e4m3_round(ldexpf(1, 8 - j / 2));
        b[5] = e4m3_round(ldexpf(1, 8 - (j - j / 2)));
        assert_true(step(0, a, b) == (j <= 13 ? whole + term : whole));
        a[5] ^= 0x80;
        assert_true(step(0, a, b) == (j <= 13 ? whole - term : whole));
    }
    /* A NaN, even times zero, is one; zeros leave a sum as it is. */
    a[5] = 0x7f;
    b[5] = 0;
    assert_true(isnan(step(0, a, b)));
    memset(a, 0x80, sizeof a);
    assert_true(step(65544.0f, a, b) == 65544.0f);
}

/* Weights by rows and by blocks, and back: the largest is exact, others are within half a step. A
 * group of tiny numbers has scale 0, and what isn't finite is refused. */
static void test_weights(void **state)
{
    (void)state;
    enum { ROWS = 3, K = 300 };
    static const enum weight_type types[] = {WEIGHT_FP8, WEIGHT_FP8_BLOCK};
    struct rng rng = rng_seeded(5);
    float *rows = fixture_floats(&rng, (size_t)ROWS * K, 3.0f), back[ROWS * K];
    for (int i = 0; i < 128; i++)
        rows[2 * K + i] = 0x1p-101f;
    for (int t = 0; t < 2; t++) {
        uint8_t numbers[ROWS * K];
        float scales[ROWS * 3] = {0};
        uint32_t bad = ROWS, row_scales = weight_row_scales(types[t], K);
        assert_int_equal(row_scales, t ? 3 : 1);
        assert_int_equal(weight_quantize(types[t], rows, ROWS, K, numbers, scales, &bad),
                         STATUS_OK);
        weight_widen(types[t], numbers, scales, ROWS, K, back);
        for (size_t i = 0; i < ROWS * K; i++) {
            float scale = scales[i / K * row_scales + (t ? i % K / WEIGHT_GROUP : 0)];
            float error = fabsf(back[i] - rows[i]);
            assert_true(error <= fabsf(rows[i]) / 16 * 1.0001f || error <= scale * 0x1p-10f ||
                        scale == 0);
        }
        assert_true((scales[2 * row_scales] == 0) == (t == 1));
        float kept = rows[K + 7];
        rows[K + 7] = INFINITY;
        assert_int_equal(weight_quantize(types[t], rows, ROWS, K, numbers, scales, &bad),
                         STATUS_INVALID);
        assert_int_equal(bad, 1);
        rows[K + 7] = kept;
    }
    free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),  cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_steps),   cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
