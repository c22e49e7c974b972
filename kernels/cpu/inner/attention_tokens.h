/* Reads keys and values where they lie in the pool, for the products of attention. Included by
 * attention_fma.h and avx512bf16.c. */
#ifndef BATON_KERNELS_CPU_INNER_ATTENTION_TOKENS_H
#define BATON_KERNELS_CPU_INNER_ATTENTION_TOKENS_H

#include "kernels/cpu/exp_fixed.h"
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

/* Addresses of VECTOR tokens: one for each run. */
#define VECTOR_RUNS ((VECTOR + RUN_TOKENS - 1) / RUN_TOKENS)
ALWAYS_INLINE void find_tokens(const struct attention_tokens *tokens, uint32_t t,
                               const char *runs[VECTOR_RUNS])
{
    for (uint32_t i = 0; i < VECTOR_RUNS; i++)
        runs[i] = token_at(tokens, t + i * RUN_TOKENS);
}

_Static_assert(RUN_TOKENS == 8, "a run is two quarters, of four tokens each");

/* Loads four words, from number i on, of every fourth token. Few addresses are kept: the others are
 * a multiple of the stride away. */
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

/* Loads the next four words of VECTOR tokens: out[j] holds word j of each token. */
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

/* Cache level of prefetches of later tokens, as the locality of __builtin_prefetch: 3 is level 1, 2
 * is level 2. With 2, values are asked for again into level 1, a run ahead. avx512bf16.c has its
 * own. Measured: with level 2 alone some lines never reach a Zen 5, and attention of one row takes
 * up to half longer. A Xeon with AMX (its level 1 doesn't keep a segment's keys) takes 2 to 15%
 * longer with level 1. */
#ifndef ATTENTION_NEXT_LEVEL
#define ATTENTION_NEXT_LEVEL 3
#endif

/* Prefetches line by line: in this order the hardware reads ahead, too. */
ALWAYS_INLINE const char *prefetch(const char *at, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i, 0, ATTENTION_NEXT_LEVEL);
    return at + bytes;
}

/* Prefetches of later tokens while values are read. All passes over the tokens, two vectors of
 * each, share them: a run has as many parts as there are passes. */
struct passing {
    const struct attention_tokens *tokens;
    uint32_t passes, part, bytes; /* bytes of a part */
};

ALWAYS_INLINE struct passing begin_passing(const struct attention_scan *scan, uint32_t d,
                                           const bool int8)
{
    uint32_t runs = (scan->token_count + RUN_TOKENS - 1) / RUN_TOKENS;
    return (struct passing){.tokens = scan->next,
                            .passes = scan->tokens->head_dim / (2 * VECTOR),
                            .part = d / (2 * VECTOR) * runs,
                            .bytes = RUN_TOKENS * (int8 ? 2 * VECTOR : 4 * VECTOR)};
}

ALWAYS_INLINE const char *passing_run(struct passing *passing)
{
    uint32_t run = passing->part / passing->passes, at = passing->part % passing->passes;
    passing->part++;
    return token_at(passing->tokens, run * RUN_TOKENS) + at * passing->bytes;
}

#endif
