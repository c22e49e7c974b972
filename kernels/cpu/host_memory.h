/* Memory of a device that is the host: the memory functions of struct kernels_backend, shared by
 * reference and cpu. */
#ifndef BATON_KERNELS_CPU_HOST_MEMORY_H
#define BATON_KERNELS_CPU_HOST_MEMORY_H

#include "kernels/kernels.h"

/* Allocates scratch memory, zeroed. From 2 MiB on it is aligned to 2 MiB and advised to use huge
 * pages; below that, aligned to a cache line. NULL: no memory. Free with free(). */
void *host_memory_take(size_t bytes);

/* The same for transfers (kernels_host_alloc), and its end. */
void *host_memory_give(struct kernels *kernels, size_t bytes);
void host_memory_end(struct kernels *kernels, void *memory);

/* Estimates the bytes that this process may still take without pushing others out: the smaller of
 * what the kernel calls available and what the cgroups' limits leave. SIZE_MAX: neither can be
 * read. */
size_t host_memory_available(const struct kernels *kernels);
/* The smaller of the machine's memory and the cgroups' limits. */
size_t host_memory_whole(const struct kernels *kernels);

/* Allocates zeroed memory and touches every page. From 2 MiB on it uses huge pages if the kernel
 * has any (weights stream ~10 % faster), on the nodes of kernels->placement. Below that, it is
 * aligned to a cache line. */
enum status host_memory_alloc(struct kernels *kernels, size_t bytes, struct buffer *buffer);
void host_memory_free(struct kernels *kernels, struct buffer *buffer);
/* Moves the pages to the nodes of kernels->placement, if the kernel allows it. */
enum status host_memory_adopt(struct kernels *kernels, void *address, size_t bytes,
                              struct buffer *buffer);

/* Transfers in call order, done at return: `stream` doesn't matter. */
enum status host_memory_upload(struct kernels *kernels, enum kernels_stream stream,
                               struct buffer *target, size_t offset, const void *host,
                               size_t bytes);
enum status host_memory_read_back(struct kernels *kernels, enum kernels_stream stream,
                                  const struct buffer *source, size_t offset, void *host,
                                  size_t bytes);
enum status host_memory_copy(struct kernels *kernels, enum kernels_stream stream,
                             const struct buffer *source, size_t source_offset,
                             struct buffer *target, size_t target_offset, size_t bytes);
/* Any thread. */
enum status host_memory_block_sums(struct kernels *kernels, const struct buffer *pool,
                                   const struct kv_sum_job *job, struct buffer *sums);

#endif
