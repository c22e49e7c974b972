/* Products of attention by fp32 multiply-add, on 4, 8 or 16 lanes: rows and panels hold fp32
 * numbers. Include before inner_body.h, with product_fma.h or the like. */
#ifndef BATON_KERNELS_CPU_INNER_ATTENTION_FMA_H
#define BATON_KERNELS_CPU_INNER_ATTENTION_FMA_H

#include "kernels/cpu/inner/attention_tokens.h"
#include "kernels/cpu/inner/bf16.h"

#include <string.h>

/* Widens number i of each word, by ascending address: two bf16 or four s8. */
ALWAYS_INLINE floats widen_number(words packed, uint32_t i, const bool int8)
{
    if (int8)
        return to_floats((ints)(packed << (24 - 8 * i)) >> 24);
    return i ? upper_halves(packed) : (floats)(packed << 16);
}

/* Widens two vectors of numbers. int8: neighbours; bf16: the numbers at even places, then those at
 * odd places. */
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

/* --- rows --- */

static void round_queries(const float *restrict in, uint32_t count, float *restrict out)
{
    for (uint32_t i = 0; i < count; i++) {
        union float_bits rounded = {.bits = (uint32_t)round_one(in[i]) << 16};
        out[i] = rounded.value;
    }
}

/* Stores four vectors of weights in place of scores. */
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

#endif
