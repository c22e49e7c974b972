/* Counts of the emulated driver, for tests: look emulated_calls up in the library that the backend
 * has loaded. They begin at zero when the first context is opened. */
#ifndef BATON_TESTS_CUDA_DRIVER_EMULATED_DRIVER_H
#define BATON_TESTS_CUDA_DRIVER_EMULATED_DRIVER_H

#include <stdint.h>

struct emulated_calls {
    uint64_t all; /* calls of the host that need a context */
    /* Among them; launches: captured ones, too; waits: for an event or a stream; times: between two
     * events. */
    uint64_t launches, graph_launches, copies, records, waits, times;
    uint64_t graphs, graphs_now; /* made; there */
    uint64_t graph_bytes;        /* graphs take them now */
    uint64_t kernels;            /* run */
    uint64_t yielding;           /* launches into streams of the least priority */
    uint64_t host_now;           /* pieces of pinned memory that are there */
    uint64_t early;              /* begun before the kernel ahead was done */
};

typedef struct emulated_calls emulated_calls_function(void);

#endif
