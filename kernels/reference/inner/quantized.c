#include "kernels/reference/inner/quantized.h"

#include <math.h>

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
