#include "common/kv/transport/kv_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES      ((size_t)4096)
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

static size_t mapped_bytes(size_t bytes)
{
    size_t page = bytes < HUGE_PAGE_BYTES ? PAGE_BYTES : HUGE_PAGE_BYTES;
    return (bytes + page - 1) & ~(page - 1);
}

enum status kv_memory_map(size_t bytes, uint8_t **out, struct error *err)
{
    size_t mapped = mapped_bytes(bytes);
    void *memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return error_set(err, STATUS_LIMIT, "a KV pool of %zu bytes can't be allocated: %s", bytes,
                         strerror(errno));
    if (mapped >= HUGE_PAGE_BYTES)
        madvise(memory, mapped, MADV_HUGEPAGE); /* only for speed: may be refused */
    *out = memory;
    return STATUS_OK;
}

void kv_memory_unmap(uint8_t *memory, size_t bytes)
{
    munmap(memory, mapped_bytes(bytes));
}
