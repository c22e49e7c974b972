#include "kernels/cpu/host_memory.h"

#include "kernels/backend.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
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

void *host_memory_give(struct kernels *kernels, size_t bytes)
{
    (void)kernels;
    return host_memory_take(bytes);
}

void host_memory_end(struct kernels *kernels, void *memory)
{
    (void)kernels;
    free(memory);
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
}

/* Takes fresh pages, which are zero without a pass over them. NULL: no memory. */
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

enum status host_memory_upload(struct kernels *kernels, enum kernels_stream stream,
                               struct buffer *target, size_t offset, const void *host, size_t bytes)
{
    (void)kernels;
    (void)stream;
    memcpy((char *)target->address + offset, host, bytes);
    return STATUS_OK;
}

enum status host_memory_read_back(struct kernels *kernels, enum kernels_stream stream,
                                  const struct buffer *source, size_t offset, void *host,
                                  size_t bytes)
{
    (void)kernels;
    (void)stream;
    memcpy(host, (const char *)source->address + offset, bytes);
    return STATUS_OK;
}

enum status host_memory_copy(struct kernels *kernels, enum kernels_stream stream,
                             const struct buffer *source, size_t source_offset,
                             struct buffer *target, size_t target_offset, size_t bytes)
{
    (void)kernels;
    (void)stream;
    memcpy((char *)target->address + target_offset, (const char *)source->address + source_offset,
           bytes);
    return STATUS_OK;
}

/* A byte at a time: this is the reference, and the CPU's pools are summed by the transport. */
enum status host_memory_block_sums(struct kernels *kernels, const struct buffer *pool,
                                   const struct kv_sum_job *job, struct buffer *sums)
{
    (void)kernels;
    uint32_t table[256], *out = sums->address;
    for (uint32_t byte = 0; byte < 256; byte++) {
        table[byte] = byte;
        for (int bit = 0; bit < 8; bit++)
            table[byte] = table[byte] >> 1 ^ (table[byte] & 1 ? CRC32C_POLYNOMIAL : 0);
    }
    const uint8_t *first = (const uint8_t *)pool->address + job->first_offset;
    for (uint32_t i = 0; i < job->count; i++) {
        const uint8_t *at = first + job->blocks[i] * job->block_bytes;
        for (const uint8_t *end = at + job->block_bytes; at < end;) {
            uint32_t crc = ~0u;
            for (const uint8_t *run_end = at + job->run_bytes; at < run_end; at++)
                crc = table[(crc ^ *at) & 255] ^ crc >> 8;
            *out++ = ~crc;
        }
    }
    return STATUS_OK;
}

/* --- what is available --- */

#define PATH_BYTES 4096

/* Returns the number behind `key` in a file of "key value" lines, or `missing` if there is none. */
static uint64_t number_in(const char *path, const char *key, uint64_t missing)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return missing;
    char line[256];
    uint64_t number = missing, found;
    size_t length = strlen(key);
    while (number == missing && fgets(line, sizeof line, file))
        if (strncmp(line, key, length) == 0 && sscanf(line + length, "%" SCNu64, &found) == 1)
            number = found;
    fclose(file);
    return number;
}

static uint64_t cgroup_number(const char *cgroup, const char *name, const char *key,
                              uint64_t missing)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", cgroup, name);
    return number_in(path, key, missing);
}

/* Returns the bytes that one cgroup's limit leaves; its page cache can be dropped. `whole`: the
 * limit itself. UINT64_MAX: no limit ("max" isn't a number). */
static uint64_t left_in_cgroup(const char *cgroup, bool whole)
{
    uint64_t limit = cgroup_number(cgroup, "memory.max", "", UINT64_MAX);
    if (limit == UINT64_MAX || whole)
        return limit;
    uint64_t used = cgroup_number(cgroup, "memory.current", "", 0);
    uint64_t cache = cgroup_number(cgroup, "memory.stat", "active_file ", 0) +
                     cgroup_number(cgroup, "memory.stat", "inactive_file ", 0);
    used -= cache < used ? cache : used;
    return used < limit ? limit - used : 0;
}

/* Returns the least that the limits of this process's cgroup (v2) and of those around it leave. */
static uint64_t left_in_cgroups(bool whole)
{
    char line[PATH_BYTES], *cgroup = NULL;
    uint64_t least = UINT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !cgroup && fgets(line, sizeof line, file))
        if (strncmp(line, "0::/", 4) == 0)
            cgroup = line + 3;
    if (file)
        fclose(file);
    if (!cgroup)
        return UINT64_MAX;
    cgroup[strcspn(cgroup, "\n")] = '\0';
    for (char *end = cgroup + strlen(cgroup); end; end = strrchr(cgroup, '/')) {
        *end = '\0';
        uint64_t left = left_in_cgroup(cgroup, whole);
        least = left < least ? left : least;
    }
    return least;
}

static size_t of_machine(const char *key, bool whole)
{
    uint64_t kibibytes = number_in("/proc/meminfo", key, UINT64_MAX / 1024);
    uint64_t cgroups = left_in_cgroups(whole), machine = kibibytes * 1024;
    uint64_t least = cgroups < machine ? cgroups : machine;
    return least >= UINT64_MAX / 1024 * 1024 ? SIZE_MAX : (size_t)least;
}

size_t host_memory_available(const struct kernels *kernels)
{
    (void)kernels;
    return of_machine("MemAvailable:", false);
}

size_t host_memory_whole(const struct kernels *kernels)
{
    (void)kernels;
    return of_machine("MemTotal:", true);
}
