/* Monotonic time. Pure modules never call this: their callers pass `now_us`. */
#ifndef BATON_BASE_CLOCK_H
#define BATON_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_now_us(void); /* CLOCK_MONOTONIC, microseconds */
uint64_t clock_now_ns(void);
uint64_t clock_process_ran_ns(void); /* CPU time of all threads of this process */
uint64_t clock_unix_us(void); /* wall clock, for logs and file names only, never for decisions */

#endif
