/* The inner loops of attention, a part of struct inner (inner.h): one order of sums on every
 * instruction set, and the same bits; but AVX512-BF16 multiplies by vdpbf16ps, which flushes
 * subnormal numbers. PURE; bounds are the callers' duty.
 *
 * Operands are numbers that bf16 holds, or whole numbers of eight bits (int8 KV), so that every
 * product is exact. Rows are queries or weights, ATTENTION_STRIDE floats apart; panels are keys
 * (PANEL tokens side by side) or values (PANEL numbers of a head side by side), made once for all
 * rows of a slice. Both are in the set's form: fp32 numbers (attention_fma.h; scans:
 * attention_scan_fma.h, attention_scan_avx2.h), or pairs of bf16 in the place of floats
 * (attention_dot.h).
 */
#ifndef BATON_KERNELS_CPU_INNER_ATTENTION_H
#define BATON_KERNELS_CPU_INNER_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A constant, so that a row's address is a displacement; head_dim and the tokens of a segment are
 * at most so many. */
#define ATTENTION_STRIDE 256
#define SOFTMAX_LANES    16
#define WEIGH_TOKENS     64 /* scores become weights by so many */

/* Keys or values of a segment as they lie in the pool: in runs of neighbours, since blocks hold a
 * multiple of so many. */
#define RUN_TOKENS 8
struct attention_tokens {
    const char *const *runs; /* [tokens, up to a multiple of PANEL, / RUN_TOKENS]: addresses */
    size_t offset;           /* from there to the first of a run's numbers */
    size_t token_bytes;      /* from token to token */
    uint32_t head_dim;
    bool int8; /* numbers are s8; else bf16 */
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

/* The same sums over tokens where they lie in the pool. What is read once, by one tile alone, isn't
 * worth widening. */
struct attention_scan {
    const float *rows;                     /* [count][ATTENTION_STRIDE]: queries, or weights */
    uint32_t count;                        /* 1 .. TILE_ROWS */
    const struct attention_tokens *tokens; /* head_dim: a multiple of PANEL */
    uint32_t token_count;
    /* keys: [count][token_count, up to a multiple of PANEL]; values: [count][head_dim] */
    float *out;
    size_t out_stride;
    /* As many, but a segment's runs: what to bring into the cache meanwhile. */
    const struct attention_tokens *next;
    bool
        /* into the first level of it: it has room. attention_dot.h asks; other sets are bound to
         * one level */
        near;
};

/* A row of scores and what becomes of it. */
struct attention_weighing {
    float *scores;       /* [tokens]: scores, then weights */
    uint32_t begin, end; /* the tokens that the row sees, begin < end; all others weigh zero */
    uint32_t tokens;     /* that have weights, a multiple of WEIGH_TOKENS, from end on */
    float scale;
    const float *key_scales, *value_scales; /* [as `scores`] of each token; NULL: 1 */
};

/* Partials of one segment, to be merged into those of the segments before it. */
struct attention_merge {
    uint32_t rows, width; /* rows <= TILE_ROWS */
    float *merged;        /* [rows][width], as `partial` */
    float *max, *sum;     /* [rows] */
    const float *partial, *partial_max, *partial_sum;
};

struct attention_inner {
    /* A row of [count] numbers, even, rounded to bf16. */
    void (*round_queries)(const float *in, uint32_t count, float *out);
    /* Tokens [first, first + PANEL) become panel[head_dim][PANEL]. */
    void (*pack_keys)(const struct attention_tokens *tokens, uint32_t first, float *panel);
    /* Tokens [0, count) become ceil(head_dim / PANEL) panels [count][PANEL], `panel_floats` apart;
     * columns past head_dim are zero. One row behind an odd count weighs nothing: zeros, or the
     * last once more. */
    void (*pack_values)(const struct attention_tokens *tokens, uint32_t count, size_t panel_floats,
                        float *panels);
    void (*multiply)(const struct attention_product *product);
    void (*scan_keys)(const struct attention_scan *scan);
    void (*scan_values)(const struct attention_scan *scan);

    /* Scores times key_scales and scale; returns their maximum. A step of its own, since the maxima
     * of several rows are found while others are still searched. */
    float (*prepare)(const struct attention_weighing *weighing);
    /* Prepared scores become a row of weights: exp(score - max), times value_scales, rounded to
     * bf16. Returns the sum of the exp, over SOFTMAX_LANES lanes at absolute positions. */
    float (*weigh)(const struct attention_weighing *weighing, float max);
    /* Both sides scaled to the larger of their maxima, and added. */
    void (*merge)(const struct attention_merge *merge);
    void (*divide)(const float *in, float divisor, uint32_t count, float *out);
};

#endif
