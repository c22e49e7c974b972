/* Tile product by vdpbf16ps. A tile is bf16 pairs: [pair][rows]. The instruction is written in
 * assembly: gcc 12 spills the sums to the stack when it is given as an intrinsic. A row is
 * broadcast once for both vectors: a core that does two of these a cycle has no loads for a memory
 * operand each. */
#ifndef BATON_KERNELS_CPU_INNER_PRODUCT_DOT_H
#define BATON_KERNELS_CPU_INNER_PRODUCT_DOT_H

#include "kernels/cpu/inner/bf16.h"
#include "kernels/cpu/inner/inner.h"
#include "kernels/cpu/inner/vector.h"

#define WORDS_PER_PAIR 1
#define WIDEN          NULL
#define WHOLE_ROWS     UINT32_MAX
#define NEAR_ROWS      5

/* A row as tile words: pairs of bf16. k is even. */
static inline void row_words(const float *restrict row, uint32_t k, uint32_t *restrict out)
{
    for (uint32_t i = 0; i < k; i += 2)
        out[i / 2] = (uint32_t)round_one(row[i + 1]) << 16 | round_one(row[i]);
}

#define DOT(SUM, W, X) __asm__("vdpbf16ps %2, %1, %0" : "+v"(SUM) : "v"(W), "v"(X))

/* `rows` is a constant at every call, so that the sums live in registers. */
ALWAYS_INLINE void multiply_rows(const struct tile_product *product, const uint32_t rows)
{
    const uint32_t *panel = product->panel, *tile = product->tile;
    __m512 sum[TILE_ROWS][2];
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    const char *next = product->next ? product->next : (const char *)panel;
    const uint32_t shares = ROW_SHARES(rows);
    for (uint32_t share = 0, p = 0; share < shares; share++) {
        prefetch_rows(product->out, product->out_stride, rows * share / shares,
                      rows * (share + 1) / shares);
        for (uint32_t end = product->pairs * (share + 1) / shares; p < end;
             p++, panel += PANEL, tile += rows, next += product->next_step) {
            __builtin_prefetch(next, 0, 2); /* into the second level */
            __builtin_prefetch(next + 64, 0, 2);
            if (rows < TILE_ROWS)
                bring_near(panel, PANEL * sizeof *panel);
            __m512i w0 = _mm512_loadu_si512(panel), w1 = _mm512_loadu_si512(panel + PANEL / 2);
#pragma GCC unroll 12
            for (uint32_t r = 0; r < rows; r++) {
                floats x = in_turn((floats)_mm512_set1_epi32((int)tile[r]));
                DOT(sum[r][0], w0, x);
                DOT(sum[r][1], w1, x);
            }
        }
    }
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t half = 0; half < 2; half++) {
            float *target = product->out + r * product->out_stride + half * PANEL / 2;
            if (product->add)
                sum[r][half] = _mm512_add_ps(sum[r][half], _mm512_loadu_ps(target));
            _mm512_storeu_ps(target, sum[r][half]);
        }
}

#define ROWS_CASE(ROWS)                                                                            \
    case ROWS: multiply_rows(product, ROWS); break;

static void multiply(const struct tile_product *product)
{
    switch (product->rows) {
        ROWS_CASE(1)
        ROWS_CASE(2)
        ROWS_CASE(3)
        ROWS_CASE(4)
        ROWS_CASE(5)
        ROWS_CASE(6)
        ROWS_CASE(7)
        ROWS_CASE(8)
        ROWS_CASE(9)
        ROWS_CASE(10)
        ROWS_CASE(11)
        ROWS_CASE(12)
    }
}

#endif
