/* Tiles of quantized rows, and the fp32 end of a product: what all sources of struct quantized_inner share. The including
 * source defines TILE_WORDS (1 or 2) and pack_quad. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_TILE_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_TILE_H

#include "kernels/cpu/exp_fixed.h"
#include "kernels/cpu/inner/quantized.h"
#include "kernels/cpu/inner/vector.h"

#include <math.h>
#include <string.h>

typedef int32_t ints __attribute__((vector_size(VECTOR * 4), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(VECTOR * 2), aligned(2), may_alias));

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* --- rows --- */

#define ROUND_BITS 0x4b400000 /* of EXP_ROUND */

/* The bits of max |x|: those of a NaN are above those of infinity, which are above all numbers. */
static int32_t largest_magnitude(const float *restrict row, uint32_t k)
{
    int32_t largest = 0;
    for (uint32_t i = 0; i < k; i++) {
        union float_bits in = {.value = row[i]};
        int32_t magnitude = (int32_t)(in.bits & 0x7fffffff);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

/* Adding EXP_ROUND rounds to an integer, ties to even, and leaves it in the low bits. */
static void quantize(const float *restrict row, uint32_t count, float inverse, int8_t *restrict out)
{
    for (uint32_t i = 0; i < count; i++) {
        union float_bits shifted = {.value = row[i] * inverse + EXP_ROUND};
        out[i] = (int8_t)(shifted.bits - ROUND_BITS);
    }
}

static int32_t sum_of(const int8_t *numbers)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < QUANTIZED_GROUP; i++)
        sum += numbers[i];
    return sum;
}

/* Row r of a tile of `count` rows. */
static void pack_row(const float *row, uint32_t r, uint32_t count, uint32_t k, uint32_t groups,
                     void *tile)
{
    float *scales = tile;
    int32_t *sums = (int32_t *)(scales + count);
    uint32_t *packed = (uint32_t *)(sums + (size_t)groups * count) + r;
    union float_bits largest = {.bits = (uint32_t)largest_magnitude(row, k)};
    bool finite = largest.bits < 0x7f800000, zero = !finite || largest.value < 0x1p-100f;
    float inverse = zero ? 0 : 127.0f / largest.value;
    scales[r] = !finite ? NAN : zero ? 0 : largest.value / 127.0f;
    for (uint32_t g = 0; g < groups; g++)
        sums[g * count + r] = 0;
    for (uint32_t begin = 0; begin < k; begin += QUANTIZED_GROUP) {
        uint32_t width = k - begin < QUANTIZED_GROUP ? k - begin : QUANTIZED_GROUP;
        int8_t numbers[QUANTIZED_GROUP] = {0};
        if (!zero)
            quantize(row + begin, width, inverse, numbers);
        sums[(groups == 1 ? 0 : begin / QUANTIZED_GROUP) * count + r] += sum_of(numbers);
        uint32_t quads = (width + QUANTIZED_STEP - 1) / QUANTIZED_STEP * 2;
        for (uint32_t q = 0; q < quads; q++, packed += (size_t)TILE_WORDS * count)
            pack_quad(numbers + 4 * q, packed, count);
    }
}

static void pack_tile(const float *const *rows, uint32_t count, uint32_t k, uint32_t groups,
                      void *tile)
{
    for (uint32_t r = 0; r < count; r++)
        pack_row(rows[r], r, count, k, groups, tile);
}

/* --- products --- */

ALWAYS_INLINE const int32_t *tile_sums(const struct quantized_product *product)
{
    return (const int32_t *)product->tile + product->rows;
}

ALWAYS_INLINE const uint32_t *tile_words(const struct quantized_product *product, uint32_t groups)
{
    return (const uint32_t *)product->tile + (size_t)product->rows * (1 + groups);
}

ALWAYS_INLINE floats to_floats(ints sum)
{
    return __builtin_convertvector(sum, floats);
}

/* A vector of bf16 scales. */
ALWAYS_INLINE floats widen_scales(const uint16_t *bf16)
{
    return (floats)(__builtin_convertvector(*(const halves *)bf16, words) << 16);
}

ALWAYS_INLINE void write_out(const struct quantized_product *product, floats value, float *out)
{
    if (product->add)
        value += *(const floats *)out;
    *(floats *)out = value;
}

/* A group's sum joins what is there. */
ALWAYS_INLINE void add_group(floats value, bool first, float *partial)
{
    if (!first)
        value += *(const floats *)partial;
    *(floats *)partial = value;
}

/* partial * row's scale becomes the product. */
static void finish_int4(const struct quantized_product *product)
{
    const float *scales = product->tile;
    for (uint32_t r = 0; r < product->rows; r++)
        for (uint32_t n = 0; n < PANEL; n += VECTOR)
            write_out(product,
                      *(const floats *)(product->partial + r * PANEL + n) * broadcast(scales[r]),
                      product->out + r * product->out_stride + n);
}

#define STEPS_OF_GROUP (QUANTIZED_GROUP / QUANTIZED_STEP)

ALWAYS_INLINE uint32_t group_count(uint32_t steps)
{
    return (steps + STEPS_OF_GROUP - 1) / STEPS_OF_GROUP;
}

#endif
