/* Quantized weights: the same bytes on every instruction set and for every division of rows, close
 * to the floats, and unchanged for this version of the arithmetic. */
#include "kernels/cpu/quantize.h"

#include "common/base/domain/content_hash.h"
#include "common/base/rng.h"
#include "kernels/cpu/inner/quantizer.h"
#include "kernels/cpu/isa.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const enum weight_type types[] = {WEIGHT_INT8, WEIGHT_INT4};

static size_t all_quantizers(const struct quantizer *out[3])
{
    size_t count = 0;
    out[count++] = &quantizer_baseline;
#if defined(__x86_64__)
    if (isa_reports_avx2())
        out[count++] = &quantizer_avx2;
    if (isa_reports_avx512())
        out[count++] = &quantizer_avx512;
#endif
    return count;
}

struct quantized {
    uint8_t *numbers;
    float *scales;
    size_t number_bytes, scale_bytes;
};

static struct quantized quantized_by(const struct quantizer *quantizer, enum weight_type type,
                                     const float *rows, uint32_t row_count, uint32_t k)
{
    struct quantized q = {.number_bytes = row_count * weight_row_bytes(type, k),
                          .scale_bytes = row_count * weight_row_scales(type, k) * sizeof(float)};
    uint32_t bad_row;
    q.numbers = malloc(q.number_bytes);
    q.scales = malloc(q.scale_bytes);
    assert_true(q.numbers && q.scales);
    assert_int_equal(
        quantize_rows(quantizer, type, rows, row_count, k, q.numbers, q.scales, &bad_row),
        STATUS_OK);
    return q;
}

static void drop(struct quantized *q)
{
    free(q->numbers);
    free(q->scales);
}

/* Kinds of rows of weights: random, or an extreme. */
static void fill_row(struct rng *rng, uint32_t kind, uint32_t k, float *row)
{
    float scale = (float)rng_unit(rng);
    for (uint32_t i = 0; i < k; i++) {
        float random = (float)(rng_unit(rng) * 2 - 1) * scale;
        switch (kind % 9) {
        case 1: row[i] = 0; break;
        case 2: row[i] = i == k / 2 ? 1e30f : random; break;
        case 3: row[i] = i % 2 ? -scale : scale; break; /* the largest of either sign */
        case 4: row[i] = -scale; break;
        case 5: row[i] = random * 0x1p-110f; break; /* counts as zero, or nearly */
        case 6: row[i] = random * 0x1p-98f; break;
        case 7: row[i] = (float)((int)rng_below(rng, 16) - 8) * 0.125f; break; /* no error at all */
        case 8: row[i] = i % 3 ? -0.0f : random * random * random; break;
        default: row[i] = random;
        }
    }
}

static float *make_rows(uint64_t seed, uint32_t row_count, uint32_t k)
{
    struct rng rng = rng_seeded(seed);
    float *rows = malloc((size_t)row_count * k * sizeof *rows);
    assert_non_null(rows);
    for (uint32_t i = 0; i < row_count; i++)
        fill_row(&rng, i, k, rows + (size_t)i * k);
    return rows;
}

static void test_all_sets_give_the_same_bytes(void **state)
{
    (void)state;
    static const uint32_t widths[] = {1, 2, 7, 16, 127, 128, 129, 255, 256, 1000, 5632};
    enum { ROWS = 45 };
    const struct quantizer *sets[3];
    size_t set_count = all_quantizers(sets);
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        float *rows = make_rows(w, ROWS, widths[w]);
        for (size_t t = 0; t < 2; t++) {
            struct quantized want = quantized_by(sets[0], types[t], rows, ROWS, widths[w]);
            for (size_t s = 1; s < set_count; s++) {
                struct quantized got = quantized_by(sets[s], types[t], rows, ROWS, widths[w]);
                assert_memory_equal(got.numbers, want.numbers, want.number_bytes);
                assert_memory_equal(got.scales, want.scales, want.scale_bytes);
                drop(&got);
            }
            drop(&want);
        }
        free(rows);
    }
}

static double number_at(enum weight_type type, const uint8_t *row, uint32_t k)
{
    if (type == WEIGHT_INT8)
        return (int8_t)row[k];
    return (row[k / 2] >> (k % 2 * 4) & 15) - 8;
}

/* A group's squared error by its own scale, and by the plain one, for which the number of largest
 * magnitude is -8. */
static void check_group(const float *group, uint32_t count, const struct quantized *q, size_t row,
                        uint32_t k, uint32_t first)
{
    const uint8_t *numbers = q->numbers + row * weight_row_bytes(WEIGHT_INT4, k);
    float scale = q->scales[row * weight_row_scales(WEIGHT_INT4, k) + first / WEIGHT_GROUP];
    float largest = 0;
    double error = 0, plain_error = 0;
    for (uint32_t i = 0; i < count; i++)
        largest = fabsf(group[i]) > fabsf(largest) ? group[i] : largest;
    double plain = -(double)largest / 8;
    for (uint32_t i = 0; i < count; i++) {
        double off = group[i] - number_at(WEIGHT_INT4, numbers, first + i) * scale;
        double number = plain != 0 ? fmin(fmax(nearbyint(group[i] / plain), -8), 7) : 0;
        error += off * off;
        plain_error += (group[i] - number * plain) * (group[i] - number * plain);
    }
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    assert_int_equal(bits & 0xffff, 0);         /* bf16 */
    double rounding = 0x1p-8 * fabs(plain) * 8; /* rounding the plain scale to bf16 */
    double bound = sqrt(plain_error) + rounding * sqrt(count);
    if (fabsf(largest) >= 0x1p-100f && largest < 1e38f && !(sqrt(error) <= bound))
        fail_msg("row %zu, k %u: %g, plain %g", row, first, sqrt(error), bound);
}

static void test_int4_is_no_worse_than_the_plain_scale(void **state)
{
    (void)state;
    enum { ROWS = 90, K = 400 };
    float *rows = make_rows(7, ROWS, K);
    struct quantized q = quantized_by(quantizer_best(), WEIGHT_INT4, rows, ROWS, K);
    for (size_t row = 0; row < ROWS; row++)
        for (uint32_t first = 0; first < K; first += WEIGHT_GROUP) {
            uint32_t count = K - first < WEIGHT_GROUP ? K - first : WEIGHT_GROUP;
            check_group(rows + row * K + first, count, &q, row, K, first);
        }
    drop(&q);
    free(rows);
}

static void test_what_four_bits_hold_is_kept(void **state)
{
    (void)state;
    enum { K = 2 * WEIGHT_GROUP };
    float row[K];
    for (uint32_t i = 0; i < K; i++)
        row[i] = (float)((int)(i * 7 % 16) - 8) * (i < WEIGHT_GROUP ? 0.25f : -3.0f);
    struct quantized q = quantized_by(quantizer_best(), WEIGHT_INT4, row, 1, K);
    for (uint32_t i = 0; i < K; i++)
        assert_true(number_at(WEIGHT_INT4, q.numbers, i) * q.scales[i / WEIGHT_GROUP] == row[i]);
    drop(&q);
}

static void test_int8_is_within_half_a_step(void **state)
{
    (void)state;
    enum { ROWS = 90, K = 401 };
    float *rows = make_rows(8, ROWS, K);
    struct quantized q = quantized_by(quantizer_best(), WEIGHT_INT8, rows, ROWS, K);
    for (size_t row = 0; row < ROWS; row++)
        for (uint32_t i = 0; i < K; i++) {
            double off = rows[row * K + i] -
                         number_at(WEIGHT_INT8, q.numbers + row * K, i) * (double)q.scales[row];
            assert_true(fabs(off) <= (double)q.scales[row] * 0.50001 + 0x1p-100);
        }
    drop(&q);
    free(rows);
}

static void test_what_is_out_of_range_is_told_by_its_row(void **state)
{
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, 0x1.000002p100f, -0x1.000002p100f};
    enum { BAD = sizeof bad / sizeof *bad };
    enum { ROWS = 5, K = 131 };
    const struct quantizer *sets[3];
    size_t set_count = all_quantizers(sets);
    uint8_t numbers[ROWS * K];
    float scales[ROWS * 2];
    for (size_t s = 0; s < set_count; s++)
        for (size_t t = 0; t < 2; t++)
            for (uint32_t i = 0; i < K * 4; i += 13) {
                float *rows = make_rows(i, ROWS, K);
                rows[K + i] = bad[i % BAD];
                uint32_t bad_row = 99;
                assert_int_equal(
                    quantize_rows(sets[s], types[t], rows, ROWS, K, numbers, scales, &bad_row),
                    STATUS_INVALID);
                assert_int_equal(bad_row, 1 + i / K);
                free(rows);
            }
}

static void test_the_largest_weights(void **state)
{
    (void)state;
    enum { K = 131 };
    const struct quantizer *sets[3];
    size_t set_count = all_quantizers(sets);
    for (size_t s = 0; s < set_count; s++)
        for (size_t t = 0; t < 2; t++)
            for (uint32_t i = 0; i < K; i++) { /* also in the group that is cut */
                float *row = make_rows(i, 1, K);
                row[i] = i % 2 ? WEIGHT_MAX_QUANTIZED : -WEIGHT_MAX_QUANTIZED;
                struct quantized q = quantized_by(sets[s], types[t], row, 1, K);
                float scale = q.scales[types[t] == WEIGHT_INT8 ? 0 : i / WEIGHT_GROUP];
                double kept = number_at(types[t], q.numbers, i) * (double)scale;
                assert_true(fabs(kept / (double)row[i] - 1) < 0.01);
                assert_true(fabsf(scale) <= WEIGHT_MAX_QUANTIZED);
                drop(&q);
                free(row);
            }
}

/* Quantized rows are part of the arithmetic. If one of these changes, KERNELS_VERSION has to
 * change. Otherwise kept packed weights give other answers than the model, and workers with one
 * numerics id compute differently. */
static void test_this_version_stands_for_bytes(void **state)
{
    (void)state;
    static const uint64_t hashes[] = {0x3116df2c2f2fe2b2, 0x614e36b897191e14};
    enum { ROWS = 90, K = 1000 };
    assert_int_equal(KERNELS_VERSION, 4);
    float *rows = make_rows(11, ROWS, K);
    for (size_t t = 0; t < 2; t++) {
        struct quantized q = quantized_by(quantizer_best(), types[t], rows, ROWS, K);
        const uint64_t both[] = {content_hash(q.numbers, q.number_bytes),
                                 content_hash(q.scales, q.scale_bytes)};
        uint64_t hash = content_hash(both, sizeof both);
        if (hash != hashes[t])
            fail_msg("%s: 0x%016llx", weight_type_names[types[t]], (unsigned long long)hash);
        drop(&q);
    }
    free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_sets_give_the_same_bytes),
        cmocka_unit_test(test_int4_is_no_worse_than_the_plain_scale),
        cmocka_unit_test(test_what_four_bits_hold_is_kept),
        cmocka_unit_test(test_int8_is_within_half_a_step),
        cmocka_unit_test(test_what_is_out_of_range_is_told_by_its_row),
        cmocka_unit_test(test_the_largest_weights),
        cmocka_unit_test(test_this_version_stands_for_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
