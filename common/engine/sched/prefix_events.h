/* What a reader (a router, by way of the worker) must hear to know what a prefix cache has. PURE; a
 * bounded ring, allocated once.
 *
 * Whoever applies the events in order to an empty set of names has what is stored. Each event has a
 * number, one more than the last one's, the first 1: a gap means that events were lost on the way,
 * and the reader asks for a restart. A stream begins with `cleared` and then lists what is stored,
 * in no particular order, while changes go on. It begins so again after a restart, and when more
 * events wait to be read than the ring holds: a slow reader costs a listing, never memory.
 */
#ifndef BATON_ENGINE_SCHED_PREFIX_EVENTS_H
#define BATON_ENGINE_SCHED_PREFIX_EVENTS_H

#include "common/base/domain/prefix_hash.h"
#include "common/base/status.h"

enum prefix_event_kind {
    PREFIX_CLEARED, /* forget all names; no other field counts */
    PREFIX_STORED,
    PREFIX_REMOVED, /* only `hash` counts */
};

struct prefix_event {
    uint64_t number;
    enum prefix_event_kind kind;
    struct prefix_hash hash, parent; /* parent: of the block before it, or the root */
    uint32_t position;               /* blocks before it in its prompt */
    uint32_t token_count;            /* of the block */
};

struct prefix_events;

enum status prefix_events_create(uint32_t capacity, uint32_t block_count,
                                 struct prefix_events **events) WARN_UNUSED;
void prefix_events_destroy(struct prefix_events *events);

/* Block `id` was stored or removed. */
void prefix_events_note(struct prefix_events *events, uint32_t id,
                        const struct prefix_event *event);
void prefix_events_restart(struct prefix_events *events);
/* The next event; false: there is none now. `describe` fills in what is stored in block `id`, false
 * where nothing is. */
bool prefix_events_next(struct prefix_events *events,
                        bool (*describe)(const void *context, uint32_t id,
                                         struct prefix_event *event),
                        const void *context, struct prefix_event *event);

#endif
