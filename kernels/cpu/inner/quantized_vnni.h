/* Sums of vpdpbusd, four u8 times s8 to a lane, of up to TILE_ROWS rows times a panel. The
 * instruction is written in assembly, two rows of three as its broadcast memory operand
 * (product_fma.h says why): only its signed operand may be one, so the weights are the unsigned
 * ones; and gcc 12 spills the sums to the stack when it is given as an intrinsic. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_VNNI_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_VNNI_H

#include "kernels/cpu/inner/quantized_end.h"

/* Few rows: each sum in two parts, for even and odd quads of k, since a lane's next product would
 * have to wait for its last. */
#define CHAINS(ROWS) ((ROWS) <= 6 ? 2 : 1)

struct sums {
    __m512i part[TILE_ROWS][2]; /* [row * chains + chain][half of the panel] */
};

/* `rows` is a constant at every call, so that the sums live in registers. */
ALWAYS_INLINE void begin_sums(struct sums *sums, const int32_t *inputs, const uint32_t rows)
{
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++) {
        /* volatile: read twice, since a copy would take a port of the products */
        __m512i *start = sums->part[r * CHAINS(rows)];
        __asm__ volatile("vpbroadcastd %1, %0" : "=v"(start[0]) : "m"(inputs[r]));
        __asm__ volatile("vpbroadcastd %1, %0" : "=v"(start[1]) : "m"(inputs[r]));
        if (CHAINS(rows) == 2)
            sums->part[2 * r + 1][0] = sums->part[2 * r + 1][1] = _mm512_setzero_si512();
    }
}

ALWAYS_INLINE void add_row(const uint32_t *x, const bool loaded, __m512i w0, __m512i w1,
                           __m512i sum[2])
{
    if (!loaded) {
        __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum[0]) : "v"(w0), "m"(*x));
        __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum[1]) : "v"(w1), "m"(*x));
        return;
    }
    __m512i all;
    __asm__("vpbroadcastd %1, %0" : "=v"(all) : "m"(*x));
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum[0]) : "v"(w0), "v"(all));
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum[1]) : "v"(w1), "v"(all));
}

/* Row r of a quad of k; chain: 0 or 1 in turns. */
ALWAYS_INLINE void add_row_of_quad(struct sums *sums, __m512i w0, __m512i w1, const uint32_t *tile,
                                   const uint32_t chain, const uint32_t r, const uint32_t rows)
{
    uint32_t part = r * CHAINS(rows) + (CHAINS(rows) == 2 ? chain : 0);
    add_row(tile + r, r % 3 == 1, w0, w1, sums->part[part]);
}

ALWAYS_INLINE void add_quad(struct sums *sums, __m512i w0, __m512i w1, const uint32_t *tile,
                            const uint32_t chain, const uint32_t rows)
{
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++)
        add_row_of_quad(sums, w0, w1, tile, chain, r, rows);
}

ALWAYS_INLINE ints sum_of_row(const struct sums *sums, uint32_t r, uint32_t half,
                              const uint32_t rows)
{
    ints sum = (ints)sums->part[r * CHAINS(rows)][half];
    if (CHAINS(rows) == 2)
        sum += (ints)sums->part[2 * r + 1][half];
    return sum;
}

/* The sums times their scales, to a panel's outputs. */
ALWAYS_INLINE void write_int8(const struct quantized_product *product, const struct sums *sums,
                              const floats *scales, float *out, const uint32_t rows)
{
    const floats scale0 = scales[0], scale1 = scales[1];
    const float *row_scales = product->tile;
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++, out += product->out_stride) {
        floats row_scale = broadcast(row_scales[r]);
        write_out(product, to_floats(sum_of_row(sums, r, 0, rows)) * (row_scale * scale0), out);
        write_out(product, to_floats(sum_of_row(sums, r, 1, rows)) * (row_scale * scale1),
                  out + VECTOR);
    }
}

#endif
