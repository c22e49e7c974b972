/* Checks and counts the prefix cache events of one worker's session: the number of the last event,
 * and the number of stored blocks. PURE. The identity of the blocks isn't kept yet.
 *
 * The rules are those of proto/worker.proto: a stream begins with `cleared`, numbers go up by one,
 * and no more blocks are removed than were stored. Streams are ordered, so a correct worker never
 * breaks them. */
#ifndef BATON_ROUTER_PLANNER_CACHE_EVENT_COUNT_H
#define BATON_ROUTER_PLANNER_CACHE_EVENT_COUNT_H

#include "proto/worker.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

enum cache_change {
    CACHE_CHANGE_CLEARED,
    CACHE_CHANGE_STORED,
    CACHE_CHANGE_REMOVED,
    CACHE_CHANGES
};

struct cache_event_count { /* one stream's; zero at its start */
    bool begun;
    uint64_t number; /* the last event's */
    uint64_t blocks; /* stored now */
};

/* Adds the message's events to counts[]. False: the message breaks a rule, and nothing changes. */
bool cache_event_count_take(struct cache_event_count *feed,
                            const Baton__Worker__V1__CacheEvents *message,
                            uint64_t counts[CACHE_CHANGES]);

#endif
