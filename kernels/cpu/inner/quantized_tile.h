/* Tiles of quantized rows with words side by side, quad by quad, and the helpers that their
 * products share. The including source defines TILE_WORDS (words of a quad: 1 or 2), pack_quads and
 * sum_of. A source with another form for int4 than for int8 defines PACK_QUADS, START_WORDS (starts
 * of a row's sums in a group), FIRST_START and lower_start instead. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_TILE_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_TILE_H

#include "kernels/cpu/inner/quantized_end.h"

#include <string.h>

/* --- rows --- */

#define CACHE_LINE_FLOATS 16

#ifndef PACK_QUADS
#define PACK_QUADS(INT4)  pack_quads
#define START_WORDS(INT4) 1
#define FIRST_START(INT4) ((INT4) ? INT4_START : 0)

/* Lowers the start of a sum by what the zero point adds over these numbers. */
ALWAYS_INLINE void lower_start(const int8_t numbers[QUANTIZED_GROUP], int32_t zero_point,
                               int32_t *start, uint32_t stride)
{
    (void)stride;
    *start -= zero_point * sum_of(numbers);
}
#endif

static size_t row_bytes(uint32_t k, bool int4)
{
    const uint32_t steps = (k + QUANTIZED_STEP - 1) / QUANTIZED_STEP;
    return (1 + (int4 ? group_count(steps) : 1) * START_WORDS(int4) +
            (size_t)2 * TILE_WORDS(int4) * steps) *
           sizeof(uint32_t);
}

/* Packs rows first .. first + rows - 1, at most PACK_ROWS, of a tile of `count` rows. */
static void pack_rows(const float *const *in, uint32_t first, uint32_t rows, uint32_t count,
                      uint32_t k, bool int4, void *tile)
{
    const int32_t zero_point = int4 ? 8 : 128;
    const uint32_t steps = (k + QUANTIZED_STEP - 1) / QUANTIZED_STEP;
    const uint32_t starts = (int4 ? group_count(steps) : 1) * START_WORDS(int4);
    float *scales = (float *)tile + first;
    int32_t *sums = (int32_t *)tile + count + first;
    uint32_t *packed = (uint32_t *)tile + (size_t)(1 + starts) * count + first;
    struct row_scale scale[PACK_ROWS];
    for (uint32_t r = 0; r < rows; r++) {
        scale[r] = row_scale_of(in[first + r], k);
        scales[r] = scale[r].scale;
        for (uint32_t s = 0; s < starts; s++)
            sums[s * count + r] = FIRST_START(int4);
    }
    for (uint32_t begin = 0; begin < k; begin += QUANTIZED_GROUP) {
        uint32_t width = k - begin < QUANTIZED_GROUP ? k - begin : QUANTIZED_GROUP;
        int8_t numbers[PACK_ROWS][QUANTIZED_GROUP] = {{0}};
        for (uint32_t r = 0; r < rows; r++) {
            const float *row = in[first + r] + begin;
            /* prefetches the rows behind these: they are next, if rows are neighbours
             * (quantized.h) */
            for (uint32_t i = 0; i < QUANTIZED_GROUP; i += CACHE_LINE_FLOATS)
                __builtin_prefetch(row + (size_t)rows * k + i, 0, 2);
            quantize(row, width, scale[r].inverse, numbers[r]);
            lower_start(numbers[r], zero_point, sums + r, count);
        }
        uint32_t quads = (width + QUANTIZED_STEP - 1) / QUANTIZED_STEP * 2;
        PACK_QUADS(int4)(numbers, rows, quads, packed, count);
        packed += (size_t)quads * TILE_WORDS(int4) * count;
        sums += int4 ? START_WORDS(true) * count : 0;
    }
}

static void pack_tile(const float *const *rows, uint32_t count, uint32_t k, bool int4, void *tile)
{
    for (uint32_t r = 0; r < count; r += PACK_ROWS)
        pack_rows(rows, r, count - r < PACK_ROWS ? count - r : PACK_ROWS, count, k, int4, tile);
}

/* --- products --- */

ALWAYS_INLINE const int32_t *tile_sums(const struct quantized_product *product)
{
    return (const int32_t *)product->tile + product->rows;
}

ALWAYS_INLINE const uint32_t *tile_words(const struct quantized_product *product, uint32_t starts)
{
    return (const uint32_t *)product->tile + (size_t)product->rows * (1 + starts);
}

/* After the last group, writes partial * scale of the row as the product. */
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
