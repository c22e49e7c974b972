/* Runs the sources of the CUDA kernels on the CPU. Each CUDA thread is a fiber. Warps take turns in
 * an order drawn from a seed, asynchronous copies and products land late, and shared memory begins
 * as NaN. It checks indices, layouts, barriers and waits, and that plans agree bit by bit. It says
 * nothing of speed, and nothing of memory fences.
 *
 * Sums of the tensor core. A step adds 16 products and the accumulator at once, cut to 26 bits
 * below the greatest of them. So a sum doesn't depend on the order inside a step, and zeros are
 * exact, as the hardware showed. The lowest bits are not claimed to be a device's.
 *
 * Kernels side by side. A launch marked `early` may start before those ahead of it are done, up to
 * its wait. emulate_next does that with one block (or cluster) of each of the next launches, before
 * the first one goes on behind its wait. A kernel starts if the one ahead of it has let it before
 * that. So a read that comes before its wait finds old contents.
 *
 * One thread at a time: the state is global. */
#ifndef BATON_TESTS_CUDA_EMULATE_H
#define BATON_TESTS_CUDA_EMULATE_H

#include "kernels/cuda/launch.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the parameter of a kernel; 0: none of this name is linked in. */
size_t emulate_parameter_bytes(const char *kernel);
/* Runs a launch to its end. false: `report` (report_bytes) names the kernel, block, thread and
 * mistake. A deadlock's report lists the threads that wait, by barrier. */
bool emulate_launch(const struct cuda_launch *launch, uint64_t seed, char *report,
                    size_t report_bytes);
/* Runs launches[0] of the `count` neighbours of a stream to its end, and may start some of the
 * others. starts: [count] NULL where a launch hasn't started; the caller keeps it, and each launch,
 * until that launch has run. */
#define EMULATE_AT_ONCE 4 /* launches under way at most */
struct emulated_start;
bool emulate_next(const struct cuda_launch *const *launches, struct emulated_start **starts,
                  uint32_t count, uint64_t seed, char *report, size_t report_bytes);

#ifdef __cplusplus
}
#endif
#endif
