/* Products of attention with keys and values where they lie in the pool: struct attention_scan (attention.h). Part of
 * attention_body.h. */
#ifndef BATON_KERNELS_CPU_INNER_ATTENTION_SCAN_H
#define BATON_KERNELS_CPU_INNER_ATTENTION_SCAN_H

#include "kernels/cpu/inner/attention.h"
#include "kernels/cpu/inner/inner.h"
#include "kernels/cpu/inner/vector.h"

#include <string.h>

ALWAYS_INLINE const char *token_at(const struct attention_tokens *tokens, uint32_t t)
{
    return tokens->runs[t / RUN_TOKENS] + tokens->offset + t % RUN_TOKENS * tokens->token_bytes;
}

static inline float element(const char *token, bool int8, uint32_t d)
{
    if (int8)
        return ((const int8_t *)token)[d];
    union float_bits wide = {.bits = (uint32_t)((const uint16_t *)token)[d] << 16};
    return wide.value;
}

/* Where VECTOR tokens from t on lie. */
#define VECTOR_RUNS ((VECTOR + RUN_TOKENS - 1) / RUN_TOKENS)
ALWAYS_INLINE void find_tokens(const struct attention_tokens *tokens, uint32_t t,
                               const char *runs[VECTOR_RUNS])
{
    for (uint32_t i = 0; i < VECTOR_RUNS; i++)
        runs[i] = token_at(tokens, t + i * RUN_TOKENS);
}

_Static_assert(RUN_TOKENS == 8, "a run is two quarters, of four tokens each");

/* Four words of every fourth token, from number i on. Few addresses are at hand: the others are a multiple of the stride away. */
ALWAYS_INLINE words load_quarters(const char *const runs[VECTOR_RUNS], size_t stride, size_t i)
{
#define QUARTER(Q) _mm_loadu_si128((const __m128i *)(runs[(Q) / 2] + ((Q) % 2 * 4 + i) * stride))
#if defined(__AVX512F__)
    __m512i all = _mm512_castsi128_si512(QUARTER(0));
    all = _mm512_inserti32x4(all, QUARTER(1), 1);
    all = _mm512_inserti32x4(all, QUARTER(2), 2);
    return (words)_mm512_inserti32x4(all, QUARTER(3), 3);
#elif defined(__AVX2__)
    return (words)_mm256_inserti128_si256(_mm256_castsi128_si256(QUARTER(0)), QUARTER(1), 1);
#else
    words quarter; /* int8 tokens may lie at any even address */
    memcpy(&quarter, runs[0] + i * stride, sizeof quarter);
    return quarter;
#endif
#undef QUARTER
}

/* The next four words of VECTOR tokens: out[j] holds word j of each. */
ALWAYS_INLINE void take_words(const char *runs[VECTOR_RUNS], size_t stride, words out[4])
{
    words a = load_quarters(runs, stride, 0), b = load_quarters(runs, stride, 1);
    words c = load_quarters(runs, stride, 2), d = load_quarters(runs, stride, 3);
    words ab = interleave_low(a, b), cd = interleave_low(c, d);
    out[0] = interleave_low_pairs(ab, cd);
    out[1] = interleave_high_pairs(ab, cd);
    ab = interleave_high(a, b);
    cd = interleave_high(c, d);
    out[2] = interleave_low_pairs(ab, cd);
    out[3] = interleave_high_pairs(ab, cd);
    for (uint32_t i = 0; i < VECTOR_RUNS; i++)
        runs[i] += 4 * sizeof(uint32_t);
}

/* Number i of those in each word, by ascending address: two bf16 or four s8. */
ALWAYS_INLINE floats widen_number(words packed, uint32_t i, const bool int8)
{
    if (int8)
        return to_floats((ints)(packed << (24 - 8 * i)) >> 24);
    return i ? upper_halves(packed) : (floats)(packed << 16);
}

/* --- keys --- */

/* Where what comes next is brought: as __builtin_prefetch's locality, 3 the first level of cache, 2 the second, from where values are
 * asked for into the first once more, a run ahead. Asked for in the second alone, more lines never come to a Zen 5, and attention of
 * one row takes up to a half longer; a Xeon with AMX, in whose first level a segment's keys don't last, takes 2 to 15% longer with the
 * first. */
#ifndef ATTENTION_NEXT_LEVEL
#define ATTENTION_NEXT_LEVEL 3
#endif

/* A line after the other: in this order the hardware reads ahead, too. */
ALWAYS_INLINE const char *prefetch(const char *at, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i, 0, ATTENTION_NEXT_LEVEL);
    return at + bytes;
}

/* Tokens, in vectors, that rows take at once. Few take two: a sum waits for the one before, and fewer than eight sums leave multipliers
 * idle. More than eight rows are enough sums by themselves, and there are no registers for two: 24 sums of 12 rows leave 8 of 32, which
 * the words of the keys alone would fill. */
#if defined(__AVX512F__)
#define KEY_VECTORS(ROWS) ((ROWS) > 8 ? 1 : 2)
#else
#define KEY_VECTORS(ROWS) 1 /* there are registers for no more */
#endif
_Static_assert(KEY_VECTORS(1) * VECTOR <= PANEL, "no block reads or writes behind a whole panel");
_Static_assert(VECTOR >= 4, "a step of keys is a line at least");

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
    /* The block brings in as many tokens of what comes next, run by run: one is `left` bytes long. */
    uint32_t ahead = t;
    const char *next = token_at(scan->next, ahead);
    const int run_bytes = (int)(RUN_TOKENS * stride),
              step_bytes = (int)(vectors * sizeof(words[4]));
    /* One, or a power of two that isn't above the numbers of a step. */
    const uint32_t lines = (uint32_t)step_bytes / 64;
    int left = run_bytes;
    for (uint32_t w = scan->tokens->head_dim / per_word; w > 0; w -= 4) {
        for (; left <= 0; left += run_bytes)
            next = token_at(scan->next, ahead += RUN_TOKENS);
        left -= step_bytes;
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
                    next = prefetch(next, 64); /* one by one: many at once wait for each other */
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

/* --- values --- */

/* Two vectors of numbers: neighbours, or of bf16 those at even and those at odd places. */
ALWAYS_INLINE void two_vectors(const char *numbers, const bool int8, floats out[2])
{
    if (int8) {
        out[0] = widen_int8((const int8_t *)numbers);
        out[1] = widen_int8((const int8_t *)numbers + VECTOR);
        return;
    }
    words packed = *(const words *)numbers;
    out[0] = widen_number(packed, 0, false);
    out[1] = widen_number(packed, 1, false);
}

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
    /* All passes over the tokens together bring in what comes next: a run is as many parts as there are passes. */
    uint32_t passes = scan->tokens->head_dim / (2 * VECTOR);
    uint32_t part = d / (2 * VECTOR) * ((scan->token_count + RUN_TOKENS - 1) / RUN_TOKENS);
    const uint32_t bytes = RUN_TOKENS * (int8 ? 2 * VECTOR : 4 * VECTOR);
    for (uint32_t t = 0; t < scan->token_count; t += RUN_TOKENS, part++) {
        const char *token = token_at(scan->tokens, t) + column;
        const char *next = token_at(scan->next, part / passes * RUN_TOKENS) + part % passes * bytes;
        uint32_t behind = t + RUN_TOKENS < scan->token_count ? t + RUN_TOKENS : t;
        const char *near = token_at(scan->tokens, behind) + column;
        uint32_t left = scan->token_count - t < RUN_TOKENS ? scan->token_count - t : RUN_TOKENS;
        for (uint32_t i = 0; i < left; i += 2, weights += 2, near += 2 * stride) {
            next = prefetch(next, bytes / RUN_TOKENS * 2);
            if (ATTENTION_NEXT_LEVEL != 3) { /* the run behind this one, from the second level */
                __builtin_prefetch(near);
                __builtin_prefetch(near + stride);
            }
            /* behind the last token the weight is zero, and what it weighs any number */
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

#define SCAN_CASE(COUNT)                                                                           \
    case COUNT:                                                                                    \
        if (scan->tokens->int8)                                                                    \
            SCAN_BLOCK(scan, at, r, COUNT, true);                                                  \
        else                                                                                       \
            SCAN_BLOCK(scan, at, r, COUNT, false);                                                 \
        break;
#if SUM_ROWS > 6
#define SCAN_CASES                                                                                 \
    SCAN_CASE(1)                                                                                   \
    SCAN_CASE(2)                                                                                   \
    SCAN_CASE(3)                                                                                   \
    SCAN_CASE(4)                                                                                   \
    SCAN_CASE(5)                                                                                   \
    SCAN_CASE(6) SCAN_CASE(7) SCAN_CASE(8) SCAN_CASE(9) SCAN_CASE(10) SCAN_CASE(11) SCAN_CASE(12)
#elif SUM_ROWS > 4
#define SCAN_CASES SCAN_CASE(1) SCAN_CASE(2) SCAN_CASE(3) SCAN_CASE(4) SCAN_CASE(5) SCAN_CASE(6)
#else
#define SCAN_CASES SCAN_CASE(1) SCAN_CASE(2) SCAN_CASE(3) SCAN_CASE(4)
#endif

static inline uint32_t rows_at_once(uint32_t left)
{
    return left < SUM_ROWS ? left : SUM_ROWS;
}

#define SCAN_BLOCK scan_keys_block
static void scan_keys(const struct attention_scan *scan)
{
    for (uint32_t r = 0; r < scan->count; r += SUM_ROWS)
        for (uint32_t at = 0; at < scan->token_count;
             at += KEY_VECTORS(rows_at_once(scan->count - r)) * VECTOR)
            switch (rows_at_once(scan->count - r)) {
                SCAN_CASES
            }
}
#undef SCAN_BLOCK

#define SCAN_BLOCK scan_values_block
static void scan_values(const struct attention_scan *scan)
{
    for (uint32_t r = 0; r < scan->count; r += SUM_ROWS)
        for (uint32_t at = 0; at < scan->tokens->head_dim; at += 2 * VECTOR)
            switch (rows_at_once(scan->count - r)) {
                SCAN_CASES
            }
}
#undef SCAN_BLOCK

#endif
