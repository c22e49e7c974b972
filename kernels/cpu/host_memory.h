/* Device memory where the device is the host: the memory entries of struct kernels_backend for
 * reference and cpu. */
#ifndef BATON_KERNELS_CPU_HOST_MEMORY_H
#define BATON_KERNELS_CPU_HOST_MEMORY_H

#include "kernels/kernels.h"

/* Scratch, zeroed. From 2 MiB on aligned to 2 MiB and advised to use huge pages; below, to a cache
 * line. NULL: no memory. Freed with free(). */
void *host_memory_take(size_t bytes);

/* Memory that this process may still take without pushing others out: what the kernel calls
 * available, or what is left of a cgroup's limit. SIZE_MAX where neither can be read. */
size_t host_memory_available(void);

/* Zeroed, and every page of it taken. From 2 MiB on in huge pages, where the kernel gives any
 * (weights stream ~10 % faster), and on the nodes of kernels->placement; below, aligned to a cache
 * line. */
enum status host_memory_alloc(struct kernels *kernels, size_t bytes, struct buffer *buffer);
void host_memory_free(struct kernels *kernels, struct buffer *buffer);
/* Moved to the nodes of kernels->placement, as far as it may be. */
enum status host_memory_adopt(struct kernels *kernels, void *address, size_t bytes,
                              struct buffer *buffer);
enum status host_memory_upload(struct kernels *kernels, struct buffer *target, size_t offset,
                               const void *host, size_t bytes);
enum status host_memory_copy(struct kernels *kernels, const struct buffer *source,
                             size_t source_offset, struct buffer *target, size_t target_offset,
                             size_t bytes);

#endif
