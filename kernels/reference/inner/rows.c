#define PANEL_VECTOR_BYTES 16 /* x86-64 of any age */

#include "kernels/reference/inner/rows.h"

#include "kernels/cpu/e4m3.h"
#include "kernels/cpu/exp_fixed.h"
#include "kernels/reference/inner/panel.h"

#include <math.h>

const struct reference_loops reference_loops_baseline = {panel_multiply, panel_swiglu};

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

void reference_panel_fill(const float *row, uint32_t k, float *column)
{
    for (size_t j = 0; j < k; j++)
        column[j * REFERENCE_PANEL] = row[j];
}

void reference_rmsnorm(const float *x, const float *weight, double eps, uint32_t hidden, float *out)
{
    double mean = (double)dot(x, x, hidden) / hidden;
    float factor = (float)(1.0 / sqrt(mean + eps));
    for (uint32_t i = 0; i < hidden; i++)
        out[i] = x[i] * factor * weight[i];
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

/* Returns whether all numbers are finite, and their largest magnitude. */
static int look_at(const float *row, uint32_t count, float *largest)
{
    int finite = 1;
    *largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        finite &= isfinite(row[i]) != 0;
        *largest = fabsf(row[i]) > *largest ? fabsf(row[i]) : *largest;
    }
    return finite;
}

float reference_quantize(const float *row, uint32_t k, int8_t *numbers)
{
    float largest;
    int finite = look_at(row, k, &largest);
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

void reference_e4m3_quantize(const struct reference_e4m3 *shape, const float *row, uint8_t *numbers,
                             float *scales)
{
    uint32_t group = shape->blocks ? shape->promotion : shape->k;
    for (uint32_t first = 0; first < shape->k; first += group) {
        uint32_t count = shape->k - first < group ? shape->k - first : group;
        float largest;
        int finite = look_at(row + first, count, &largest);
        bool own = shape->input_scale == 0;
        float scale = !own ? shape->input_scale : largest < 0x1p-100f ? 0 : largest / E4M3_MOST;
        for (uint32_t i = first; i < first + count; i++)
            if (own)
                numbers[i] = !finite || scale == 0 ? 0 : e4m3_round(row[i] / scale);
            else
                numbers[i] = e4m3_round(isfinite(row[i]) ? row[i] / scale : NAN);
        *scales++ = finite || !own ? scale : NAN;
    }
}

/* Returns the sum of up to `promotion` products, as the tensor core adds them. */
static float e4m3_products(const uint8_t *inputs, const uint8_t *weights, uint32_t count)
{
    float sum = 0;
    for (uint32_t i = 0; i < count; i += E4M3_STEP) {
        struct e4m3_terms a, b;
        uint32_t width = count - i < E4M3_STEP ? count - i : E4M3_STEP;
        e4m3_read(weights + i, width, &a);
        e4m3_read(inputs + i, width, &b);
        sum = e4m3_step(sum, &a, &b);
    }
    return sum;
}

float reference_e4m3(const struct reference_e4m3 *shape, const uint8_t *inputs, const float *scales,
                     const uint8_t *weights, const float *weight_scales)
{
    float total = 0;
    for (uint32_t begin = 0; begin < shape->k; begin += shape->segment) {
        float segment = 0;
        uint32_t end = shape->k - begin < shape->segment ? shape->k : begin + shape->segment;
        for (uint32_t i = begin; i < end; i += shape->promotion) {
            uint32_t count = end - i < shape->promotion ? end - i : shape->promotion;
            float products = e4m3_products(inputs + i, weights + i, count);
            uint32_t g = i / shape->promotion;
            segment = shape->blocks ? fmaf(products, scales[g] * weight_scales[g], segment)
                                    : segment + products;
        }
        total = begin == 0 ? segment : total + segment;
    }
    return shape->blocks ? total : total * (scales[0] * weight_scales[0]);
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
