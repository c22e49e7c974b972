/* Quantized linear layers of the reference: rows as they came, then their scales. */
#include "kernels/reference/inner/quantized.h"
#include "kernels/reference/reference.h"

#include <string.h>

#define ALIGNMENT 64

static size_t scales_offset(enum weight_type type, uint32_t n, uint32_t k)
{
    return (n * weight_row_bytes(type, k) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static const uint8_t *row_of(const struct linear *linear, uint32_t n)
{
    return (const uint8_t *)linear->packed.address + n * weight_row_bytes(linear->type, linear->k);
}

static float *scales_of(const struct linear *linear, uint32_t n)
{
    char *base = linear->packed.address;
    float *scales = (float *)(base + scales_offset(linear->type, linear->n, linear->k));
    return scales + (size_t)n * weight_row_scales(linear->type, linear->k);
}

size_t reference_quantized_bytes(enum weight_type type, uint32_t n, uint32_t k)
{
    return scales_offset(type, n, k) + (size_t)n * weight_row_scales(type, k) * sizeof(float);
}

void reference_quantized_load(struct linear *linear, uint32_t first_row, uint32_t row_count,
                              const void *rows, const float *scales)
{
    size_t row_bytes = weight_row_bytes(linear->type, linear->k);
    size_t row_scales = weight_row_scales(linear->type, linear->k);
    memcpy((char *)linear->packed.address + first_row * row_bytes, rows, row_count * row_bytes);
    memcpy(scales_of(linear, first_row), scales, row_count * row_scales * sizeof *scales);
}

void reference_quantized_row(const struct linear *linear, uint32_t n, float *out)
{
    const float *scales = scales_of(linear, n);
    if (linear->type == WEIGHT_INT8)
        reference_widen_int8((const int8_t *)row_of(linear, n), scales[0], linear->k, out);
    else
        reference_widen_int4(row_of(linear, n), scales, linear->k, out);
}

struct job {
    const struct reference *self;
    const struct linear *linear;
    const float *in;
    float *out;
    bool accumulate;
};

/* An item is a row. */
static void multiply_rows(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    const struct job *job = context;
    const struct linear *linear = job->linear;
    uint32_t k = linear->k;
    int8_t *numbers = job->self->scratch[thread].numbers;
    for (size_t t = first; t < last; t++) {
        float scale = reference_quantize(job->in + t * k, k, numbers);
        float *out = job->out + t * linear->n;
        for (uint32_t n = 0; n < linear->n; n++) {
            const uint8_t *row = row_of(linear, n);
            const float *scales = scales_of(linear, n);
            float value = linear->type == WEIGHT_INT8
                              ? reference_int8(numbers, scale, k, (const int8_t *)row, scales[0])
                              : reference_int4(numbers, scale, k, row, scales);
            out[n] = job->accumulate ? out[n] + value : value;
        }
    }
}

void reference_quantized(struct reference *self, const struct linear *linear, const float *in,
                         uint32_t rows, bool accumulate, float *out)
{
    struct job job = {self, linear, in, out, accumulate};
    pool_run(self->pool, rows, 1, multiply_rows, &job);
}
