/* Measures the most that the compute threads of this machine can do: limits for a benchmark's
 * figures. All threads of a pool run at once. Each is timed by its CPU time, so that other programs
 * don't count. */
#ifndef BATON_KERNELS_CPU_LIMITS_H
#define BATON_KERNELS_CPU_LIMITS_H

#include "kernels/cpu/pool.h"

#include <stddef.h>

/* One kind of instruction, as wide as an instruction set has it. */
struct limits_instruction;
/* Return the instruction of linear layers of floats or of quantized weights by these inner loops.
 * NULL for `inner`: portable C. Return NULL if not known here (the CPU isn't an x86-64). */
struct inner;
const struct limits_instruction *limits_linear(const struct inner *inner);
struct quantized_inner;
const struct limits_instruction *limits_quantized(const struct quantized_inner *inner, bool int4);

/* Returns 10^9 operations a second of all threads together; a multiply-add is two. *name: the
 * instruction. Without an instruction: 0 and "". */
double limits_peak(struct pool *pool, uint32_t threads,
                   const struct limits_instruction *instruction, const char **name);
/* The ways to read memory. The fastest one depends on the CPU and on the number of threads. */
enum limits_way {
    LIMITS_UNKNOWN,
    LIMITS_IN_ORDER, /* asks for lines early */
    /* asks early and once more soon before, since requests may be dropped (decisions/0042) */
    LIMITS_ASKED_AGAIN,
    /* reads four quarters of a thread's part side by side, without requests */
    LIMITS_QUARTERS,
    LIMITS_WAYS
};
/* Reads `memory` once, a part per thread. Returns the slowest thread's nanoseconds. If *way is
 * LIMITS_UNKNOWN, first finds the fastest way by some passes; `memory` should be more than the
 * caches hold. */
uint64_t limits_read(struct pool *pool, uint32_t threads, enum limits_way *way, const void *memory,
                     size_t bytes);

#endif
