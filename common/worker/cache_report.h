/* Tells the router what the prefix cache has gained and lost: reads events from the step thread,
 * one batch at a time, and sends them up the session. Transfer thread only.
 *
 * Nothing is kept here: the next batch is read when the last one has left, so a router that reads
 * slowly leaves the events in the cache's own ring, where too many become one new listing
 * (prefix_cache.h). A new session begins with a listing.
 */
#ifndef BATON_WORKER_CACHE_REPORT_H
#define BATON_WORKER_CACHE_REPORT_H

#include "common/worker/session.h"
#include "common/worker/step_loop.h"

struct cache_report { /* zero at start */
    uint64_t stream;  /* of session.streams, that it reports to; 0: none yet */
    uint64_t seen;    /* step_load.prefix_changes before it last read */
    bool reading;     /* a STEP_CACHE is to come */
    bool more;        /* the last batch was full */
};

/* Reads on, if there may be anything to tell and somebody to tell it. */
void cache_report_tick(struct cache_report *report, struct session *session,
                       struct step_loop *steps);
/* The STEP_CACHE that it asked for. */
void cache_report_take(struct cache_report *report, struct session *session,
                       struct step_loop *steps, const struct step_event *event);

#endif
