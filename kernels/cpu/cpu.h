/* Inside kernels/cpu (and its tests): the state of the bf16 backend, and the operations and layers
 * that have a file of their own. */
#ifndef BATON_KERNELS_CPU_CPU_H
#define BATON_KERNELS_CPU_CPU_H

#include "kernels/backend.h"
#include "kernels/cpu/inner/inner.h"
#include "kernels/cpu/inner/quantized.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/pool.h"

/* kernels_info.packing, the same for all instruction sets. Files keep packed weights: change the
 * number whenever the packed form of any type changes. */
#define CPU_PACKING "cpu-1"

/* K of a segment of a linear layer: its sum starts at zero, and segments are added to the output in
 * ascending order. */
#define LINEAR_SEGMENT 1024
/* Rows that share one pass over the weights: their packed segment stays in a 2 MiB level 2
 * cache. */
#define LINEAR_ROWS (16 * TILE_ROWS)

/* K of a part of a segment. All tiles go past one part before the next, so that the part of a
 * panel, 16 KiB, stays in the level 1 cache. */
#define LINEAR_WIDE_PART 128 /* for instruction sets that widen it */
#define LINEAR_PART      256

/* Distance at which a tile's product asks for weights of the panel ahead. Measured: the same from
 * here to 64 KiB. */
#define LINEAR_AHEAD_BYTES 8192
/* Multiply-adds of floats below which a second thread costs more than it gives. */
#define LINEAR_INLINE_WORK 65536u

_Static_assert(QUANTIZED_INT8_PART *PANEL * sizeof(int16_t) <=
                   QUANTIZED_MAX_PART / QUANTIZED_GROUP * INT4_WIDE_BYTES,
               "there is room for either");

/* Scratch of one thread for one panel of a linear layer. */
struct linear_scratch {
    /* a widened part */
    union {
        _Alignas(64) float wide[LINEAR_WIDE_PART * PANEL];
        uint8_t wide_numbers[QUANTIZED_MAX_PART / QUANTIZED_GROUP * INT4_WIDE_BYTES];
    };
    _Alignas(64) float sums[QUANTIZED_MAX_ROWS * PANEL]; /* sums of the parts so far */
};

/* Most (query row, head) pairs of one KV head that share one pass over keys and values. */
#define ATTENTION_ROWS (16 * TILE_ROWS)

/* Scratch of one thread for attention. Head dimensions below the maximum use less of each array. */
struct attention_scratch {
    _Alignas(64) float queries[ATTENTION_ROWS * ATTENTION_STRIDE];
    float keys[ATTENTION_SEGMENT_TOKENS * KERNELS_MAX_HEAD_DIM];   /* [panel][head_dim][PANEL] */
    float values[ATTENTION_SEGMENT_TOKENS * KERNELS_MAX_HEAD_DIM]; /* [panel][token][PANEL] */
    float scores[TILE_ROWS * ATTENTION_STRIDE];
    float partial[TILE_ROWS * KERNELS_MAX_HEAD_DIM];     /* output of one segment */
    float merged[ATTENTION_ROWS * KERNELS_MAX_HEAD_DIM]; /* output of all segments so far */
    /* the max and sum of all segments so far */
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
    const struct quantized_inner *quantized; /* as quantized_inner_for chose */
    /* Packed inputs of a linear layer: LINEAR_ROWS rows of one segment, or fewer rows of more
     * segments; quantized: the rows of a pass. */
    uint8_t *tiles;
    struct linear_scratch *linear;       /* [threads] */
    struct attention_scratch *attention; /* [threads] */
    struct linear_amx *amx; /* scratch of linear_amx.c; NULL: linear layers don't use AMX */
    /* The level 1 cache has room for half a segment of attention while the other half is read.
     * Without room, requests for weights change, too (linear_near_alone). */
    bool has_near_room;
    enum limits_way read_way; /* the fastest way, for kernels_measure_read */
};

/* Bytes of struct cpu's tiles: more than either kind of layer takes, so that the memory has huge
 * pages. */
#define LINEAR_TILES_BYTES ((size_t)2 << 20)

/* --- panels dealt to threads. Pure --- */

/* The panels of a layer as units of work. Each thread has a region of neighbouring panels, cut into
 * `streams` streams of `run` neighbouring panels each. A unit is one panel of each stream of a
 * region. The next unit is the panels behind them, so that a thread reads next what it asked for
 * ahead, however few units it takes at a time. Panels that the streams of a region leave over are
 * units of one panel. pool_run deals units evenly, so that a thread's units are those of its
 * region. A few at the borders differ, if it takes several at a time or a panel is cut. */
struct panel_units {
    uint32_t threads, streams, whole, run; /* whole: panels of PANEL outputs */
    uint32_t count;                        /* number of units */
};

/* One panel of each stream: `first` and the panels each `apart` panels behind the one before. apart
 * 0: the panel `first` alone. */
struct panel_unit {
    uint32_t first, apart;
};

/* Deals the panels of N outputs to threads that read `streams` panels side by side. With 0 streams,
 * or fewer panels than streams for each thread, units are single panels. A cut panel is the last
 * unit. */
struct panel_units linear_units(uint32_t threads, uint32_t n, uint32_t streams);
struct panel_unit panel_unit_at(const struct panel_units *units, uint32_t number);

/* --- linear layers (linear.c) --- */

size_t cpu_linear_bytes(enum weight_type type, uint32_t n, uint32_t k);
/* Returns the number of panels (or units) that a thread takes at a time; `panel_work`:
 * multiply-adds of each. Few, since a thread that loses or shares its core delays the others by one
 * such share; but at least `least_work` multiply-adds. */
uint32_t linear_grain(uint32_t threads, uint32_t panels, uint64_t panel_work, uint64_t least_work);
/* Returns whether `rows` rows ask for weights into the level 1 cache alone; then products have no
 * `next`. near_rows: of struct inner. */
bool linear_near_alone(const struct cpu *cpu, uint32_t near_rows, uint32_t rows);
/* Returns whether [rows, n] outputs, written once, are better written past the caches: whole cache
 * lines, and so many that a core had better keep its inputs there. */
bool linear_past_caches(const float *out, uint32_t n, uint32_t rows);
/* Packs rows by all compute threads, panel by panel. */
enum status cpu_linear_load(struct kernels *kernels, struct linear *linear, uint32_t first_row,
                            uint32_t row_count, const void *rows, const float *scales);
/* Writes row n of the weights as floats: out [k]. */
void cpu_linear_row(const struct linear *linear, uint32_t n, float *out);
enum status cpu_linear(struct kernels *kernels, const struct linear *linear,
                       const struct buffer *in, uint32_t rows, bool accumulate, struct buffer *out);

/* --- bf16 layers by AMX (linear_amx.c) --- */

/* Allocates the scratch memory; free with linear_amx_free. NULL: no memory. */
struct linear_amx *linear_amx_new(uint32_t threads);
void linear_amx_free(struct linear_amx *scratch); /* NULL is fine */
void linear_amx(struct cpu *self, const struct linear *linear, const float *in, uint32_t rows,
                bool accumulate, float *out);

/* --- int8 and int4 layers (quantized.c), in panels as inner/quantized.h describes --- */

/* Returns the fastest loops that this CPU has, among those of the instruction set of `inner` and
 * below. */
const struct quantized_inner *quantized_inner_for(const struct inner *inner);
size_t quantized_linear_bytes(enum weight_type type, uint32_t n, uint32_t k);
void quantized_linear_load(struct linear *linear, uint32_t first_row, uint32_t row_count,
                           const void *rows, const float *scales);
void quantized_linear(struct cpu *self, const struct linear *linear, const float *in, uint32_t rows,
                      bool accumulate, float *out);
/* Writes row n of the weights as floats: out [k]. */
void quantized_linear_row(const struct linear *linear, uint32_t n, float *out);

/* --- attention (attention.c) --- */

enum status cpu_attention(struct kernels *kernels, const struct step_batch *batch,
                          const struct attention_shape *shape, const struct kv_layout *layout,
                          uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                          struct buffer *out);

#endif
