/* On which NUMA nodes the memory of a host backend lies: page by page in turn on those whose CPUs
 * compute, so that every thread has an equal part nearby and all memory channels work; on one,
 * where all compute threads are pinned to its CPUs. A machine of one node: nothing is asked.
 * Nothing here fails: where the kernel refuses, pages lie where they are touched first. */
#ifndef BATON_KERNELS_CPU_PLACEMENT_H
#define BATON_KERNELS_CPU_PLACEMENT_H

#include <stddef.h>
#include <stdint.h>

#define PLACEMENT_NODES     "/sys/devices/system/node" /* where Linux tells of them */
#define PLACEMENT_MAX_NODES 64                         /* others get nothing */

struct placement {
    uint64_t nodes; /* bit n: on node n; none: wherever */
};

/* For compute threads pinned to cpus[thread], or, with NULL, on all CPUs that the process may use.
 * `nodes_path`: PLACEMENT_NODES, or a test's. */
struct placement placement_find(const char *nodes_path, const int *cpus, uint32_t threads);

/* Pages that were touched already are moved. */
void placement_apply(const struct placement *placement, void *memory, size_t bytes);

#endif
