#include "common/base/assert.h"
#include "kernels/deferred/deferred.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Returns the number of ranges that begin at or before `address`. Under the mutex. */
static size_t ranges_up_to(const struct deferred *self, const char *address)
{
    size_t low = 0, high = self->range_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (self->ranges[middle].seen <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct buffer deferred_real(struct kernels *kernels, const struct buffer *buffer)
{
    struct deferred *self = kernels->state;
    if (!buffer->address)
        return *buffer;
    pthread_mutex_lock(&self->mutex);
    size_t after = ranges_up_to(self, buffer->address);
    ASSERT(after > 0);
    const struct range *range = &self->ranges[after - 1];
    size_t offset = (size_t)((const char *)buffer->address - range->seen);
    ASSERT(offset <= range->bytes && buffer->bytes <= range->bytes - offset);
    struct buffer found = {range->real + offset, buffer->bytes};
    pthread_mutex_unlock(&self->mutex);
    return found;
}

/* Replaces a range that begins at the same address (it was adopted before). */
static enum status add_range(struct deferred *self, struct range range)
{
    enum status status = STATUS_LIMIT;
    pthread_mutex_lock(&self->mutex);
    size_t place = ranges_up_to(self, range.seen);
    if (place > 0 && self->ranges[place - 1].seen == range.seen) {
        self->ranges[place - 1] = range;
        status = STATUS_OK;
    } else {
        if (self->range_count == self->range_room) {
            size_t room = 2 * self->range_room + 64;
            struct range *more = realloc(self->ranges, room * sizeof *more);
            if (!more)
                goto unlock;
            self->ranges = more;
            self->range_room = room;
        }
        struct range *at = self->ranges + place;
        memmove(at + 1, at, (self->range_count++ - place) * sizeof *at);
        *at = range;
        status = STATUS_OK;
    }
unlock:
    pthread_mutex_unlock(&self->mutex);
    return status;
}

enum status deferred_alloc(struct kernels *kernels, size_t bytes, struct buffer *buffer)
{
    struct deferred *self = kernels->state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX - page)
        return STATUS_LIMIT;
    size_t reserved = bytes / page * page + page;
    struct buffer memory;
    TRY(self->inner->backend->alloc(self->inner, bytes, &memory));
    char *seen =
        mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (seen == MAP_FAILED)
        goto fail_reserve;
    if (add_range(self, (struct range){seen, memory.address, bytes, reserved}) != STATUS_OK)
        goto fail_range;
    *buffer = (struct buffer){seen, bytes};
    return STATUS_OK;
fail_range:
    munmap(seen, reserved);
fail_reserve:
    self->inner->backend->free(self->inner, &memory);
    return STATUS_LIMIT;
}

void deferred_free(struct kernels *kernels, struct buffer *buffer)
{
    struct deferred *self = kernels->state;
    pthread_mutex_lock(&self->mutex);
    size_t after = ranges_up_to(self, buffer->address);
    ASSERT(after > 0 && self->ranges[after - 1].seen == buffer->address);
    struct range *at = &self->ranges[after - 1], range = *at;
    memmove(at, at + 1, (self->range_count-- - after) * sizeof *at);
    pthread_mutex_unlock(&self->mutex);
    ASSERT(range.reserved); /* not adopted */
    munmap(range.seen, range.reserved);
    struct buffer memory = {range.real, range.bytes};
    self->inner->backend->free(self->inner, &memory);
    *buffer = (struct buffer){0};
}

enum status deferred_adopt(struct kernels *kernels, void *address, size_t bytes,
                           struct buffer *buffer)
{
    struct deferred *self = kernels->state;
    struct buffer made;
    TRY(self->inner->backend->adopt(self->inner, address, bytes, &made));
    TRY(add_range(self, (struct range){made.address, made.address, bytes, 0}));
    *buffer = made;
    return STATUS_OK;
}
