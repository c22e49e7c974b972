#include "kernels/cpu/placement.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES 512
#define LIST_BYTES 4096

/* Reads a list like "0-3,8" of nodes or CPUs, as far as a cpu_set_t holds their numbers. A file
 * that can't be read gives an empty set. */
static cpu_set_t read_list(const char *path)
{
    cpu_set_t set;
    char text[LIST_BYTES] = "", *at = text, *end;
    FILE *file = fopen(path, "re");
    CPU_ZERO(&set);
    if (!file)
        return set;
    if (!fgets(text, sizeof text, file))
        text[0] = '\0';
    fclose(file);
    for (;; at = end + 1) {
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (end == at)
            return set;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long i = first; i <= last && i < CPU_SETSIZE; i++)
            CPU_SET(i, &set);
        if (*end != ',')
            return set;
    }
}

struct placement placement_find(const char *nodes_path, const int *cpus, uint32_t threads)
{
    char path[PATH_BYTES];
    cpu_set_t computing, common;
    struct placement placement = {0};
    snprintf(path, sizeof path, "%s/online", nodes_path);
    cpu_set_t nodes = read_list(path);
    if (CPU_COUNT(&nodes) < 2)
        return placement;
    CPU_ZERO(&computing);
    for (uint32_t i = 0; cpus && i < threads; i++)
        CPU_SET(cpus[i], &computing); /* pool_create refuses a CPU that doesn't exist */
    if (!cpus && sched_getaffinity(0, sizeof computing, &computing) != 0)
        return placement;
    for (int node = 0; node < PLACEMENT_MAX_NODES; node++) {
        if (!CPU_ISSET(node, &nodes))
            continue;
        snprintf(path, sizeof path, "%s/node%d/cpulist", nodes_path, node);
        cpu_set_t own = read_list(path);
        CPU_AND(&common, &own, &computing);
        if (CPU_COUNT(&common))
            placement.nodes |= UINT64_C(1) << node;
    }
    return placement;
}

void placement_apply(const struct placement *placement, void *memory, size_t bytes)
{
    if (!placement->nodes)
        return;
    /* Whole pages only: a page shared with other data isn't ours to place. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)memory + page - 1) / page * page;
    uintptr_t last = ((uintptr_t)memory + bytes) / page * page;
    bool one = (placement->nodes & (placement->nodes - 1)) == 0;
    /* Two words, since the kernel reads one bit less than it is told. */
    unsigned long mask[2] = {placement->nodes, 0};
    if (first < last)
        syscall(SYS_mbind, first, last - first, one ? MPOL_PREFERRED : MPOL_INTERLEAVE, mask,
                PLACEMENT_MAX_NODES + 1, MPOL_MF_MOVE);
}
