/* One unit of rows times QUANTIZED_AMX_STREAMS panels side by side, a block of each in turns. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_AMX_STREAMS_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_AMX_STREAMS_H

#include "kernels/cpu/inner/quantized_amx.h"

_Static_assert(QUANTIZED_AMX_STREAMS == 2, "a panel's two tiles of sums each");

/* A block of the unit, in tile 4, times one of a panel. */
#define ADD_STREAM(WEIGHTS, SUMS0, SUMS1)                                                          \
    do {                                                                                           \
        TILE_LOAD(6, WEIGHTS, PANEL * 4);                                                          \
        TILE_LOAD(7, (WEIGHTS) + AMX_ROW_BYTES, PANEL * 4);                                        \
        TILE_DOT_S8_U8(SUMS0, 4, 6);                                                               \
        TILE_DOT_S8_U8(SUMS1, 4, 7);                                                               \
    } while (0)

static void int8_unit_of_panels(const struct quantized_product *product)
{
    const uint32_t whole = product->steps / BLOCK_STEPS, rest = product->steps % BLOCK_STEPS;
    const uint8_t *first = product->panel, *second = first + product->panels_apart;
    const uint8_t *rows = (const uint8_t *)product->tile + HEADER_BYTES;
    zero_sums(QUANTIZED_AMX_STREAMS);
    for (uint32_t i = 0; i < whole; i++) {
        /* all at once, since a tile's load can't be split; most are of this very block */
        for (uint32_t line = 0; line < BLOCK_PANEL; line += 64) {
            __builtin_prefetch(first + STREAM_FAR + line, 0, 2);
            __builtin_prefetch(second + STREAM_FAR + line, 0, 2);
            __builtin_prefetch(first + STREAM_NEAR + line, 0, 3);
            __builtin_prefetch(second + STREAM_NEAR + line, 0, 3);
        }
        TILE_LOAD(4, rows, BLOCK_K);
        ADD_STREAM(first, 0, 1);
        ADD_STREAM(second, 2, 3);
        rows += BLOCK_BYTES;
        first += BLOCK_PANEL;
        second += BLOCK_PANEL;
    }
    if (rest) {
        _Alignas(64) uint8_t cut[QUANTIZED_AMX_STREAMS][BLOCK_PANEL];
        cut_block(first, rest, cut[0]);
        cut_block(second, rest, cut[1]);
        TILE_LOAD(4, rows, BLOCK_K);
        ADD_STREAM(cut[0], 0, 1);
        ADD_STREAM(cut[1], 2, 3);
        first += (size_t)rest * 2 * QUANTIZED_STEP_BYTES;
        second += (size_t)rest * 2 * QUANTIZED_STEP_BYTES;
    }
    _Alignas(64) int32_t sums[QUANTIZED_AMX_STREAMS][AMX_ROWS * PANEL];
    store_sums(sums[0], QUANTIZED_AMX_STREAMS);
    finish_int8(product, sums[0], product->out, (const float *)first);
    finish_int8(product, sums[1], product->out + product->outs_apart, (const float *)second);
}

#endif
