/* exp and log by IEEE operations in one fixed order: libm's differ from one machine to the next. */
#ifndef BATON_ENGINE_MODEL_FIXED_MATH_H
#define BATON_ENGINE_MODEL_FIXED_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* exp(x) for x <= 0, relative error < 2e-7, 0 below -87: 2^n * (degree-6 polynomial on [-ln2/2, ln2/2]), Cephes' expf. */
static inline float exp_negative(float given)
{
    float x = given > -87.0f ? given : -87.0f;
    float shifted = x * 1.44269504f + 0.5f;
    float n = (float)(int32_t)shifted; /* its floor: */
    n -= n > shifted ? 1.0f : 0.0f;
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return given > -87.0f ? y * power : 0.0f;
}

/* log(x) of a normal x > 0, absolute error < 1e-15 * (1 + |log(x)|): x = 2^e * m, and log(m) = 2 artanh((m - 1) / (m + 1)). */
static inline double log_positive(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    double s = (m - 1) / (m + 1), square = s * s, sum = 0;
    for (int k = 23; k > 0; k -= 2)
        sum = sum * square + 1.0 / k;
    return exponent * 0.6931471805599453 + 2 * s * sum;
}

#endif
