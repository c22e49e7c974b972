/* The inner loops of attention, a part of struct inner (inner.h). All instruction sets have one
 * order of sums and give the same bits, except AVX512-BF16: its vdpbf16ps flushes subnormal
 * numbers. PURE; callers check bounds.
 *
 * Operands are numbers that bf16 holds, or s8 numbers (int8 KV), so that every product is exact.
 * Rows are queries or weights, ATTENTION_STRIDE floats apart. Panels are keys (PANEL tokens side by
 * side) or values (PANEL numbers of a head side by side), made once for all rows of a slice. Rows
 * and panels are in the set's form: fp32 numbers (attention_fma.h, attention_scan_fma.h, avx2.c),
 * or pairs of bf16 in the place of floats (avx512bf16.c). */
#ifndef BATON_KERNELS_CPU_INNER_ATTENTION_H
#define BATON_KERNELS_CPU_INNER_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Floats from row to row, a constant so that a row's address is a displacement. head_dim and the
 * tokens of a segment don't exceed it. */
#define ATTENTION_STRIDE 256
#define SOFTMAX_LANES    16
#define WEIGH_TOKENS     64 /* scores become weights in steps of this many tokens */

/* Keys or values of a segment as they lie in the pool: runs of RUN_TOKENS neighbours. Blocks hold a
 * multiple of that. */
#define RUN_TOKENS 8
struct attention_tokens {
    const char *const *runs; /* [tokens, rounded up to PANEL, / RUN_TOKENS]: addresses */
    size_t offset;           /* bytes from such an address to the first number of a run */
    size_t token_bytes;      /* bytes from token to token */
    uint32_t head_dim;
    bool int8; /* numbers are s8; otherwise bf16 */
};

/* out[r][n] = sum over pairs p, ascending, of rows[r][2p+1] * panel[2p+1][n], then rows[r][2p] *
 * panel[2p][n]. */
struct attention_product {
    const float *rows;  /* [count][ATTENTION_STRIDE], as round_queries or weigh leave them */
    const float *panel; /* [k][PANEL], or [k / 2][PANEL] pairs */
    uint32_t count;     /* 1 .. TILE_ROWS */
    uint32_t k;         /* even */
    float *out;         /* [count][out_stride]; PANEL numbers are written in each */
    size_t out_stride;
};

/* The same sums over tokens where they lie in the pool. Tokens that only one tile reads are not
 * worth widening. */
struct attention_scan {
    const float *rows;                     /* [count][ATTENTION_STRIDE]: queries, or weights */
    uint32_t count;                        /* 1 .. TILE_ROWS */
    const struct attention_tokens *tokens; /* head_dim: a multiple of PANEL */
    uint32_t token_count;
    /* keys: [count][token_count, rounded up to PANEL]; values: [count][head_dim] */
    float *out;
    size_t out_stride;
    /* As many tokens to prefetch meanwhile, up to a segment's runs. */
    const struct attention_tokens *next;
    /* Prefetches into the level 1 cache, which has room. Only avx512bf16.c looks at it: other sets
     * have one fixed level. */
    bool near;
};

/* A row of scores that becomes a row of weights. */
struct attention_weighing {
    float *scores; /* [tokens]: scores, then weights */
    /* the row sees tokens begin .. end - 1, begin < end; all others weigh zero */
    uint32_t begin, end;
    /* weights are written up to here; a multiple of WEIGH_TOKENS, at least `end` */
    uint32_t tokens;
    float scale;
    const float *key_scales, *value_scales; /* [tokens]; NULL: 1 */
};

/* Partials of one segment, to be merged into the partials of the segments before it. */
struct attention_merge {
    uint32_t rows, width; /* rows <= TILE_ROWS */
    float *merged;        /* [rows][width], like `partial` */
    float *max, *sum;     /* [rows] */
    const float *partial, *partial_max, *partial_sum;
};

struct attention_inner {
    /* Rounds `count` numbers (even) to bf16 and writes them as a row. */
    void (*round_queries)(const float *in, uint32_t count, float *out);
    /* Packs tokens [first, first + PANEL) as panel[head_dim][PANEL]. */
    void (*pack_keys)(const struct attention_tokens *tokens, uint32_t first, float *panel);
    /* Packs tokens [0, count) as ceil(head_dim / PANEL) panels [count][PANEL], `panel_floats`
     * apart. Columns past head_dim are zero. With an odd count one row more is written, which
     * weighs nothing: zeros, or the last row again. */
    void (*pack_values)(const struct attention_tokens *tokens, uint32_t count, size_t panel_floats,
                        float *panels);
    void (*multiply)(const struct attention_product *product);
    void (*scan_keys)(const struct attention_scan *scan);
    void (*scan_values)(const struct attention_scan *scan);

    /* Multiplies scores by key_scales and `scale`, and returns their maximum. This is a step of its
     * own: the maxima of several rows are found while others are still searched. */
    float (*prepare)(const struct attention_weighing *weighing);
    /* Turns prepared scores into weights: exp(score - max), times value_scales, rounded to bf16.
     * Returns the sum of the exp, over SOFTMAX_LANES lanes at absolute positions. */
    float (*weigh)(const struct attention_weighing *weighing, float max);
    /* Scales both sides to the larger of their maxima, and adds them. */
    void (*merge)(const struct attention_merge *merge);
    /* out = in / divisor. */
    void (*divide)(const float *in, float divisor, uint32_t count, float *out);
};

#endif
