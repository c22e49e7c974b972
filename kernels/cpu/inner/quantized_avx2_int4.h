/* int4 by vpmaddubsw: 0 .. 15 times s8, a pair of products to 16 bits, which always fits. Sums of
 * INT4_HALF k stay in 16 bits, too. They begin at -8 times the sum of their inputs. So at the end
 * and on the way they are sums of 32 products of -8 .. 7 and -127 .. 127: 32512 at most. Included
 * by quantized_avx2.c alone. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_AVX2_INT4_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_AVX2_INT4_H

#include "kernels/cpu/inner/quantized_avx2.h"
#include "kernels/cpu/inner/quantized_tile.h"

#define HALF_STEPS      (INT4_HALF / QUANTIZED_STEP)
#define INT4_PART_STEPS (4 * STEPS_OF_GROUP)
_Static_assert(INT4_HALF / 2 * 8 * 127 <= INT16_MAX, "a lane's sum fits");

IN_MEMORY(low_halves, 0x0f0f0f0f);
IN_MEMORY(ones, 0x00010001);
IN_MEMORY(begin, INT4_START);

ALWAYS_INLINE words low_of(const uint32_t *step)
{
    words low;
    __asm__ volatile("vmovdqa %2, %0\n\tvpand %1, %0, %0"
                     : "=&x"(low)
                     : "m"(*(const words *)step), "m"(low_halves));
    return low;
}

ALWAYS_INLINE words high_of(const uint32_t *step)
{
    words high;
    __asm__ volatile("vmovdqu %1, %0\n\tvpsrlw $4, %0, %0\n\tvpand %2, %0, %0"
                     : "=&x"(high)
                     : "m"(*(const words *)step), "m"(low_halves));
    return high;
}

/* Adds 16-bit sums two by two. */
ALWAYS_INLINE ints widened_sums(ints sum)
{
    __asm__("vpmaddwd %1, %0, %0" : "+x"(sum) : "m"(ones));
    return sum;
}

ALWAYS_INLINE ints begun_sums(ints sum)
{
    sum = widened_sums(sum);
    __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "m"(begin));
    return sum;
}

ADD_ROW(add_quad_of_row, "vpmaddubsw", "vpaddw")

/* Adds four k of each row. */
ALWAYS_INLINE void add_quad(words w0, words w1, const uint32_t *tile, const uint32_t rows,
                            ints sum[][2])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        add_quad_of_row(tile + r, w0, w1, sum[r]);
}

/* The weights and scales of a group. Scales are f32 if wide, bf16 in the panel. */
struct int4_group {
    const uint32_t *weights;
    const void *scales;
};

ALWAYS_INLINE struct int4_group int4_group_at(const struct quantized_product *product,
                                              uint32_t step, uint32_t end, const bool is_wide)
{
    const size_t group = (step - product->first_step) / STEPS_OF_GROUP;
    if (is_wide) {
        const uint8_t *at = product->wide + group * INT4_WIDE_BYTES;
        return (struct int4_group){(const uint32_t *)(at + PANEL * sizeof(float)), at};
    }
    const uint8_t *at = product->panel;
    at += group * (STEPS_OF_GROUP * QUANTIZED_STEP_BYTES + INT4_SCALE_BYTES);
    return (struct int4_group){(const uint32_t *)at, at + (end - step) * QUANTIZED_STEP_BYTES};
}

/* Adds `steps` steps, from `weights` and `tile` on, to the 16-bit sums. */
ALWAYS_INLINE void add_half(const uint32_t *weights, const uint32_t *tile, uint32_t steps,
                            ptrdiff_t ahead, const bool is_wide, const uint32_t rows, ints sum[][2])
{
    for (; steps; steps--, tile += 2 * rows) {
        const words *w = (const words *)weights;
        if (is_wide) {
            add_quad(w[0], w[1], tile, rows, sum);
            add_quad(w[PANEL_VECTORS], w[PANEL_VECTORS + 1], tile + rows, rows, sum);
            weights += 2 * PANEL;
        } else {
            if (ahead)
                ask_for_block(weights, ahead);
            add_quad(low_of(weights), low_of(weights + VECTOR), tile, rows, sum);
            add_quad(high_of(weights), high_of(weights + VECTOR), tile + rows, rows, sum);
            weights += PANEL;
        }
    }
}

/* Ends a group: `held` has the sums of its first half, `sum` those of its second. */
ALWAYS_INLINE void end_group(const struct quantized_product *product, const struct block *block,
                             const void *scales, const bool is_wide, const uint32_t rows,
                             const ints *held, ints sum[][2])
{
#pragma GCC unroll 2
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t n = block->n + i * VECTOR;
        const floats scale = is_wide ? *(const floats *)((const float *)scales + n)
                                     : widen_bf16((const uint16_t *)scales + n);
        float *partial = product->partial + block->row * PANEL + n;
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++, partial += PANEL) {
            floats value = scaled_group(widened_sums(sum[r][i]) + held[2 * r + i], scale);
            if (block->step)
                value += *(const floats *)partial;
            *(floats *)partial = value;
        }
    }
}

/* Multiplies a block. The sums of the first half wait in memory: the second half needs the
 * registers. */
ALWAYS_INLINE void int4_block(const struct quantized_product *product, const struct block *block,
                              const struct int4_group *group, const bool is_wide,
                              const uint32_t rows)
{
    const uint32_t *starts = block->tile + rows * (1 + block->step / STEPS_OF_GROUP * 2);
    const uint32_t *tile =
        block->tile + rows * (1 + 2 * group_count(product->steps)) + (size_t)block->step * 2 * rows;
    const uint32_t *weights = group->weights + block->n;
    const ptrdiff_t ahead =
        block->row ? 0 : (const char *)product->next - (const char *)product->panel;
    uint32_t left = block->end - block->step, steps = left < HALF_STEPS ? left : HALF_STEPS;
    ints held[BLOCK_ROWS][2], *hold = *held, sum[BLOCK_ROWS][2];
    __asm__("" : "+r"(hold)); /* an address of its own: these stores are no spills */
    for (uint32_t half = 0;; half++) {
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++)
            sum[r][0] = sum[r][1] = (ints)in_all_lanes(starts + half * rows + r);
        add_half(weights, tile, steps, ahead, is_wide, rows, sum);
        if (half)
            break;
        weights += (size_t)steps * (is_wide ? 2 : 1) * PANEL;
        tile += (size_t)steps * 2 * rows;
        steps = left - steps;
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++) {
            hold[2 * r] = begun_sums(sum[r][0]);
            hold[2 * r + 1] = begun_sums(sum[r][1]);
        }
    }
    end_group(product, block, group->scales, is_wide, rows, hold, sum);
}

static void finish_tile(const struct quantized_product *product, const struct block *block,
                        uint32_t rows)
{
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t n = 0; n < PANEL; n += VECTOR) {
            const float *partial = product->partial + (block->row + r) * PANEL + n;
            write_out(product,
                      *(const floats *)partial * broadcast(((const float *)block->tile)[r]),
                      product->out + (block->row + r) * product->out_stride + n);
        }
}

/* Multiplies all tiles by all steps, group by group. */
ALWAYS_INLINE void int4_part(const struct quantized_product *product, const bool is_wide)
{
    const size_t tile_words = row_bytes(product->steps * QUANTIZED_STEP, true) / 4 * BLOCK_ROWS;
    struct ahead ahead = ahead_of(product, tile_count(product));
    struct block block = {.tile = product->tile};
    for (; block.row < product->rows; block.row += BLOCK_ROWS, block.tile += tile_words) {
        const uint32_t rows = tile_rows(product, block.row);
        const bool is_last = product->end_step == product->steps;
        if (is_wide)
            ask_ahead(&ahead);
        if (is_last)
            for (uint32_t n = 0; n < PANEL; n += BLOCK_OUTPUTS)
                prefetch_rows(product->out + block.row * product->out_stride + n,
                              product->out_stride, 0, rows);
        for (block.step = product->first_step; block.step < product->end_step;
             block.step = block.end) {
            block.end = group_end(block.step, product->steps);
            struct int4_group group = int4_group_at(product, block.step, block.end, is_wide);
            for (block.n = 0; block.n < PANEL; block.n += BLOCK_OUTPUTS)
                BLOCK_CASES(int4_block, rows, product, &block, &group, is_wide)
        }
        if (is_last)
            finish_tile(product, &block, rows);
    }
}

static void int4_wide(const struct quantized_product *product)
{
    int4_part(product, true);
}

static void int4_packed(const struct quantized_product *product)
{
    int4_part(product, false);
}

static void widen_int4_part(const struct quantized_product *product)
{
    const words low = (words){0} + 0x0f0f0f0f;
    uint8_t *wide = product->wide;
    for (uint32_t step = product->first_step; step < product->end_step;) {
        uint32_t end = group_end(step, product->steps);
        struct int4_group group = int4_group_at(product, step, end, false);
        const words *packed = (const words *)group.weights;
        floats *scales = (floats *)wide;
        words *quads = (words *)(wide + PANEL * sizeof(float));
        for (uint32_t v = 0; v < PANEL_VECTORS; v++)
            scales[v] = widen_bf16((const uint16_t *)group.scales + v * VECTOR);
        for (; step < end; step++) {
#pragma GCC unroll 4
            for (uint32_t v = 0; v < PANEL_VECTORS; v++) {
                quads[v] = packed[v] & low;
                quads[PANEL_VECTORS + v] = packed[v] >> 4 & low;
            }
            packed += PANEL_VECTORS;
            quads += 2 * PANEL_VECTORS;
        }
        wide += INT4_WIDE_BYTES;
    }
}

ALWAYS_INLINE ints add_bytes(ints sum, __m256i weights, __m256i inputs)
{
    return (ints)_mm256_add_epi16((__m256i)sum, _mm256_maddubs_epi16(weights, inputs));
}

/* Adds half of a group, or less, of one row to the group's sums. */
ALWAYS_INLINE void int4_half_row(const uint8_t *panel, const uint32_t *tile, uint32_t steps,
                                 uint32_t start, ints sum[PANEL_VECTORS])
{
    const __m256i low = (__m256i)low_halves;
    ints part[PANEL_VECTORS];
#pragma GCC unroll 4
    for (uint32_t v = 0; v < PANEL_VECTORS; v++)
        part[v] = (ints){0} + (int32_t)start;
    for (; steps; steps--) {
        __m256i x0 = in_all_lanes(tile), x1 = in_all_lanes(tile + 1);
        bring_near(panel, QUANTIZED_STEP_BYTES);
#pragma GCC unroll 4
        for (uint32_t v = 0; v < PANEL_VECTORS; v++) {
            __m256i packed = (__m256i)((const words *)panel)[v];
            part[v] = add_bytes(part[v], packed & low, x0);
            part[v] = add_bytes(part[v], _mm256_srli_epi16(packed, 4) & low, x1);
        }
        panel += QUANTIZED_STEP_BYTES;
        tile += 2;
    }
#pragma GCC unroll 4
    for (uint32_t v = 0; v < PANEL_VECTORS; v++)
        sum[v] += widened_sums(part[v]);
}

/* Multiplies one row; reads the panel once. */
static void int4_row(const struct quantized_product *product)
{
    const uint32_t *starts = (const uint32_t *)tile_sums(product),
                   *tile = tile_words(product, 2 * group_count(product->steps));
    const uint8_t *panel = product->panel;
    floats *partial = (floats *)product->partial;
    for (uint32_t step = 0; step < product->steps; starts += 2) {
        const bool first = step == 0;
        const uint32_t end = group_end(step, product->steps);
        ints sum[PANEL_VECTORS];
#pragma GCC unroll 4
        for (uint32_t v = 0; v < PANEL_VECTORS; v++)
            __asm__ volatile("vmovdqa %1, %0" : "=x"(sum[v]) : "m"(begin));
        for (uint32_t half = 0; step < end; half++) {
            uint32_t steps = end - step < HALF_STEPS ? end - step : HALF_STEPS;
            int4_half_row(panel, tile, steps, starts[half], sum);
            panel += steps * QUANTIZED_STEP_BYTES;
            tile += 2 * steps;
            step += steps;
        }
#pragma GCC unroll 4
        for (uint32_t v = 0; v < PANEL_VECTORS; v++) {
            floats value = scaled_group(sum[v], widen_bf16((const uint16_t *)panel + v * VECTOR));
            if (!first)
                value += partial[v];
            partial[v] = value;
        }
        panel += INT4_SCALE_BYTES;
    }
    finish_int4(product);
}

#endif
