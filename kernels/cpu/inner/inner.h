/* The inner loops of the bf16 backend, once per instruction set. PURE; callers check bounds.
 *
 * inner_baseline, inner_avx2 and inner_avx512 are one source (inner_body.h) and give the same bits.
 * Products of two bf16 numbers are exact in fp32 (except below 2^-126), so a fused multiply-add
 * rounds like a multiply and an add. All other arithmetic is compiled without contraction, and sums
 * have fixed lanes. inner_avx512bf16 replaces all products, attention's too, by vdpbf16ps. It
 * adds in the same order but flushes subnormal numbers: another numerics id.
 *
 * Linear layers are made of one product: a tile of up to TILE_ROWS rows times a panel of PANEL
 * outputs. The sum runs over pairs p, ascending, and adds the odd k of a pair first:
 *     out[r][n] = sum of row[r][2p+1] * panel[p][n][1], then row[r][2p] * panel[p][n][0]
 * Panels are [pair][PANEL][2] bf16. Tiles are packed rows in a form of the instruction set's own,
 * of at most TILE_BYTES_PER_PAIR bytes a row and pair. Attention has loops of its own
 * (attention.h). */
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
    /* The panel as `widen` leaves it, which is then read instead of `panel`; NULL: read `panel`. */
    const float *wide;
    const void *tile; /* [pairs] of `rows` rows, as pack_tile leaves them */
    uint32_t rows;    /* 1 .. TILE_ROWS */
    uint32_t pairs;
    /* A sum in several products (sets that take parts only): all except the first continue from
     * `sums` (resume), and all except the last leave their sum there (pause). */
    bool resume, pause;
    float *sums; /* [rows][PANEL] */
    bool add;    /* out += sum; otherwise out = sum */
    float *out;
    size_t out_stride; /* floats from row to row; PANEL outputs are written in each */
    /* Memory to prefetch: 128 bytes a pair (64 with a widened panel), `next_step` bytes apart. A
     * core alone asks for too little at a time to use its share of the memory's speed. NULL:
     * nothing. */
    const void *next;
    size_t next_step;
};

struct inner {
    const char *name;
    uint32_t tile_bytes_per_pair; /* bytes of a row and pair in this set's tiles */

    /* Up to this many rows take a panel whole. More rows take it part by part, since their products
     * go past it more than once. UINT32_MAX: no parts. */
    uint32_t whole_rows;
    /* From two to this many rows ask for weights into the level 1 cache alone, on a CPU where it is
     * small (linear_near_alone): products go past them faster than the level 2 cache takes
     * requests. 0: none. */
    uint32_t near_rows;

    /* Rounds rows[0 .. count-1][0 .. k-1] to bf16 (to nearest, ties to even) and packs them as one
     * tile; pads an odd k with zero. */
    void (*pack_tile)(const float *const *rows, uint32_t count, uint32_t k, void *tile);
    /* Widens pairs of a panel to fp32, once for many tiles: [pairs][odd k, even k][PANEL]. NULL:
     * products read bf16. */
    void (*widen)(const uint32_t *panel, uint32_t pairs, float *wide);
    void (*multiply)(const struct tile_product *product);

    /* out = out * a + partial * b. */
    void (*blend)(float *out, float a, const float *partial, float b, uint32_t count);

    void (*round)(const float *in, uint32_t count, uint16_t *bf16);
    /* Quantizes to s8 and returns the scale. */
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
/* inner_avx512 under another name: its linear layers are in linear_amx.h. */
extern const struct inner inner_amx;
#endif

#endif
