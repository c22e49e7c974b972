/* What the compute threads of this machine can do at most: the figures that a benchmark's figures
 * stand beside. All threads of a pool run at once, each is timed by the time that it ran (what
 * other programs took meanwhile doesn't count). */
#ifndef BATON_KERNELS_CPU_LIMITS_H
#define BATON_KERNELS_CPU_LIMITS_H

#include "kernels/cpu/pool.h"

#include <stddef.h>

/* One kind of instruction, as wide as an instruction set has it. NULL: not known here (another CPU
 * than an x86-64). */
struct limits_instruction;
/* What linear layers of floats and of quantized weights are made of, by these inner loops; NULL: by
 * portable C. */
struct inner;
const struct limits_instruction *limits_linear(const struct inner *inner);
struct quantized_inner;
const struct limits_instruction *limits_quantized(const struct quantized_inner *inner, bool int4);

/* 10^9 operations a second of all threads together; a multiply-add is two. NULL: 0, and "" for the
 * name. */
double limits_peak(struct pool *pool, uint32_t threads,
                   const struct limits_instruction *instruction, const char **name);
/* How memory is read. Which is fastest differs by CPU, and by how many threads read. */
enum limits_way {
    LIMITS_UNKNOWN,
    LIMITS_IN_ORDER, /* asking early for what comes */
    /* and once more soon before, since requests may be dropped (decisions/0042) */
    LIMITS_ASKED_AGAIN,
    /* a thread's part in four quarters side by side, without requests of its own */
    LIMITS_QUARTERS,
    LIMITS_WAYS
};
/* Nanoseconds of the slowest thread for one pass over its part of `memory`. *way: LIMITS_UNKNOWN
 * becomes the fastest, by some passes over what should be more than caches hold. */
uint64_t limits_read(struct pool *pool, uint32_t threads, enum limits_way *way, const void *memory,
                     size_t bytes);

#endif
