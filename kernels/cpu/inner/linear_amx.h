/* The product of linear layers by AMX: up to two tiles of rows times a panel of PANEL outputs, in
 * tdpbf16ps's arithmetic. PURE; bounds are the callers' duty, and the thread has begun (amx.h) with
 * tiles of `height` rows.
 *
 * A step is AMX_STEP numbers of k: a tile of 16 pairs of each half of a panel, as panels lie in
 * memory. For each output
 *     sum += (sum of row[even k] * weight[even k]) + (sum of row[odd k] * weight[odd k])
 * by fused multiply-adds from zero, in ascending order, with subnormal numbers taken and given as
 * zero. */
#ifndef BATON_KERNELS_CPU_INNER_LINEAR_AMX_H
#define BATON_KERNELS_CPU_INNER_LINEAR_AMX_H

#include "kernels/cpu/inner/amx.h"
#include "kernels/cpu/inner/inner.h"

#define AMX_STEP       (AMX_ROW_BYTES / 2)    /* k */
#define AMX_STEP_WORDS (AMX_STEP / 2 * PANEL) /* of a panel */

/* to = from + sums, of `rows` rows; `from` NULL: to = sums. */
struct amx_sums {
    const float *sums; /* of a product */
    uint32_t rows, outputs;
    const float *from;
    float *to;
    size_t from_stride, to_stride;
    /* `to` isn't read soon, and its rows begin with cache lines: it is written without being
     * fetched, and the thread has to fence what it wrote (amx_written). */
    bool past_caches;
};

struct amx_product {
    /* Packed rows, [step][height][AMX_ROW_BYTES]; the second may be NULL. */
    const uint8_t *tiles[2];
    uint32_t height;         /* AMX_ROWS, or fewer of one tile */
    const uint32_t *weights; /* [step] [AMX_STEP / 2][PANEL] */
    const uint32_t *last; /* the last step's, where the panel has fewer pairs; NULL: it has all */
    uint32_t steps;
    bool resume; /* go on from `sums` */
    float *sums; /* [2 tiles of AMX_ROWS][PANEL] */
    /* What to bring into the second level meanwhile: `next_lines` cache lines a step. */
    const char *next;
    uint32_t next_lines;
    bool near; /* and into the first what comes soon: the weights come from memory */
    const struct amx_sums *behind; /* an earlier product's, to add meanwhile; NULL: none */
    /* Rows of outputs to bring in meanwhile, to be written; 0: none. */
    uint32_t out_rows;
    const float *out;
    size_t out_stride;
};

/* Rounds rows[0 .. count-1][0 .. k-1] to bf16 and packs them as a tile of `height` rows; what is
 * beyond is zero. */
void amx_pack(const float *const *rows, uint32_t count, uint32_t k, uint32_t height, uint8_t *tile);
void amx_multiply(const struct amx_product *product);

#define AMX_STREAMS 4

/* One row times AMX_STREAMS panels beside each other, of whole steps, by vectors in the arithmetic
 * of tiles: tile after tile is waited for, where lines of several panels in turns come as fast as
 * memory gives them. */
struct amx_streams {
    const float *row;        /* [steps * AMX_STEP], bf16 numbers */
    const uint32_t *weights; /* of the first panel */
    size_t apart;            /* words from panel to panel */
    uint32_t steps;          /* of one segment */
    float *sums;             /* [AMX_STREAMS][PANEL] */
};

/* Rounds row[0 .. k-1] to bf16 numbers. */
void amx_round_row(const float *row, uint32_t k, float *rounded);
void amx_multiply_streams(const struct amx_streams *streams);

void amx_add_sums(const struct amx_sums *sums);
/* What this thread wrote past the caches is seen before what it writes from here on. */
void amx_written(void);

#endif
