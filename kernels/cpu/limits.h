/* What the compute threads of this machine can do at most: the figures that a benchmark's figures stand beside. All threads
 * of a pool run at once, each is timed by the time that it ran (what other programs took meanwhile doesn't count). */
#ifndef BATON_KERNELS_CPU_LIMITS_H
#define BATON_KERNELS_CPU_LIMITS_H

#include "kernels/cpu/pool.h"

#include <stddef.h>

/* One kind of instruction, as wide as this CPU reports it. NULL: it has none of them. */
struct limits_instruction;
const struct limits_instruction *limits_float(void); /* fp32 multiply-adds */
const struct limits_instruction *
limits_bf16(void); /* vdpbf16ps, which the caller knows to be there */
const struct limits_instruction *limits_tiles(void); /* tdpbf16ps, the same */
const struct limits_instruction *
limits_quantized(void); /* products of 8-bit integers, or of 16-bit ones */

/* 10^9 operations a second of all threads together; a multiply-add is two. NULL: 0, and "" for the name. */
double limits_peak(struct pool *pool, uint32_t threads,
                   const struct limits_instruction *instruction, const char **name);
/* Nanoseconds of the slowest thread for one pass over its part, in order or in four quarters side by side of `memory`. */
uint64_t limits_read(struct pool *pool, uint32_t threads, const void *memory, size_t bytes);

#endif
