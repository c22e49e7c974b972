#include "common/engine/model/tensor_pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

void tensor_pages_release(const void *bytes, size_t count)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)bytes / page_bytes * page_bytes;
    (void)madvise((void *)first, (uintptr_t)bytes + count - first, MADV_DONTNEED);
}
