/* int8 by vpmaddwd: weights are widened to 16 bits, those of even k, then those of odd k; a word of
 * a tile is two inputs. A pair of products fits into 32 bits. With 8-bit factors (vpmaddubsw) it
 * wouldn't fit into 16. Included by quantized_avx2.c alone. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_AVX2_INT8_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_AVX2_INT8_H

#include "kernels/cpu/inner/quantized_avx2.h"
#include "kernels/cpu/inner/quantized_tile.h"

/* The form of a widened part: [k/4][even k, odd k][PANEL] pairs. */
#define INT8_PART_STEPS 32
_Static_assert(INT8_PART_STEPS *QUANTIZED_STEP == QUANTIZED_INT8_PART, "there is room for it");

IN_MEMORY(even_bytes, 0x00ff00ff);

ALWAYS_INLINE words even_of(const uint32_t *quads)
{
    words even;
    __asm__ volatile("vmovdqa %2, %0\n\tvpand %1, %0, %0"
                     : "=x"(even)
                     : "m"(*(const words *)quads), "m"(even_bytes));
    return even;
}

ALWAYS_INLINE words odd_of(const uint32_t *quads)
{
    words odd;
    __asm__ volatile("vmovdqu %1, %0\n\tvpsrlw $8, %0, %0"
                     : "=x"(odd)
                     : "m"(*(const words *)quads));
    return odd;
}

ADD_ROW(add_pairs_of_row, "vpmaddwd", "vpaddd")

/* Adds two k of each row. */
ALWAYS_INLINE void add_pairs(words w0, words w1, const uint32_t *tile, const uint32_t rows,
                             ints sum[][2])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        add_pairs_of_row(tile + r, w0, w1, sum[r]);
}

ALWAYS_INLINE void begin_int8(const struct quantized_product *product, const struct block *block,
                              const uint32_t rows, ints sum[][2])
{
    const int32_t *starts = (const int32_t *)block->tile + rows;
    const ints *partial = (const ints *)(product->partial + block->row * PANEL + block->n);
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++, partial += PANEL_VECTORS) {
        sum[r][0] = sum[r][1] = (ints){0} + starts[r];
        if (block->step) {
            sum[r][0] = partial[0];
            sum[r][1] = partial[1];
        }
    }
}

ALWAYS_INLINE void end_int8(const struct quantized_product *product, const struct block *block,
                            const uint32_t rows, ints sum[][2])
{
    if (block->end < product->steps) {
        ints *partial = (ints *)(product->partial + block->row * PANEL + block->n);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++, partial += PANEL_VECTORS) {
            partial[0] = sum[r][0];
            partial[1] = sum[r][1];
        }
        return;
    }
    const size_t left = product->steps - product->first_step;
    const float *scales = (const float *)(product->panel + left * 2 * QUANTIZED_STEP_BYTES);
    const floats *scale = (const floats *)(scales + block->n);
    const float *row_scales = (const float *)block->tile;
    float *out = product->out + block->row * product->out_stride + block->n;
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++, out += product->out_stride) {
        floats row_scale = broadcast(row_scales[r]);
        write_out(product, to_floats(sum[r][0]) * (row_scale * scale[0]), out);
        write_out(product, to_floats(sum[r][1]) * (row_scale * scale[1]), out + VECTOR);
    }
}

/* Adds four k, with weights as they lie in the panel, or wide. */
ALWAYS_INLINE void add_packed(const uint32_t *weights, const uint32_t *tile, const uint32_t rows,
                              ints sum[][2])
{
    words w0 = even_of(weights), w1 = even_of(weights + VECTOR);
    add_pairs(w0, w1, tile, rows, sum);
    w0 = odd_of(weights), w1 = odd_of(weights + VECTOR);
    add_pairs(w0, w1, tile + rows, rows, sum);
}

ALWAYS_INLINE void add_wide(const uint32_t *weights, const uint32_t *tile, const uint32_t rows,
                            ints sum[][2])
{
    const words *even = (const words *)weights, *odd = (const words *)(weights + PANEL);
    add_pairs(even[0], even[1], tile, rows, sum);
    add_pairs(odd[0], odd[1], tile + rows, rows, sum);
}

ALWAYS_INLINE void int8_block(const struct quantized_product *product, const struct block *block,
                              const bool is_wide, const uint32_t rows)
{
    const uint32_t *tile = block->tile + (2 + (size_t)block->step * 4) * rows;
    const size_t step = block->step - product->first_step;
    const uint32_t *weights = is_wide ? (const uint32_t *)product->wide + step * 4 * PANEL
                                      : (const uint32_t *)product->panel + step * 2 * PANEL;
    weights += block->n;
    const ptrdiff_t ahead = (const char *)product->next - (const char *)product->panel;
    ints sum[BLOCK_ROWS][2];
    begin_int8(product, block, rows, sum);
    if (block->end == product->steps)
        prefetch_rows(product->out + block->row * product->out_stride + block->n,
                      product->out_stride, 0, rows);
    for (uint32_t left = (block->end - block->step) * 2; left; left--, tile += 2 * rows) {
        if (is_wide) {
            add_wide(weights, tile, rows, sum);
            weights += 2 * PANEL;
        } else {
            if (block->row == 0)
                ask_for_block(weights, ahead);
            add_packed(weights, tile, rows, sum);
            weights += PANEL;
        }
    }
    end_int8(product, block, rows, sum);
}

/* Widens the product's steps for the products of all tiles, which read them several times. */
static void widen_int8_part(const struct quantized_product *product)
{
    const words *packed = (const words *)product->panel;
    words *wide = (words *)product->wide;
    for (uint32_t left = 2 * (product->end_step - product->first_step); left; left--) {
#pragma GCC unroll 4
        for (uint32_t v = 0; v < PANEL_VECTORS; v++) {
            wide[v] = packed[v] & 0x00ff00ff;
            wide[PANEL_VECTORS + v] = (words)_mm256_srli_epi16((__m256i)packed[v], 8);
        }
        packed += PANEL_VECTORS;
        wide += 2 * PANEL_VECTORS;
    }
}

/* Multiplies all tiles by steps step .. end - 1. */
ALWAYS_INLINE void int8_part(const struct quantized_product *product, uint32_t step, uint32_t end,
                             const bool is_wide)
{
    const size_t tile_words = row_bytes(product->steps * QUANTIZED_STEP, false) / 4 * BLOCK_ROWS;
    struct ahead ahead = ahead_of(product, tile_count(product));
    struct block block = {.tile = product->tile, .step = step, .end = end};
    for (; block.row < product->rows; block.row += BLOCK_ROWS, block.tile += tile_words) {
        if (is_wide)
            ask_ahead(&ahead);
        for (block.n = 0; block.n < PANEL; block.n += BLOCK_OUTPUTS)
            BLOCK_CASES(int8_block, tile_rows(product, block.row), product, &block, is_wide)
    }
}

static void int8_wide(const struct quantized_product *product)
{
    int8_part(product, product->first_step, product->end_step, true);
}

/* A function of its own, since the compiler spills sums to the stack inside more loops. */
__attribute__((noinline)) static void int8_packed_part(const struct quantized_product *product,
                                                       uint32_t step, uint32_t end)
{
    int8_part(product, step, end, false);
}

/* Goes in short parts, so that both halves of the panel read the level 1 cache and its lines come
 * about in order. The fewer the rows, the more memory decides. */
static void int8_packed(const struct quantized_product *product)
{
    const uint32_t most = product->rows < 4 ? INT8_PART_STEPS / 4 : INT8_PART_STEPS / 2;
    for (uint32_t step = product->first_step, end; step < product->end_step; step = end) {
        uint32_t left = product->end_step - step;
        end = step + (left < most ? left : most);
        int8_packed_part(product, step, end);
    }
}

/* Multiplies one row; reads the panel once. */
static void int8_row(const struct quantized_product *product)
{
    const words low = (words){0} + 0x00ff00ff;
    const uint32_t *tile = tile_words(product, 1);
    const uint8_t *panel = product->panel;
    ints sum[PANEL_VECTORS];
#pragma GCC unroll 4
    for (uint32_t v = 0; v < PANEL_VECTORS; v++)
        sum[v] = (ints){0} + *tile_sums(product);
    for (uint32_t left = 2 * product->steps; left; left--) {
        __m256i even = in_all_lanes(tile), odd = in_all_lanes(tile + 1);
        bring_near(panel, QUANTIZED_STEP_BYTES);
#pragma GCC unroll 4
        for (uint32_t v = 0; v < PANEL_VECTORS; v++) {
            words packed = ((const words *)panel)[v];
            sum[v] += (ints)_mm256_madd_epi16((__m256i)(packed & low), even);
            sum[v] += (ints)_mm256_madd_epi16(_mm256_srli_epi16((__m256i)packed, 8), odd);
        }
        panel += QUANTIZED_STEP_BYTES;
        tile += 2;
    }
    const floats row_scale = broadcast(*(const float *)product->tile);
#pragma GCC unroll 4
    for (uint32_t v = 0; v < PANEL_VECTORS; v++)
        write_out(product, to_floats(sum[v]) * (row_scale * ((const floats *)panel)[v]),
                  product->out + v * VECTOR);
}

#endif
