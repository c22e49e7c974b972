/* A backend of kernels.h for tests: the plans of kernels/cuda, run by the emulator on host memory.
 * Buffers end at a page that faults. A launch that fails, fails the test. */
#ifndef BATON_TESTS_CUDA_EMULATED_H
#define BATON_TESTS_CUDA_EMULATED_H

#include "kernels/cuda/launch.h"
#include "tests/kernels/fixture.h"

struct emulated {
    struct cuda_target target; /* a test changes `draw` and `scratch.bytes` */
    uint64_t seed;             /* orders the threads of the next launch; counts up */
    uint64_t launches;
    bool breaks; /* true: a failed launch is counted instead of failing the test */
    uint64_t broken;
};

/* Whether there is more than `target`: false in the place of emulated.c (on_device.c). */
extern const bool emulated_counts;

/* Opens it; the caller ends it with emulated_close. hopper: may launch kernels for sm_90a. */
struct kernels *emulated_open(bool hopper);
struct emulated *emulated_of(struct kernels *kernels);
void emulated_close(struct kernels *kernels);
/* Runs a plan's launches; not on a device. */
void emulated_run(struct kernels *kernels, const struct cuda_plan *plan);

#endif
