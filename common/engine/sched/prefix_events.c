#include "common/engine/sched/prefix_events.h"

#include <stdlib.h>

struct prefix_events {
    uint64_t last_number;
    bool begins; /* `cleared` is next */
    /* Blocks below are listed: their changes are events; the others' are seen when they are
     * listed. */
    uint32_t listed;
    uint32_t block_count;
    uint32_t capacity, first, count;
    struct prefix_event ring[];
};

enum status prefix_events_create(uint32_t capacity, uint32_t block_count,
                                 struct prefix_events **out)
{
    struct prefix_events *events = calloc(1, sizeof *events + capacity * sizeof *events->ring);
    if (!events)
        return STATUS_LIMIT;
    events->capacity = capacity;
    events->block_count = block_count;
    events->begins = true;
    *out = events;
    return STATUS_OK;
}

void prefix_events_destroy(struct prefix_events *events)
{
    free(events);
}

void prefix_events_restart(struct prefix_events *events)
{
    events->begins = true;
    events->listed = 0;
    events->count = 0;
}

void prefix_events_note(struct prefix_events *events, uint32_t id, const struct prefix_event *event)
{
    if (id >= events->listed)
        return;
    if (events->count == events->capacity) {
        prefix_events_restart(events);
        return;
    }
    events->ring[(events->first + events->count) % events->capacity] = *event;
    events->count++;
}

/* Changes before the rest of the list: a name that was removed from a listed block may be stored in
 * one that isn't. */
static bool next(struct prefix_events *events,
                 bool (*describe)(const void *context, uint32_t id, struct prefix_event *event),
                 const void *context, struct prefix_event *event)
{
    if (events->begins) {
        events->begins = false;
        *event = (struct prefix_event){.kind = PREFIX_CLEARED};
        return true;
    }
    if (events->count) {
        *event = events->ring[events->first];
        events->first = (events->first + 1) % events->capacity;
        events->count--;
        return true;
    }
    while (events->listed < events->block_count)
        if (describe(context, events->listed++, event))
            return true;
    return false;
}

bool prefix_events_next(struct prefix_events *events,
                        bool (*describe)(const void *context, uint32_t id,
                                         struct prefix_event *event),
                        const void *context, struct prefix_event *event)
{
    if (!next(events, describe, context, event))
        return false;
    event->number = ++events->last_number;
    return true;
}
