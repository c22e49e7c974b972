/* e4m3, the 8-bit float of checkpoints: sign, 4 bits of exponent (bias 7), 3 of fraction; no
 * infinities, one NaN, 448 is the largest. And a model of a step of the tensor core of sm_90 over
 * it (wgmma m64nNk32), bit by bit. PURE. C and C++: the reference, the loader and the emulator of
 * the GPU share it.
 *
 * Source of the model: bits measured on an H200 by probes, 1024 of 1024 elements. A step adds 32
 * products to a sum. Each product's exponent is the sum of its operands' exponents (no product is
 * normalised); zeros have none. All terms, the sum too, are cut towards zero to 13 bits below the
 * largest exponent and added exactly. The result is cut to 13 bits of fraction. */
#ifndef BATON_KERNELS_CPU_E4M3_H
#define BATON_KERNELS_CPU_E4M3_H

#include <stdint.h>
#include <string.h>

#define E4M3_STEP 32 /* products of a step */
#define E4M3_MOST 448.0f

static inline float e4m3_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t e4m3_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Returns 2^exponent, -126 .. 127. */
static inline float e4m3_power(int exponent)
{
    return e4m3_from_bits((uint32_t)(exponent + 127) << 23);
}

static inline float e4m3_value(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80) << 24, rest = code & 0x7f;
    if (rest == 0x7f)
        return e4m3_from_bits(sign | 0x7fc00000u);
    if (rest < 8) /* zero and subnormal: units of 2^-9 */
        return (sign ? -1.0f : 1.0f) * (float)rest * 0x1p-9f;
    return e4m3_from_bits(sign | ((rest << 20) + (120u << 23)));
}

/* Rounds to nearest, ties to even; larger numbers become 448 (cvt.rn.satfinite). */
static inline uint8_t e4m3_round(float value)
{
    uint32_t bits = e4m3_to_bits(value), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    if (size > 0x7f800000u)
        return 0x7f;
    if (size < 121u << 23) { /* below 2^-6: the sum's last bit is 2^-9 */
        float shifted = e4m3_from_bits(size) + 0x1.8p14f;
        return (uint8_t)(sign | (e4m3_to_bits(shifted) & 0xf));
    }
    uint32_t code = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120u << 3);
    return (uint8_t)(sign | (code > 0x7e ? 0x7e : code));
}

/* Operands of a step. An exponent is that of the code, -6 .. 8; a zero's is E4M3_NONE. */
#define E4M3_NONE (-1024.0f)
struct e4m3_terms {
    float value[E4M3_STEP], exponent[E4M3_STEP];
};

/* Reads `count` <= E4M3_STEP codes; zeros follow. */
static inline void e4m3_read(const uint8_t *codes, uint32_t count, struct e4m3_terms *terms)
{
    uint8_t padded[E4M3_STEP] = {0};
    memcpy(padded, codes, count);
    /* e4m3_value without branches: the fraction's 4 bits times 2^(exponent - 3). */
    for (int i = 0; i < E4M3_STEP; i++) {
        int32_t code = padded[i], whole = code & 0x7f, field = whole >> 3;
        int32_t fraction = (code & 7) + (field > 0 ? 8 : 0);
        int32_t exponent = field > 0 ? field - 7 : -6;
        uint32_t power = (uint32_t)(exponent - 3 + 127) << 23;
        uint32_t bits = e4m3_to_bits((float)fraction * e4m3_from_bits(power));
        bits = whole == 0x7f ? 0x7fc00000u : bits;
        terms->value[i] = e4m3_from_bits(bits | (uint32_t)(code & 0x80) << 24);
        terms->exponent[i] = whole == 0 ? E4M3_NONE : (float)exponent;
    }
}

/* Returns sum + a * b. sum: 0, or the result of a step. */
static inline float e4m3_step(float sum, const struct e4m3_terms *a, const struct e4m3_terms *b)
{
    float products[E4M3_STEP], most = 2 * E4M3_NONE;
    int sound = 1;
    for (int i = 0; i < E4M3_STEP; i++) {
        float exponent = a->exponent[i] + b->exponent[i];
        products[i] = a->value[i] * b->value[i];
        most = exponent > most ? exponent : most;
        sound &= products[i] == products[i];
    }
    if (!sound || sum != sum)
        return e4m3_from_bits(0x7fffffff);
    float own = (float)((int)(e4m3_to_bits(sum) >> 23 & 0xff) - 127);
    if (sum != 0 && own > most)
        most = own;
    if (most < -126) /* zeros alone */
        return 0;
    float up = e4m3_power(13 - (int)most);
    int32_t total = (int32_t)(sum * up);
    for (int i = 0; i < E4M3_STEP; i++)
        total += (int32_t)(products[i] * up);
    uint32_t size = (uint32_t)(total < 0 ? -total : total), bits = 0;
    while (size >> bits > 0x3fff)
        bits++;
    size = size >> bits << bits;
    return (total < 0 ? -1.0f : 1.0f) * (float)size * e4m3_power((int)most - 13);
}

#endif
