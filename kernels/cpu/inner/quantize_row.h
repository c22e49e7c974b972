/* Quantizes fp32 numbers to s8 by one scale (kernels.h, quantized layers): rows of inputs, keys and
 * values. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZE_ROW_H
#define BATON_KERNELS_CPU_INNER_QUANTIZE_ROW_H

#include "kernels/cpu/exp_fixed.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ROUND_BITS 0x4b400000 /* bits of EXP_ROUND */

/* The scale that a number is worth, and its inverse, which makes numbers of floats. 0: every number
 * is zero. */
struct row_scale {
    float scale, inverse;
};

/* Returns the bits of max |x|. Bits of a NaN are above those of infinity, and these above all
 * numbers. */
static inline int32_t largest_magnitude(const float *restrict row, uint32_t k)
{
    int32_t largest = 0;
    for (uint32_t i = 0; i < k; i++) {
        union float_bits in = {.value = row[i]};
        int32_t magnitude = (int32_t)(in.bits & 0x7fffffff);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

static inline struct row_scale row_scale_of(const float *row, uint32_t k)
{
    union float_bits largest = {.bits = (uint32_t)largest_magnitude(row, k)};
    if (largest.bits >= 0x7f800000)
        return (struct row_scale){.scale = NAN};
    if (largest.value < 0x1p-100f)
        return (struct row_scale){0};
    return (struct row_scale){.scale = largest.value / 127.0f, .inverse = 127.0f / largest.value};
}

/* Writes `count` numbers. Adding EXP_ROUND rounds to an integer, ties to even, and leaves it in the
 * low bits. */
static inline void quantize(const float *restrict row, uint32_t count, float inverse,
                            int8_t *restrict out)
{
    if (inverse == 0) {
        memset(out, 0, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        union float_bits shifted = {.value = row[i] * inverse + EXP_ROUND};
        out[i] = (int8_t)(shifted.bits - ROUND_BITS);
    }
}

#endif
