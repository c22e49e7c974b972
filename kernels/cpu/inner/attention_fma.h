/* Products of attention by fp32 multiply-add, on 4, 8 or 16 lanes: rows, and what panels hold, are fp32 numbers. Before
 * inner_body.h, with product_fma.h. */
#ifndef BATON_KERNELS_CPU_INNER_ATTENTION_FMA_H
#define BATON_KERNELS_CPU_INNER_ATTENTION_FMA_H

#include "kernels/cpu/inner/attention_tokens.h"
#include "kernels/cpu/inner/bf16.h"

#include <string.h>

/* Number i of those in each word, by ascending address: two bf16 or four s8. */
ALWAYS_INLINE floats widen_number(words packed, uint32_t i, const bool int8)
{
    if (int8)
        return to_floats((ints)(packed << (24 - 8 * i)) >> 24);
    return i ? upper_halves(packed) : (floats)(packed << 16);
}

/* --- rows --- */

static void round_queries(const float *restrict in, uint32_t count, float *restrict out)
{
    for (uint32_t i = 0; i < count; i++) {
        union float_bits rounded = {.bits = (uint32_t)round_one(in[i]) << 16};
        out[i] = rounded.value;
    }
}

/* Four vectors of weights, in place of scores. */
ALWAYS_INLINE void keep_weights(float *scores, uint32_t t, const floats weights[4])
{
    floats *out = (floats *)(scores + t);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++)
        out[i] = round_to_bf16(weights[i]);
}

#define WEIGHT_BYTES sizeof(float)

/* --- panels --- */

ALWAYS_INLINE void pack_keys_of(const struct attention_tokens *tokens, uint32_t first,
                                const bool int8, float *panel)
{
    const uint32_t per_word = int8 ? 4 : 2;
    uint32_t whole = tokens->head_dim / (4 * per_word) * 4; /* words that vectors take */
    for (uint32_t lane = 0; lane < PANEL; lane += VECTOR) {
        const char *runs[VECTOR_RUNS];
        find_tokens(tokens, first + lane, runs);
        for (uint32_t w = 0; w < whole; w += 4) {
            words four[4];
            take_words(runs, tokens->token_bytes, four);
#pragma GCC unroll 4
            for (uint32_t j = 0; j < 4; j++)
#pragma GCC unroll 4
                for (uint32_t i = 0; i < per_word; i++)
                    *(floats *)(panel + ((w + j) * per_word + i) * PANEL + lane) =
                        widen_number(four[j], i, int8);
        }
    }
    for (uint32_t d = whole * per_word; d < tokens->head_dim; d++)
        for (uint32_t lane = 0; lane < PANEL; lane++)
            panel[(size_t)d * PANEL + lane] = element(token_at(tokens, first + lane), int8, d);
}

static void pack_keys(const struct attention_tokens *tokens, uint32_t first, float *panel)
{
    if (tokens->int8)
        pack_keys_of(tokens, first, true, panel);
    else
        pack_keys_of(tokens, first, false, panel);
}

/* --- values: numbers of a head side by side --- */

ALWAYS_INLINE void pack_whole_panel(const struct attention_tokens *tokens, uint32_t count,
                                    const bool int8, uint32_t d, float *panel)
{
    for (uint32_t t = 0; t < count; t++) {
        const char *token = token_at(tokens, t);
#pragma GCC unroll 8
        for (uint32_t i = 0; i < PANEL; i += VECTOR)
            *(floats *)(panel + (size_t)t * PANEL + i) =
                int8 ? widen_int8((const int8_t *)token + d + i)
                     : widen_bf16((const uint16_t *)token + d + i);
    }
}

static void pack_values(const struct attention_tokens *tokens, uint32_t count, size_t panel_floats,
                        float *panels)
{
    uint32_t d = 0, head_dim = tokens->head_dim;
    float *panel = panels;
    for (uint32_t i = 0; count % 2 && i < head_dim; i += PANEL)
        memset(panels + i / PANEL * panel_floats + (size_t)count * PANEL, 0, PANEL * sizeof *panel);
    for (; d + PANEL <= head_dim; d += PANEL, panel += panel_floats)
        if (tokens->int8)
            pack_whole_panel(tokens, count, true, d, panel);
        else
            pack_whole_panel(tokens, count, false, d, panel);
    for (uint32_t t = 0; d < head_dim && t < count; t++)
        for (uint32_t i = 0; i < PANEL; i++)
            panel[t * PANEL + i] =
                d + i < head_dim ? element(token_at(tokens, t), tokens->int8, d + i) : 0.0f;
}

/* --- products --- */

ALWAYS_INLINE void add_products(floats sum[SUM_ROWS][2], const uint32_t count, const float *rows,
                                const float *panel)
{
    floats low = *(const floats *)panel, high = *(const floats *)(panel + VECTOR);
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++) {
        floats x = broadcast(rows[r * ATTENTION_STRIDE]);
        add_in_place(&sum[r][0], x, low);
        add_in_place(&sum[r][1], x, high);
    }
}

/* `count` is a constant at every call, so that the sums live in registers. */
ALWAYS_INLINE void attend_block(const struct attention_product *product, uint32_t first, uint32_t n,
                                const uint32_t count)
{
    const float *panel = product->panel + n, *rows = product->rows + first * ATTENTION_STRIDE;
    floats sum[SUM_ROWS][2];
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++)
        sum[r][0] = sum[r][1] = (floats){0};
    for (uint32_t k = 0; k < product->k; k += 2, panel += (size_t)2 * PANEL, rows += 2) {
        add_products(sum, count, rows + 1, panel + PANEL);
        add_products(sum, count, rows, panel);
    }
    float *out = product->out + first * product->out_stride + n;
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++) {
        floats *target = (floats *)(out + r * product->out_stride);
        target[0] = sum[r][0];
        target[1] = sum[r][1];
    }
}

/* --- keys where they lie --- */

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
    struct coming coming = begin_coming(scan, t, vectors * (uint32_t)sizeof(words[4]));
    /* One, or a power of two that isn't above the numbers of a step. */
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
    struct passing passing = begin_passing(scan, d, int8);
    for (uint32_t t = 0; t < scan->token_count; t += RUN_TOKENS) {
        const char *token = token_at(scan->tokens, t) + column;
        const char *next = passing_run(&passing);
        uint32_t behind = t + RUN_TOKENS < scan->token_count ? t + RUN_TOKENS : t;
        const char *near = token_at(scan->tokens, behind) + column;
        uint32_t left = scan->token_count - t < RUN_TOKENS ? scan->token_count - t : RUN_TOKENS;
        for (uint32_t i = 0; i < left; i += 2, weights += 2, near += 2 * stride) {
            next = prefetch(next, passing.bytes / RUN_TOKENS * 2);
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

#endif
