/* The end of quantized products in fp32, and the groups of int4: shared by all sources of struct
 * quantized_inner. */
#ifndef BATON_KERNELS_CPU_INNER_QUANTIZED_END_H
#define BATON_KERNELS_CPU_INNER_QUANTIZED_END_H

#include "kernels/cpu/inner/quantize_row.h"
#include "kernels/cpu/inner/quantized.h"
#include "kernels/cpu/inner/vector.h"

/* The start of an int4 group's sum: the bits of EXP_ROUND: its last place is one. Adding an integer
 * to these bits adds it to the float. So a sum is a float already, too large by EXP_ROUND, and is
 * never converted. */
#define INT4_START ROUND_BITS

#define STEPS_OF_GROUP (QUANTIZED_GROUP / QUANTIZED_STEP)

ALWAYS_INLINE uint32_t group_count(uint32_t steps)
{
    return (steps + STEPS_OF_GROUP - 1) / STEPS_OF_GROUP;
}

/* Returns the end of the group that begins at `step`; the last group may be cut. */
ALWAYS_INLINE uint32_t group_end(uint32_t step, uint32_t steps)
{
    return steps - step < STEPS_OF_GROUP ? steps : step + STEPS_OF_GROUP;
}

ALWAYS_INLINE void write_out(const struct quantized_product *product, floats value, float *out)
{
    if (product->add)
        value += *(const floats *)out;
    *(floats *)out = value;
}

/* Returns (sum - EXP_ROUND) * scale, rounded once, without a negative zero. EXP_ROUND * scale is
 * exact, since scales are bf16 and at most QUANTIZED_MAX. */
ALWAYS_INLINE floats scaled_group(ints sum, floats scale)
{
#if defined(__AVX512F__)
    return _mm512_fmsub_ps((floats)sum, scale, scale * broadcast(EXP_ROUND));
#elif defined(__AVX2__)
    return _mm256_fmsub_ps((floats)sum, scale, scale * broadcast(EXP_ROUND));
#else
    return ((floats)sum - broadcast(EXP_ROUND)) * scale + broadcast(0);
#endif
}

#endif
