/* What one thread of this machine can do at most: the figures that a benchmark's figures stand beside. x86-64. */
#ifndef BATON_TESTS_BENCH_MACHINE_LIMITS_H
#define BATON_TESTS_BENCH_MACHINE_LIMITS_H

#include <stddef.h>
#include <stdint.h>

/* Nanoseconds that this thread ran: what other processes took meanwhile doesn't count. */
uint64_t limit_clock_ns(void);

/* GFLOP/s (a multiply-add is two) of independent register-to-register instructions, 512 bits wide; the caller knows that
 * the CPU executes them. */
double limit_fma_gflops(void);
double limit_fma256_gflops(void);
double limit_dot_gflops(void); /* vdpbf16ps */

/* GB/s of one sequential pass over `memory`. */
double limit_read_gbs(const void *memory, size_t bytes);

#endif
