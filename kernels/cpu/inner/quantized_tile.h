/* Tiles of quantized rows, and the fp32 end of a product: what all sources of struct quantized_inner share. The including
 * source defines TILE_WORDS (1 or 2), pack_quads and sum_of. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_TILE_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_TILE_H

#include "kernels/cpu/inner/quantize_row.h"
#include "kernels/cpu/inner/quantized.h"
#include "kernels/cpu/inner/vector.h"

#include <string.h>

/* --- rows --- */

#define CACHE_LINE_FLOATS 16

/* An int4 group's sum begins at the bits of EXP_ROUND, whose last place is one: adding an integer to the bits adds it to the
 * float. So a sum is a float already, that much too large, and is never converted. */
#define INT4_START ROUND_BITS

#define STEPS_OF_GROUP (QUANTIZED_GROUP / QUANTIZED_STEP)

ALWAYS_INLINE uint32_t group_count(uint32_t steps)
{
    return (steps + STEPS_OF_GROUP - 1) / STEPS_OF_GROUP;
}

/* Rows first .. first + rows - 1, PACK_ROWS at most, of a tile of `count` rows. */
static void pack_rows(const float *const *in, uint32_t first, uint32_t rows, uint32_t count,
                      uint32_t k, bool int4, void *tile)
{
    const int32_t zero_point = int4 ? 8 : 128;
    const uint32_t steps = (k + QUANTIZED_STEP - 1) / QUANTIZED_STEP;
    const uint32_t groups = int4 ? group_count(steps) : 1;
    float *scales = (float *)tile + first;
    int32_t *sums = (int32_t *)tile + count + first;
    uint32_t *packed = (uint32_t *)tile + (size_t)(1 + groups) * count + first;
    struct row_scale scale[PACK_ROWS];
    for (uint32_t r = 0; r < rows; r++) {
        scale[r] = row_scale_of(in[first + r], k);
        scales[r] = scale[r].scale;
        for (uint32_t g = 0; g < groups; g++)
            sums[g * count + r] = int4 ? INT4_START : 0;
    }
    for (uint32_t begin = 0; begin < k; begin += QUANTIZED_GROUP) {
        uint32_t width = k - begin < QUANTIZED_GROUP ? k - begin : QUANTIZED_GROUP;
        int8_t numbers[PACK_ROWS][QUANTIZED_GROUP] = {{0}};
        for (uint32_t r = 0; r < rows; r++) {
            const float *row = in[first + r] + begin;
            /* of the rows behind these, whose maximum is looked for next, if rows are neighbours (quantized.h) */
            for (uint32_t i = 0; i < QUANTIZED_GROUP; i += CACHE_LINE_FLOATS)
                __builtin_prefetch(row + (size_t)rows * k + i, 0, 2);
            quantize(row, width, scale[r].inverse, numbers[r]);
            sums[r] -= zero_point * sum_of(numbers[r]);
        }
        uint32_t quads = (width + QUANTIZED_STEP - 1) / QUANTIZED_STEP * 2;
        pack_quads(numbers, rows, quads, packed, count);
        packed += (size_t)quads * TILE_WORDS * count;
        sums += int4 ? count : 0;
    }
}

static void pack_tile(const float *const *rows, uint32_t count, uint32_t k, bool int4, void *tile)
{
    for (uint32_t r = 0; r < count; r += PACK_ROWS)
        pack_rows(rows, r, count - r < PACK_ROWS ? count - r : PACK_ROWS, count, k, int4, tile);
}

/* --- products --- */

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

/* (sum - EXP_ROUND) * scale, rounded once, and no zero is negative: EXP_ROUND * scale is exact, since scales are bf16 and at
 * most QUANTIZED_MAX. */
ALWAYS_INLINE floats scaled_group(ints sum, floats scale)
{
#if defined(__AVX512F__)
    return _mm512_fmsub_ps((floats)sum, scale, scale * broadcast(EXP_ROUND));
#elif defined(__AVX2__)
    return _mm256_fmsub_ps((floats)sum, scale, scale * broadcast(EXP_ROUND));
#else
    return ((floats)sum - broadcast(EXP_ROUND)) * scale + broadcast(0);
#endif
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
