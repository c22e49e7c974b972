#include "common/engine/model/weight_convert.h"

#include <endian.h>
#include <math.h>
#include <string.h>

uint32_t float_type_bytes(enum float_type type)
{
    return type == FLOAT_F32 ? 4 : 2;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction. binary32 holds every value. */
static float widen_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1f;
    uint32_t fraction = half & 0x3ff;
    if (exponent == 0) { /* zero and subnormal: fraction * 2^-24 */
        float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    uint32_t wide = exponent == 0x1f ? 0xff : exponent + 127 - 15;
    return from_bits(sign | wide << 23 | fraction << 13);
}

static uint16_t round_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Returns element i of a source at any byte. */
static float value_at(enum float_type type, const unsigned char *source, size_t i)
{
    uint32_t word;
    uint16_t half;
    if (type == FLOAT_F32) {
        memcpy(&word, source + i * sizeof word, sizeof word);
        return from_bits(le32toh(word));
    }
    memcpy(&half, source + i * sizeof half, sizeof half);
    half = le16toh(half);
    return type == FLOAT_F16 ? widen_f16(half) : from_bits((uint32_t)half << 16);
}

void weight_convert(enum float_type type, const void *source, size_t count,
                    enum weight_type out_type, void *out)
{
    float *wide = out;
    uint16_t *narrow = out;
    if (out_type == WEIGHT_F32 && type == FLOAT_BF16) /* most files hold bf16 */
        for (size_t i = 0; i < count; i++)
            wide[i] = value_at(FLOAT_BF16, source, i);
    else if (out_type == WEIGHT_F32)
        for (size_t i = 0; i < count; i++)
            wide[i] = value_at(type, source, i);
    else
        for (size_t i = 0; i < count; i++)
            narrow[i] = round_to_bf16(value_at(type, source, i));
}

bool weight_is_ready(enum float_type type, const void *source, enum weight_type wanted)
{
    bool same = (type == FLOAT_F32 && wanted == WEIGHT_F32) ||
                (type == FLOAT_BF16 && wanted == WEIGHT_BF16);
    return same && (uintptr_t)source % float_type_bytes(type) == 0 && BYTE_ORDER == LITTLE_ENDIAN;
}
