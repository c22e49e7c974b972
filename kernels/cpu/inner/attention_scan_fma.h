/* Products of attention with keys and values where they lie in the pool, by multiply-add (AVX2:
 * avx2.c). Include before inner_body.h, with product_fma.h. */
#ifndef BATON_KERNELS_CPU_INNER_ATTENTION_SCAN_FMA_H
#define BATON_KERNELS_CPU_INNER_ATTENTION_SCAN_FMA_H

#include "kernels/cpu/inner/attention_fma.h"

/* --- keys where they lie --- */

/* Vectors of tokens that rows take at once. Few rows take two: a sum waits for the one before, and
 * fewer than eight sums leave multipliers idle. More than eight rows are enough sums by themselves,
 * and registers don't suffice for two vectors: 24 sums of 12 rows leave 8 of 32, which the words of
 * the keys alone would fill. */
#if defined(__AVX512F__)
#define KEY_VECTORS(ROWS) ((ROWS) > 8 ? 1 : 2)
#else
#define KEY_VECTORS(ROWS) 1 /* registers suffice for no more */
#endif
_Static_assert(KEY_VECTORS(1) * VECTOR <= PANEL, "no block reads or writes behind a whole panel");
_Static_assert(VECTOR >= 4, "a step of keys is a line at least");

/* Prefetches of later tokens while keys are read: as many tokens, run by run, a step's bytes at a
 * time. */
struct coming {
    const struct attention_tokens *tokens;
    uint32_t t;       /* a token of the current run */
    const char *next; /* address in that run */
    int left, run_bytes, step_bytes;
};

ALWAYS_INLINE struct coming begin_coming(const struct attention_scan *scan, uint32_t t,
                                         const uint32_t step_bytes)
{
    int run_bytes = (int)(RUN_TOKENS * scan->tokens->token_bytes);
    return (struct coming){scan->next, t,         token_at(scan->next, t),
                           run_bytes,  run_bytes, (int)step_bytes};
}

ALWAYS_INLINE void take_step(struct coming *coming)
{
    for (; coming->left <= 0; coming->left += coming->run_bytes)
        coming->next = token_at(coming->tokens, coming->t += RUN_TOKENS);
    coming->left -= coming->step_bytes;
}

/* `count` and `int8` are constants at every call, so that the sums live in registers. */
ALWAYS_INLINE void scan_keys_block(const struct attention_scan *scan, uint32_t t, uint32_t first,
                                   const uint32_t count, const bool int8)
{
    const uint32_t per_word = int8 ? 4 : 2, vectors = KEY_VECTORS(count);
    const float *rows = scan->rows + first * ATTENTION_STRIDE;
    const size_t stride = scan->tokens->token_bytes;
    const char *runs[2][VECTOR_RUNS];
#pragma GCC unroll 2
    for (uint32_t v = 0; v < vectors; v++)
        find_tokens(scan->tokens, t + v * VECTOR, runs[v]);
    floats sum[SUM_ROWS][2];
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            sum[r][v] = (floats){0};
    struct coming coming = begin_coming(scan, t, vectors * (uint32_t)sizeof(words[4]));
    /* 1, or a power of two that doesn't exceed the numbers of a step. */
    const uint32_t lines = vectors * (uint32_t)sizeof(words[4]) / 64;
    for (uint32_t w = scan->tokens->head_dim / per_word; w > 0; w -= 4) {
        take_step(&coming);
        words four[2][4];
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            take_words(runs[v], stride, four[v]);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < 4; j++)
#pragma GCC unroll 4
            for (uint32_t i = 0; i < per_word; i++, rows++) {
                uint32_t odd_first = i ^ 1;
                const float *row = rows - i + odd_first;
                if ((j * per_word + i) % (4 * per_word / lines) == 0)
                    coming.next = prefetch(coming.next,
                                           64); /* one by one: many at once wait for each other */
                floats numbers[2];
#pragma GCC unroll 2
                for (uint32_t v = 0; v < vectors; v++)
                    numbers[v] = widen_number(four[v][j], odd_first, int8);
#pragma GCC unroll 12
                for (uint32_t r = 0; r < count; r++) {
                    floats x = in_turn(broadcast(row[r * ATTENTION_STRIDE]));
#pragma GCC unroll 2
                    for (uint32_t v = 0; v < vectors; v++)
                        add_in_place(&sum[r][v], x, numbers[v]);
                }
            }
    }
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            *((floats *)(scan->out + (first + r) * scan->out_stride + t) + v) = sum[r][v];
}

/* --- values where they lie --- */

ALWAYS_INLINE void scan_value(const char *token, const float *weights, const uint32_t count,
                              const bool int8, floats sum[SUM_ROWS][2])
{
    floats value[2];
    two_vectors(token, int8, value);
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++) {
        floats weight = in_turn(broadcast(weights[r * ATTENTION_STRIDE]));
        add_in_place(&sum[r][0], weight, value[0]);
        add_in_place(&sum[r][1], weight, value[1]);
    }
}

ALWAYS_INLINE void scan_values_block(const struct attention_scan *scan, uint32_t d, uint32_t first,
                                     const uint32_t count, const bool int8)
{
    const float *weights = scan->rows + first * ATTENTION_STRIDE;
    const size_t stride = scan->tokens->token_bytes, column = d * (int8 ? 1 : sizeof(uint16_t));
    floats sum[SUM_ROWS][2];
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++)
        sum[r][0] = sum[r][1] = (floats){0};
    struct passing passing = begin_passing(scan, d, int8);
    for (uint32_t t = 0; t < scan->token_count; t += RUN_TOKENS) {
        const char *token = token_at(scan->tokens, t) + column;
        const char *next = passing_run(&passing);
        uint32_t behind = t + RUN_TOKENS < scan->token_count ? t + RUN_TOKENS : t;
        const char *near = token_at(scan->tokens, behind) + column;
        uint32_t left = scan->token_count - t < RUN_TOKENS ? scan->token_count - t : RUN_TOKENS;
        for (uint32_t i = 0; i < left; i += 2, weights += 2, near += 2 * stride) {
            next = prefetch(next, passing.bytes / RUN_TOKENS * 2);
            /* prefetch the run behind this one from the level 2 cache */
            if (ATTENTION_NEXT_LEVEL != 3) {
                __builtin_prefetch(near);
                __builtin_prefetch(near + stride);
            }
            /* the weight behind the last token is zero; any number may lie there */
            scan_value(i + 1 < left ? token + stride : token, weights + 1, count, int8, sum);
            scan_value(token, weights, count, int8, sum);
            token += 2 * stride;
        }
    }
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++) {
        floats *target = (floats *)(scan->out + (first + r) * scan->out_stride + d);
        target[0] = int8 ? sum[r][0] : in_turns_low(sum[r][0], sum[r][1]);
        target[1] = int8 ? sum[r][1] : in_turns_high(sum[r][0], sum[r][1]);
    }
}

#include "kernels/cpu/inner/attention_scan.h"

#endif
