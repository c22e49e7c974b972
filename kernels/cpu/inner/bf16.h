/* Rounds fp32 to bf16, to nearest, ties to even; NaN stays NaN. */
#ifndef BATON_KERNELS_CPU_INNER_BF16_H
#define BATON_KERNELS_CPU_INNER_BF16_H

#include "kernels/cpu/exp_fixed.h"

#include <stdint.h>

static inline uint16_t round_one(float value)
{
    union float_bits in = {.value = value};
    uint32_t rounded = (in.bits + 0x7fff + (in.bits >> 16 & 1)) >> 16;
    uint32_t nan = in.bits >> 16 | 0x40;
    return (uint16_t)((in.bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

#endif
