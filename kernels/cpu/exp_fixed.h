/* exp of fp32 by one fixed sequence of operations, so that softmax and SiLU give the same bits on
 * every machine and with every libm (a libm picks its exp by CPU). Cody-Waite reduction and the
 * Cephes polynomial, error below 2 ulp. Results below 2^-126 are 0, and arguments above 88.3 count
 * as 88.3. Compiled without contraction (-ffp-contract=off). */
#ifndef BATON_KERNELS_CPU_EXP_FIXED_H
#define BATON_KERNELS_CPU_EXP_FIXED_H

#include <stdint.h>

#define EXP_LOW    -87.0f
#define EXP_HIGH   88.3f
#define EXP_LOG2E  1.44269504088896341f
#define EXP_LN2_HI 0.693359375f /* exact times any n here */
#define EXP_LN2_LO -2.12194440e-4f
#define EXP_ROUND  12582912.0f /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
#define EXP_C5     1.9875691500e-4f
#define EXP_C4     1.3981999507e-3f
#define EXP_C3     8.3334519073e-3f
#define EXP_C2     4.1665795894e-2f
#define EXP_C1     1.6666665459e-1f
#define EXP_C0     5.0000001201e-1f

union float_bits {
    float value;
    uint32_t bits;
};

static inline float exp_fixed(float argument)
{
    float x = argument < EXP_HIGH ? argument : EXP_HIGH;
    x = x > EXP_LOW ? x : EXP_LOW;
    union float_bits shifted = {.value = x * EXP_LOG2E + EXP_ROUND};
    float n = shifted.value - EXP_ROUND;
    float r = (x - n * EXP_LN2_HI) - n * EXP_LN2_LO;
    float p = EXP_C5;
    p = p * r + EXP_C4;
    p = p * r + EXP_C3;
    p = p * r + EXP_C2;
    p = p * r + EXP_C1;
    p = p * r + EXP_C0;
    p = (p * (r * r) + r) + 1.0f;
    union float_bits power = {.bits = (shifted.bits << 23) + 0x3f800000u};
    float result = p * power.value;
    return argument < EXP_LOW ? 0.0f : result;
}

#endif
