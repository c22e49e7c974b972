#include "kernels/reference/inner/rows.h"

#include "kernels/cpu/exp_fixed.h"

#include <math.h>
#include <string.h>

#define LANES 8 /* partial sums of a dot product: lane i adds elements i, i + 8, ... */

/* Adds the lanes of every sum by the same tree. */
static float add_lanes(const float lane[LANES])
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static float dot(const float *restrict a, const float *restrict b, uint32_t count)
{
    float lane[LANES] = {0};
    uint32_t whole = count / LANES * LANES;
    for (uint32_t i = 0; i < whole; i += LANES)
        for (uint32_t l = 0; l < LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (uint32_t i = whole; i < count; i++)
        lane[i - whole] += a[i] * b[i];
    return add_lanes(lane);
}

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

/* The sums of a block take half the registers of the oldest x86-64. */
enum { BLOCK_ROWS = 2, FOURS = REFERENCE_PANEL / 4 };

/* `rows` is a constant at every call, so that the sums live in registers. */
static inline __attribute__((always_inline)) void
multiply(const struct reference_panel *panel, const float *in, const uint32_t rows, float *out)
{
    four sum[BLOCK_ROWS][FOURS] = {{{0}}};
    const four *weights = (const four *)panel->weights;
    for (size_t k = 0; k < panel->k; k++, weights += FOURS)
#pragma GCC unroll 2
        for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (uint32_t i = 0; i < FOURS; i++)
                sum[r][i] += in[r * (size_t)panel->k + k] * weights[i];
    for (uint32_t r = 0; r < rows; r++) {
        float wide[REFERENCE_PANEL];
        memcpy(wide, sum[r], sizeof wide);
        for (uint32_t n = 0; n < panel->outputs; n++) {
            float *target = &out[r * (size_t)panel->out_stride + n];
            *target = panel->accumulate ? *target + wide[n] : wide[n];
        }
    }
}

void reference_panel_multiply(const struct reference_panel *panel, const float *in, uint32_t rows,
                              float *out)
{
    uint32_t t = 0;
    for (; t + BLOCK_ROWS <= rows; t += BLOCK_ROWS)
        multiply(panel, in + t * (size_t)panel->k, BLOCK_ROWS, out + t * (size_t)panel->out_stride);
    for (; t < rows; t++)
        multiply(panel, in + t * (size_t)panel->k, 1, out + t * (size_t)panel->out_stride);
}

void reference_rmsnorm(const float *x, const float *weight, double eps, uint32_t hidden, float *out)
{
    double mean = (double)dot(x, x, hidden) / hidden;
    float factor = (float)(1.0 / sqrt(mean + eps));
    for (uint32_t i = 0; i < hidden; i++)
        out[i] = x[i] * factor * weight[i];
}

void reference_swiglu(const float *gate_up, uint32_t ffn, float *out)
{
    for (uint32_t f = 0; f < ffn; f++) {
        float gate = gate_up[f];
        out[f] = gate / (1.0f + exp_fixed(-gate)) * gate_up[ffn + f];
    }
}

void reference_rope(const float *cos_sin, uint32_t head_dim, float *head)
{
    uint32_t half = head_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = a * cos_sin[i] - b * cos_sin[half + i];
        head[i + half] = b * cos_sin[i] + a * cos_sin[half + i];
    }
}

void reference_scores(const float *q, const float *keys, uint32_t head_dim, uint32_t count,
                      float scale, float *scores)
{
    for (size_t t = 0; t < count; t++)
        scores[t] = dot(q, keys + t * head_dim, head_dim) * scale;
}

float reference_softmax(float *scores, uint32_t count, float *max)
{
    float top = scores[0];
    for (uint32_t t = 1; t < count; t++)
        top = scores[t] > top ? scores[t] : top;
    for (uint32_t t = 0; t < count; t++)
        scores[t] = exp_fixed(scores[t] - top);
    float lane[LANES] = {0};
    for (uint32_t t = 0; t < count; t++)
        lane[t % LANES] += scores[t];
    *max = top;
    return add_lanes(lane);
}

void reference_weigh(const float *weights, const float *values, uint32_t head_dim, uint32_t count,
                     float *restrict out)
{
    for (size_t t = 0; t < count; t++) {
        const float *restrict value = values + t * head_dim;
        for (uint32_t d = 0; d < head_dim; d++)
            out[d] += weights[t] * value[d];
    }
}

void reference_blend(float *out, float a, const float *partial, float b, uint32_t head_dim)
{
    for (uint32_t d = 0; d < head_dim; d++)
        out[d] = out[d] * a + partial[d] * b;
}

/* --- quantized linear layers --- */

enum { GROUP = 128 };

float reference_quantize(const float *row, uint32_t k, int8_t *numbers)
{
    float largest = 0;
    int finite = 1;
    for (uint32_t i = 0; i < k; i++) {
        finite &= isfinite(row[i]) != 0;
        largest = fabsf(row[i]) > largest ? fabsf(row[i]) : largest;
    }
    int zero = !finite || largest < 0x1p-100f;
    float inverse = 127.0f / largest;
    for (uint32_t i = 0; i < k; i++)
        numbers[i] = zero ? 0 : (int8_t)rintf(row[i] * inverse);
    if (!finite)
        return NAN;
    return zero ? 0 : largest / 127.0f;
}

static int32_t int4_at(const uint8_t *weights, uint32_t k)
{
    return (weights[k / 2] >> (k % 2 * 4) & 15) - 8;
}

float reference_int8(const int8_t *inputs, float scale, uint32_t k, const int8_t *weights,
                     float weight_scale)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < k; i++)
        sum += inputs[i] * weights[i];
    return (float)sum * (scale * weight_scale);
}

float reference_int4(const int8_t *inputs, float scale, uint32_t k, const uint8_t *weights,
                     const float *weight_scales)
{
    float total = 0;
    for (uint32_t group = 0, i = 0; i < k; group++) {
        int32_t sum = 0;
        for (uint32_t end = k - i < GROUP ? k : i + GROUP; i < end; i++)
            sum += inputs[i] * int4_at(weights, i);
        total += (float)sum * weight_scales[group];
    }
    return total * scale;
}

void reference_widen_int8(const int8_t *weights, float scale, uint32_t k, float *out)
{
    for (uint32_t i = 0; i < k; i++)
        out[i] = (float)weights[i] * scale;
}

void reference_widen_int4(const uint8_t *weights, const float *scales, uint32_t k, float *out)
{
    for (uint32_t i = 0; i < k; i++)
        out[i] = (float)int4_at(weights, i) * scales[i / GROUP];
}
