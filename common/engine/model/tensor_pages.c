#include "common/engine/model/tensor_pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Neighbours share the first and the last page: what is released too early comes back when it is read. */
static void advise(const void *bytes, size_t count, int advice)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)bytes / page_bytes * page_bytes;
    (void)madvise((void *)first, (uintptr_t)bytes + count - first, advice);
}

void tensor_pages_prefetch(const void *bytes, size_t count)
{
    advise(bytes, count, MADV_WILLNEED);
}

void tensor_pages_release(const void *bytes, size_t count)
{
    advise(bytes, count, MADV_DONTNEED);
}
