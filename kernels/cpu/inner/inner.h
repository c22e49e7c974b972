/* The inner loops of the bf16 backend, once per instruction set. PURE; bounds are the callers'
 * duty.
 *
 * inner_baseline, inner_avx2 and inner_avx512 are one source (inner_body.h) and give the same bits:
 * products of two bf16 numbers are exact in fp32 (but below 2^-126), so that a fused multiply-add
 * rounds like a multiply and an add; all other arithmetic is compiled without contraction; sums
 * have fixed lanes. inner_avx512bf16 replaces the products, attention's too, by vdpbf16ps, which
 * adds in the same order but flushes subnormal numbers: another numerics id.
 *
 * The one product that linear layers are made of: a tile of up to TILE_ROWS rows times a panel of
 * PANEL outputs,
 *     out[r][n] = sum over pairs p, ascending, of  row[r][2p+1] * panel[p][n][1]  then  row[r][2p] * panel[p][n][0]
 * Panels are [pair][PANEL][2] bf16. Tiles are packed rows, in a form of the instruction set's own,
 * TILE_BYTES_PER_PAIR bytes a row and pair at most. Attention has loops of its own (attention.h).
 */
#ifndef BATON_KERNELS_CPU_INNER_INNER_H
#define BATON_KERNELS_CPU_INNER_INNER_H

#include "kernels/cpu/inner/attention.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PANEL               32
#define TILE_ROWS           12
#define TILE_BYTES_PER_PAIR 8 /* per row */

struct tile_product {
    const uint32_t *panel; /* [pairs][PANEL], low half: even k */
    /* The panel as `widen` leaves it, which is then read instead; NULL: not at hand. */
    const float *wide;
    const void *tile; /* [pairs] of `rows` rows */
    uint32_t rows;    /* 1 .. TILE_ROWS */
    uint32_t pairs;
    /* A sum in several products: all but the first go on from `sums`, all but the last leave it
     * there. Of those only that take parts. */
    bool resume, pause;
    float *sums; /* [rows][PANEL] */
    bool add;    /* out += sum, rather than out = sum */
    float *out;
    size_t out_stride; /* floats from row to row; PANEL outputs are written in each */
    /* What to bring into the cache meanwhile: 128 bytes a pair (64 beside a widened panel),
     * `next_step` bytes apart, since a core alone asks for too little at a time to use its share of
     * the memory's speed. NULL: nothing. */
    const void *next;
    size_t next_step;
};

struct inner {
    const char *name;
    uint32_t tile_bytes_per_pair; /* of this form of tile, per row */

    /* So many rows take a panel whole, and more part by part, since products go past it more than
     * once. UINT32_MAX: there are no parts. */
    uint32_t whole_rows;
    /* Two to so many rows ask for weights into the first level of cache alone, where that is small
     * (linear_near_alone): products go past them faster than the second level takes requests. 0:
     * none do. */
    uint32_t near_rows;

    /* Rounds rows[0 .. count-1][0 .. k-1] to bf16 (to nearest, ties to even) and packs them as one
     * tile; an odd k is padded with zero. */
    void (*pack_tile)(const float *const *rows, uint32_t count, uint32_t k, void *tile);
    /* Pairs of a panel as fp32 numbers, once for many tiles: [pairs][odd k, even k][PANEL]. NULL:
     * products are of bf16. */
    void (*widen)(const uint32_t *panel, uint32_t pairs, float *wide);
    void (*multiply)(const struct tile_product *product);

    /* out = out * a + partial * b. */
    void (*blend)(float *out, float a, const float *partial, float b, uint32_t count);

    void (*round)(const float *in, uint32_t count, uint16_t *bf16);
    /* To s8, by the scale that it returns. */
    float (*quantize)(const float *in, uint32_t count, int8_t *numbers);
    void (*rmsnorm)(const float *x, const float *weight, double eps, uint32_t hidden, float *out);
    /* Rotates one head in place by cos[head_dim / 2] then sin[head_dim / 2]. */
    void (*rope)(const float *cos_sin, uint32_t head_dim, float *head);
    void (*swiglu)(const float *gate, const float *up, uint32_t count, float *out);

    struct attention_inner attention;
};

extern const struct inner inner_baseline;
#if defined(__x86_64__)
extern const struct inner inner_avx2, inner_avx512, inner_avx512bf16;
/* inner_avx512, named otherwise: its linear layers are by linear_amx.h. */
extern const struct inner inner_amx;
#endif

#endif
