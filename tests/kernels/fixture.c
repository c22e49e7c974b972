#include "tests/kernels/fixture.h"

#include "kernels/cpu/isa.h"
#include "tests/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct variant all[] = {
    {.name = "f32", .f32 = true, .tolerance = 2e-6},
    {.name = "portable", .isa = ISA_PORTABLE, .tolerance = 3e-3},
    {.name = "avx2", .isa = ISA_AVX2, .tolerance = 3e-3},
    {.name = "avx512", .isa = ISA_AVX512, .tolerance = 3e-3},
    {.name = "avx512bf16", .isa = ISA_AVX512BF16, .tolerance = 3e-3},
    {.name = "amx", .isa = ISA_AMX, .tolerance = 3e-3},
};

static const struct variant cuda = {.name = "cuda", .tolerance = 3e-3};

/* Each variant needs the one before it, so the variants that run are the first ones of the
 * table. */
const struct variant *fixture_variants(size_t *count)
{
    if (test_device() == DEVICE_CUDA) {
        *count = 1;
        return &cuda;
    }
    *count = 2 + isa_reports_avx2() + isa_reports_avx512() + isa_executes_avx512bf16() +
             isa_allows_amx();
    return all;
}

struct kernels *fixture_open(const struct variant *variant, uint32_t threads)
{
    bool reference = variant->f32 && test_device() == DEVICE_CUDA; /* which GPUs don't compute */
    struct kernels_config config = {.device = reference ? DEVICE_CPU : test_device(),
                                    .f32 = variant->f32,
                                    .isa = variant->isa,
                                    .threads = threads};
    struct kernels *kernels = NULL;
    struct error err = {0};
    if (kernels_open(&config, &kernels, &err) != STATUS_OK)
        fail_msg("%s: %s", variant->name, err.text);
    return kernels;
}

static void *must_have(void *memory)
{
    assert_non_null(memory);
    return memory;
}

float *fixture_floats(struct rng *rng, size_t count, float scale)
{
    float *values = must_have(malloc((count ? count : 1) * sizeof *values));
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(rng_unit(rng) * 2 - 1) * scale;
    return values;
}

uint16_t *fixture_bf16(struct rng *rng, size_t count, float scale)
{
    uint16_t *values = must_have(malloc((count ? count : 1) * sizeof *values));
    for (size_t i = 0; i < count; i++)
        values[i] = naive_round((float)(rng_unit(rng) * 2 - 1) * scale);
    return values;
}

struct buffer fixture_buffer(struct kernels *kernels, const void *source, size_t bytes)
{
    struct buffer buffer = {0};
    assert_int_equal(kernels_alloc(kernels, bytes, &buffer), STATUS_OK);
    uint8_t *nan = NULL;
    if (!source) {
        nan = must_have(malloc(bytes ? bytes : 1));
        memset(nan, 0xff, bytes);
    }
    assert_int_equal(
        kernels_upload(kernels, KERNELS_STEPS, &buffer, 0, source ? source : nan, bytes),
        STATUS_OK);
    assert_int_equal(kernels_sync(kernels), STATUS_OK);
    free(nan);
    return buffer;
}

float *fixture_download(struct kernels *kernels, const struct buffer *buffer)
{
    float *values = must_have(malloc(buffer->bytes ? buffer->bytes : 1));
    assert_int_equal(kernels_download(kernels, buffer, 0, values, buffer->bytes), STATUS_OK);
    return values;
}

void *fixture_weights(const struct kernels *kernels, const uint16_t *bf16, size_t count)
{
    enum weight_type type = kernels_info(kernels).weight_type;
    void *rows = must_have(malloc(count ? weight_row_bytes(type, (uint32_t)count) : 1));
    for (size_t i = 0; i < count; i++)
        if (type == WEIGHT_F32)
            ((float *)rows)[i] = naive_widen(bf16[i]);
        else
            ((uint16_t *)rows)[i] = bf16[i];
    return rows;
}

struct linear fixture_linear(struct kernels *kernels, const uint16_t *weights, uint32_t n,
                             uint32_t k)
{
    struct linear linear = {0};
    char *rows = fixture_weights(kernels, weights, (size_t)n * k);
    enum weight_type type = kernels_info(kernels).weight_type;
    size_t row_bytes = weight_row_bytes(type, k);
    assert_int_equal(kernels_linear_create(kernels, type, n, k, &linear), STATUS_OK);
    uint32_t half = n / 2; /* in two ranges, as fused layers are loaded */
    assert_int_equal(kernels_linear_load(kernels, &linear, 0, half, rows, NULL), STATUS_OK);
    assert_int_equal(
        kernels_linear_load(kernels, &linear, half, n - half, rows + half * row_bytes, NULL),
        STATUS_OK);
    assert_int_equal(kernels_sync(kernels), STATUS_OK);
    free(rows);
    return linear;
}

void fixture_assert_near(const float *got, const double *want, size_t count, double tolerance,
                         const char *what)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(got[i]))
            fail_msg("%s: element %zu is %f", what, i, (double)got[i]);
        error += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    if (sqrt(error) > tolerance * sqrt(norm) + 1e-7)
        fail_msg("%s: off by %g of a norm of %g, tolerance %g", what, sqrt(error), sqrt(norm),
                 tolerance);
}

void fixture_assert_same_bits(const float *got, const float *want, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: element %zu of %zu is %.9g, expected %.9g", what, i, count,
                     (double)got[i], (double)want[i]);
}

void fixture_assert_no_tiles(void)
{
#if defined(__x86_64__)
    uint8_t config[64], none[64] = {0};
    __asm__ volatile("sttilecfg %0" : "=m"(config));
    assert_memory_equal(config, none, sizeof config);
    assert_int_equal(__builtin_ia32_stmxcsr() & 0x8040u, 0); /* nor are subnormal numbers zeros */
#endif
}
