/* exp, log, sine and cosine by IEEE operations in one fixed order: libm's results differ from one
 * machine to the next.
 *
 * And vectors of four floats, the compiler's own: each lane does the IEEE operations of a loop
 * without them, so results have the same bits. The compiler makes no vectors of comparisons and
 * conversions by itself. */
#ifndef BATON_BASE_FIXED_MATH_H
#define BATON_BASE_FIXED_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* exp(x) for x <= 0, relative error < 2e-7, 0 below -87: 2^n * (degree-6 polynomial on [-ln2/2,
 * ln2/2]), Cephes' expf. */
static inline float exp_negative(float given)
{
    float x = given > -87.0f ? given : -87.0f;
    float shifted = x * 1.44269504f + 0.5f;
    float n = (float)(int32_t)shifted; /* truncated, then its floor: */
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

/* log(x) of a normal x > 0, absolute error < 1e-15 * (1 + |log(x)|): x = 2^e * m, and log(m) = 2
 * artanh((m - 1) / (m + 1)). */
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

/* Sine and cosine of 0 <= x <= 2^24, absolute error < 2e-16 up to 2^20, 2e-9 beyond: fdlibm's
 * polynomials on [-pi/4, pi/4] of x minus its nearest multiple of pi/2. The first 33 bits of pi/2
 * make that product exact. No branches: the compiler makes vectors of loops. */
static inline void sine_cosine(double x, double *sine, double *cosine)
{
    int32_t quarter = (int32_t)(x * 6.36619772367581382433e-01 + 0.5);
    double n = quarter;
    double r = x - n * 1.57079632673412561417e+00 - n * 6.07710050650619224932e-11;
    double z = r * r;
    double s = 1.58969099521155010221e-10;
    s = s * z + -2.50507602534068634195e-08;
    s = s * z + 2.75573137070700676789e-06;
    s = s * z + -1.98412698298579493134e-04;
    s = s * z + 8.33333333332248946124e-03;
    s = s * z + -1.66666666666666324348e-01;
    s = r + r * (z * s);
    double c = -1.13596475577881948265e-11;
    c = c * z + 2.08757232129817482790e-09;
    c = c * z + -2.75573143513906633035e-07;
    c = c * z + 2.48015872894767294178e-05;
    c = c * z + -1.38888888888741095749e-03;
    c = c * z + 4.16666666666666019037e-02;
    c = 1 - (0.5 * z - z * (z * c));
    double first = quarter & 1 ? c : s, second = quarter & 1 ? s : c;
    *sine = quarter & 2 ? -first : first;
    *cosine = (quarter + 1) & 2 ? -second : second;
}

/* --- four lanes --- */

#define QUAD 4

typedef float quad __attribute__((vector_size(16)));
typedef int32_t quad_mask __attribute__((vector_size(16))); /* a comparison's lanes: -1 or 0 */
typedef double pair __attribute__((vector_size(16)));
typedef double quad_wide __attribute__((vector_size(32)));

static inline quad quad_of(float value)
{
    return (quad){value, value, value, value};
}

static inline quad quad_load(const float *values)
{
    quad q;
    memcpy(&q, values, sizeof q);
    return q;
}

static inline void quad_store(float *values, quad q)
{
    memcpy(values, &q, sizeof q);
}

/* Returns q in lanes with the mask set, 0 in the others. */
static inline quad quad_where(quad_mask mask, quad q)
{
    return (quad)((quad_mask)q & mask);
}

static inline quad quad_choose(quad_mask mask, quad yes, quad no)
{
    return (quad)(((quad_mask)yes & mask) | ((quad_mask)no & ~mask));
}

static inline int quad_any(quad_mask mask)
{
    int64_t halves[2];
    memcpy(halves, &mask, sizeof halves);
    return (halves[0] | halves[1]) != 0;
}

/* Converts all four lanes at once: low gets lanes 0 and 1, high 2 and 3. Conversions of two lanes
 * would compile to one for each lane. */
static inline void quad_widen(quad q, pair *low, pair *high)
{
    quad_wide wide = __builtin_convertvector(q, quad_wide);
    pair pairs[2];
    memcpy(pairs, &wide, sizeof wide);
    *low = pairs[0];
    *high = pairs[1];
}

/* exp_negative of each lane: the same operations in the same order. */
static inline quad quad_exp_negative(quad given)
{
    quad_mask in_range = given > quad_of(-87.0f);
    quad x = quad_choose(in_range, given, quad_of(-87.0f));
    quad shifted = x * 1.44269504f + 0.5f;
    quad n = __builtin_convertvector(__builtin_convertvector(shifted, quad_mask), quad);
    n -= quad_where(n > shifted, quad_of(1.0f));
    quad r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    quad y = quad_of(1.9875691500e-4f);
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    quad power = (quad)((__builtin_convertvector(n, quad_mask) + 127) << 23);
    return quad_where(in_range, y * power);
}

#endif
