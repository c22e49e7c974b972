/* The bf16 backend on its instruction sets: the portable ones agree bit for bit, AVX512-BF16 and
 * AMX nearly. (Which bits: test_frozen_bits.c.) */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp_fixed.h"
#include "kernels/cpu/isa.h"
#include "tests/kernels/attention_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct variant portable = {.name = "portable", .isa = ISA_PORTABLE};
static const struct variant others[] = {{.name = "avx2", .isa = ISA_AVX2},
                                        {.name = "avx512", .isa = ISA_AVX512},
                                        {.name = "avx512bf16", .isa = ISA_AVX512BF16},
                                        {.name = "amx", .isa = ISA_AMX}};

/* One output of every operation that has inner loops. */
struct outputs {
    float *linear, *attention, *attention_int8, *rmsnorm, *swiglu;
    size_t linear_count, attention_count, row_count;
};

static struct outputs compute(struct kernels *kernels)
{
    enum { T = 31, N = 70, K = 2051, HIDDEN = 203 };
    struct attention_case shape = {6, 2, 48, 16, 300, 270, false};
    struct rng rng = rng_seeded(7);
    uint16_t *weights = fixture_bf16(&rng, (size_t)N * K, 0.5f);
    float *values = fixture_floats(&rng, (size_t)T * K, 4);
    struct linear linear = fixture_linear(kernels, weights, N, K);
    struct buffer in = fixture_buffer(kernels, values, (size_t)T * K * sizeof(float));
    struct buffer out = fixture_buffer(kernels, values, (size_t)T * N * sizeof(float));
    struct buffer rows = fixture_buffer(kernels, NULL, (size_t)T * HIDDEN * sizeof(float));
    struct outputs outputs = {.linear_count = (size_t)T * N,
                              .attention_count = (size_t)shape.context * 6 * 48,
                              .row_count = (size_t)T * HIDDEN};
    assert_int_equal(kernels_linear(kernels, &linear, &in, T, true, &out), STATUS_OK);
    outputs.linear = fixture_download(kernels, &out);
    assert_int_equal(kernels_rmsnorm(kernels, &in, &in, 1e-6, NULL, T, HIDDEN, &rows), STATUS_OK);
    outputs.rmsnorm = fixture_download(kernels, &rows);
    assert_int_equal(kernels_swiglu(kernels, &in, T, HIDDEN, &rows), STATUS_OK);
    outputs.swiglu = fixture_download(kernels, &rows);
    struct attention_data data = attention_data_make(&shape, 8);
    outputs.attention = attention_in_chunks(kernels, &data, 77);
    data.shape.int8 = true;
    outputs.attention_int8 = attention_in_chunks(kernels, &data, 77);
    attention_data_free(&data);
    free(weights);
    free(values);
    kernels_linear_destroy(kernels, &linear);
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
    kernels_free(kernels, &rows);
    return outputs;
}

static void free_outputs(struct outputs *outputs)
{
    free(outputs->linear);
    free(outputs->attention);
    free(outputs->attention_int8);
    free(outputs->rmsnorm);
    free(outputs->swiglu);
}

/* Sets that this CPU lacks are refused; see test_open.c. */
static void test_portable_sets_agree_bit_for_bit(void **state)
{
    (void)state;
    size_t count = (size_t)isa_reports_avx2() + isa_reports_avx512();
    struct kernels *kernels = fixture_open(&portable, 1);
    struct outputs want = compute(kernels);
    kernels_close(kernels);
    for (size_t i = 0; i < count; i++) {
        kernels = fixture_open(&others[i], 1);
        assert_string_equal(kernels_info(kernels).isa, others[i].name);
        struct outputs got = compute(kernels);
        fixture_assert_same_bits(got.linear, want.linear, want.linear_count, others[i].name);
        fixture_assert_same_bits(got.attention, want.attention, want.attention_count,
                                 others[i].name);
        fixture_assert_same_bits(got.attention_int8, want.attention_int8, want.attention_count,
                                 others[i].name);
        fixture_assert_same_bits(got.rmsnorm, want.rmsnorm, want.row_count, others[i].name);
        fixture_assert_same_bits(got.swiglu, want.swiglu, want.row_count, others[i].name);
        free_outputs(&got);
        kernels_close(kernels);
    }
    free_outputs(&want);
}

static size_t attention_out_count(const struct attention_case *shape)
{
    return (size_t)shape->context * shape->heads * shape->head_dim;
}

/* Row by row: without panels. Attention's products are the same on AVX512-BF16 and AMX. */
static void test_all_sets_agree_on_decode(void **state)
{
    (void)state;
    size_t count = (size_t)isa_reports_avx2() + isa_reports_avx512() + isa_executes_avx512bf16() +
                   isa_allows_amx();
    /* All numbers of rows of a tile; two segments, and parts of one. */
    static const struct attention_case shapes[] = {
        {1, 1, 64, 16, 97, 0, false},  {2, 1, 96, 8, 66, 0, false},
        {3, 1, 32, 8, 97, 0, false},   {4, 1, 128, 16, 75, 0, false},
        {5, 1, 64, 32, 65, 40, false}, {6, 1, 32, 8, 97, 0, false},
        {7, 1, 64, 8, 270, 0, false},  {16, 2, 64, 16, 131, 0, false},
        {9, 1, 32, 8, 70, 0, false},   {10, 1, 64, 8, 65, 0, false},
        {11, 1, 32, 16, 68, 0, false}, {12, 1, 256, 8, 66, 0, false},
    };
    for (size_t s = 0; s < 2 * sizeof shapes / sizeof *shapes; s++) {
        struct attention_case shape = shapes[s / 2];
        shape.int8 = s % 2;
        struct attention_data data = attention_data_make(&shape, 9);
        struct kernels *kernels = fixture_open(&portable, 1);
        float *want = attention_in_chunks(kernels, &data, 1);
        kernels_close(kernels);
        for (size_t i = 0; i < count; i++) {
            kernels = fixture_open(&others[i], 1);
            float *got = attention_in_chunks(kernels, &data, 1);
            fixture_assert_same_bits(got, want, attention_out_count(&shape), others[i].name);
            free(got);
            kernels_close(kernels);
        }
        free(want);
        attention_data_free(&data);
    }
}

static void assert_close(const float *got, const float *want, size_t count)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += (double)want[i] * want[i];
    }
    assert_true(sqrt(error) <= 1e-5 * sqrt(norm));
}

/* If the CPU lacks it, test_open.c asserts the refusal. */
static void check_close_to_portable(enum isa isa, bool here)
{
    struct kernels *kernels = fixture_open(&portable, 1);
    struct outputs want = compute(kernels);
    kernels_close(kernels);
    struct kernels_config config = {.isa = isa, .threads = 1};
    struct error err;
    if (kernels_open(&config, &kernels, &err) != STATUS_OK) {
        assert_false(here);
    } else {
        struct outputs got = compute(kernels);
        assert_close(got.linear, want.linear, want.linear_count);
        fixture_assert_same_bits(got.attention, want.attention, want.attention_count, "attention");
        fixture_assert_same_bits(got.attention_int8, want.attention_int8, want.attention_count,
                                 "attention, int8 KV");
        fixture_assert_same_bits(got.rmsnorm, want.rmsnorm, want.row_count, "rmsnorm");
        fixture_assert_same_bits(got.swiglu, want.swiglu, want.row_count, "swiglu");
        free_outputs(&got);
        kernels_close(kernels);
    }
    free_outputs(&want);
}

static void test_avx512bf16_is_close_to_portable(void **state)
{
    (void)state;
    check_close_to_portable(ISA_AVX512BF16, isa_executes_avx512bf16());
}

static void test_amx_is_close_to_portable(void **state)
{
    (void)state;
    check_close_to_portable(ISA_AMX, isa_allows_amx());
}

static void test_rounding_to_bf16(void **state)
{
    (void)state;
    static const struct {
        uint32_t bits;
        uint16_t want;
    } cases[] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, /* ties to even */
        {0x3f808001, 0x3f81}, {0x80000000, 0x8000}, {0x00000001, 0x0000},
        {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80},
        {0x7f800001, 0x7fc0}, {0xffffffff, 0xffff}, /* NaN stays NaN */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        union float_bits in = {.bits = cases[i].bits};
        uint16_t got;
        inner_baseline.round(&in.value, 1, &got);
        assert_int_equal(got, cases[i].want);
    }
}

static void test_exp_is_within_two_ulp(void **state)
{
    (void)state;
    for (float x = -86.9f; x < 88.2f; x += 0.00371f) {
        double want = exp((double)x);
        assert_true(fabs(exp_fixed(x) - want) <= 2 * want * 0x1p-23);
    }
    assert_true(exp_fixed(0) == 1.0f);
    assert_true(exp_fixed(-INFINITY) == 0.0f);
    assert_true(exp_fixed(-1000) == 0.0f);
    assert_true(isfinite(exp_fixed(1000)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_portable_sets_agree_bit_for_bit),
        cmocka_unit_test(test_all_sets_agree_on_decode),
        cmocka_unit_test(test_avx512bf16_is_close_to_portable),
        cmocka_unit_test(test_amx_is_close_to_portable),
        cmocka_unit_test(test_rounding_to_bf16),
        cmocka_unit_test(test_exp_is_within_two_ulp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
