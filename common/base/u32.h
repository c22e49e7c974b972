/* Minimum, maximum and rounded-up quotient of two counts. No call overflows. */
#ifndef BATON_BASE_U32_H
#define BATON_BASE_U32_H

#include <stdint.h>

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Rounded up; b isn't 0. */
static inline uint32_t divide_up(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}

#endif
