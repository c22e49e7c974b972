/* Units of quantized rows as AMX takes them, and their sums.
 *
 * A unit: f32 scale [16], int32 -128 times the sum of the inputs [16] (int4: zeros), then blocks of
 * 64 k, [k/64][16][64] s8; K is padded with zeros. Rows that aren't there are whatever lay there:
 * nobody reads their sums. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_AMX_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_AMX_H

#include "kernels/cpu/inner/amx.h"
#include "kernels/cpu/inner/quantized_end.h"

#include <string.h>

#define BLOCK_K      64
#define BLOCK_STEPS  (BLOCK_K / QUANTIZED_STEP)
#define BLOCK_BYTES  (AMX_ROWS * AMX_ROW_BYTES) /* of a unit */
#define BLOCK_PANEL  (BLOCK_K * PANEL)          /* bytes of a panel */
#define HEADER_BYTES (AMX_ROWS * 8)

ALWAYS_INLINE uint32_t block_count(uint32_t steps)
{
    return (steps + BLOCK_STEPS - 1) / BLOCK_STEPS;
}

ALWAYS_INLINE size_t unit_bytes(uint32_t steps)
{
    return HEADER_BYTES + (size_t)block_count(steps) * BLOCK_BYTES;
}

/* --- sums: tiles 0 to 3, [unit][half of the panel], or of one unit [panel][half] --- */

ALWAYS_INLINE void zero_sums(const uint32_t pairs)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    if (pairs == 2) {
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
}

/* As [row][PANEL]. */
ALWAYS_INLINE void load_sums(const int32_t *sums, const uint32_t pairs)
{
    TILE_LOAD(0, sums, PANEL * 4);
    TILE_LOAD(1, sums + AMX_ROWS, PANEL * 4);
    if (pairs == 2) {
        TILE_LOAD(2, sums + AMX_ROWS * PANEL, PANEL * 4);
        TILE_LOAD(3, sums + AMX_ROWS * PANEL + AMX_ROWS, PANEL * 4);
    }
}

ALWAYS_INLINE void store_sums(int32_t *sums, const uint32_t pairs)
{
    TILE_STORE(0, sums, PANEL * 4);
    TILE_STORE(1, sums + AMX_ROWS, PANEL * 4);
    if (pairs == 2) {
        TILE_STORE(2, sums + AMX_ROWS * PANEL, PANEL * 4);
        TILE_STORE(3, sums + AMX_ROWS * PANEL + AMX_ROWS, PANEL * 4);
    }
}

/* What is asked for beside the blocks, in equal shares: lines of what comes next into the second
 * level, and, with the last steps, those of the outputs. */
struct errand {
    const char *next, *end;
    size_t bytes; /* of a share */
    float *out;
    uint32_t row, rows, share_rows;
};

ALWAYS_INLINE struct errand errand_of(const struct quantized_product *product, uint32_t blocks)
{
    const char *next = product->next;
    bool ends = product->end_step == product->steps;
    return (struct errand){.next = next,
                           .end = next + product->next_bytes,
                           .bytes = product->next_bytes / blocks + 1,
                           .out = product->out,
                           .rows = ends && !product->past_caches ? product->rows : 0,
                           .share_rows = (product->rows + blocks - 1) / blocks};
}

ALWAYS_INLINE void run_errand(struct errand *errand, size_t stride)
{
    const char *end = errand->next + errand->bytes;
    end = end < errand->end ? end : errand->end;
    for (; errand->next < end; errand->next += 64)
        __builtin_prefetch(errand->next, 0, 2);
    for (uint32_t i = 0; i < errand->share_rows && errand->row < errand->rows; i++, errand->row++) {
        prefetch_rows(errand->out, stride, 0, 1);
        errand->out += stride;
    }
}

/* --- int8 --- */

/* The last steps as a whole block: behind them are no others, and perhaps nothing. */
static void cut_block(const uint8_t *weights, uint32_t steps, uint8_t cut[BLOCK_PANEL])
{
    size_t bytes = (size_t)steps * 2 * QUANTIZED_STEP_BYTES;
    memcpy(cut, weights, bytes);
    memset(cut + bytes, 0, BLOCK_PANEL - bytes);
}

/* Sums [row][PANEL] times their scales, to a panel's outputs. */
static void finish_int8(const struct quantized_product *product, const int32_t *sums, float *out,
                        const float *scales)
{
    const size_t unit = unit_bytes(product->steps);
    const floats scale0 = ((const floats *)scales)[0], scale1 = ((const floats *)scales)[1];
    for (uint32_t r = 0; r < product->rows; r++, sums += PANEL, out += product->out_stride) {
        const uint8_t *header = (const uint8_t *)product->tile + r / AMX_ROWS * unit;
        floats row_scale = broadcast(((const float *)header)[r % AMX_ROWS]);
        int32_t start = ((const int32_t *)header)[AMX_ROWS + r % AMX_ROWS];
        write_out(product, to_floats(((const ints *)sums)[0] + start) * (row_scale * scale0), out);
        write_out(product, to_floats(((const ints *)sums)[1] + start) * (row_scale * scale1),
                  out + VECTOR);
    }
}

#endif
