/* The parameters of the kernels, one struct each, shared by the plans and device/. Pointers are
 * device addresses. C17 and CUDA C++ lay them out alike: fixed types only. */
#ifndef BATON_KERNELS_CUDA_PARAMETERS_H
#define BATON_KERNELS_CUDA_PARAMETERS_H

#include "kernels/kernels.h"

/* Threads of a block that works on a row. Sums of a row go by thread, so this is a constant of the
 * family. */
#define CUDA_ROW_THREADS 256

#define CUDA_MAX_HEAD_DIM 256 /* for rope_append_rows; attention has its own list */

/* Packed weights and packed inputs consist of cells of 8 rows x 128 bytes (README.md). */
#define CUDA_CELL_ROWS  8
#define CUDA_CELL_BYTES 1024
#define CUDA_K_BYTES    128 /* bytes of K in a cell: 64 bf16, or 128 s8 */
#define CUDA_TILE_N     64  /* rows of a tile of weights: 8 cells, 8 KiB of each k block */

struct cuda_weights {
    uint8_t *packed; /* [n / 64][k_blocks][64 rows][128 bytes], chunks swizzled */
    float *scales;   /* f32 [scale_columns][scale_rows]; NULL: bf16 */
    uint32_t n, k, k_blocks;
    uint32_t scale_columns, scale_rows; /* a row's scales; rows side by side, n and more */
};

struct pack_parameters {
    struct cuda_weights weights;
    const uint8_t *rows;
    const float *scales;
    uint32_t first_row, row_count;
    uint32_t pair; /* rows this far apart are packed side by side (README.md); 0: as they are */
    uint32_t scales_too; /* by blocks: their scales are copied with a tile */
};

/* Packed inputs of a layer: [k_blocks][padded / 8] cells. Tiles read CUDA_MOST_TOKENS rows from any
 * on, so that as many lie behind the last block of k. Padded rows hold anything. */
struct cuda_inputs {
    uint8_t *cells;
    uint32_t padded, k_blocks;
};
#define CUDA_MOST_TOKENS 256 /* a tile */

/* A scale of inputs in e4m3 that all rows share, and 1 / scale. {0, 0}: rows have their own. */
struct cuda_scale {
    float scale, inverse;
};

struct embed_parameters {
    struct cuda_weights weights;
    const uint32_t *tokens;
    float *x;
    uint32_t rows;
};

struct rmsnorm_parameters {
    const float *x, *weight;
    const uint32_t *rows; /* NULL: all */
    float *out;
    double eps;
    uint32_t row_count, hidden;
};

/* Inputs of a linear layer, f32 to packed bf16, or to packed s8 or e4m3 with scales. A norm may
 * come before. */
struct inputs_parameters {
    const float *in; /* [rows, k] */
    struct cuda_inputs to;
    float *scales;           /* s8, e4m3: [rows]; e4m3 by blocks: [k_blocks][padded]; NULL: bf16 */
    struct cuda_scale fixed; /* e4m3: if there is one, `scales` stays as it is */
    uint32_t rows, k;
    const float *norm;      /* [k]: weights of the norm; NULL: none */
    const uint32_t *chosen; /* rows of `in`; NULL: all */
    double eps;
};

/* One layer of the KV pool. */
struct cuda_kv {
    char *pool;
    const uint32_t *tables;                            /* [sequences][table_stride] block ids */
    uint64_t block_bytes, offset_bytes[2], head_bytes; /* key and value of the first head */
    uint32_t token_bytes, scales_bytes;                /* from a head's first token to its scales */
    uint32_t block_tokens, table_stride;
};

/* Rows of queries, keys and values, and their way to the pool. */
struct cuda_heads {
    struct cuda_kv kv;
    const uint32_t *positions, *row_sequence;
    const float *bias, *q_norm, *k_norm, *rope;
    double norm_eps;
    uint32_t heads, kv_heads, head_dim, int8;
};

struct cuda_epilogue {
    uint32_t kind;    /* enum epilogue_kind */
    uint32_t rows, n; /* results */
    uint32_t pair;    /* as in struct pack_parameters */
    float *out; /* [rows, n]; SWIGLU: [rows, pair] that become inputs later, or NULL for `gated` */
    struct cuda_inputs gated;
    struct cuda_scale gated_by; /* e4m3; {0, 0}: bf16 */
    struct cuda_heads heads;    /* APPEND */
};

struct linear_parameters {
    struct cuda_weights weights;
    struct cuda_inputs inputs;
    const float *input_scales; /* as inputs_parameters.scales */
    float fixed_scale;         /* 0: input_scales */
    float *partials;           /* [split tile][segment][64 R x tokens of a tile] */
    uint32_t *tickets;         /* [split tile], zeros between launches */
    uint32_t rows;
    uint32_t segment_blocks; /* k blocks of a segment */
    uint32_t segments;
    uint32_t whole; /* tiles before it are done by one block each, the others a segment a block */
    uint32_t stages;
    uint32_t cluster; /* blocks that share tokens; `whole` and units are of all of them together */
    uint32_t group;   /* row tiles that are walked together, for reuse in the L2 cache */
    struct cuda_epilogue epilogue;
};

/* Wider tiles have no queries, keys and values: registers don't hold their way to the pool. */
#define CUDA_MOST_HEAD_TOKENS 128
/* Blocks of a tile of 64 R weights that registers let run at once on an SM. PROMOTED: of fp8. */
#define CUDA_TILE_BLOCKS(R, TOKENS, PROMOTED)                                                      \
    ((PROMOTED)       ? ((R) == 1 && (TOKENS) <= 16 ? 2 : 1)                                       \
     : (TOKENS) <= 16 ? ((R) == 1 ? 4 : 2)                                                         \
                      : ((R) == 1 && (TOKENS) <= 32 ? 2 : 1))
/* Threads of such a block: 128 multiply 64 weights, and a warp copies. Wide tiles take registers
 * from four warps that copy. */
#define CUDA_TILE_IS_WIDE(R, TOKENS) ((R) > 1 && (TOKENS) >= 64)
#define CUDA_TILE_THREADS(R, TOKENS) ((R)*128 + (CUDA_TILE_IS_WIDE(R, TOKENS) ? 128 : 32))
/* Sums over the segments so far that a thread keeps in registers; the others, of wide tiles, lie in
 * shared memory. Such tiles are whole. */
#define CUDA_KEPT_SUMS(TOKENS, PROMOTED)                                                           \
    ((PROMOTED) && (TOKENS) > 64 ? 32 : (TOKENS) > 192 ? 64 : (TOKENS) / 2)
/* Stages of the kernels that aren't for sm_90a, each R x 8 KiB + tokens x 128 bytes. */
#define CUDA_PORTABLE_STAGES 4
/* Bytes of a stage behind its weights and inputs: their scales, of e4m3 by blocks. */
#define CUDA_STAGE_SCALE_BYTES 1024
/* Most stages of the kernels for sm_90a, which plans choose. */
#define CUDA_MOST_STAGES 24

struct rope_parameters {
    struct cuda_heads heads;
    float *qkv;
    uint32_t rows;
};

struct attention_parameters {
    struct cuda_kv kv;
    const uint32_t *positions, *row_sequence, *sequence_rows;
    const float *qkv;
    float *out;                      /* [rows, H E], or NULL for `inputs` */
    struct cuda_inputs inputs;       /* bf16, or e4m3: */
    struct cuda_scale fixed;         /* {0, 0}: bf16 */
    float *partial_o;                /* split: [row][query head][segment][head_dim] */
    float *partial_ml;               /* split: [row][query head][segment][2]: maximum and sum */
    uint32_t first_row, rows;        /* rows [first_row, rows) */
    uint32_t heads, kv_heads, group; /* group: heads / kv_heads */
    uint32_t window;
    float scale; /* log2(e) / sqrt(head_dim) */
    uint32_t tile_rows;
    uint32_t chunks; /* parts of the (row, head) pairs of a tile */
    /* Sequences with rows of the step in [least_run, most_run] are this launch's. */
    uint32_t least_run, most_run;
    uint32_t segments; /* split: of the longest context; otherwise 0 */
    uint32_t head_dim;
    /* attention_decode_...: partial sums lie by segments that are there, [segment][query head] */
    uint32_t *tickets;      /* [CUDA_DECODE_COUNTERS + row x KV head x chunk], zeros */
    uint32_t warps, stages; /* a block's warps; a warp's stages */
    uint32_t merges;        /* rows of more segments are left to attention_decode_merge_... */
};
/* attention_decode_...: rows of short runs in one launch at most, warps of a block at most, query
 * heads of a chunk, counters of units, tokens of a stage. */
#define CUDA_DECODE_ROWS     1024
#define CUDA_DECODE_WARPS    8
#define CUDA_DECODE_HEADS    8
#define CUDA_DECODE_COUNTERS 2
#define CUDA_DECODE_TOKENS   32
/* attention_..._sm90: pairs (query row, head) of a block; stages of 128 tokens. */
#define CUDA_PREFILL_PAIRS           128
#define CUDA_PREFILL_TOKENS          128
#define CUDA_PREFILL_STAGES(D, INT8) ((D) == 64 ? 8 : (INT8) ? 5 : 6)

/* --- blocks of the pool, beside a step --- */

#define CUDA_GATHER_THREADS 512
#define CUDA_PIECE_BYTES    (32u << 10)
#define CUDA_CRC_POLYNOMIAL 0x82f63b78u

struct gather_parameters {
    const uint8_t *source;
    uint8_t *target;
    uint32_t count, pieces; /* moves, and pieces of all of them */
    struct {
        uint64_t source, target; /* bytes from the start */
        uint32_t units;          /* 16 bytes each */
        uint32_t first_piece;
    } moves[KV_MOVES_AT_ONCE];
};

struct block_sums_parameters {
    const uint8_t *pool;
    uint32_t *sums; /* [count, runs] */
    uint64_t block_bytes;
    uint32_t count, runs, run_bytes;
    uint32_t initial;        /* the part that a run's length has in its sum */
    uint32_t row_power;      /* x^1024 */
    uint32_t lane_power[32]; /* x^(32 words that follow a lane's, and its own) */
    uint32_t blocks[KV_SUMS_AT_ONCE];
};

struct swiglu_parameters {
    const float *gate_up;
    float *out;
    uint32_t rows, ffn;
};

#define CUDA_SAMPLE_BUCKETS 256
#define CUDA_SAMPLE_SHARED_BYTES                                                                   \
    (CUDA_SAMPLE_BUCKETS * 12 + CUDA_ROW_THREADS * 8 + 256) /* struct shared of sample.cu */

struct sample_parameters {
    const float *logits;
    const struct kernels_draw *draws;
    struct kernels_drawn *drawn;
    char *scratch;
    uint64_t slot_bytes; /* a block has one slot of the scratch */
    uint32_t rows, vocab;
};

struct take_parameters {
    const uint32_t *from;
    const struct kernels_drawn *drawn;
    uint32_t *tokens;
    uint32_t rows;
};

#endif
