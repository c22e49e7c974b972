/* The vectors of one instruction set: VECTOR fp32 lanes, or as many 32-bit words. Included by the sources of struct inner,
 * each compiled for its instruction set. */
#ifndef BATON_KERNELS_CPU_INNER_VECTOR_H
#define BATON_KERNELS_CPU_INNER_VECTOR_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VECTOR 16
#elif defined(__AVX2__)
#define VECTOR 8
#else
#define VECTOR 4
#endif

typedef float floats __attribute__((vector_size(VECTOR * 4), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(VECTOR * 4), aligned(4), may_alias));

/* a * b + c where the product is exact: then it is the same number, fused or not. */
static inline floats add_exact_product(floats a, floats b, floats c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

static inline floats broadcast(float value)
{
#if defined(__AVX512F__)
    return _mm512_set1_ps(value);
#elif defined(__AVX2__)
    return _mm256_set1_ps(value);
#else
    return (floats){value, value, value, value};
#endif
}

/* a > b ? a : b, lane by lane. */
static inline floats larger(floats a, floats b)
{
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    words mask = (words)(a > b);
    return (floats)(((words)a & mask) | ((words)b & ~mask));
#endif
}

/* Four rows of four words become four columns: out[c * out_stride + r] = in[r * in_stride + c]. */
typedef uint32_t quad __attribute__((vector_size(16), aligned(4), may_alias));

static inline void transpose_quads(const void *in, size_t in_stride, uint32_t *out,
                                   size_t out_stride)
{
    const uint32_t *row = in;
    quad a = *(const quad *)row, b = *(const quad *)(row + in_stride);
    quad c = *(const quad *)(row + 2 * in_stride), d = *(const quad *)(row + 3 * in_stride);
    quad ac0 = __builtin_shuffle(a, c, (quad){0, 4, 1, 5});
    quad ac1 = __builtin_shuffle(a, c, (quad){2, 6, 3, 7});
    quad bd0 = __builtin_shuffle(b, d, (quad){0, 4, 1, 5});
    quad bd1 = __builtin_shuffle(b, d, (quad){2, 6, 3, 7});
    *(quad *)out = __builtin_shuffle(ac0, bd0, (quad){0, 4, 1, 5});
    *(quad *)(out + out_stride) = __builtin_shuffle(ac0, bd0, (quad){2, 6, 3, 7});
    *(quad *)(out + 2 * out_stride) = __builtin_shuffle(ac1, bd1, (quad){0, 4, 1, 5});
    *(quad *)(out + 3 * out_stride) = __builtin_shuffle(ac1, bd1, (quad){2, 6, 3, 7});
}

#endif
