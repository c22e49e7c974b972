/* Hashes of the results of this KERNELS_VERSION, on every set that this CPU runs. Workers of one
 * numerics id hand each other KV, so an intended change of these bits changes KERNELS_VERSION too.
 * To make them again, run this program on a CPU with AMX, where all sets run. It prints each hash
 * that isn't the frozen one, with the backend, the set and the case. All that share a column below
 * have to print the same. */
#include "common/base/str.h"
#include "tests/kernels/attention_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(ARRAY) (sizeof(ARRAY) / sizeof *(ARRAY))

/* Are these the frozen bits? If not, it says so. */
static bool is_frozen(struct kernels *kernels, const float *got, size_t count, uint64_t frozen,
                      const char *what)
{
    uint64_t hash = hash_bytes(got, count * sizeof *got, HASH_SEED);
    if (hash != frozen)
        print_error("%s on %s, %s: 0x%016" PRIx64 ", frozen was 0x%016" PRIx64 "\n",
                    kernels_info(kernels).name, kernels_info(kernels).isa, what, hash, frozen);
    return hash == frozen;
}

typedef uint32_t frozen_check(struct kernels *kernels);

/* Counts the differences over all backends. */
static void check_all(bool with_f32, frozen_check *check)
{
    size_t count;
    const struct variant *variants = fixture_variants(&count);
    uint32_t different = 0;
    for (size_t i = with_f32 ? 0 : 1; i < count; i++) {
        struct kernels *kernels = fixture_open(&variants[i], 1);
        different += check(kernels);
        kernels_close(kernels);
    }
    assert_int_equal(different, 0);
}

/* --- attention --- */

/* A chunk's rows and one row at a time, groups of heads, a window, a last tile of heads that is not
 * full; the same on all sets. */
static const struct {
    struct attention_case shape;
    uint32_t chunk;
    uint64_t bf16, int8; /* by the type of keys and values */
} attentions[] = {
    {{8, 1, 64, 32, 700, 0, false}, 100, 0xd55992a561a90bff, 0x3006dc91137b3178},
    {{6, 2, 80, 16, 600, 270, false}, 64, 0x057ff3d7288cd7ff, 0x249577b3002528d8},
    {{3, 3, 128, 8, 290, 0, false}, 1, 0x65bc0669a9a2e0dc, 0xcb066f2570aacb78},
};

static uint32_t check_attention(struct kernels *kernels)
{
    uint32_t different = 0;
    for (size_t i = 0; i < COUNT(attentions); i++)
        for (int int8 = 0; int8 < 2; int8++) {
            struct attention_case shape = attentions[i].shape;
            shape.int8 = int8;
            struct attention_data data = attention_data_make(&shape, 7);
            float *got = attention_in_chunks(kernels, &data, attentions[i].chunk);
            char what[64];
            snprintf(what, sizeof what, "attention, %u heads of %u, KV %s", shape.heads,
                     shape.head_dim, int8 ? "int8" : "bf16");
            different +=
                !is_frozen(kernels, got, (size_t)shape.context * shape.heads * shape.head_dim,
                           int8 ? attentions[i].int8 : attentions[i].bf16, what);
            free(got);
            attention_data_free(&data);
        }
    return different;
}

static void test_attention(void **state)
{
    (void)state;
    check_all(false, check_attention);
}

/* --- linear layers --- */

/* Two segments of K and an odd rest; three panels of outputs, the last not full. */
enum { N = 70, K = 2051, MOST_ROWS = 200 };

/* One row, few, a tile, one more, and more than share one pass over the weights. With these numbers
 * no product is subnormal, so AVX512-BF16, which flushes subnormal ones, has the bits of the
 * portable sets. AMX adds in another order. Rows of quantized layers have the same bits on all
 * backends. */
static const struct {
    uint32_t rows;
    bool accumulate;
    uint64_t bf16, amx, int8, int4;
} linears[] = {
    {1, false, 0x218b4432f63476bd, 0xaba62a164fe9dc65, 0x985e2ab6a8dc2439, 0x8f932edf034ebaaa},
    {5, true, 0xf0ff504eb4ff1cdc, 0x78b2c9549db864c3, 0x20e7dffeb000f8fd, 0xe656aa396b38337a},
    {12, false, 0xd43df42f58d08142, 0x5fd36d455f5daccb, 0xe66a561e49cea7c2, 0x1f903c0525da6d07},
    {13, true, 0x2bf90b0482584149, 0xb0f91c3d6bcb04ad, 0x513882dbb81d7f6f, 0x0ee7eb181f29a5ec},
    {MOST_ROWS, false, 0x4748d91cec5e9991, 0xee76b6379ab3ada4, 0x21cae8ecc06d2100,
     0x2cbefc6dc3864350},
};

/* Whole bytes at random, and scales that bf16 holds. */
static struct linear quantized_layer(struct kernels *kernels, enum weight_type type,
                                     struct rng *rng)
{
    struct linear linear = {0};
    size_t bytes = N * weight_row_bytes(type, K), scale_count = N * weight_row_scales(type, K);
    uint8_t *rows = malloc(bytes);
    float *scales = malloc(scale_count * sizeof *scales);
    assert_true(rows && scales);
    for (size_t i = 0; i < bytes; i++)
        rows[i] = (uint8_t)rng_next(rng);
    for (size_t i = 0; i < scale_count; i++)
        scales[i] = naive_widen(naive_round((float)rng_unit(rng) * 0.02f));
    assert_int_equal(kernels_linear_create(kernels, type, N, K, &linear), STATUS_OK);
    assert_int_equal(kernels_linear_load(kernels, &linear, 0, N, rows, scales), STATUS_OK);
    free(rows);
    free(scales);
    return linear;
}

static struct linear layer_of(struct kernels *kernels, enum weight_type type)
{
    struct rng rng = rng_seeded(21);
    if (weight_type_is_quantized(type))
        return quantized_layer(kernels, type, &rng);
    uint16_t *weights = fixture_bf16(&rng, (size_t)N * K, 0.5f);
    struct linear linear = fixture_linear(kernels, weights, N, K);
    free(weights);
    return linear;
}

static uint64_t frozen_of(const struct kernels *kernels, enum weight_type type, size_t i)
{
    if (weight_type_is_quantized(type))
        return type == WEIGHT_INT8 ? linears[i].int8 : linears[i].int4;
    return strcmp(kernels_info(kernels).name, "bf16-amx") ? linears[i].bf16 : linears[i].amx;
}

static uint32_t check_linear(struct kernels *kernels, enum weight_type type)
{
    struct linear linear = layer_of(kernels, type);
    struct rng rng = rng_seeded(22);
    float *values = fixture_floats(&rng, (size_t)MOST_ROWS * K, 4);
    struct buffer in = fixture_buffer(kernels, values, (size_t)MOST_ROWS * K * sizeof *values);
    uint32_t different = 0;
    for (size_t i = 0; i < COUNT(linears); i++) {
        uint32_t rows = linears[i].rows;
        size_t count = (size_t)rows * N;
        struct buffer out =
            fixture_buffer(kernels, linears[i].accumulate ? values : NULL, count * sizeof(float));
        assert_int_equal(kernels_linear(kernels, &linear, &in, rows, linears[i].accumulate, &out),
                         STATUS_OK);
        float *got = fixture_download(kernels, &out);
        char what[64];
        snprintf(what, sizeof what, "linear of %s, %u rows", weight_type_names[type], rows);
        different += !is_frozen(kernels, got, count, frozen_of(kernels, type, i), what);
        free(got);
        kernels_free(kernels, &out);
    }
    free(values);
    kernels_free(kernels, &in);
    kernels_linear_destroy(kernels, &linear);
    return different;
}

static uint32_t check_bf16(struct kernels *kernels)
{
    return check_linear(kernels, WEIGHT_BF16);
}

static uint32_t check_quantized(struct kernels *kernels)
{
    return check_linear(kernels, WEIGHT_INT8) + check_linear(kernels, WEIGHT_INT4);
}

static void test_linear_of_bf16(void **state)
{
    (void)state;
    check_all(false, check_bf16);
}

static void test_linear_of_int8_and_int4(void **state)
{
    (void)state;
    check_all(true, check_quantized);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_linear_of_bf16),
        cmocka_unit_test(test_linear_of_int8_and_int4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
