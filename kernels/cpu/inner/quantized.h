/* The inner loops of quantized linear layers, once per instruction set; the arithmetic is
 * kernels.h's. PURE; bounds are the callers' duty. Sums are exact integers, so they may run in any
 * order, and the fp32 operations behind them are spelled out: all sets give the same bits.
 *
 * Panels hold PANEL outputs over all of K, padded to a whole number of steps (8 k, of
 * QUANTIZED_STEP_BYTES times 1 or 2): int8  [k/4][PANEL][4] u8 = weight + 128; then a line of PANEL
 * f32 scales int4  for each group of K: [k/8][PANEL][4] bytes, weight + 8 of k .. k+3 in the low
 * halves and of k+4 .. k+7 in the
 *         high ones; then a line of PANEL bf16 scales
 * so that the sum over weight * input is the sum over u8 * s8 less 128 (or 8) times the sum of the
 * inputs.
 *
 * A tile is some packed rows, in a form of the instruction set's own. Of all but AMX, and AVX2's
 * int4 (quantized_avx2.c): f32 scale [rows], int32 where sums begin [groups][rows], -128 (or -8)
 * times the sum of the inputs (int8: one group; int4: more than that by a constant), then
 * [k/4][words][rows] of four inputs, in one or two words; padded like K, with zeros.
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
    const uint8_t *panel; /* from first_step on */
    const void *tile;
    uint32_t rows;  /* 1 .. tile_rows, or with whole_blocks a pass's */
    uint32_t steps; /* ceil(k / QUANTIZED_STEP) */
    /* The steps to be added, parts as the set wants them. Products of all steps, in ascending
     * order, are one product. */
    uint32_t first_step, end_step;
    /* Room for these steps, wide, for the tiles that share them. int4: for each group PANEL f32
     * scales, then its numbers in the form of int8, but + 8; int8: the set's own form. The product
     * that has `widen` reads the panel and writes it, others read it; NULL: `panel`. */
    uint8_t *wide;
    bool widen;
    bool add; /* out += product, rather than out = product */
    /* Without `add`, and where rows of `out` begin with cache lines: it is written without being
     * fetched. */
    bool past_caches;
    float *out;
    size_t out_stride; /* floats from row to row; PANEL outputs are written in each */
    /* The sum of the steps so far, [rows][PANEL], rows to the next row_unit (tile_rows with
     * whole_blocks): int4's, and int8's where it has parts, as int32. */
    float *partial;
    /* As in struct tile_product: 128 bytes for each 128 of the panel (int4: 64 with `wide`). In all
     * they are next_bytes. */
    const void *next;
    size_t next_step, next_bytes;
    /* All steps of as many panels as the set has streams, so many bytes apart, and their outputs so
     * many floats, times one unit of rows. */
    bool side_by_side;
    size_t panels_apart, outs_apart;
};

/* From so many tiles on (0: never) a panel's products are of so many steps each, whole groups,
 * which all tiles go past before the next: what they read of it stays in the level 1 cache. From
 * `wide` tiles on (0: never) products have that, too. */
struct quantized_parts {
    uint32_t tiles, steps, wide;
};

#define QUANTIZED_TILE_ROWS 32  /* of any set's tiles, at most */
#define QUANTIZED_MAX_ROWS  512 /* of any set's pass */
_Static_assert(QUANTIZED_MAX_ROWS % QUANTIZED_TILE_ROWS == 0, "whole tiles have room");
#define QUANTIZED_MAX_BYTES ((size_t)3 << 19)
#define QUANTIZED_MAX_PART  1024 /* k of int4 */
#define QUANTIZED_INT8_PART 256  /* k of int8 that is widened, to 16 bits */
/* Most sets' passes: their packed inputs stay in a level 2 cache of 2 MiB beside the weights. */
#define QUANTIZED_PASS_ROWS  (16 * TILE_ROWS)
#define QUANTIZED_PASS_BYTES ((size_t)QUANTIZED_PASS_ROWS * 4096)

struct quantized_inner {
    const char *name;
    uint32_t tile_rows; /* at most */
    uint32_t
        /* tiles begin at multiples of it, and have room for as many (with whole_blocks
         * tile_rows) */
        row_unit;
    /* Packed inputs that share a pass over the weights: rows, and bytes. */
    uint32_t pass_rows;
    size_t pass_bytes;
    struct quantized_parts int8_parts, int4_parts;
    uint32_t int8_near_rows; /* as near_rows of struct inner */
    /* A product may be of many tiles, which lie behind each other, and be written past the
     * caches. */
    bool whole_blocks;
    uint32_t speed; /* multiply-adds in the time that vpdpbusd takes for one, about */
    /* Of the same bits, and faster for up to so many rows. */
    const struct quantized_inner *few;
    uint32_t int8_few_rows, int4_few_rows;
    /* Panels that a unit of rows reads side by side, and one of `few` (int4, too); 0: one after the
     * other. */
    uint32_t int8_streams, few_streams;

    size_t (*row_bytes)(uint32_t k, bool int4); /* of a packed row */
    /* Around a thread's products; NULL: nothing is to be done. */
    void (*begin)(void);
    void (*end)(void);
    /* Quantizes rows[0 .. count-1][0 .. k-1] and packs them as one tile. The rows that a caller has
     * for it next are best neighbours of these, k floats apart: what would lie there is prefetched,
     * and never read. */
    void (*pack_tile)(const float *const *rows, uint32_t count, uint32_t k, bool int4, void *tile);
    void (*multiply_int8)(const struct quantized_product *product);
    void (*multiply_int4)(const struct quantized_product *product);
};

/* Panels that a set reads side by side, if any: of one row, and of one unit. */
#define QUANTIZED_VNNI_STREAMS 4
#define QUANTIZED_AMX_STREAMS  2

extern const struct quantized_inner quantized_baseline;
#if defined(__x86_64__)
extern const struct quantized_inner quantized_avx2, quantized_avx512, quantized_avx512vnni,
    quantized_amx;
#endif

#endif
