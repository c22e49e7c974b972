/* Products of attention with keys and values where they lie in the pool, of AVX2
 * (attention_scan_fma.h: of the other sets; the sums are the same ones). Sixteen registers hold
 * sums and little else, so rows go in equal shares: over keys as many as there is a sum for beside
 * the words of eight tokens, which are put side by side once for them all; over values as many as
 * two vectors of sums each leave room for. Few rows take several vectors: a sum waits four cycles
 * for the one before, and fewer than eight leave multipliers idle. In front of inner_body.h, beside
 * product_fma_avx2.h. */
#ifndef BATON_KERNELS_CPU_INNER_ATTENTION_SCAN_AVX2_H
#define BATON_KERNELS_CPU_INNER_ATTENTION_SCAN_AVX2_H

#include "kernels/cpu/inner/attention_fma.h"

#include <string.h>

#define KEY_ROWS   8
#define VALUE_ROWS 6
#define SCAN_SUMS  12

/* Like add_in_place, of an instruction that the compiler doesn't take apart. */
ALWAYS_INLINE void add_kept(floats *sum, floats a, floats b)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(*sum) : "x"(a), "x"(b));
}

/* Read anew each time: the compiler would keep it for the next vector, and has no register for
 * that. */
ALWAYS_INLINE floats broadcast_anew(const float *value)
{
    floats all;
    __asm__ volatile("vbroadcastss %1, %0" : "=x"(all) : "m"(*value));
    return all;
}

/* Rows of a share: as few shares as there can be, and none much smaller than another. */
static inline uint32_t share_of(uint32_t left, uint32_t most)
{
    uint32_t shares = (left + most - 1) / most;
    return (left + shares - 1) / shares;
}

/* --- what comes next --- */

/* In tokens: what is asked for into the second level of cache, and from there into the first.
 * Measured on a Zen 4: a core waits for few lines of the first level at once, so that these alone
 * (nearer, or a whole segment ahead) come at 11 GB/s where both give 16. */
#define NEAR_TOKENS 32
#define FAR_TOKENS  64

/* Token t, or behind the last run one of what comes next. */
ALWAYS_INLINE const char *token_or_next(const struct attention_scan *scan, uint32_t t)
{
    uint32_t end = (scan->token_count + RUN_TOKENS - 1) / RUN_TOKENS * RUN_TOKENS;
    return t < end ? token_at(scan->tokens, t) : token_at(scan->next, t - end);
}

struct scan_ahead {
    const char *near, *far;
};

/* From a place in the run of token t on. */
ALWAYS_INLINE struct scan_ahead ahead_of(const struct attention_scan *scan, uint32_t t,
                                         uint32_t place)
{
    return (struct scan_ahead){.near = token_or_next(scan, t + NEAR_TOKENS) + place,
                               .far = token_or_next(scan, t + FAR_TOKENS) + place};
}

ALWAYS_INLINE void ask_ahead(struct scan_ahead *ahead, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(ahead->near + i, 0, 3);
        __builtin_prefetch(ahead->far + i, 0, 2);
    }
    ahead->near += bytes;
    ahead->far += bytes;
}

/* --- keys --- */

#define KEY_VECTORS(ROWS) ((ROWS) <= 2 ? 4 : (ROWS) <= 4 ? 2 : 1)
_Static_assert(KEY_VECTORS(1) * VECTOR <= PANEL, "no block reads or writes behind a whole panel");

/* Four words of a vector of tokens: their numbers times those of the rows, odd ones first. As many
 * bytes are asked for, line by line: many at once wait for each other. */
ALWAYS_INLINE void add_words(const words four[4], const float *rows, const uint32_t count,
                             const uint32_t vectors, const bool int8, struct scan_ahead *ahead,
                             floats *sum)
{
    const uint32_t per_word = int8 ? 4 : 2;
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 4 * per_word; i++) {
        uint32_t odd_first = i ^ 1;
        if (i % (2 * per_word) == 0)
            ask_ahead(ahead, sizeof(words[2]));
        floats numbers = widen_number(four[i / per_word], odd_first % per_word, int8);
#pragma GCC unroll 8
        for (uint32_t r = 0; r < count; r++)
            add_kept(&sum[r * vectors], broadcast_anew(rows + r * ATTENTION_STRIDE + odd_first),
                     numbers);
    }
}

/* `count` and `int8` are constants at every call, so that the sums live in registers. */
ALWAYS_INLINE void scan_keys_block(const struct attention_scan *scan, uint32_t t, uint32_t first,
                                   const uint32_t count, const bool int8)
{
    const uint32_t per_word = int8 ? 4 : 2, vectors = KEY_VECTORS(count);
    const float *rows = scan->rows + first * ATTENTION_STRIDE;
    const size_t stride = scan->tokens->token_bytes;
    const char *runs[4][VECTOR_RUNS];
    floats sum[SCAN_SUMS];
#pragma GCC unroll 4
    for (uint32_t v = 0; v < vectors; v++)
        find_tokens(scan->tokens, t + v * VECTOR, runs[v]);
#pragma GCC unroll 12
    for (uint32_t i = 0; i < count * vectors; i++)
        sum[i] = (floats){0};
    /* The block brings in as many tokens as it has, run by run: one is `left` bytes long. */
    uint32_t run = t;
    struct scan_ahead ahead = ahead_of(scan, run, 0);
    const int run_bytes = (int)(RUN_TOKENS * stride),
              step_bytes = (int)(vectors * sizeof(words[4]));
    int left = run_bytes;
    for (uint32_t w = scan->tokens->head_dim / per_word; w > 0; w -= 4, rows += 4 * per_word) {
        for (; left <= 0; left += run_bytes)
            ahead = ahead_of(scan, run += RUN_TOKENS, 0);
        left -= step_bytes;
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vectors; v++) {
            words four[4];
            take_words(runs[v], stride, four);
            add_words(four, rows, count, vectors, int8, &ahead, sum + v);
        }
    }
    float *out = scan->out + first * scan->out_stride + t;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < count; r++, out += scan->out_stride)
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vectors; v++)
            ((floats *)out)[v] = sum[r * vectors + v];
}

/* --- values --- */

/* Tokens that all shares and columns go over before the next: they stay in the first level of
 * cache. */
#define CHUNK_TOKENS 64

#define VALUE_VECTORS(ROWS) ((ROWS) <= 3 ? 4 : 2)

/* Of two_vectors those of bf16, with a mask that takes no register. */
ALWAYS_INLINE void two_bf16_vectors(const char *numbers, floats out[2])
{
    static const uint32_t mask[VECTOR]
        __attribute__((aligned(32))) = {0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000,
                                        0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};
    words packed = *(const words *)numbers;
    __asm__("vandps %1, %2, %0" : "=x"(out[1]) : "m"(*(const words *)mask), "x"(packed));
    out[0] = (floats)(packed << 16);
}

ALWAYS_INLINE void scan_value(const char *token, const float *weights, const uint32_t count,
                              const bool int8, floats sum[SCAN_SUMS])
{
    const uint32_t vectors = VALUE_VECTORS(count);
#pragma GCC unroll 4
    for (uint32_t v = 0; v < vectors; v += 2) {
        floats value[2];
        if (int8)
            two_vectors(token + v * VECTOR, true, value);
        else
            two_bf16_vectors(token + v * VECTOR * sizeof(uint16_t), value);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < count; r++) {
            floats weight = broadcast_anew(weights + r * ATTENTION_STRIDE);
            add_kept(&sum[r * vectors + v], weight, value[0]);
            add_kept(&sum[r * vectors + v + 1], weight, value[1]);
        }
    }
}

/* Adds a chunk's values, columns from d on, to the sums in `out`: there even places of bf16 are in
 * front of odd ones. */
ALWAYS_INLINE void scan_values_block(const struct attention_scan *scan, uint32_t begin, uint32_t d,
                                     uint32_t first, const uint32_t count, const bool int8)
{
    const uint32_t vectors = VALUE_VECTORS(count), width = vectors * VECTOR;
    const uint32_t bytes = RUN_TOKENS * width * (int8 ? 1 : sizeof(uint16_t));
    const float *weights = scan->rows + first * ATTENTION_STRIDE + begin;
    const size_t stride = scan->tokens->token_bytes, column = d * (int8 ? 1 : sizeof(uint16_t));
    const uint32_t left = scan->token_count - begin;
    const uint32_t end = begin + (left < CHUNK_TOKENS ? left : CHUNK_TOKENS);
    float *out = scan->out + first * scan->out_stride + d;
    floats sum[SCAN_SUMS];
#pragma GCC unroll 12
    for (uint32_t i = 0; i < count * vectors; i++)
        sum[i] = ((floats *)(out + i / vectors * scan->out_stride))[i % vectors];
    /* All passes over the chunk together bring in as many tokens: a run is as many parts as there
     * are passes. */
    uint32_t passes = scan->tokens->head_dim / width;
    uint32_t part = d / width * ((end - begin + RUN_TOKENS - 1) / RUN_TOKENS);
    for (uint32_t t = begin; t < end; t += RUN_TOKENS, part++) {
        const char *token = token_at(scan->tokens, t) + column;
        struct scan_ahead ahead =
            ahead_of(scan, begin + part / passes * RUN_TOKENS, part % passes * bytes);
        uint32_t run = end - t < RUN_TOKENS ? end - t : RUN_TOKENS;
        for (uint32_t i = 0; i < run; i += 2, weights += 2, token += 2 * stride) {
            ask_ahead(&ahead, bytes / RUN_TOKENS * 2);
            /* behind the last token the weight is zero, and what it weighs any number */
            scan_value(i + 1 < run ? token + stride : token, weights + 1, count, int8, sum);
            scan_value(token, weights, count, int8, sum);
        }
    }
#pragma GCC unroll 12
    for (uint32_t i = 0; i < count * vectors; i++)
        ((floats *)(out + i / vectors * scan->out_stride))[i % vectors] = sum[i];
}

static void clear_sums(const struct attention_scan *scan)
{
    for (uint32_t r = 0; r < scan->count; r++)
        memset(scan->out + r * scan->out_stride, 0, scan->tokens->head_dim * sizeof(float));
}

static void put_in_turns(const struct attention_scan *scan)
{
    for (uint32_t r = 0; r < scan->count; r++)
        for (uint32_t d = 0; d < scan->tokens->head_dim; d += 2 * VECTOR) {
            floats *at = (floats *)(scan->out + r * scan->out_stride + d);
            floats even = at[0], odd = at[1];
            at[0] = in_turns_low(even, odd);
            at[1] = in_turns_high(even, odd);
        }
}

/* --- shares --- */

#define SHARE_CASE(SHARE, ROWS)                                                                    \
    case ROWS:                                                                                     \
        if (scan->tokens->int8)                                                                    \
            SHARE(ROWS, true)                                                                      \
        else                                                                                       \
            SHARE(ROWS, false)                                                                     \
        break;
#define SHARE_CASES(SHARE)                                                                         \
    SHARE_CASE(SHARE, 1)                                                                           \
    SHARE_CASE(SHARE, 2)                                                                           \
    SHARE_CASE(SHARE, 3) SHARE_CASE(SHARE, 4) SHARE_CASE(SHARE, 5) SHARE_CASE(SHARE, 6)

#define KEYS_SHARE(ROWS, INT8)                                                                     \
    for (uint32_t t = 0; t < scan->token_count; t += KEY_VECTORS(ROWS) * VECTOR)                   \
        scan_keys_block(scan, t, r, ROWS, INT8);
static void scan_keys(const struct attention_scan *scan)
{
    for (uint32_t r = 0, rows; r < scan->count; r += rows) {
        rows = share_of(scan->count - r, KEY_ROWS);
        switch (rows) {
            SHARE_CASES(KEYS_SHARE)
            SHARE_CASE(KEYS_SHARE, 7)
            SHARE_CASE(KEYS_SHARE, 8)
        }
    }
}
#undef KEYS_SHARE

#define VALUES_SHARE(ROWS, INT8)                                                                   \
    for (uint32_t d = 0; d < scan->tokens->head_dim; d += VALUE_VECTORS(ROWS) * VECTOR)            \
        scan_values_block(scan, t, d, r, ROWS, INT8);
static void scan_values(const struct attention_scan *scan)
{
    clear_sums(scan);
    for (uint32_t t = 0; t < scan->token_count; t += CHUNK_TOKENS)
        for (uint32_t r = 0, rows; r < scan->count; r += rows) {
            rows = share_of(scan->count - r, VALUE_ROWS);
            switch (rows) {
                SHARE_CASES(VALUES_SHARE)
            }
        }
    if (!scan->tokens->int8)
        put_in_turns(scan);
}
#undef VALUES_SHARE

#endif
