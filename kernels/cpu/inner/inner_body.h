/* The source of every struct inner (inner.h). Included by baseline.c, avx2.c, avx512.c, amx.c and
 * avx512bf16.c, each compiled for its instruction set, after the set's products of linear layers
 * and of attention. */
#include "kernels/cpu/exp_fixed.h"
#include "kernels/cpu/inner/bf16.h"
#include "kernels/cpu/inner/inner.h"
#include "kernels/cpu/inner/quantize_row.h"
#include "kernels/cpu/inner/vector.h"

#include <math.h>
#include <string.h>

#define LANES SOFTMAX_LANES /* partial sums: lane i adds elements i, i + 16, ... */

static void round_bf16(const float *restrict in, uint32_t count, uint16_t *restrict bf16)
{
    for (uint32_t i = 0; i < count; i++)
        bf16[i] = round_one(in[i]);
}

static float quantize_numbers(const float *in, uint32_t count, int8_t *numbers)
{
    struct row_scale scale = row_scale_of(in, count);
    quantize(in, count, scale.inverse, numbers);
    return scale.scale;
}

/* k, and words, of a row that are packed at a time, on the stack. */
enum { PACK_K = 256, PACK_WORDS = PACK_K / 2 * WORDS_PER_PAIR };

/* row_words for a k that may be odd: the missing last number is zero. */
static void row_words_padded(const float *row, uint32_t k, uint32_t *out)
{
    row_words(row, k / 2 * 2, out);
    float last[2] = {k % 2 ? row[k - 1] : 0.0f, 0.0f};
    if (k % 2)
        row_words(last, 2, out + k / 2 * WORDS_PER_PAIR);
}

/* out[word][row] = in[row][word] */
static void transpose_words(uint32_t in[][PACK_WORDS], uint32_t rows, uint32_t words_count,
                            uint32_t *out)
{
    uint32_t quad_rows = rows / 4 * 4, quad_words = words_count / 4 * 4;
    for (uint32_t r = 0; r < quad_rows; r += 4)
        for (uint32_t w = 0; w < quad_words; w += 4)
            transpose_quads(&in[r][w], PACK_WORDS, out + (size_t)w * rows + r, rows);
    for (uint32_t w = 0; w < words_count; w++)
        for (uint32_t r = w < quad_words ? quad_rows : 0; r < rows; r++)
            out[(size_t)w * rows + r] = in[r][w];
}

static void pack_tile(const float *const *rows, uint32_t count, uint32_t k, void *tile)
{
    uint32_t packed[TILE_ROWS][PACK_WORDS];
    uint32_t *out = tile;
    if (count == 1) {
        row_words_padded(rows[0], k, out);
        return;
    }
    for (uint32_t begin = 0; begin < k; begin += PACK_K, out += PACK_WORDS * count) {
        uint32_t width = k - begin < PACK_K ? k - begin : PACK_K;
        for (uint32_t r = 0; r < count; r++)
            row_words_padded(rows[r] + begin, width, packed[r]);
        transpose_words(packed, count, (width + 1) / 2 * WORDS_PER_PAIR, out);
    }
}

/* Adds the lanes of every sum by the same tree. */
static inline float add_lanes(const float lane[LANES])
{
    float half[LANES / 2], quarter[LANES / 4];
    for (uint32_t i = 0; i < LANES / 2; i++)
        half[i] = lane[i] + lane[i + LANES / 2];
    for (uint32_t i = 0; i < LANES / 4; i++)
        quarter[i] = half[i] + half[i + LANES / 4];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

static void blend(float *restrict out, float a, const float *restrict partial, float b,
                  uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = out[i] * a + partial[i] * b;
}

/* --- attention --- */

/* --- products: blocks of a constant number of rows --- */

#define ATTEND_CASE(COUNT)                                                                         \
    case COUNT: attend_block(product, r, n, COUNT); break;

static void attend_multiply(const struct attention_product *product)
{
    for (uint32_t n = 0; n < PANEL; n += 2 * VECTOR)
        for (uint32_t r = 0; r < product->count; r += SUM_ROWS)
            switch (product->count - r < SUM_ROWS ? product->count - r : SUM_ROWS) {
                ATTEND_CASE(1)
                ATTEND_CASE(2)
                ATTEND_CASE(3)
                ATTEND_CASE(4)
#if SUM_ROWS > 4
                ATTEND_CASE(5)
                ATTEND_CASE(6)
#endif
#if SUM_ROWS > 6
                ATTEND_CASE(7)
                ATTEND_CASE(8)
                ATTEND_CASE(9)
                ATTEND_CASE(10)
                ATTEND_CASE(11)
                ATTEND_CASE(12)
#endif
            }
}

/* --- softmax --- */

/* Vectors that go through exp side by side. One alone is a chain of twenty operations, each waiting
 * for the one before. */
#define ABREAST        4
#define FOR_ABREAST(I) _Pragma("GCC unroll 4") for (uint32_t I = 0; I < ABREAST; I++)

/* x = exp_fixed(x) of numbers <= 0, operation by operation. Needs no clamping: results out of range
 * are replaced at the end. */
ALWAYS_INLINE void exp_abreast(floats x[ABREAST])
{
    static const float coefficients[] = {EXP_C4, EXP_C3, EXP_C2, EXP_C1, EXP_C0};
    floats shifted[ABREAST], r[ABREAST], p[ABREAST];
    FOR_ABREAST(i) shifted[i] = in_turn(x[i] * broadcast(EXP_LOG2E) + broadcast(EXP_ROUND));
    FOR_ABREAST(i)
    {
        floats n = shifted[i] - broadcast(EXP_ROUND);
        r[i] = add_exact_product(n, broadcast(-EXP_LN2_HI), x[i]) - n * broadcast(EXP_LN2_LO);
        r[i] = in_turn(r[i]);
    }
    FOR_ABREAST(i) p[i] = broadcast(EXP_C5);
#pragma GCC unroll 5
    for (uint32_t c = 0; c < sizeof coefficients / sizeof *coefficients; c++)
        FOR_ABREAST(i) p[i] = in_turn(p[i] * r[i] + broadcast(coefficients[c]));
    FOR_ABREAST(i) p[i] = in_turn(p[i] * (r[i] * r[i]) + r[i]);
    /* multiplies by 2^n; the low bits of `shifted` hold n, and p and the result are normal
     * numbers */
    FOR_ABREAST(i)
    {
        words power = (words)shifted[i] << 23, number = (words)(p[i] + broadcast(1));
        x[i] = in_turn(add_bits_unless_below(number, power, x[i], broadcast(EXP_LOW)));
    }
}

#define PARTS (SOFTMAX_LANES / VECTOR) /* vectors that hold one value for each lane */

static inline float larger_of(float a, float b)
{
    return a > b ? a : b;
}

/* Combines the lanes by the tree of add_lanes. */
static inline float max_lane(const float lane[SOFTMAX_LANES])
{
    float half[SOFTMAX_LANES / 2], quarter[SOFTMAX_LANES / 4];
    for (uint32_t i = 0; i < SOFTMAX_LANES / 2; i++)
        half[i] = larger_of(lane[i], lane[i + SOFTMAX_LANES / 2]);
    for (uint32_t i = 0; i < SOFTMAX_LANES / 4; i++)
        quarter[i] = larger_of(half[i], half[i + SOFTMAX_LANES / 4]);
    return larger_of(larger_of(quarter[0], quarter[2]), larger_of(quarter[1], quarter[3]));
}

static float scale_and_find_max(float *scores, uint32_t from, uint32_t to, float scale)
{
    floats top[ABREAST];
    FOR_ABREAST(i) top[i] = broadcast(-INFINITY);
    for (uint32_t t = from; t < to; t += ABREAST * VECTOR)
        FOR_ABREAST(i)
        {
            floats *at = (floats *)(scores + t) + i;
            *at *= broadcast(scale);
            top[i] = larger(*at, top[i]);
        }
    for (uint32_t i = ABREAST - 1; i >= PARTS; i--)
        top[i - PARTS] = larger(top[i], top[i - PARTS]);
    float lane[SOFTMAX_LANES];
    memcpy(lane, top, sizeof lane);
    return max_lane(lane);
}

_Static_assert(WEIGH_TOKENS % (ABREAST * VECTOR) == 0, "whole vectors");

static float prepare(const struct attention_weighing *w)
{
    float *scores = w->scores;
    uint32_t from = w->begin / WEIGH_TOKENS * WEIGH_TOKENS;
    uint32_t to = (w->end + WEIGH_TOKENS - 1) / WEIGH_TOKENS * WEIGH_TOKENS;
    for (uint32_t t = from; w->key_scales && t < to; t += VECTOR)
        *(floats *)(scores + t) *= *(const floats *)(w->key_scales + t);
    for (uint32_t t = from; t < w->begin; t++)
        scores[t] = -INFINITY; /* weighs exactly zero */
    for (uint32_t t = w->end; t < to; t++)
        scores[t] = -INFINITY;
    return scale_and_find_max(scores, from, to, w->scale);
}

static float weigh(const struct attention_weighing *w, float max)
{
    float *scores = w->scores;
    uint32_t from = w->begin / WEIGH_TOKENS * WEIGH_TOKENS;
    uint32_t to = (w->end + WEIGH_TOKENS - 1) / WEIGH_TOKENS * WEIGH_TOKENS;
    floats sum[PARTS] = {{0}};
    memset(scores, 0, from * WEIGHT_BYTES);
    for (uint32_t t = from; t < to; t += ABREAST * VECTOR) {
        floats weight[ABREAST];
        FOR_ABREAST(i) weight[i] = ((const floats *)(scores + t))[i] - broadcast(max);
        exp_abreast(weight);
        FOR_ABREAST(i) sum[i % PARTS] += weight[i];
        if (w->value_scales)
            FOR_ABREAST(i) weight[i] *= *(const floats *)(w->value_scales + t + i * VECTOR);
        keep_weights(scores, t, weight);
    }
    char *weights = (char *)scores;
    memset(weights + to * WEIGHT_BYTES, 0, (w->tokens - to) * WEIGHT_BYTES);
    float lane[SOFTMAX_LANES];
    memcpy(lane, sum, sizeof lane);
    return add_lanes(lane);
}

/* --- merge --- */

static void merge(const struct attention_merge *m)
{
    /* factors of all rows at once: one exp alone is slow */
    float a[TILE_ROWS] = {0}, b[TILE_ROWS] = {0};
    for (uint32_t r = 0; r < m->rows; r++) {
        float top = m->partial_max[r] > m->max[r] ? m->partial_max[r] : m->max[r];
        a[r] = m->max[r] - top;
        b[r] = m->partial_max[r] - top;
        m->max[r] = top;
    }
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        a[r] = exp_fixed(a[r]);
        b[r] = exp_fixed(b[r]);
    }
    for (uint32_t r = 0; r < m->rows; r++) {
        m->sum[r] = m->sum[r] * a[r] + m->partial_sum[r] * b[r];
        blend(m->merged + (size_t)r * m->width, a[r], m->partial + (size_t)r * m->width, b[r],
              m->width);
    }
}

static void divide(const float *restrict in, float divisor, uint32_t count, float *restrict out)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = in[i] / divisor;
}

#define ATTENTION_TABLE                                                                            \
    {                                                                                              \
        .round_queries = round_queries, .pack_keys = pack_keys, .pack_values = pack_values,        \
        .multiply = attend_multiply, .scan_keys = scan_keys, .scan_values = scan_values,           \
        .prepare = prepare, .weigh = weigh, .merge = merge, .divide = divide,                      \
    }

static void rmsnorm(const float *restrict x, const float *restrict weight, double eps,
                    uint32_t hidden, float *restrict out)
{
    float lane[LANES] = {0};
    uint32_t whole = hidden / LANES * LANES;
    for (uint32_t i = 0; i < whole; i += LANES)
        for (uint32_t l = 0; l < LANES; l++)
            lane[l] += x[i + l] * x[i + l];
    for (uint32_t i = whole; i < hidden; i++)
        lane[i - whole] += x[i] * x[i];
    float factor = (float)(1.0 / sqrt((double)add_lanes(lane) / hidden + eps));
    for (uint32_t i = 0; i < hidden; i++)
        out[i] = x[i] * factor * weight[i];
}

static void rope(const float *restrict cos_sin, uint32_t head_dim, float *restrict head)
{
    uint32_t half = head_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = a * cos_sin[i] - b * cos_sin[half + i];
        head[i + half] = b * cos_sin[i] + a * cos_sin[half + i];
    }
}

static void swiglu(const float *restrict gate, const float *restrict up, uint32_t count,
                   float *restrict out)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = gate[i] / (1.0f + exp_fixed(-gate[i])) * up[i];
}

#define INNER_TABLE(NAME)                                                                          \
    {                                                                                              \
        .name = NAME, .tile_bytes_per_pair = WORDS_PER_PAIR * 4, .whole_rows = WHOLE_ROWS,         \
        .near_rows = NEAR_ROWS, .pack_tile = pack_tile, .widen = WIDEN, .multiply = multiply,      \
        .blend = blend, .round = round_bf16, .quantize = quantize_numbers, .rmsnorm = rmsnorm,     \
        .rope = rope, .swiglu = swiglu, .attention = ATTENTION_TABLE,                              \
    }
