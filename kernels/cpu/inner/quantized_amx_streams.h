/* One unit of rows times QUANTIZED_AMX_STREAMS panels side by side, a block of each in turns. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_AMX_STREAMS_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_AMX_STREAMS_H

#include "kernels/cpu/inner/quantized_amx.h"

_Static_assert(QUANTIZED_AMX_STREAMS == 2, "a panel's two tiles of sums each");

/* In bytes: what is to be in the first level of cache, which is the next block, and what in the
 * second. */
#define UNIT_NEAR BLOCK_PANEL
#define UNIT_FAR  (4 * BLOCK_PANEL)

/* A quarter of a block's requests, for lines of both panels in turns. */
ALWAYS_INLINE void request_quarter(const uint8_t *first, const uint8_t *second, uint32_t quarter)
{
    const uint32_t begin = quarter * (BLOCK_PANEL / 4);
#pragma GCC unroll 8
    for (uint32_t line = begin; line < begin + BLOCK_PANEL / 4; line += 64) {
        __builtin_prefetch(first + UNIT_FAR + line, 0, 2);
        __builtin_prefetch(second + UNIT_FAR + line, 0, 2);
        __builtin_prefetch(first + UNIT_NEAR + line, 0, 3);
        __builtin_prefetch(second + UNIT_NEAR + line, 0, 3);
    }
}

/* Outputs that are written at the end of `count` blocks, those of block i: else their lines would
 * be waited for at once. */
ALWAYS_INLINE void request_outputs(const struct quantized_product *product, uint32_t i,
                                   uint32_t count)
{
    uint32_t row = product->rows * i / count, end = product->rows * (i + 1) / count;
    prefetch_rows(product->out, product->out_stride, row, end);
    prefetch_rows(product->out + product->outs_apart, product->out_stride, row, end);
}

/* Half of a block of a panel, times the unit's in tile 4. */
#define ADD_HALF(WEIGHTS, TILE, SUMS)                                                              \
    do {                                                                                           \
        TILE_LOAD(TILE, WEIGHTS, PANEL * 4);                                                       \
        TILE_DOT_S8_U8(SUMS, 4, TILE);                                                             \
    } while (0)

static void int8_unit_of_panels(const struct quantized_product *product)
{
    const uint32_t whole = product->steps / BLOCK_STEPS, rest = product->steps % BLOCK_STEPS;
    const uint8_t *first = product->panel, *second = first + product->panels_apart;
    const uint8_t *rows = (const uint8_t *)product->tile + HEADER_BYTES;
    zero_sums(QUANTIZED_AMX_STREAMS);
    for (uint32_t i = 0; i < whole; i++) {
        /* between the tiles' loads, since a burst of requests holds up what comes behind it */
        TILE_LOAD(4, rows, BLOCK_K);
        ADD_HALF(first, 6, 0);
        request_quarter(first, second, 0);
        ADD_HALF(first + AMX_ROW_BYTES, 7, 1);
        request_quarter(first, second, 1);
        ADD_HALF(second, 6, 2);
        request_quarter(first, second, 2);
        ADD_HALF(second + AMX_ROW_BYTES, 7, 3);
        request_quarter(first, second, 3);
        request_outputs(product, i, whole);
        rows += BLOCK_BYTES;
        first += BLOCK_PANEL;
        second += BLOCK_PANEL;
    }
    if (rest) {
        _Alignas(64) uint8_t cut[QUANTIZED_AMX_STREAMS][BLOCK_PANEL];
        cut_block(first, rest, cut[0]);
        cut_block(second, rest, cut[1]);
        TILE_LOAD(4, rows, BLOCK_K);
        ADD_HALF(cut[0], 6, 0);
        ADD_HALF(cut[0] + AMX_ROW_BYTES, 7, 1);
        ADD_HALF(cut[1], 6, 2);
        ADD_HALF(cut[1] + AMX_ROW_BYTES, 7, 3);
        first += (size_t)rest * 2 * QUANTIZED_STEP_BYTES;
        second += (size_t)rest * 2 * QUANTIZED_STEP_BYTES;
    }
    _Alignas(64) int32_t sums[QUANTIZED_AMX_STREAMS][AMX_ROWS * PANEL];
    store_sums(sums[0], QUANTIZED_AMX_STREAMS);
    finish_int8(product, sums[0], product->out, (const float *)first);
    finish_int8(product, sums[1], product->out + product->outs_apart, (const float *)second);
}

#endif
