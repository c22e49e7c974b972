/* Tiles of quantized rows, and the fp32 end of a product: what all sources of struct quantized_inner share. The including
 * source defines TILE_WORDS (1 or 2) and pack_quad. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_TILE_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_TILE_H

#include "kernels/cpu/inner/quantize_row.h"
#include "kernels/cpu/inner/quantized.h"
#include "kernels/cpu/inner/vector.h"

#include <string.h>

/* --- rows --- */

#define CACHE_LINE_FLOATS 16

static int32_t sum_of(const int8_t *numbers)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < QUANTIZED_GROUP; i++)
        sum += numbers[i];
    return sum;
}

/* Row r of a tile of `count` rows. */
static void pack_row(const float *row, uint32_t r, uint32_t count, uint32_t k, uint32_t groups,
                     int32_t zero_point, void *tile)
{
    float *scales = tile;
    int32_t *sums = (int32_t *)(scales + count);
    uint32_t *packed = (uint32_t *)(sums + (size_t)groups * count) + r;
    struct row_scale scale = row_scale_of(row, k);
    scales[r] = scale.scale;
    for (uint32_t g = 0; g < groups; g++)
        sums[g * count + r] = 0;
    for (uint32_t begin = 0; begin < k; begin += QUANTIZED_GROUP) {
        uint32_t width = k - begin < QUANTIZED_GROUP ? k - begin : QUANTIZED_GROUP;
        int8_t numbers[QUANTIZED_GROUP] = {0};
        /* of the row behind this one, whose maximum is looked for next */
        for (uint32_t i = 0; i < QUANTIZED_GROUP; i += CACHE_LINE_FLOATS)
            __builtin_prefetch(row + k + begin + i, 0, 2);
        quantize(row + begin, width, scale.inverse, numbers);
        sums[(groups == 1 ? 0 : begin / QUANTIZED_GROUP) * count + r] -=
            zero_point * sum_of(numbers);
        uint32_t quads = (width + QUANTIZED_STEP - 1) / QUANTIZED_STEP * 2;
        for (uint32_t q = 0; q < quads; q++, packed += (size_t)TILE_WORDS * count)
            pack_quad(numbers + 4 * q, packed, count);
    }
}

static void pack_tile(const float *const *rows, uint32_t count, uint32_t k, uint32_t groups,
                      int32_t zero_point, void *tile)
{
    for (uint32_t r = 0; r < count; r++)
        pack_row(rows[r], r, count, k, groups, zero_point, tile);
}

/* --- products --- */

#define STEPS_OF_GROUP (QUANTIZED_GROUP / QUANTIZED_STEP)

ALWAYS_INLINE uint32_t group_count(uint32_t steps)
{
    return (steps + STEPS_OF_GROUP - 1) / STEPS_OF_GROUP;
}

/* Where the group that begins at `step` ends; the last may be cut. */
ALWAYS_INLINE uint32_t group_end(uint32_t step, uint32_t steps)
{
    return steps - step < STEPS_OF_GROUP ? steps : step + STEPS_OF_GROUP;
}

ALWAYS_INLINE const int32_t *tile_sums(const struct quantized_product *product)
{
    return (const int32_t *)product->tile + product->rows;
}

ALWAYS_INLINE const uint32_t *tile_words(const struct quantized_product *product, uint32_t groups)
{
    return (const uint32_t *)product->tile + (size_t)product->rows * (1 + groups);
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

/* With the last group, partial * row's scale becomes the product. */
static void finish_int4(const struct quantized_product *product)
{
    if (product->end_step < product->steps)
        return;
    const float *scales = product->tile;
    for (uint32_t r = 0; r < product->rows; r++)
        for (uint32_t n = 0; n < PANEL; n += VECTOR)
            write_out(product,
                      *(const floats *)(product->partial + r * PANEL + n) * broadcast(scales[r]),
                      product->out + r * product->out_stride + n);
}

#endif
