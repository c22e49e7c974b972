/* The vectors of one instruction set: VECTOR fp32 lanes, or as many 32-bit words. Included by
 * sources that are compiled once per instruction set. */
#ifndef BATON_KERNELS_CPU_INNER_VECTOR_H
#define BATON_KERNELS_CPU_INNER_VECTOR_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* SUM_ROWS rows by two vectors of sums stay in registers, beside the operands added to them. */
#if defined(__AVX512F__)
#define VECTOR   16
#define SUM_ROWS 12
#elif defined(__AVX2__)
#define VECTOR   8
#define SUM_ROWS 6
#else
#define VECTOR   4
#define SUM_ROWS 4
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef float floats __attribute__((vector_size(VECTOR * 4), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(VECTOR * 4), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(VECTOR * 4), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(VECTOR * 2), aligned(2), may_alias));

/* Returns a * b + c where the product is exact: then it is the same number, fused or not. */
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

/* sum += a * b, where the product is exact and the sum stays in its register. Left to choose, the
 * compiler (gcc 12) moves sums about and runs out of registers. */
ALWAYS_INLINE void add_in_place(floats *sum, floats a, floats b)
{
#if defined(__AVX512F__)
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(*sum) : "v"(a), "v"(b));
#else
    *sum = add_exact_product(a, b, *sum);
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

/* Prefetches two vectors of rows first .. end - 1 of outputs, to be written. Rows lie apart, in
 * lines that no cache holds yet, and arrive while the products are made. */
ALWAYS_INLINE void prefetch_rows(const float *out, size_t stride, uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++) {
        __builtin_prefetch(out + r * stride, 1, 3);
        __builtin_prefetch(out + r * stride + VECTOR, 1, 3);
    }
}

/* Distance of prefetches from the level 2 into the level 1 cache. Few rows take their weights as
 * fast as memory gives them. A request that was dropped on its way to level 2 is made again by
 * this. Measured with one row: 2 to 4 KiB are alike, none is 4 to 12% slower. */
#define NEAR_AHEAD 3072 /* bytes */
ALWAYS_INLINE void bring_near(const void *weights, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)weights + NEAR_AHEAD + i, 0, 3);
}

/* Bytes that a stream side by side with others asks ahead, into the level 1 and the level 2
 * cache. */
#define STREAM_NEAR 512
#define STREAM_FAR  4096

#if defined(__AVX512F__)
/* Loads a line, and asks for later lines of this stream. In turns, since a burst of requests holds
 * up the loads behind it. */
ALWAYS_INLINE words stream_line(const void *weights)
{
    words line;
    __asm__ volatile("prefetcht1 %c3(%1)\n\tprefetcht0 %c2(%1)\n\tvmovdqu64 (%1), %0"
                     : "=v"(line)
                     : "r"(weights), "i"(STREAM_NEAR), "i"(STREAM_FAR),
                       "m"(*(const words *)weights));
    return line;
}
#endif

/* Shares in which rows of outputs are prefetched. A core waits for few lines at once, and lines of
 * the products would come after a long burst. */
#define ROW_SHARES(ROWS) ((ROWS) > 4 ? 4 : 1)

/* Returns the value, computed here. The compiler keeps these in the order of the source; otherwise
 * it would put dependent operations side by side. */
ALWAYS_INLINE floats in_turn(floats value)
{
#if defined(__AVX512F__)
    __asm__ volatile("" : "+v"(value));
#elif defined(__x86_64__)
    __asm__ volatile("" : "+x"(value));
#endif
    return value;
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

/* a < b ? a : b, lane by lane. */
static inline floats smaller(floats a, floats b)
{
#if defined(__AVX512F__)
    return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_min_ps(a, b);
#else
    words mask = (words)(a < b);
    return (floats)(((words)a & mask) | ((words)b & ~mask));
#endif
}

ALWAYS_INLINE floats to_floats(ints numbers)
{
    return __builtin_convertvector(numbers, floats);
}

/* Widens a vector of bf16 numbers. */
ALWAYS_INLINE floats widen_bf16(const uint16_t *bf16)
{
#if defined(__AVX512F__)
    return (floats)((words)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)bf16)) << 16);
#elif defined(__AVX2__)
    return (floats)((words)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)bf16)) << 16);
#else
    return (floats)(__builtin_convertvector(*(const halves *)bf16, words) << 16);
#endif
}

/* Clears the lower half of each word. The mask gets a register of another kind than the numbers, if
 * the set has one. */
ALWAYS_INLINE floats upper_halves(words packed)
{
#if defined(__AVX512F__)
    return (floats)_mm512_maskz_mov_epi16(0xaaaaaaaa, (__m512i)packed);
#else
    return (floats)(packed & 0xffff0000);
#endif
}

ALWAYS_INLINE floats widen_int8(const int8_t *numbers)
{
#if defined(__AVX512F__)
    return to_floats((ints)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)numbers)));
#elif defined(__AVX2__)
    return to_floats((ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)numbers)));
#else
    return (floats){numbers[0], numbers[1], numbers[2], numbers[3]};
#endif
}

/* Returns a < limit ? 0 : the sum of the bits of x and y, lane by lane. */
ALWAYS_INLINE floats add_bits_unless_below(words x, words y, floats a, floats limit)
{
#if defined(__AVX512F__)
    __mmask16 kept = _mm512_cmp_ps_mask(a, limit, _CMP_NLT_UQ);
    return (floats)_mm512_maskz_add_epi32(kept, (__m512i)x, (__m512i)y);
#else
    return (floats)((x + y) & ~(words)(a < limit));
#endif
}

/* Rounds to bf16, to nearest, ties to even; the numbers are finite. */
ALWAYS_INLINE floats round_to_bf16(floats value)
{
    words bits = (words)value;
#if defined(__AVX512F__)
    const __m512i one = _mm512_set1_epi32(1);
    __mmask16 odd = _mm512_test_epi32_mask((__m512i)bits, _mm512_set1_epi32(1 << 16));
    __m512i sum = (__m512i)(bits + 0x7fff);
    return upper_halves((words)_mm512_mask_add_epi32(sum, odd, sum, one));
#else
    return upper_halves(bits + 0x7fff + (bits >> 16 & 1));
#endif
}

/* Interleaves words of a and b in each quarter. low, high: a0 b0 a1 b1, a2 b2 a3 b3; pairs: a0 a1
 * b0 b1, a2 a3 b2 b3. */
#if defined(__AVX512F__)
#define INTERLEAVE(NAME, INSTRUCTION, ...)                                                         \
    ALWAYS_INLINE words NAME(words a, words b)                                                     \
    {                                                                                              \
        return (words)_mm512_##INSTRUCTION((__m512i)a, (__m512i)b);                                \
    }
#elif defined(__AVX2__)
#define INTERLEAVE(NAME, INSTRUCTION, ...)                                                         \
    ALWAYS_INLINE words NAME(words a, words b)                                                     \
    {                                                                                              \
        return (words)_mm256_##INSTRUCTION((__m256i)a, (__m256i)b);                                \
    }
#else
#define INTERLEAVE(NAME, INSTRUCTION, ...)                                                         \
    ALWAYS_INLINE words NAME(words a, words b)                                                     \
    {                                                                                              \
        return __builtin_shuffle(a, b, (words){__VA_ARGS__});                                      \
    }
#endif
INTERLEAVE(interleave_low, unpacklo_epi32, 0, 4, 1, 5)
INTERLEAVE(interleave_high, unpackhi_epi32, 2, 6, 3, 7)
INTERLEAVE(interleave_low_pairs, unpacklo_epi64, 0, 1, 4, 5)
INTERLEAVE(interleave_high_pairs, unpackhi_epi64, 2, 3, 6, 7)
#undef INTERLEAVE

/* Interleaves numbers of a and b, a first: of their lower halves, and of their upper halves. */
#if VECTOR == 16
#define TURNS(FIRST)                                                                               \
    (words)                                                                                        \
    {                                                                                              \
        FIRST, FIRST + 16, FIRST + 1, FIRST + 17, FIRST + 2, FIRST + 18, FIRST + 3, FIRST + 19,    \
            FIRST + 4, FIRST + 20, FIRST + 5, FIRST + 21, FIRST + 6, FIRST + 22, FIRST + 7,        \
            FIRST + 23                                                                             \
    }
#elif VECTOR == 8
#define TURNS(FIRST)                                                                               \
    (words)                                                                                        \
    {                                                                                              \
        FIRST, FIRST + 8, FIRST + 1, FIRST + 9, FIRST + 2, FIRST + 10, FIRST + 3, FIRST + 11       \
    }
#else
#define TURNS(FIRST)                                                                               \
    (words)                                                                                        \
    {                                                                                              \
        FIRST, FIRST + 4, FIRST + 1, FIRST + 5                                                     \
    }
#endif
ALWAYS_INLINE floats in_turns_low(floats a, floats b)
{
    return __builtin_shuffle(a, b, TURNS(0));
}

ALWAYS_INLINE floats in_turns_high(floats a, floats b)
{
    return __builtin_shuffle(a, b, TURNS(VECTOR / 2));
}
#undef TURNS

/* Transposes four rows of four words: out[c * out_stride + r] = in[r * in_stride + c]. */
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
