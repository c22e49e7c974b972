#include "router/planner/cache_event_count.h"

#include <string.h>

/* Takes one event. False: it breaks a rule. */
static bool take(struct cache_event_count *feed, const Baton__Worker__V1__CacheEvent *event,
                 uint64_t number, uint64_t counts[CACHE_CHANGES])
{
    bool cleared = event->kind == BATON__WORKER__V1__CACHE_EVENT_KIND__CACHE_CLEARED;
    if (feed->begun ? number != feed->number + 1 : !cleared || number == 0)
        return false;
    feed->begun = true;
    feed->number = number;
    switch (event->kind) {
    case BATON__WORKER__V1__CACHE_EVENT_KIND__CACHE_CLEARED:
        feed->blocks = 0;
        counts[CACHE_CHANGE_CLEARED]++;
        return true;
    case BATON__WORKER__V1__CACHE_EVENT_KIND__CACHE_STORED:
        feed->blocks++;
        counts[CACHE_CHANGE_STORED]++;
        return event->token_count > 0;
    case BATON__WORKER__V1__CACHE_EVENT_KIND__CACHE_REMOVED:
        counts[CACHE_CHANGE_REMOVED]++;
        return feed->blocks-- > 0;
    default: return false;
    }
}

bool cache_event_count_take(struct cache_event_count *feed,
                            const Baton__Worker__V1__CacheEvents *message,
                            uint64_t counts[CACHE_CHANGES])
{
    struct cache_event_count next = *feed;
    uint64_t added[CACHE_CHANGES] = {0};
    for (size_t i = 0; i < message->n_events; i++)
        if (!take(&next, message->events[i], message->first_number + i, added))
            return false;
    *feed = next;
    for (int i = 0; i < CACHE_CHANGES; i++)
        counts[i] += added[i];
    return true;
}
