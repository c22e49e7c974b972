#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

/* Other processes of the device, and the driver itself, take memory while this one starts. */
#define RESERVE_SHARE 32

static uint64_t number(const void *address, size_t offset)
{
    return (uint64_t)(uintptr_t)address + offset;
}

size_t cuda_available_bytes(const struct kernels *kernels)
{
    struct cuda *self = kernels->state;
    size_t free = 0, total = 0;
    if (cuda_enter(self) != STATUS_OK ||
        cuda_check(self, self->driver.memory_info(&free, &total), "cuMemGetInfo") != STATUS_OK)
        return 0;
    size_t reserve = total / RESERVE_SHARE;
    return free > reserve ? free - reserve : 0;
}

size_t cuda_whole_bytes(const struct kernels *kernels)
{
    struct cuda *self = kernels->state;
    size_t free, total;
    bool known =
        cuda_enter(self) == STATUS_OK &&
        cuda_check(self, self->driver.memory_info(&free, &total), "cuMemGetInfo") == STATUS_OK;
    return known ? total : 0;
}

enum status cuda_alloc(struct kernels *kernels, size_t bytes, struct buffer *buffer)
{
    struct cuda *self = kernels->state;
    uint64_t address = 0;
    TRY(cuda_enter(self));
    TRY(cuda_check(self, self->driver.memory_alloc(&address, bytes ? bytes : 1), "cuMemAlloc"));
    struct cuda_stream_handle *stream = self->streams[KERNELS_STEPS].handle;
    int result = self->driver.fill(address, 0, bytes ? bytes : 1, stream);
    if (result == CUDA_OK)
        result = self->driver.stream_sync(stream); /* KERNELS_MOVES may use it first */
    enum status status = cuda_check(self, result, "cuMemsetD8Async");
    if (status != STATUS_OK) {
        (void)self->driver.memory_free(address);
        return status;
    }
    *buffer = (struct buffer){(void *)(uintptr_t)address, bytes};
    return STATUS_OK;
}

void cuda_free(struct kernels *kernels, struct buffer *buffer)
{
    struct cuda *self = kernels->state;
    bool entered = cuda_enter(self) == STATUS_OK;
    if (entered && self->shared.bytes && self->shared.address == number(buffer->address, 0))
        cuda_free_shared(self);
    else if (entered)
        (void)!cuda_check(self, self->driver.memory_free(number(buffer->address, 0)), "cuMemFree");
    *buffer = (struct buffer){0};
}

enum status cuda_adopt(struct kernels *kernels, void *address, size_t bytes, struct buffer *buffer)
{
    struct cuda *self = kernels->state;
    uint64_t seen = 0;
    TRY(cuda_enter(self));
    if (self->adopted_count == self->adopted_room) {
        size_t room = 2 * self->adopted_room + 4;
        void **more = realloc(self->adopted, room * sizeof *more);
        if (!more)
            return STATUS_LIMIT;
        self->adopted = more;
        self->adopted_room = room;
    }
    int result = self->driver.host_register(address, bytes, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED);
    if (result == CUDA_OK)
        self->adopted[self->adopted_count++] = address;
    else if (result != CUDA_ALREADY_REGISTERED)
        return cuda_check(self, result, "cuMemHostRegister");
    TRY(cuda_check(self, self->driver.host_device_address(&seen, address, 0),
                   "cuMemHostGetDevicePointer"));
    *buffer = (struct buffer){(void *)(uintptr_t)seen, bytes};
    return STATUS_OK;
}

void cuda_disown(struct cuda *self)
{
    for (size_t i = 0; i < self->adopted_count; i++)
        (void)self->driver.host_unregister(self->adopted[i]);
    free(self->adopted);
}

void *cuda_host_alloc(struct kernels *kernels, size_t bytes)
{
    struct cuda *self = kernels->state;
    void *memory = NULL;
    if (cuda_enter(self) != STATUS_OK ||
        cuda_check(self, self->driver.host_alloc(&memory, bytes ? bytes : 1, CUDA_HOST_PORTABLE),
                   "cuMemHostAlloc") != STATUS_OK)
        return NULL;
    return memset(memory, 0, bytes);
}

void cuda_host_free(struct kernels *kernels, void *memory)
{
    struct cuda *self = kernels->state;
    /* A lost device may still do copies that are queued: the memory goes with the context then. */
    if (cuda_enter(self) == STATUS_OK)
        (void)!cuda_check(self, self->driver.host_free(memory), "cuMemFreeHost");
}

/* --- transfers --- */

static enum status transfer(struct kernels *kernels, enum kernels_stream stream, uint64_t target,
                            uint64_t source, size_t bytes)
{
    struct cuda *self = kernels->state;
    TRY(cuda_enter(self));
    if (!bytes)
        return STATUS_OK;
    return cuda_check(self, self->driver.copy(target, source, bytes, self->streams[stream].handle),
                      "cuMemcpyAsync");
}

enum status cuda_upload(struct kernels *kernels, enum kernels_stream stream, struct buffer *target,
                        size_t offset, const void *host, size_t bytes)
{
    return transfer(kernels, stream, number(target->address, offset), number(host, 0), bytes);
}

enum status cuda_read_back(struct kernels *kernels, enum kernels_stream stream,
                           const struct buffer *source, size_t offset, void *host, size_t bytes)
{
    return transfer(kernels, stream, number(host, 0), number(source->address, offset), bytes);
}

enum status cuda_copy(struct kernels *kernels, enum kernels_stream stream,
                      const struct buffer *source, size_t source_offset, struct buffer *target,
                      size_t target_offset, size_t bytes)
{
    return transfer(kernels, stream, number(target->address, target_offset),
                    number(source->address, source_offset), bytes);
}
