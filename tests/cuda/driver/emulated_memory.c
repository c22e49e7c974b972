/* The memory of the emulated device. Memory that processes share (cuMemCreate) is a memfd, so that
 * its mappings outlive its owner, as those of a GPU do. Addresses that are mapped for reading alone
 * stay so for kernels and copies, too. */
#include "tests/cuda/driver/emulated_memory.h"

#include "tests/cuda/driver/emulated_graphs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_HOST_PIECES 256
#define MAX_MEMORIES    4096
#define MAX_HELD        64
#define PAGE            4096
#define GRANULARITY     ((size_t)2 << 20)
#define MEMORY_PATTERN  0xa5
#define OUR_SEALS       (F_SEAL_SHRINK | F_SEAL_GROW) /* tell its memory from other files */

/* Memory of cuMemCreate, or of another process. */
struct allocation {
    int fd;
    size_t bytes; /* 0: a free place */
    bool released, is_ours;
    uint32_t mappings;
};

static struct memory memories[MAX_MEMORIES];
static size_t memory_count, used_bytes;
static struct allocation allocations[MAX_HELD];
static bool is_open; /* device memory has access rights */

/* --- access --- */

void memory_open_one(const struct memory *memory, bool opens)
{
    if (mprotect(memory->base, memory->reserved - PAGE, opens ? memory->rights : PROT_NONE) != 0)
        abort();
}

void memory_open_all(bool opens)
{
    for (size_t i = 0; opens != is_open && i < memory_count; i++)
        memory_open_one(&memories[i], opens);
    is_open = opens;
}

bool memory_is_open(void)
{
    return is_open;
}

struct memory *memory_at(const void *address)
{
    for (size_t i = 0; i < memory_count; i++)
        if ((const char *)address >= memories[i].base &&
            (const char *)address < memories[i].base + memories[i].reserved)
            return &memories[i];
    return NULL;
}

bool memory_is_sound(uint64_t address, size_t bytes)
{
    const struct memory *memory = memory_at((void *)(uintptr_t)address);
    return !memory || bytes <= memory->bytes - (size_t)((char *)(uintptr_t)address - memory->base);
}

/* --- memory of one process --- */

static bool has_room(size_t bytes)
{
    size_t total = emulated_device_bytes(false), taken = emulated_device_bytes(true);
    return taken <= total && bytes <= total - taken && used_bytes <= total - taken - bytes;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    *total = emulated_device_bytes(false);
    size_t taken = used_bytes + emulated_device_bytes(true);
    *free_bytes = taken < *total ? *total - taken : 0;
    return emulated_leave(CUDA_OK);
}

/* Takes addresses without access, and a page behind them. */
static struct memory *take_addresses(size_t bytes)
{
    size_t reserved = (bytes + PAGE - 1) / PAGE * PAGE + PAGE;
    if (memory_count == MAX_MEMORIES)
        return NULL;
    char *base =
        mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    memories[memory_count] = (struct memory){.base = base, .bytes = bytes, .reserved = reserved};
    return &memories[memory_count++];
}

static void drop_addresses(struct memory *memory)
{
    munmap(memory->base, memory->reserved);
    *memory = memories[--memory_count];
}

bool memory_hold(size_t bytes)
{
    bool fits = has_room(bytes);
    used_bytes += fits ? bytes : 0;
    return fits;
}

void memory_let_go(size_t bytes)
{
    used_bytes -= bytes;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    if (!bytes)
        return emulated_leave(CUDA_INVALID_VALUE);
    struct memory *made = has_room(bytes) ? take_addresses(bytes) : NULL;
    if (!made)
        return emulated_leave(CUDA_OUT_OF_MEMORY);
    made->rights = PROT_READ | PROT_WRITE;
    memory_open_one(made, true);
    memset(made->base, MEMORY_PATTERN, bytes);
    memory_open_one(made, is_open);
    used_bytes += bytes;
    *address = (uint64_t)(uintptr_t)made->base;
    return emulated_leave(CUDA_OK);
}

int cuMemFree_v2(uint64_t address)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    struct memory *memory = memory_at((void *)(uintptr_t)address);
    if (!memory || memory->base != (char *)(uintptr_t)address || memory->is_range)
        return emulated_leave(CUDA_INVALID_VALUE);
    used_bytes -= memory->bytes;
    drop_addresses(memory);
    return emulated_leave(CUDA_OK);
}

/* --- memory that processes share --- */

static struct allocation *held_at(uint64_t handle)
{
    struct allocation *held = handle && handle <= MAX_HELD ? &allocations[handle - 1] : NULL;
    return held && held->bytes && !held->released ? held : NULL;
}

static void drop_held(struct allocation *held)
{
    if (!held->released || held->mappings)
        return;
    close(held->fd);
    used_bytes -= held->is_ours ? held->bytes : 0;
    *held = (struct allocation){0};
}

static uint64_t hold(int fd, size_t bytes, bool is_ours)
{
    size_t i = 0;
    while (i < MAX_HELD && allocations[i].bytes)
        i++;
    if (i == MAX_HELD)
        return 0;
    allocations[i] = (struct allocation){.fd = fd, .bytes = bytes, .is_ours = is_ours};
    used_bytes += is_ours ? bytes : 0;
    return i + 1;
}

static bool is_known_kind(const struct cuda_memory_kind *kind)
{
    return kind->type == CUDA_MEMORY_PINNED && kind->handle_types == CUDA_HANDLE_DESCRIPTOR &&
           kind->location.type == CUDA_LOCATION_DEVICE && kind->location.id >= 0 && !kind->windows;
}

int cuMemGetAllocationGranularity(size_t *bytes, const struct cuda_memory_kind *kind, int option)
{
    if (!is_known_kind(kind) || option)
        return CUDA_INVALID_VALUE;
    *bytes = GRANULARITY;
    return CUDA_OK;
}

int cuMemCreate(uint64_t *handle, size_t bytes, const struct cuda_memory_kind *kind,
                unsigned long long flags)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    if (!is_known_kind(kind) || flags || !bytes || bytes % GRANULARITY)
        return emulated_leave(CUDA_INVALID_VALUE);
    int fd =
        has_room(bytes) ? memfd_create("emulated GPU memory", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
    char *filled = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, OUR_SEALS) == 0)
        filled = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint64_t made = filled == MAP_FAILED ? 0 : hold(fd, bytes, true);
    if (filled != MAP_FAILED) {
        memset(filled, MEMORY_PATTERN, bytes);
        munmap(filled, bytes);
    }
    if (!made) {
        if (fd >= 0)
            close(fd);
        return emulated_leave(CUDA_OUT_OF_MEMORY);
    }
    *handle = made;
    return emulated_leave(CUDA_OK);
}

int cuMemRelease(uint64_t handle)
{
    int result = emulated_enter();
    struct allocation *held = result == CUDA_OK ? held_at(handle) : NULL;
    if (!held)
        return result == CUDA_OK ? emulated_leave(CUDA_INVALID_VALUE) : result;
    held->released = true;
    drop_held(held);
    return emulated_leave(CUDA_OK);
}

int cuMemExportToShareableHandle(void *shareable, uint64_t handle, int type,
                                 unsigned long long flags)
{
    int result = emulated_enter();
    struct allocation *held = result == CUDA_OK ? held_at(handle) : NULL;
    if (!held || type != CUDA_HANDLE_DESCRIPTOR || flags)
        return result == CUDA_OK ? emulated_leave(CUDA_INVALID_VALUE) : result;
    int fd = fcntl(held->fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0)
        *(int *)shareable = fd;
    return emulated_leave(fd >= 0 ? CUDA_OK : CUDA_OPERATING_SYSTEM);
}

int cuMemImportFromShareableHandle(uint64_t *handle, void *shareable, int type)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    struct stat stat;
    int given = (int)(intptr_t)shareable;
    if (type != CUDA_HANDLE_DESCRIPTOR || (fcntl(given, F_GET_SEALS) & OUR_SEALS) != OUR_SEALS ||
        fcntl(given, F_GET_SEALS) < 0 || fstat(given, &stat) != 0)
        return emulated_leave(CUDA_INVALID_VALUE);
    int fd = fcntl(given, F_DUPFD_CLOEXEC, 0);
    uint64_t made = fd < 0 ? 0 : hold(fd, (size_t)stat.st_size, false);
    if (!made && fd >= 0)
        close(fd);
    if (made)
        *handle = made;
    return emulated_leave(made ? CUDA_OK : CUDA_OPERATING_SYSTEM);
}

int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted,
                        unsigned long long flags)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    if (!bytes || bytes % GRANULARITY || alignment || wanted || flags)
        return emulated_leave(CUDA_INVALID_VALUE);
    struct memory *made = take_addresses(bytes);
    if (!made)
        return emulated_leave(CUDA_OUT_OF_MEMORY);
    made->is_range = true;
    *address = (uint64_t)(uintptr_t)made->base;
    return emulated_leave(CUDA_OK);
}

/* Returns the range that begins there and is so long. */
static struct memory *range_at(uint64_t address, size_t bytes)
{
    struct memory *memory = memory_at((void *)(uintptr_t)address);
    bool is_it = memory && memory->is_range && memory->base == (char *)(uintptr_t)address &&
                 memory->bytes == bytes;
    return is_it ? memory : NULL;
}

int cuMemAddressFree(uint64_t address, size_t bytes)
{
    int result = emulated_enter();
    struct memory *range = result == CUDA_OK ? range_at(address, bytes) : NULL;
    if (!range || range->held)
        return result == CUDA_OK ? emulated_leave(CUDA_INVALID_VALUE) : result;
    drop_addresses(range);
    return emulated_leave(CUDA_OK);
}

int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle,
             unsigned long long flags)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    struct memory *range = range_at(address, bytes);
    struct allocation *held = held_at(handle);
    if (!range || range->held || !held || offset || flags || bytes > held->bytes)
        return emulated_leave(CUDA_INVALID_VALUE);
    if (mmap(range->base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, held->fd, 0) != range->base)
        return emulated_leave(CUDA_OPERATING_SYSTEM);
    range->held = held;
    held->mappings++;
    return emulated_leave(CUDA_OK);
}

int cuMemUnmap(uint64_t address, size_t bytes)
{
    int result = emulated_enter();
    struct memory *range = result == CUDA_OK ? range_at(address, bytes) : NULL;
    if (!range || !range->held)
        return result == CUDA_OK ? emulated_leave(CUDA_INVALID_VALUE) : result;
    if (mmap(range->base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0) != range->base)
        abort();
    range->held->mappings--;
    drop_held(range->held);
    range->held = NULL;
    range->rights = PROT_NONE;
    return emulated_leave(CUDA_OK);
}

int cuMemSetAccess(uint64_t address, size_t bytes, const struct cuda_access *access, size_t count)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    struct memory *range = range_at(address, bytes);
    if (!range || !range->held || count != 1 || access->location.type != CUDA_LOCATION_DEVICE ||
        (access->rights != CUDA_READS && access->rights != CUDA_READS_AND_WRITES))
        return emulated_leave(CUDA_INVALID_VALUE);
    range->rights = access->rights == CUDA_READS ? PROT_READ : PROT_READ | PROT_WRITE;
    memory_open_one(range, is_open);
    return emulated_leave(CUDA_OK);
}

/* --- memory of the host --- */

static void *host_pieces[MAX_HOST_PIECES]; /* NULL: no piece */

static void **host_piece(const void *memory)
{
    for (size_t i = 0; i < MAX_HOST_PIECES; i++)
        if (host_pieces[i] == memory)
            return &host_pieces[i];
    abort(); /* too many, or one that is not there */
}

void memory_drop_all(void)
{
    for (size_t i = 0; i < memory_count; i++)
        munmap(memories[i].base, memories[i].reserved);
    for (size_t i = 0; i < MAX_HELD; i++)
        if (allocations[i].bytes)
            close(allocations[i].fd);
    memset(allocations, 0, sizeof allocations);
    for (size_t i = 0; i < MAX_HOST_PIECES; i++)
        free(host_pieces[i]);
    memset(host_pieces, 0, sizeof host_pieces);
    memory_count = used_bytes = 0;
    is_open = false;
}

int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    if (flags & ~(unsigned)(CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED) ||
        posix_memalign(memory, PAGE, bytes) != 0)
        return emulated_leave(CUDA_OUT_OF_MEMORY);
    memset(*memory, MEMORY_PATTERN, bytes);
    *host_piece(NULL) = *memory;
    calls.host_now++;
    return emulated_leave(CUDA_OK);
}

int cuMemFreeHost(void *memory)
{
    int result = emulated_enter();
    if (result != CUDA_OK) /* it goes with the context */
        return result;
    *host_piece(memory) = NULL;
    free(memory);
    calls.host_now--;
    return emulated_leave(CUDA_OK);
}

int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    bool sound = memory && bytes && flags == (CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED);
    return emulated_leave(sound ? CUDA_OK : CUDA_INVALID_VALUE);
}

int cuMemHostUnregister(void *memory)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    return emulated_leave(memory ? CUDA_OK : CUDA_INVALID_VALUE);
}

int cuMemHostGetDevicePointer_v2(uint64_t *address, void *memory, unsigned flags)
{
    int result = emulated_enter();
    if (result != CUDA_OK)
        return result;
    *address = (uint64_t)(uintptr_t)memory;
    return emulated_leave(flags ? CUDA_INVALID_VALUE : CUDA_OK);
}
