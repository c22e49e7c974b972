#include "router/ops/trace_ring.h"

#include "router/request_id.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_AT_ONCE 128 /* traces read under the lock, before a turn may take it */

struct trace_ring {
    pthread_mutex_t mutex;
    size_t capacity;
    uint64_t next; /* serial, from 1 on. Slot i has the newest with serial % capacity == i */
    struct request_trace slots[];
};

enum status trace_ring_create(size_t capacity, struct trace_ring **out)
{
    struct trace_ring *ring = calloc(1, sizeof *ring + capacity * sizeof *ring->slots);
    if (!ring)
        return STATUS_LIMIT;
    pthread_mutex_init(&ring->mutex, NULL);
    ring->capacity = capacity;
    ring->next = 1;
    *out = ring;
    return STATUS_OK;
}

void trace_ring_destroy(struct trace_ring *ring)
{
    if (!ring)
        return;
    pthread_mutex_destroy(&ring->mutex);
    free(ring);
}

void trace_ring_put(struct trace_ring *ring, struct request_trace *trace)
{
    if (!ring->capacity)
        return;
    pthread_mutex_lock(&ring->mutex);
    if (!trace->serial || ring->slots[trace->serial % ring->capacity].serial != trace->serial)
        trace->serial = ring->next++;
    ring->slots[trace->serial % ring->capacity] = *trace;
    pthread_mutex_unlock(&ring->mutex);
}

/* Steps to the serial before `*serial`, or to the newest if it is 0. False: there is none. */
static bool before(const struct trace_ring *ring, uint64_t *serial)
{
    if (*serial == 0)
        *serial = ring->next;
    (*serial)--;
    return *serial && ring->next - *serial <= ring->capacity;
}

static bool find(struct trace_ring *ring, const char *name, uint32_t choice,
                 struct request_trace *trace)
{
    bool found = false, more = ring->capacity > 0;
    for (uint64_t serial = 0; more && !found;) {
        pthread_mutex_lock(&ring->mutex);
        for (int i = 0; i < BATCH_AT_ONCE && !found && more; i++) {
            more = before(ring, &serial);
            const struct request_trace *slot = &ring->slots[serial % ring->capacity];
            found = more && slot->choice == choice && !strcmp(slot->name, name);
            if (found)
                *trace = *slot;
        }
        pthread_mutex_unlock(&ring->mutex);
    }
    return found;
}

bool trace_ring_find(struct trace_ring *ring, const char *name, uint32_t choice,
                     struct request_trace *trace)
{
    const char *of_answer = request_id_of_answer(name);
    return find(ring, name, choice, trace) || (of_answer && find(ring, of_answer, choice, trace));
}

size_t trace_ring_newest(struct trace_ring *ring, struct request_trace *traces, size_t count)
{
    size_t taken = 0;
    bool more = ring->capacity > 0;
    for (uint64_t serial = 0; more && taken < count;) {
        pthread_mutex_lock(&ring->mutex);
        for (int i = 0; i < BATCH_AT_ONCE && taken < count && more; i++) {
            more = before(ring, &serial);
            if (more)
                traces[taken++] = ring->slots[serial % ring->capacity];
        }
        pthread_mutex_unlock(&ring->mutex);
    }
    return taken;
}
