/* Inside kernels/cpu (and its tests): the state of the bf16 backend and the operations that have a
 * file of their own. */
#ifndef BATON_KERNELS_CPU_CPU_H
#define BATON_KERNELS_CPU_CPU_H

#include "kernels/backend.h"
#include "kernels/cpu/inner/inner.h"
#include "kernels/cpu/inner/quantized.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/panel_units.h"
#include "kernels/cpu/pool.h"

/* Another number whenever the form of packed weights changes, of any type: files keep them. The
 * same for all instruction sets. */
#define CPU_PACKING "cpu-1"

/* K segment of a linear layer: its sum starts at zero, and segments are added to the output in
 * ascending order. */
#define LINEAR_SEGMENT 1024
/* Rows that share one pass over the weights: their packed segment stays in a 2 MiB level 2
 * cache. */
#define LINEAR_ROWS (16 * TILE_ROWS)

/* K of a segment that all tiles go past before the next: what is read of a panel, 16 KiB, stays in
 * the level 1 cache. */
#define LINEAR_WIDE_PART 128 /* of instruction sets that widen it */
#define LINEAR_PART      256

/* What one tile reads of a panel is asked for so far ahead; measured: the same from here to 64
 * KiB. */
#define LINEAR_AHEAD_BYTES 8192
/* Multiply-adds of floats below which a second thread costs more than it gives. */
#define LINEAR_INLINE_WORK 65536u

_Static_assert(QUANTIZED_INT8_PART *PANEL * sizeof(int16_t) <=
                   QUANTIZED_MAX_PART / QUANTIZED_GROUP * INT4_WIDE_BYTES,
               "there is room for either");

/* One thread's scratch for a linear layer: of one panel. */
struct linear_scratch {
    /* A part, widened. */
    union {
        _Alignas(64) float wide[LINEAR_WIDE_PART * PANEL];
        uint8_t wide_numbers[QUANTIZED_MAX_PART / QUANTIZED_GROUP * INT4_WIDE_BYTES];
    };
    _Alignas(64) float sums[QUANTIZED_MAX_ROWS * PANEL]; /* of the parts so far */
};

/* (query row, head) pairs of one KV head that share one pass over keys and values. */
#define ATTENTION_ROWS (16 * TILE_ROWS)

/* One thread's scratch for attention. Head dimensions below the maximum use less of each array. */
struct attention_scratch {
    _Alignas(64) float queries[ATTENTION_ROWS * ATTENTION_STRIDE];
    float keys[ATTENTION_SEGMENT_TOKENS * KERNELS_MAX_HEAD_DIM];   /* [panel][head_dim][PANEL] */
    float values[ATTENTION_SEGMENT_TOKENS * KERNELS_MAX_HEAD_DIM]; /* [panel][token][PANEL] */
    float scores[TILE_ROWS * ATTENTION_STRIDE];
    float partial[TILE_ROWS * KERNELS_MAX_HEAD_DIM];     /* of one segment */
    float merged[ATTENTION_ROWS * KERNELS_MAX_HEAD_DIM]; /* of all segments so far */
    float max[ATTENTION_ROWS], sum[ATTENTION_ROWS];
    float key_scales[ATTENTION_SEGMENT_TOKENS], value_scales[ATTENTION_SEGMENT_TOKENS]; /* int8 */
};
_Static_assert(KERNELS_MAX_HEAD_DIM <= ATTENTION_STRIDE &&
                   ATTENTION_SEGMENT_TOKENS <= ATTENTION_STRIDE,
               "rows of queries and of scores");

struct cpu {
    struct pool *pool;
    uint32_t threads;
    const struct inner *inner;
    const struct quantized_inner *quantized; /* of the same instruction set */
    /* Packed inputs of a linear layer: LINEAR_ROWS rows of one segment, or fewer of more;
     * quantized: a pass. */
    uint8_t *tiles;
    struct linear_scratch *linear;       /* [threads] */
    struct attention_scratch *attention; /* [threads] */
    struct linear_amx *amx; /* scratch of linear_amx.c; NULL: linear layers aren't by AMX */
    /* In the first level of cache, for half a segment of attention while the other half is read.
     * Where there is none, requests for weights are otherwise, too (linear_near_alone). */
    bool has_near_room;
    enum limits_way read_way; /* of the probe that decode stands beside */
};

/* Above what either kind of layer takes, so that it is of huge pages. */
#define LINEAR_TILES_BYTES ((size_t)2 << 20)

size_t cpu_linear_bytes(enum weight_type type, uint32_t n, uint32_t k);
/* Panels (or units) that a thread takes at a time, each of `panel_work` multiply-adds: few, since
 * who is taken off his core, or shares it, holds up the others by one such share; but of
 * `least_work` at least. */
uint32_t linear_grain(uint32_t threads, uint32_t panels, uint64_t panel_work, uint64_t least_work);
/* Of N outputs, where a thread reads `streams` panels side by side: one after the other if that is
 * 0, or there aren't as many for every thread. */
struct panel_units linear_units(uint32_t threads, uint32_t n, uint32_t streams);
/* Whether so many rows ask for weights into the first level of cache alone: they have no `next`. */
bool linear_near_alone(const struct cpu *cpu, uint32_t near_rows, uint32_t rows);
/* Whether [rows, n] outputs, written once, are better written past the caches: so many that a core
 * would rather keep its inputs there, and in whole lines. */
bool linear_past_caches(const float *out, uint32_t n, uint32_t rows);
/* By all compute threads, panel by panel. */
enum status cpu_linear_load(struct kernels *kernels, struct linear *linear, uint32_t first_row,
                            uint32_t row_count, const void *rows, const float *scales);
/* Row n of the weights, widened: [k]. */
void cpu_linear_row(const struct linear *linear, uint32_t n, float *out);
enum status cpu_linear(struct kernels *kernels, const struct linear *linear,
                       const struct buffer *in, uint32_t rows, bool accumulate, struct buffer *out);
enum status cpu_rope_append(struct kernels *kernels, const struct step_batch *batch,
                            const struct attention_shape *shape,
                            const struct head_parameters *parameters,
                            const struct kv_layout *layout, uint32_t layer, struct buffer *qkv,
                            struct buffer *pool);
enum status cpu_attention(struct kernels *kernels, const struct step_batch *batch,
                          const struct attention_shape *shape, const struct kv_layout *layout,
                          uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                          struct buffer *out);

#endif
