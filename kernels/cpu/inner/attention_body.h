/* The source of every struct attention_inner; see attention.h. Part of inner_body.h, behind
 * attention_fma.h or attention_dot.h, and what scans the pool. */
#include "kernels/cpu/exp_fixed.h"
#include "kernels/cpu/inner/attention.h"
#include "kernels/cpu/inner/inner.h"
#include "kernels/cpu/inner/vector.h"

#include <math.h>
#include <string.h>

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

/* Vectors that go through exp side by side: one alone is a chain of twenty operations, each waiting
 * for the one before. */
#define ABREAST        4
#define FOR_ABREAST(I) _Pragma("GCC unroll 4") for (uint32_t I = 0; I < ABREAST; I++)

/* x = exp_fixed(x) of numbers <= 0, operation by operation. It needs no clamping: what is out of
 * range is replaced at the end. */
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
    /* times 2^n, which the low bits of `shifted` hold: p and the result are normal numbers */
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

/* The tree of add_lanes. */
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
        scores[t] = -INFINITY; /* weighs exactly nothing */
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
    float a[TILE_ROWS] = {0}, b[TILE_ROWS] = {0}; /* of all rows at once: one exp alone is slow */
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
