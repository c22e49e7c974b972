#include "kernels/cpu/host_memory.h"

#include "kernels/backend.h"

#include <errno.h>
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

static size_t whole_pages(size_t bytes)
{
    return (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
}

/* Fresh pages, so that they are zero without a pass over them. NULL: no memory. */
static void *take_pages(const struct placement *placement, size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * HUGE_PAGE_BYTES)
        return NULL;
    size_t rounded = whole_pages(bytes);
    char *start = mmap(NULL, rounded + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)start % HUGE_PAGE_BYTES; /* up to the first huge page */
    if (before)
        munmap(start, before);
    start += before;
    munmap(start + rounded, HUGE_PAGE_BYTES - before);
    (void)madvise(start, rounded, MADV_HUGEPAGE); /* a hint: small pages are slower */
    placement_apply(placement, start, rounded);
    if (madvise(start, rounded, MADV_POPULATE_WRITE) == 0)
        return start;
    if (errno == EINVAL) { /* a kernel before 5.14 */
        memset(start, 0, rounded);
        return start;
    }
    munmap(start, rounded);
    return NULL;
}

enum status host_memory_alloc(struct kernels *kernels, size_t bytes, struct buffer *buffer)
{
    void *memory =
        bytes >= HUGE_PAGE_BYTES ? take_pages(&kernels->placement, bytes) : host_memory_take(bytes);
    if (!memory)
        return STATUS_LIMIT;
    *buffer = (struct buffer){.address = memory, .bytes = bytes};
    return STATUS_OK;
}

void host_memory_free(struct kernels *kernels, struct buffer *buffer)
{
    (void)kernels;
    if (buffer->bytes >= HUGE_PAGE_BYTES)
        munmap(buffer->address, whole_pages(buffer->bytes));
    else
        free(buffer->address);
    *buffer = (struct buffer){0};
}

enum status host_memory_adopt(struct kernels *kernels, void *address, size_t bytes,
                              struct buffer *buffer)
{
    placement_apply(&kernels->placement, address, bytes);
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
