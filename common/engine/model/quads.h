/* Loops over a row of logits, four floats at a time, in the compiler's vectors: each lane does the
 * IEEE operations that the loop without them would, so results are the same bits. The compiler
 * makes no vectors of comparisons and conversions by itself. */
#ifndef BATON_ENGINE_MODEL_QUADS_H
#define BATON_ENGINE_MODEL_QUADS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define QUAD 4

typedef float quad __attribute__((vector_size(16)));
typedef int32_t quad_mask __attribute__((vector_size(16))); /* of a comparison: -1 or 0 */
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

/* q where the mask is set, 0 elsewhere. */
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

/* Lanes 0 and 1, and 2 and 3. Where no vector holds four, a conversion of halves would be one of
 * each lane. */
static inline void quad_widen(quad q, pair *low, pair *high)
{
    quad_wide wide = __builtin_convertvector(q, quad_wide);
    pair pairs[2];
    memcpy(pairs, &wide, sizeof wide);
    *low = pairs[0];
    *high = pairs[1];
}

/* exp_negative (fixed_math.h) of each lane: the same operations in the same order. */
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
