/* The inner loops of quantized linear layers, once per instruction set; the arithmetic is kernels.h's. PURE; bounds are the
 * callers' duty. Sums are exact integers, so they may run in any order, and the fp32 operations behind them are spelled
 * out: all sets give the same bits.
 *
 * Panels hold PANEL outputs over all of K, padded to a whole number of steps (8 k, of QUANTIZED_STEP_BYTES times 1 or 2):
 *   int8  [k/4][PANEL][4] u8 = weight + 128; then a line of PANEL f32 scales
 *   int4  for each group of K: [k/8][PANEL][4] bytes, weight + 8 of k .. k+3 in the low halves and of k+4 .. k+7 in the
 *         high ones; then a line of PANEL bf16 scales
 * so that the sum over weight * input is the sum over u8 * s8 less 128 (or 8) times the sum of the inputs.
 *
 * A tile is up to TILE_ROWS packed rows: f32 scale [rows], int32 where sums begin [groups][rows], -128 (or -8) times the
 * sum of the inputs (int8: one group; int4: more than that by a constant), then [k/4][words][rows] of four inputs, in a form
 * of the instruction set's own; padded like K, with zeros.
 */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_H

#include "kernels/cpu/inner/inner.h"

#define QUANTIZED_STEP       8        /* k: two words of a row */
#define PACK_ROWS            4        /* rows that are packed into a tile at a time */
#define QUANTIZED_GROUP      128      /* k of an int4 group: WEIGHT_GROUP of kernels.h */
#define QUANTIZED_MAX        0x1p100f /* of a weight, and of a scale: WEIGHT_MAX_QUANTIZED */
#define QUANTIZED_STEP_BYTES (PANEL * 4)
#define INT8_SCALE_BYTES     (PANEL * 4)
#define INT4_SCALE_BYTES     (PANEL * 2)
#define INT4_WIDE_BYTES      (PANEL * 4 + QUANTIZED_GROUP * PANEL) /* of a group */

struct quantized_product {
    const uint8_t *panel; /* int4: from first_step on */
    const void *tile;
    uint32_t rows;  /* 1 .. TILE_ROWS */
    uint32_t steps; /* ceil(k / QUANTIZED_STEP) */
    /* int4: the steps to be added, whole groups. Products of all steps, in ascending order, are one product; a set without
     * widens_int4 adds all at once. */
    uint32_t first_step, end_step;
    /* int4: room for these steps, wide, for the tiles that share them: for each group PANEL f32 scales, then its numbers in the
     * form of int8, but + 8. The product that has `widen` reads the panel and writes it, others read it; NULL: `panel`. */
    uint8_t *wide;
    bool widen;
    bool add; /* out += product, rather than out = product */
    float *out;
    size_t out_stride; /* floats from row to row; PANEL outputs are written in each */
    float *partial;    /* int4: [rows][PANEL], the sum of the steps so far */
    /* As in struct tile_product: 128 bytes for each 128 of the panel (int4: 64 with `wide`). */
    const void *next;
    size_t next_step;
};

struct quantized_inner {
    const char *name;
    uint32_t words;   /* of 32 bits that hold four inputs of a row in a tile */
    bool widens_int4; /* knows `wide` and parts of all steps */

    /* Quantizes rows[0 .. count-1][0 .. k-1] and packs them as one tile. */
    void (*pack_tile)(const float *const *rows, uint32_t count, uint32_t k, bool int4, void *tile);
    void (*multiply_int8)(const struct quantized_product *product);
    void (*multiply_int4)(const struct quantized_product *product);
};

extern const struct quantized_inner quantized_baseline;
#if defined(__x86_64__)
extern const struct quantized_inner quantized_avx2, quantized_avx512, quantized_avx512vnni;
#endif

#endif
