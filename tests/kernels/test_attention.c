/* Paged attention of every backend: against double arithmetic, and the same bits for prefill,
 * chunks and decode. */
#include "tests/kernels/attention_fixture.h"

#include <stdlib.h>
#include <string.h>

/* heads, kv heads, head_dim, block_tokens, context, window, int8: groups of 1 to 12, and one that a
 * slice can't hold; one and several segments; windows of one token, inside a segment, of exactly
 * one, across several, and wider than the context; heads that don't fill vectors, one of them with
 * int8 tokens that lie at odd halves of words. */
static const struct attention_case cases[] = {
    {1, 1, 16, 8, 1, 0, false},      {4, 4, 32, 16, 37, 0, false},
    {8, 2, 16, 16, 300, 0, false},   {8, 1, 64, 32, 257, 0, false},
    {6, 2, 128, 64, 90, 0, false},   {5, 1, 64, 8, 70, 0, false},
    {3, 3, 80, 32, 40, 0, false},    {2, 1, 2, 8, 33, 0, false},
    {7, 1, 256, 32, 34, 0, false},   {4, 2, 64, 256, 600, 0, false},
    {193, 1, 16, 16, 20, 0, false},  {2, 1, 16, 16, 40, 1, false},
    {8, 2, 16, 16, 300, 24, false},  {3, 3, 32, 8, 530, 256, false},
    {4, 1, 16, 32, 560, 290, false}, {6, 2, 48, 16, 100, 100, false},
    {2, 2, 16, 64, 90, 4096, false}, {8, 1, 64, 32, 257, 0, true},
    {6, 2, 48, 8, 300, 0, true},     {3, 1, 6, 16, 40, 0, true},
    {7, 1, 256, 32, 34, 0, true},    {4, 1, 16, 32, 560, 290, true},
    {12, 1, 32, 8, 270, 0, false},   {11, 1, 32, 8, 23, 0, true},
    {10, 1, 64, 8, 19, 7, false},    {9, 1, 32, 16, 33, 0, true},
    {2, 1, 18, 8, 40, 0, true},
};

/* Threads meet in the same places whatever the shape of a case is. */
#ifdef __SANITIZE_THREAD__
enum { EVERY = 5 };
#else
enum { EVERY = 1 };
#endif

static size_t out_count(const struct attention_case *shape)
{
    return (size_t)shape->context * shape->heads * shape->head_dim;
}

static void test_attention_is_right(void **state)
{
    (void)state;
    size_t variant_count;
    const struct variant *variants = fixture_variants(&variant_count);
    for (size_t v = 0; v < variant_count; v++) {
        struct kernels *kernels = fixture_open(&variants[v], 1);
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c += EVERY) {
            struct attention_data data = attention_data_make(&cases[c], c);
            float *got = attention_in_chunks(kernels, &data, cases[c].context);
            double *want = attention_in_double(&data);
            fixture_assert_near(got, want, out_count(&cases[c]), 4 * variants[v].tolerance,
                                variants[v].name);
            free(got);
            free(want);
            attention_data_free(&data);
        }
        kernels_close(kernels);
    }
}

static void test_chunks_leave_no_trace(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {2, 7, 33, 255, 256, 1000};
    size_t variant_count;
    const struct variant *variants = fixture_variants(&variant_count);
    for (size_t v = 0; v < variant_count; v++) {
        struct kernels *one = fixture_open(&variants[v], 1), *two = fixture_open(&variants[v], 2);
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c += EVERY) {
            struct attention_data data = attention_data_make(&cases[c], 100 + c);
            float *decoded = attention_in_chunks(one, &data, 1);
            /* Without BATON_LONG (tests/run --long) half the chunks: the other half with the case's
             * and the variant's neighbours. */
            size_t step = getenv("BATON_LONG") ? 1 : 2;
            for (size_t i = (c + v) % step; i < sizeof chunks / sizeof *chunks; i += step) {
                float *got = attention_in_chunks(i / 2 % 2 ? two : one, &data, chunks[i]);
                fixture_assert_same_bits(got, decoded, out_count(&cases[c]), variants[v].name);
                free(got);
            }
            free(decoded);
            attention_data_free(&data);
        }
        kernels_close(one);
        kernels_close(two);
    }
}

/* Values so small that products, or sums, are subnormal: an instruction set may treat them as
 * zeros, but then always. */
static void check_small_values(const struct variant *variant, float scale)
{
    const struct attention_case shapes[] = {{8, 2, 32, 16, 300, 0, false},
                                            {8, 2, 48, 16, 300, 0, false}};
    struct kernels *kernels = fixture_open(variant, 1);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct attention_data data = attention_data_make(&shapes[i], 3);
        for (uint32_t row = 0; row < shapes[i].context; row++)
            for (uint32_t d = 0; d < 2 * shapes[i].head_dim; d++)
                data.qkv[(row * 12 + 10) * shapes[i].head_dim + d] *= scale;
        float *decoded = attention_in_chunks(kernels, &data, 1);
        float *got = attention_in_chunks(kernels, &data, 100);
        fixture_assert_same_bits(got, decoded, out_count(&shapes[i]), variant->name);
        free(decoded);
        free(got);
        attention_data_free(&data);
    }
    kernels_close(kernels);
}

static void test_subnormal_numbers_leave_no_trace(void **state)
{
    (void)state;
    static const float scales[] = {0x1p-128f, 0x1p-126f, 0x1p-120f};
    size_t variant_count;
    const struct variant *variants = fixture_variants(&variant_count);
    for (size_t v = 0; v < variant_count; v++)
        for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
            check_small_values(&variants[v], scales[i]);
}

/* Sequences of different lengths, some in their prompt and some decoding, in one step: as if each
 * were alone. */
static void check_mixed_batch(const struct variant *variant, uint32_t threads, uint32_t window,
                              bool int8)
{
    enum { SEQUENCES = 9 };
    const struct attention_case shape = {8, 2, 32, 16, 420, window, int8};
    struct kernels *kernels = fixture_open(variant, threads);
    struct attention_rig rig = attention_rig_make(kernels, &shape, SEQUENCES);
    struct attention_data data[SEQUENCES];
    float *out[SEQUENCES];
    uint32_t begin[SEQUENCES] = {0}, end[SEQUENCES];
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        data[s] = attention_data_make(&shape, 1000 + s);
        out[s] = malloc(out_count(&shape) * sizeof(float));
        assert_non_null(out[s]);
        end[s] = 1 + s * 41;
    }
    for (bool more = true; more;) {
        attention_rig_step(&rig, data, begin, end, out);
        more = false;
        for (uint32_t s = 0; s < SEQUENCES; s++) {
            uint32_t rows = s % 3 == 0 ? 29 : s % 3 == 1 ? 5 : 61;
            begin[s] = end[s];
            end[s] = end[s] + rows < shape.context ? end[s] + rows : shape.context;
            more = more || begin[s] < end[s];
        }
    }
    struct kernels *alone = fixture_open(variant, 1);
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        float *want = attention_in_chunks(alone, &data[s], shape.context);
        fixture_assert_same_bits(out[s], want, out_count(&shape), variant->name);
        free(want);
        free(out[s]);
        attention_data_free(&data[s]);
    }
    kernels_close(alone);
    attention_rig_free(&rig);
    kernels_close(kernels);
}

static void test_a_batch_leaves_no_trace(void **state)
{
    (void)state;
    size_t variant_count;
    const struct variant *variants = fixture_variants(&variant_count);
    for (size_t v = 0; v < variant_count; v++) {
        check_mixed_batch(&variants[v], 1, 0, false);
        check_mixed_batch(&variants[v], 2, 0, false);
        check_mixed_batch(&variants[v], 2, 33, false);
        check_mixed_batch(&variants[v], 2, 0, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_is_right),
        cmocka_unit_test(test_chunks_leave_no_trace),
        cmocka_unit_test(test_subnormal_numbers_leave_no_trace),
        cmocka_unit_test(test_a_batch_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
