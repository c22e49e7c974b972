/* Chooses the NUMA nodes of a host backend's memory. Pages go in turns to the nodes that have
 * compute threads, so that every thread has an equal part nearby and all memory channels work. If
 * all compute threads are pinned to one node's CPUs, pages go to that node. A machine of one node
 * needs no placement. Nothing here fails: if the kernel refuses, a page lies on the node that
 * touches it first. */
#ifndef BATON_KERNELS_CPU_PLACEMENT_H
#define BATON_KERNELS_CPU_PLACEMENT_H

#include <stddef.h>
#include <stdint.h>

#define PLACEMENT_NODES     "/sys/devices/system/node" /* Linux lists its nodes there */
#define PLACEMENT_MAX_NODES 64                         /* nodes above get no memory */

struct placement {
    uint64_t nodes; /* bit n: node n gets memory; 0: no placement */
};

/* Finds the nodes for compute threads pinned to cpus[thread], or, with NULL, on all CPUs that the
 * process may use. `nodes_path`: PLACEMENT_NODES, or a test's folder. */
struct placement placement_find(const char *nodes_path, const int *cpus, uint32_t threads);

/* Places the whole pages of `memory`. Moves pages that were touched already. */
void placement_apply(const struct placement *placement, void *memory, size_t bytes);

#endif
