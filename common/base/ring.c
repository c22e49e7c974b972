#include "common/base/ring.h"

#include "common/base/assert.h"
#include "common/base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct ring {
    pthread_mutex_t mutex;
    int event_fd;
    bool closed;
    bool watched; /* the eventfd is kept in step, because a caller polls it */
    bool waiting; /* the consumer sleeps until something comes */
    size_t capacity, head, count;
    void *slots[];
};

enum status ring_create(size_t capacity, struct ring **out)
{
    struct ring *ring = calloc(1, sizeof *ring + capacity * sizeof *ring->slots);
    if (!ring)
        return STATUS_LIMIT;
    ring->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ring->event_fd < 0) {
        free(ring);
        return STATUS_IO;
    }
    ring->capacity = capacity;
    pthread_mutex_init(&ring->mutex, NULL);
    *out = ring;
    return STATUS_OK;
}

void ring_destroy(struct ring *ring)
{
    if (!ring)
        return;
    ASSERT(ring->count == 0);
    close(ring->event_fd);
    pthread_mutex_destroy(&ring->mutex);
    free(ring);
}

enum status ring_push(struct ring *ring, void *message)
{
    enum status status = STATUS_OK;
    pthread_mutex_lock(&ring->mutex);
    if (ring->closed)
        status = STATUS_CANCELLED;
    else if (ring->count == ring->capacity)
        status = STATUS_LIMIT;
    else {
        ring->slots[(ring->head + ring->count) % ring->capacity] = message;
        if (ring->count++ == 0 && (ring->watched || ring->waiting))
            eventfd_write(ring->event_fd, 1);
    }
    pthread_mutex_unlock(&ring->mutex);
    return status;
}

/* Makes the eventfd unreadable. The caller holds the mutex. */
static void calm(struct ring *ring)
{
    eventfd_t drained;
    eventfd_read(ring->event_fd, &drained);
}

void *ring_pop(struct ring *ring)
{
    void *message = NULL;
    pthread_mutex_lock(&ring->mutex);
    if (ring->count) {
        message = ring->slots[ring->head];
        ring->head = (ring->head + 1) % ring->capacity;
        if (--ring->count == 0 && ring->watched)
            calm(ring);
    }
    pthread_mutex_unlock(&ring->mutex);
    return message;
}

void *ring_peek(struct ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    void *message = ring->count ? ring->slots[ring->head] : NULL;
    pthread_mutex_unlock(&ring->mutex);
    return message;
}

/* Makes each later push write the eventfd. The caller sees at once what was pushed before. */
static bool begin_to_wait(struct ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    ring->waiting = !ring->count;
    bool waits = ring->waiting;
    pthread_mutex_unlock(&ring->mutex);
    return waits;
}

static void end_waiting(struct ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    ring->waiting = false;
    if (!ring->watched)
        calm(ring);
    pthread_mutex_unlock(&ring->mutex);
}

void *ring_wait(struct ring *ring, uint64_t timeout_us)
{
    uint64_t start_us = clock_now_us();
    for (;;) {
        void *message = ring_pop(ring);
        if (message)
            return message;
        uint64_t waited_us = clock_now_us() - start_us;
        if (waited_us >= timeout_us)
            return NULL;
        uint64_t left_ms = timeout_us == UINT64_MAX ? 0 : (timeout_us - waited_us + 999) / 1000;
        struct pollfd ready = {.fd = ring->event_fd, .events = POLLIN};
        if (!begin_to_wait(ring))
            continue;
        poll(&ready, 1, timeout_us == UINT64_MAX ? -1 : left_ms > 60000 ? 60000 : (int)left_ms);
        end_waiting(ring);
    }
}

void ring_close(struct ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    ring->closed = true;
    pthread_mutex_unlock(&ring->mutex);
}

int ring_fd(struct ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    if (!ring->watched && ring->count)
        eventfd_write(ring->event_fd, 1);
    ring->watched = true;
    pthread_mutex_unlock(&ring->mutex);
    return ring->event_fd;
}

size_t ring_count(struct ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    size_t count = ring->count;
    pthread_mutex_unlock(&ring->mutex);
    return count;
}
