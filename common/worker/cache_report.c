#include "common/worker/cache_report.h"

void cache_report_tick(struct cache_report *report, struct session *session,
                       struct step_loop *steps)
{
    /* Who drains takes no more prompts, and waits for all that it sends to have left. */
    if (report->reading || !session_up(session) || session->draining || !session_flushed(session))
        return;
    bool begins = report->stream != session->streams;
    uint64_t changes = atomic_load(&step_loop_load(steps)->prefix_changes);
    if (!begins && !report->more && changes == report->seen)
        return;
    report->stream = session->streams;
    report->seen = changes;
    report->reading = true;
    step_loop_read_cache(steps, begins);
}

void cache_report_take(struct cache_report *report, struct session *session,
                       struct step_loop *steps, const struct step_event *event)
{
    report->reading = false;
    report->more = event->cache_event_count == STEP_CACHE_EVENTS;
    if (!session_up(session) || report->stream != session->streams)
        report->stream = 0; /* read for a stream that has ended: the next one begins anew */
    else if (event->cache_event_count)
        session_send_cache(session, event->cache_events, event->cache_event_count);
    cache_report_tick(report, session, steps);
}
