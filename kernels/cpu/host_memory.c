#include "kernels/cpu/host_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES  ((size_t)2 << 20)
#define CACHE_LINE_BYTES ((size_t)64)

void *host_memory_take(size_t bytes)
{
    size_t alignment = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : CACHE_LINE_BYTES;
    if (bytes > SIZE_MAX - alignment)
        return NULL;
    size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void *memory = aligned_alloc(alignment, rounded ? rounded : alignment);
    if (!memory)
        return NULL;
    if (alignment == HUGE_PAGE_BYTES)
        (void)madvise(memory, rounded, MADV_HUGEPAGE); /* a hint: small pages are slower */
    memset(memory, 0, rounded);
    return memory;
}

enum status host_memory_alloc(struct kernels *kernels, size_t bytes, struct buffer *buffer)
{
    (void)kernels;
    void *memory = host_memory_take(bytes);
    if (!memory)
        return STATUS_LIMIT;
    *buffer = (struct buffer){.address = memory, .bytes = bytes};
    return STATUS_OK;
}

void host_memory_free(struct kernels *kernels, struct buffer *buffer)
{
    (void)kernels;
    free(buffer->address);
    *buffer = (struct buffer){0};
}

enum status host_memory_adopt(struct kernels *kernels, void *address, size_t bytes,
                              struct buffer *buffer)
{
    (void)kernels;
    *buffer = (struct buffer){.address = address, .bytes = bytes};
    return STATUS_OK;
}

enum status host_memory_upload(struct kernels *kernels, struct buffer *target, size_t offset,
                               const void *host, size_t bytes)
{
    (void)kernels;
    memcpy((char *)target->address + offset, host, bytes);
    return STATUS_OK;
}

enum status host_memory_copy(struct kernels *kernels, const struct buffer *source,
                             size_t source_offset, struct buffer *target, size_t target_offset,
                             size_t bytes)
{
    (void)kernels;
    memcpy((char *)target->address + target_offset, (const char *)source->address + source_offset,
           bytes);
    return STATUS_OK;
}
