/* The product of linear layers by AMX: up to two tiles of rows times a panel of PANEL outputs, in
 * the arithmetic of tdpbf16ps. PURE; callers check bounds. The thread has called amx_begin_rows
 * (amx.h) with `height`.
 *
 * A step is AMX_STEP numbers of k: a tile of 16 pairs from each half of a panel, as panels lie in
 * memory. For each output
 *     sum += (sum of row[even k] * weight[even k]) + (sum of row[odd k] * weight[odd k])
 * by fused multiply-adds from zero, in ascending order. Subnormal operands and results count as
 * zero. */
#ifndef BATON_KERNELS_CPU_INNER_LINEAR_AMX_H
#define BATON_KERNELS_CPU_INNER_LINEAR_AMX_H

#include "kernels/cpu/inner/amx.h"
#include "kernels/cpu/inner/inner.h"

#define AMX_STEP       (AMX_ROW_BYTES / 2)    /* k of a step */
#define AMX_STEP_WORDS (AMX_STEP / 2 * PANEL) /* words of a step of a panel */

/* to = from + sums, in `rows` rows; `from` NULL: to = sums. */
struct amx_sums {
    const float *sums; /* sums of a product, [rows][PANEL] */
    uint32_t rows, outputs;
    const float *from;
    float *to;
    size_t from_stride, to_stride;
    /* `to` isn't read soon, and its rows begin at cache lines: writes it past the caches. Call
     * amx_written afterwards. */
    bool past_caches;
};

struct amx_product {
    /* Packed rows, [step][height][AMX_ROW_BYTES]; the second may be NULL. */
    const uint8_t *tiles[2];
    uint32_t height;         /* AMX_ROWS; one tile may have fewer */
    const uint32_t *weights; /* [step] [AMX_STEP / 2][PANEL] */
    /* weights of the last step, if the panel has fewer pairs there; NULL: it has all */
    const uint32_t *last;
    uint32_t steps;
    bool resume; /* continue from `sums` */
    float *sums; /* [2 tiles of AMX_ROWS][PANEL] */
    /* Memory to prefetch into the level 2 cache: `next_lines` cache lines a step. */
    const char *next;
    uint32_t next_lines;
    bool near; /* prefetch the weights into the level 1 cache, too: they come from memory */
    /* sums of an earlier product, added during this one; NULL: none */
    const struct amx_sums *behind;
    /* Rows of outputs to prefetch, which are written later; 0: none. */
    uint32_t out_rows;
    const float *out;
    size_t out_stride;
};

/* Rounds rows[0 .. count-1][0 .. k-1] to bf16 and packs them as a tile of `height` rows. The rest
 * of the tile is zero. */
void amx_pack(const float *const *rows, uint32_t count, uint32_t k, uint32_t height, uint8_t *tile);
void amx_multiply(const struct amx_product *product);

#define AMX_STREAMS 4

/* One row times AMX_STREAMS panels side by side, in whole steps, by vectors in the arithmetic of
 * tiles. Tiles would wait for memory one after the other; lines of several panels in turns come as
 * fast as memory gives them. */
struct amx_streams {
    const float *row;        /* [steps * AMX_STEP] numbers that bf16 holds */
    const uint32_t *weights; /* weights of the first panel */
    size_t apart;            /* words from panel to panel */
    uint32_t steps;          /* steps of one segment */
    float *sums;             /* [AMX_STREAMS][PANEL] */
};

/* Rounds row[0 .. k-1] to bf16 and writes it as floats. */
void amx_round_row(const float *row, uint32_t k, float *rounded);
void amx_multiply_streams(const struct amx_streams *streams);

void amx_add_sums(const struct amx_sums *sums);
/* Fences: other threads see the outputs written past the caches before all later writes of this
 * thread. */
void amx_written(void);

#endif
