/* One row times QUANTIZED_VNNI_STREAMS panels side by side, a step of each in turns (vector.h:
 * stream_line). Included by quantized_avx512vnni.c, behind quantized_tile.h. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_VNNI_STREAMS_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_VNNI_STREAMS_H

#include "kernels/cpu/inner/quantized_vnni.h"

static void int8_row_of_panels(const struct quantized_product *product)
{
    const uint32_t *tile = tile_words(product, 1);
    const uint8_t *panel = product->panel;
    const size_t apart = product->panels_apart;
    struct sums sums[QUANTIZED_VNNI_STREAMS];
#pragma GCC unroll 4
    for (uint32_t p = 0; p < QUANTIZED_VNNI_STREAMS; p++)
        begin_sums(&sums[p], tile_sums(product), 1);
    for (uint32_t step = 0; step < product->steps; step++) {
#pragma GCC unroll 4
        for (uint32_t p = 0; p < QUANTIZED_VNNI_STREAMS; p++) {
            const uint8_t *w = panel + p * apart;
            add_quad(&sums[p], (__m512i)stream_line(w), (__m512i)stream_line(w + 64), tile, 0, 1);
            add_quad(&sums[p], (__m512i)stream_line(w + 128), (__m512i)stream_line(w + 192),
                     tile + 1, 1, 1);
        }
        panel += 2 * QUANTIZED_STEP_BYTES;
        tile += 2;
    }
#pragma GCC unroll 4
    for (uint32_t p = 0; p < QUANTIZED_VNNI_STREAMS; p++)
        write_int8(product, &sums[p], (const floats *)(panel + p * apart),
                   product->out + p * product->outs_apart, 1);
}

static void int4_row_of_panels(const struct quantized_product *product)
{
    const __m512i low = _mm512_set1_epi8(15);
    const uint32_t *tile = tile_words(product, group_count(product->steps));
    const int32_t *inputs = tile_sums(product);
    const uint8_t *at = product->panel;
    floats partial[QUANTIZED_VNNI_STREAMS][2] = {0};
    for (uint32_t step = 0; step < product->steps; inputs++) {
        const __mmask16 known = step ? 0xffff : 0;
        struct sums sums[QUANTIZED_VNNI_STREAMS];
#pragma GCC unroll 4
        for (uint32_t p = 0; p < QUANTIZED_VNNI_STREAMS; p++)
            begin_sums(&sums[p], inputs, 1);
        for (uint32_t end = group_end(step, product->steps); step < end; step++, tile += 2) {
#pragma GCC unroll 4
            for (uint32_t p = 0; p < QUANTIZED_VNNI_STREAMS; p++) {
                const uint8_t *w = at + p * product->panels_apart;
                __m512i w0 = (__m512i)stream_line(w), w1 = (__m512i)stream_line(w + 64);
                add_quad(&sums[p], w0 & low, w1 & low, tile, 0, 1);
                add_quad(&sums[p], _mm512_srli_epi16(w0, 4) & low, _mm512_srli_epi16(w1, 4) & low,
                         tile + 1, 1, 1);
            }
            at += QUANTIZED_STEP_BYTES;
        }
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 2 * QUANTIZED_VNNI_STREAMS; i++) {
            const uint16_t *scales = (const uint16_t *)(at + i / 2 * product->panels_apart);
            floats value = scaled_group(sum_of_row(&sums[i / 2], 0, i % 2, 1),
                                        widen_bf16(scales + i % 2 * VECTOR));
            floats *sum = &partial[i / 2][i % 2];
            *sum = (floats)_mm512_mask_add_ps((__m512)value, known, (__m512)value, (__m512)*sum);
        }
        at += INT4_SCALE_BYTES;
    }
    floats row_scale = broadcast(*(const float *)product->tile);
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 2 * QUANTIZED_VNNI_STREAMS; i++)
        write_out(product, partial[i / 2][i % 2] * row_scale,
                  product->out + i / 2 * product->outs_apart + i % 2 * VECTOR);
}

#endif
