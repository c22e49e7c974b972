/* The inner loops of quantized linear layers, once per instruction set; kernels.h has the
 * arithmetic. PURE; callers check bounds. Sums are exact integers, so they may run in any order.
 * The fp32 operations after them are spelled out. So all sets give the same bits.
 *
 * Panels hold PANEL outputs over all of K, padded to whole steps (8 k, QUANTIZED_STEP_BYTES times 2
 * for int8 or 1 for int4):
 *     int8  [k/4][PANEL][4] u8 = weight + 128; then a line of PANEL f32 scales
 *     int4  for each group of K: [k/8][PANEL][4] bytes; then a line of PANEL bf16 scales
 * A byte of int4 holds two weights + 8: k .. k+3 in the low halves, k+4 .. k+7 in the high ones. So
 * the sum over weight * input is the sum over u8 * s8, less 128 (or 8) times the sum of the inputs.
 *
 * A tile is some packed rows in a form of the instruction set's own. All sets except AMX, and
 * AVX2's int4 (quantized_avx2.c), use this form:
 *     f32 [rows]            scales
 *     int32 [groups][rows]  start of each sum: -128 (or -8) times the sum of the inputs
 *     [k/4][words][rows]    four inputs in one or two words, padded like K with zeros
 * int8 has one group. int4's starts are larger by a constant (INT4_START). */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_H

#include "kernels/cpu/inner/inner.h"

#define QUANTIZED_STEP       8        /* k of a step: two words of a row */
#define PACK_ROWS            4        /* rows packed into a tile at a time */
#define QUANTIZED_GROUP      128      /* k of an int4 group: WEIGHT_GROUP of kernels.h */
#define QUANTIZED_MAX        0x1p100f /* WEIGHT_MAX_QUANTIZED of kernels.h */
#define QUANTIZED_STEP_BYTES (PANEL * 4)
#define INT8_SCALE_BYTES     (PANEL * 4)
#define INT4_SCALE_BYTES     (PANEL * 2)
#define INT4_WIDE_BYTES      (PANEL * 4 + QUANTIZED_GROUP * PANEL) /* bytes of a group */

struct quantized_product {
    const uint8_t *panel; /* from first_step on */
    const void *tile;
    uint32_t rows;  /* 1 .. tile_rows, or with whole_blocks the rows of a pass */
    uint32_t steps; /* ceil(k / QUANTIZED_STEP) */
    /* Steps to add, a part if the set has parts. Products of all parts, in ascending order, are one
     * product. */
    uint32_t first_step, end_step;
    /* Room for the widened part, which tiles share. int4: for each group PANEL f32 scales, then its
     * numbers in the form of int8, but + 8. int8: the set's own form. The product with `widen`
     * reads `panel` and writes it, others read it. NULL: all read `panel`. */
    uint8_t *wide;
    bool widen;
    bool add; /* out += product; otherwise out = product */
    /* Writes outputs past the caches. Needs add == false and rows of `out` that begin at cache
     * lines. */
    bool past_caches;
    float *out;
    size_t out_stride; /* floats from row to row; PANEL outputs are written in each */
    /* Sums of the steps so far, [rows][PANEL], rows rounded up to row_unit (tile_rows with
     * whole_blocks). Used by int4, and by int8 with parts, as int32. */
    float *partial;
    /* Memory to prefetch, as in struct tile_product: 128 bytes for each 128 of the panel (int4: 64
     * with `wide`), next_bytes in all. */
    const void *next;
    size_t next_step, next_bytes;
    /* Multiplies one unit of rows by all steps of as many panels as the set has streams. They lie
     * panels_apart bytes apart, their outputs outs_apart floats apart. */
    bool side_by_side;
    size_t panels_apart, outs_apart;
};

/* A pass of at least `tiles` tiles (0: never) cuts panels into parts of `steps` steps, whole
 * groups. All tiles go past one part before the next, so that the part stays in the level 1 cache.
 * From `wide` tiles on (0: never) the part is also widened. */
struct quantized_parts {
    uint32_t tiles, steps, wide;
};

#define QUANTIZED_TILE_ROWS 32  /* most rows of a tile, in any set */
#define QUANTIZED_MAX_ROWS  512 /* most rows of a pass, in any set */
_Static_assert(QUANTIZED_MAX_ROWS % QUANTIZED_TILE_ROWS == 0, "whole tiles have room");
#define QUANTIZED_MAX_BYTES ((size_t)3 << 19)
#define QUANTIZED_MAX_PART  1024 /* most k of an int4 part */
#define QUANTIZED_INT8_PART 256  /* k of an int8 part that is widened to 16 bits */
/* The pass of most sets: its packed inputs stay in a level 2 cache of 2 MiB beside the weights. */
#define QUANTIZED_PASS_ROWS  (16 * TILE_ROWS)
#define QUANTIZED_PASS_BYTES ((size_t)QUANTIZED_PASS_ROWS * 4096)

struct quantized_inner {
    const char *name;
    uint32_t tile_rows; /* most rows of a tile */
    /* Tiles begin at multiples of row_unit, and have room for as many rows (with whole_blocks:
     * for tile_rows). */
    uint32_t row_unit;
    /* Most packed inputs that share a pass over the weights: rows, and bytes. */
    uint32_t pass_rows;
    size_t pass_bytes;
    struct quantized_parts int8_parts, int4_parts;
    uint32_t int8_near_rows; /* as near_rows of struct inner */
    /* A product may have many tiles, one behind the other, and may write past the caches. */
    bool whole_blocks;
    uint32_t speed; /* about how many multiply-adds it does in the time of one of vpdpbusd */
    /* Loops of the same bits that are faster for up to this many rows; NULL: none. */
    const struct quantized_inner *few;
    uint32_t int8_few_rows, int4_few_rows;
    /* Panels that a unit of rows reads side by side, in this set (int8) and in `few` (int8 and
     * int4). 0: one panel after the other. */
    uint32_t int8_streams, few_streams;

    size_t (*row_bytes)(uint32_t k, bool int4); /* bytes of a packed row */
    /* Called before and after a thread's products; NULL: nothing to do. */
    void (*begin)(void);
    void (*end)(void);
    /* Quantizes rows[0 .. count-1][0 .. k-1] and packs them as one tile. Best called next with the
     * rows behind these, k floats apart: memory there is prefetched, and never read. */
    void (*pack_tile)(const float *const *rows, uint32_t count, uint32_t k, bool int4, void *tile);
    void (*multiply_int8)(const struct quantized_product *product);
    void (*multiply_int4)(const struct quantized_product *product);
};

/* Panels that a set reads side by side: AVX512-VNNI with one row, AMX with one unit of rows. */
#define QUANTIZED_VNNI_STREAMS 4
#define QUANTIZED_AMX_STREAMS  2

extern const struct quantized_inner quantized_baseline;
#if defined(__x86_64__)
extern const struct quantized_inner quantized_avx2, quantized_avx512, quantized_avx512vnni,
    quantized_amx;
#endif

#endif
