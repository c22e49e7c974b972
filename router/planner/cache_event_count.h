/* What one worker's session tells of its prefix cache, as far as the router keeps it: the number of
 * the last event, and how many blocks are stored. PURE. Which blocks they are, placement will want
 * to know; nothing of them is kept yet.
 *
 * The rules are those of proto/worker.proto: a stream begins with `cleared`, numbers go up by one,
 * and no more is removed than was stored. Streams are ordered, so nothing honest ever breaks them.
 */
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

struct cache_event_count { /* of one stream; zero at its start */
    bool begun;
    uint64_t number; /* of the last event */
    uint64_t blocks; /* that are stored now */
};

/* Adds to counts[] what the message says. False: no honest worker sends it; the feed is then as it
 * was, and so are the counts. */
bool cache_event_count_take(struct cache_event_count *feed,
                            const Baton__Worker__V1__CacheEvents *message,
                            uint64_t counts[CACHE_CHANGES]);

#endif
