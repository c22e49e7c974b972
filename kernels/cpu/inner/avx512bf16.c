/* struct inner of AVX512-BF16: all products by vdpbf16ps, and inner_body.h. */
#include "kernels/cpu/inner/attention_tokens.h"
#include "kernels/cpu/inner/bf16.h"
#include "kernels/cpu/inner/inner.h"
#include "kernels/cpu/inner/vector.h"

#include <string.h>

/* --- linear layers --- */

/* A tile is bf16 pairs: [pair][rows]. The instruction is written in assembly: gcc 12 spills the
 * sums to the stack when it is given as an intrinsic. A row is broadcast once for both vectors: a
 * core that does two of these a cycle lacks the loads for a memory operand each. */

#define WORDS_PER_PAIR 1
#define WIDEN          NULL
#define WHOLE_ROWS     UINT32_MAX
#define NEAR_ROWS      5

/* Writes a row as tile words: pairs of bf16. k is even. */
static inline void row_words(const float *restrict row, uint32_t k, uint32_t *restrict out)
{
    for (uint32_t i = 0; i < k; i += 2)
        out[i / 2] = (uint32_t)round_one(row[i + 1]) << 16 | round_one(row[i]);
}

#define DOT(SUM, W, X) __asm__("vdpbf16ps %2, %1, %0" : "+v"(SUM) : "v"(W), "v"(X))

/* `rows` is a constant at every call, so that the sums live in registers. */
ALWAYS_INLINE void multiply_rows(const struct tile_product *product, const uint32_t rows)
{
    const uint32_t *panel = product->panel, *tile = product->tile;
    __m512 sum[TILE_ROWS][2];
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    const char *next = product->next ? product->next : (const char *)panel;
    const uint32_t shares = ROW_SHARES(rows);
    for (uint32_t share = 0, p = 0; share < shares; share++) {
        prefetch_rows(product->out, product->out_stride, rows * share / shares,
                      rows * (share + 1) / shares);
        for (uint32_t end = product->pairs * (share + 1) / shares; p < end;
             p++, panel += PANEL, tile += rows, next += product->next_step) {
            __builtin_prefetch(next, 0, 2); /* into the level 2 cache */
            __builtin_prefetch(next + 64, 0, 2);
            if (rows < TILE_ROWS)
                bring_near(panel, PANEL * sizeof *panel);
            __m512i w0 = _mm512_loadu_si512(panel), w1 = _mm512_loadu_si512(panel + PANEL / 2);
#pragma GCC unroll 12
            for (uint32_t r = 0; r < rows; r++) {
                floats x = in_turn((floats)_mm512_set1_epi32((int)tile[r]));
                DOT(sum[r][0], w0, x);
                DOT(sum[r][1], w1, x);
            }
        }
    }
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t half = 0; half < 2; half++) {
            float *target = product->out + r * product->out_stride + half * PANEL / 2;
            if (product->add)
                sum[r][half] = _mm512_add_ps(sum[r][half], _mm512_loadu_ps(target));
            _mm512_storeu_ps(target, sum[r][half]);
        }
}

#define ROWS_CASE(ROWS)                                                                            \
    case ROWS: multiply_rows(product, ROWS); break;

static void multiply(const struct tile_product *product)
{
    switch (product->rows) {
        ROWS_CASE(1)
        ROWS_CASE(2)
        ROWS_CASE(3)
        ROWS_CASE(4)
        ROWS_CASE(5)
        ROWS_CASE(6)
        ROWS_CASE(7)
        ROWS_CASE(8)
        ROWS_CASE(9)
        ROWS_CASE(10)
        ROWS_CASE(11)
        ROWS_CASE(12)
    }
}

/* --- attention --- */

/* Rows and panels hold pairs of bf16 numbers, those of even k in the low halves. bf16 holds s8
 * numbers, too. */

#define ROW_WORDS ATTENTION_STRIDE /* words from row to row, half of them pairs */

ALWAYS_INLINE void dot_in_place(floats *sum, floats pairs, floats row)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(*sum) : "v"(pairs), "v"(row));
}

/* --- rows --- */

static void round_queries(const float *restrict in, uint32_t count, float *restrict out)
{
    row_words(in, count, (uint32_t *)out);
}

/* Stores four vectors of weights from token t on as pairs, in front of the scores that are still
 * read. */
ALWAYS_INLINE void keep_weights(float *scores, uint32_t t, const floats weights[4])
{
    words *out = (words *)((uint32_t *)scores + t / 2);
    for (uint32_t i = 0; i < 2; i++)
        __asm__("vcvtne2ps2bf16 %1, %2, %0"
                : "=v"(out[i])
                : "v"(weights[2 * i]), "v"(weights[2 * i + 1]));
}

#define WEIGHT_BYTES sizeof(uint16_t)

/* --- pairs --- */

/* Returns pair i of each word: of bf16 as they are, or of four s8. */
ALWAYS_INLINE words pair_of_word(words packed, uint32_t i, const bool int8)
{
    if (!int8)
        return packed;
    floats even = in_turn(to_floats((ints)(packed << (24 - 16 * i)) >> 24));
    floats odd = in_turn(to_floats((ints)(packed << (16 - 16 * i)) >> 24));
    return (words)in_turn((floats)((words)even >> 16 | (words)odd));
}

/* Pairs VECTOR numbers of two tokens, in order. */
ALWAYS_INLINE words pairs_of_tokens(const char *even, const char *odd, uint32_t d, const bool int8)
{
    words low, high;
    if (int8) {
        low = (words)widen_int8((const int8_t *)even + d) >> 16;
        high = (words)widen_int8((const int8_t *)odd + d);
    } else {
        low = (words)widen_bf16((const uint16_t *)even + d) >> 16;
        high = (words)widen_bf16((const uint16_t *)odd + d);
    }
    return low | high;
}

static inline uint32_t pair_of(float even, float odd)
{
    union float_bits low = {.value = even}, high = {.value = odd};
    return low.bits >> 16 | high.bits;
}

/* --- panels: [pair][PANEL] --- */

ALWAYS_INLINE void pack_keys_of(const struct attention_tokens *tokens, uint32_t first,
                                const bool int8, uint32_t *panel)
{
    const uint32_t per_word = int8 ? 4 : 2;
    uint32_t whole = tokens->head_dim / (4 * per_word) * 4; /* words that vectors take */
    for (uint32_t lane = 0; lane < PANEL; lane += VECTOR) {
        const char *runs[VECTOR_RUNS];
        find_tokens(tokens, first + lane, runs);
        uint32_t *out = panel + lane;
        for (uint32_t w = 0; w < whole; w += 4) {
            words four[4];
            take_words(runs, tokens->token_bytes, four);
#pragma GCC unroll 4
            for (uint32_t j = 0; j < 4; j++)
#pragma GCC unroll 2
                for (uint32_t i = 0; i < per_word / 2; i++, out += PANEL)
                    *(words *)out = pair_of_word(four[j], i, int8);
        }
    }
    for (uint32_t d = whole * per_word; d < tokens->head_dim; d += 2)
        for (uint32_t lane = 0; lane < PANEL; lane++) {
            const char *token = token_at(tokens, first + lane);
            panel[d / 2 * PANEL + lane] =
                pair_of(element(token, int8, d), element(token, int8, d + 1));
        }
}

static void pack_keys(const struct attention_tokens *tokens, uint32_t first, float *panel)
{
    if (tokens->int8)
        pack_keys_of(tokens, first, true, (uint32_t *)panel);
    else
        pack_keys_of(tokens, first, false, (uint32_t *)panel);
}

/* Packs pairs of values. Behind an odd count the last token is repeated, which weighs nothing
 * there. */
ALWAYS_INLINE void pack_values_of(const struct attention_tokens *tokens, uint32_t count,
                                  const bool int8, size_t panel_words, uint32_t *panels)
{
    uint32_t head_dim = tokens->head_dim;
    for (uint32_t t = 0; t < count; t += 2) {
        const char *even = token_at(tokens, t), *odd = token_at(tokens, t + 1 < count ? t + 1 : t);
        uint32_t d = 0, *out = panels + t / 2 * PANEL;
        for (; d + PANEL <= head_dim; d += PANEL, out += panel_words) {
            *(words *)out = pairs_of_tokens(even, odd, d, int8);
            *(words *)(out + VECTOR) = pairs_of_tokens(even, odd, d + VECTOR, int8);
        }
        for (uint32_t i = 0; d < head_dim && i < PANEL; i++)
            out[i] = d + i < head_dim
                         ? pair_of(element(even, int8, d + i), element(odd, int8, d + i))
                         : 0;
    }
}

static void pack_values(const struct attention_tokens *tokens, uint32_t count, size_t panel_floats,
                        float *panels)
{
    if (tokens->int8)
        pack_values_of(tokens, count, true, panel_floats, (uint32_t *)panels);
    else
        pack_values_of(tokens, count, false, panel_floats, (uint32_t *)panels);
}

/* Adds a pair of k of rows first .. end - 1 and two vectors of pairs. */
ALWAYS_INLINE void add_pairs(floats sum[][2], const uint32_t first, const uint32_t end,
                             const uint32_t *row, const words pairs[2], const uint32_t vectors)
{
#pragma GCC unroll 12
    for (uint32_t r = first; r < end; r++) {
        floats x = in_turn((floats)_mm512_set1_epi32((int)row[r * ROW_WORDS]));
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            dot_in_place(&sum[r][v], (floats)pairs[v], x);
    }
}

/* Prefetches lines of later tokens into the level of cache that has room for them. */
ALWAYS_INLINE const char *bring(const char *at, uint32_t bytes, bool near)
{
    /* Chosen here, or the compiler makes two loops and runs out of registers. */
    __asm__("" : "+r"(near));
    for (uint32_t i = 0; i < bytes; i += 64)
        if (near)
            __builtin_prefetch(at + i, 0, 3);
        else
            __builtin_prefetch(at + i, 0, 2);
    return at + bytes;
}

/* add_pairs that also prefetches, in two parts: a core waits for few lines at once and drops the
 * rest. */
ALWAYS_INLINE const char *add_pairs_and_bring(floats sum[][2], const uint32_t count,
                                              const uint32_t *row, const words pairs[2],
                                              const uint32_t vectors, const char *next,
                                              const uint32_t bytes, bool near)
{
    const uint32_t behind = bytes / 128 * 64;
    next = bring(next, bytes - behind, near);
    add_pairs(sum, 0, count / 2, row, pairs, vectors);
    next = bring(next, behind, near);
    add_pairs(sum, count / 2, count, row, pairs, vectors);
    return next;
}

/* Turns a sum of -0 into +0. A flushed sum may be -0, and another product of zero would make it +0.
 * So the sum is +0 for any number of such products. */
ALWAYS_INLINE floats without_sign_of_zero(floats sum)
{
    return sum + broadcast(0);
}

/* `count` is a constant at every call, so that the sums live in registers. */
ALWAYS_INLINE void attend_block(const struct attention_product *product, uint32_t first, uint32_t n,
                                const uint32_t count)
{
    const uint32_t *panel = (const uint32_t *)product->panel + n;
    const uint32_t *row = (const uint32_t *)product->rows + first * ROW_WORDS;
    floats sum[SUM_ROWS][2];
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++)
        sum[r][0] = sum[r][1] = (floats){0};
    for (uint32_t k = 0; k < product->k; k += 2, panel += PANEL, row++) {
        const words pairs[2] = {((const words *)panel)[0], ((const words *)panel)[1]};
        add_pairs(sum, 0, count, row, pairs, 2);
    }
    float *out = product->out + first * product->out_stride + n;
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++) {
        floats *target = (floats *)(out + r * product->out_stride);
        target[0] = without_sign_of_zero(sum[r][0]);
        target[1] = without_sign_of_zero(sum[r][1]);
    }
}

/* --- keys where they lie --- */

/* Vectors of tokens that rows take at once. Few rows take two: a sum waits for the one before.
 * Eight rows are enough sums by themselves, and twice as many would leave no registers for the
 * words of the keys. */
#define KEY_VECTORS(ROWS) ((ROWS) > 7 ? 1 : 2)
_Static_assert(KEY_VECTORS(1) * VECTOR <= PANEL, "no block reads or writes behind a whole panel");

/* Prefetches while keys are read, run by run, a step's bytes at a time. `far` goes into the level 2
 * cache: the next tokens, as many. `near` goes into level 1: the same tokens, if level 1 has room.
 * Otherwise it is the keys of the next block, which `far` has asked for into level 2 already.
 *
 * A core has few buffers for requests and drops the rest, a few in a segment whenever memory
 * answers late. It then waits long for one key. So each key is asked for again in time, except
 * those of a segment's first block. */
struct requests {
    const struct attention_tokens *far_tokens, *near_tokens;
    const char *far, *near; /* addresses in the current runs */
    uint32_t far_t, near_t; /* their first tokens */
    int left;               /* bytes of these runs that aren't asked for yet */
    int run_bytes, step_bytes;
};

ALWAYS_INLINE struct requests begin_requests(const struct attention_scan *scan, uint32_t t,
                                             const uint32_t block, const uint32_t step_bytes)
{
    const struct attention_tokens *tokens = scan->near ? scan->next : scan->tokens;
    uint32_t near_t = !scan->near && t + block < scan->token_count ? t + block : t;
    int run_bytes = (int)(RUN_TOKENS * scan->tokens->token_bytes);
    return (struct requests){.far_tokens = scan->next,
                             .near_tokens = tokens,
                             .far = token_at(scan->next, t),
                             .near = token_at(tokens, near_t),
                             .far_t = t,
                             .near_t = near_t,
                             .left = run_bytes,
                             .run_bytes = run_bytes,
                             .step_bytes = (int)step_bytes};
}

ALWAYS_INLINE void take_requests(struct requests *requests)
{
    for (; requests->left <= 0; requests->left += requests->run_bytes) {
        requests->far = token_at(requests->far_tokens, requests->far_t += RUN_TOKENS);
        requests->near = token_at(requests->near_tokens, requests->near_t += RUN_TOKENS);
    }
    requests->left -= requests->step_bytes;
}

ALWAYS_INLINE const char *ask(const char *at, const uint32_t bytes, const int level)
{
    for (uint32_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i, 0, level);
    return at + bytes;
}

/* `count` and `int8` are constants at every call, so that the sums live in registers. */
ALWAYS_INLINE void scan_keys_block(const struct attention_scan *scan, uint32_t t, uint32_t first,
                                   const uint32_t count, const bool int8)
{
    const uint32_t pairs_per_word = int8 ? 2 : 1, vectors = KEY_VECTORS(count);
    const uint32_t *row = (const uint32_t *)scan->rows + first * ROW_WORDS;
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
    const uint32_t step_bytes = vectors * (uint32_t)sizeof(words[4]);
    struct requests requests = begin_requests(scan, t, vectors * VECTOR, step_bytes);
    /* Whole lines at a time: with every pair, or with every second one. */
    const uint32_t share = step_bytes / 4 / pairs_per_word, bytes = share < 64 ? 64 : share;
    const uint32_t least = share < 64 ? share : 64;
    for (uint32_t w = scan->tokens->head_dim / (2 * pairs_per_word); w > 0; w -= 4) {
        take_requests(&requests);
        words four[2][4];
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            take_words(runs[v], stride, four[v]);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < 4; j++)
#pragma GCC unroll 2
            for (uint32_t i = 0; i < pairs_per_word; i++, row++) {
                const uint32_t asked = i % (64 / least) ? 0 : bytes;
                words pairs[2];
#pragma GCC unroll 2
                for (uint32_t v = 0; v < vectors; v++)
                    pairs[v] = pair_of_word(four[v][j], i, int8);
                requests.far = ask(requests.far, asked, 2);
                add_pairs(sum, 0, count / 2, row, pairs, vectors);
                requests.near = ask(requests.near, asked, 3);
                add_pairs(sum, count / 2, count, row, pairs, vectors);
            }
    }
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            *((floats *)(scan->out + (first + r) * scan->out_stride + t) + v) = sum[r][v];
}

/* --- values where they lie --- */

/* Loads two vectors of numbers of two tokens. int8: in order; bf16: the lower and the upper halves
 * of each quarter of a line. */
ALWAYS_INLINE void two_vectors(const char *even, const char *odd, const bool int8, words pairs[2])
{
    if (int8) {
        pairs[0] = pairs_of_tokens(even, odd, 0, true);
        pairs[1] = pairs_of_tokens(even, odd, VECTOR, true);
        return;
    }
    __m512i low = _mm512_loadu_si512(even), high = _mm512_loadu_si512(odd);
    pairs[0] = (words)_mm512_unpacklo_epi16(low, high);
    pairs[1] = (words)_mm512_unpackhi_epi16(low, high);
}

/* Stores numbers that two_vectors parted, in order again. */
ALWAYS_INLINE void put_numbers(floats low, floats high, const bool int8, floats *out)
{
    const words first = {0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23};
    out[0] = int8 ? low : __builtin_shuffle(low, high, first);
    out[1] = int8 ? high : __builtin_shuffle(low, high, first + 8);
}

ALWAYS_INLINE void scan_values_block(const struct attention_scan *scan, uint32_t d, uint32_t first,
                                     const uint32_t count, const bool int8)
{
    const uint32_t *row = (const uint32_t *)scan->rows + first * ROW_WORDS;
    const size_t stride = scan->tokens->token_bytes, column = d * (int8 ? 1 : sizeof(uint16_t));
    floats sum[SUM_ROWS][2];
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++)
        sum[r][0] = sum[r][1] = (floats){0};
    struct passing passing = begin_passing(scan, d, int8);
    for (uint32_t t = 0; t < scan->token_count; t += RUN_TOKENS) {
        const char *token = token_at(scan->tokens, t) + column;
        const char *next = passing_run(&passing);
        uint32_t left = scan->token_count - t < RUN_TOKENS ? scan->token_count - t : RUN_TOKENS;
#pragma GCC unroll 1
        for (uint32_t i = 0; i < left; i += 2, row++, token += 2 * stride) {
            words pairs[2];
            /* the weight behind the last token is zero; any number may lie there */
            two_vectors(token, i + 1 < left ? token + stride : token, int8, pairs);
            next = add_pairs_and_bring(sum, count, row, pairs, 2, next,
                                       passing.bytes / RUN_TOKENS * 2, scan->near);
        }
    }
#pragma GCC unroll 12
    for (uint32_t r = 0; r < count; r++)
        put_numbers(without_sign_of_zero(sum[r][0]), without_sign_of_zero(sum[r][1]), int8,
                    (floats *)(scan->out + (first + r) * scan->out_stride + d));
}

#include "kernels/cpu/inner/attention_scan.h"

#include "kernels/cpu/inner/inner_body.h"

const struct inner inner_avx512bf16 = INNER_TABLE("avx512bf16");
