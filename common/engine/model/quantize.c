#include "common/engine/model/quantize.h"

#include "common/base/assert.h"

#include <math.h>
#include <string.h>

#define TINY 0x1p-100f /* below: zero */
#define ROUND                                                                                      \
    12582912.0f /* 1.5 * 2^23: adding and taking it away rounds to an integer, ties to even */

static float round_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* The number of largest magnitude, the first of equals; NAN where one isn't finite. */
static float largest_of(const float *row, uint32_t count)
{
    float largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!isfinite(row[i]))
            return NAN;
        largest = fabsf(row[i]) > fabsf(largest) ? row[i] : largest;
    }
    return largest;
}

static bool quantize_int8(const float *row, uint32_t k, int8_t *numbers, float *scale)
{
    float largest = fabsf(largest_of(row, k));
    bool zero = largest < TINY;
    float inverse = zero ? 0 : 127.0f / largest;
    if (isnan(largest))
        return false;
    for (uint32_t i = 0; i < k; i++)
        numbers[i] = (int8_t)(row[i] * inverse + ROUND - ROUND);
    *scale = zero ? 0 : largest / 127.0f;
    return true;
}

enum {
    LANES = 8
}; /* of sums over a group: fixed, so that a compiler may compute them side by side */

/* Numbers -8 .. 7 of a group by that scale; returns the squared error. */
static float try_scale(const float *group, uint32_t count, float scale, float *numbers)
{
    float inverse = 1.0f / scale, lane[LANES] = {0}, sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        float number = group[i] * inverse + ROUND - ROUND;
        number = number < -8 ? -8 : number;
        number = number > 7 ? 7 : number;
        float error = group[i] - number * scale;
        numbers[i] = number;
        lane[i % LANES] += error * error;
    }
    for (uint32_t l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

/* The scale that fits these numbers best: sum of x * q over sum of q * q. */
static float fitted_scale(const float *group, const float *numbers, uint32_t count, float fallback)
{
    double products = 0, squares = 0;
    for (uint32_t i = 0; i < count; i++) {
        products += (double)group[i] * numbers[i];
        squares += (double)numbers[i] * numbers[i];
    }
    float fitted = squares > 0 ? round_to_bf16((float)(products / squares)) : fallback;
    return fabsf(fitted) < TINY ? fallback : fitted;
}

/* What the number of largest magnitude is divided by, as a multiple of the scale: 8 maps it to -8; less leaves room on the
 * other side, more cuts it off in favour of the others. */
static const float DIVISORS[] = {8.0f, 7.75f, 8.25f, 7.5f, 8.5f, 7.25f, 8.75f, 7.0f, 6.75f};

static bool quantize_group(const float *group, uint32_t count, float *numbers, float *scale)
{
    float largest = largest_of(group, count), trial[WEIGHT_GROUP], best = INFINITY;
    if (isnan(largest))
        return false;
    *scale = 0;
    memset(numbers, 0, count * sizeof *numbers);
    if (fabsf(largest) < TINY)
        return true;
    for (size_t i = 0; i <= sizeof DIVISORS / sizeof *DIVISORS; i++) {
        bool last = i == sizeof DIVISORS / sizeof *DIVISORS;
        float tried = last ? fitted_scale(group, numbers, count, *scale)
                           : round_to_bf16(-largest / DIVISORS[i]);
        float error = try_scale(group, count, tried, trial);
        if (i > 0 && !(error < best))
            continue;
        best = error;
        *scale = tried;
        memcpy(numbers, trial, count * sizeof *numbers);
    }
    return true;
}

static bool quantize_int4(const float *row, uint32_t k, uint8_t *packed, float *scales)
{
    memset(packed, 0, weight_row_bytes(WEIGHT_INT4, k));
    for (uint32_t begin = 0; begin < k; begin += WEIGHT_GROUP) {
        uint32_t count = k - begin < WEIGHT_GROUP ? k - begin : WEIGHT_GROUP;
        float numbers[WEIGHT_GROUP];
        if (!quantize_group(row + begin, count, numbers, &scales[begin / WEIGHT_GROUP]))
            return false;
        for (uint32_t i = 0; i < count; i++)
            packed[(begin + i) / 2] |= (uint8_t)((uint8_t)(numbers[i] + 8) << i % 2 * 4);
    }
    return true;
}

enum status quantize_rows(enum weight_type type, const float *rows, uint32_t row_count, uint32_t k,
                          uint8_t *numbers, float *scales, uint32_t *bad_row)
{
    ASSERT(weight_type_is_quantized(type));
    for (uint32_t i = 0; i < row_count; i++) {
        const float *row = rows + (size_t)i * k;
        uint8_t *out = numbers + i * weight_row_bytes(type, k);
        float *scale = scales + (size_t)i * weight_row_scales(type, k);
        bool finite = type == WEIGHT_INT8 ? quantize_int8(row, k, (int8_t *)out, scale)
                                          : quantize_int4(row, k, out, scale);
        if (!finite) {
            *bad_row = i;
            return STATUS_INVALID;
        }
    }
    return STATUS_OK;
}
