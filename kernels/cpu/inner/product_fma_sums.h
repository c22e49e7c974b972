/* The tile of products by fp32 multiply-add, and the sums of a block of rows x two vectors of
 * outputs. A tile is fp32: [pair][odd k, even k][rows]. */
#ifndef BATON_KERNELS_CPU_INNER_PRODUCT_FMA_SUMS_H
#define BATON_KERNELS_CPU_INNER_PRODUCT_FMA_SUMS_H

#include "kernels/cpu/inner/bf16.h"
#include "kernels/cpu/inner/inner.h"
#include "kernels/cpu/inner/vector.h"

#define WORDS_PER_PAIR 2

/* Writes a row as tile words: fp32 numbers without the bits that bf16 can't hold, odd k first. k is
 * even. */
static inline void row_words(const float *restrict row, uint32_t k, uint32_t *restrict out)
{
    for (uint32_t i = 0; i < k; i += 2) {
        out[i] = (uint32_t)round_one(row[i + 1]) << 16;
        out[i + 1] = (uint32_t)round_one(row[i]) << 16;
    }
}

/* Begins a block at `row` and output `n`. `rows` is a constant at every call, so that the sums live
 * in registers. */
ALWAYS_INLINE void begin_block(const struct tile_product *product, uint32_t row, uint32_t n,
                               const uint32_t rows, floats sum[][2])
{
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = (floats){0};
    if (!product->resume)
        return;
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++) {
        const floats *from = (const floats *)(product->sums + (row + r) * PANEL + n);
        sum[r][0] = from[0];
        sum[r][1] = from[1];
    }
}

ALWAYS_INLINE void end_block(const struct tile_product *product, uint32_t row, uint32_t n,
                             const uint32_t rows, floats sum[][2])
{
    float *to = product->pause ? product->sums + row * PANEL + n
                               : product->out + row * product->out_stride + n;
    size_t stride = product->pause ? PANEL : product->out_stride;
    bool add = product->add && !product->pause;
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++) {
        floats *target = (floats *)(to + r * stride);
        if (add) {
            sum[r][0] += target[0];
            sum[r][1] += target[1];
        }
        target[0] = sum[r][0];
        target[1] = sum[r][1];
    }
}

#endif
