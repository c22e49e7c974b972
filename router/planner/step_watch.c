#include "router/planner/step_watch.h"

#define FORGETS      8    /* the mean forgets an eighth at each report */
#define LONG_FORGETS 1024 /* the longest step gets so much shorter, of its length */

bool step_watch_report(struct step_watch *watch, const struct step_report_seen *report,
                       uint64_t now_us)
{
    bool works = report->running || report->busy_us;
    uint64_t steps = report->steps_done - watch->steps_done;
    bool ended = !watch->reported || steps || !report->busy_us; /* the step that was seen last */
    if (watch->works && works && steps) {
        uint64_t step_us = (now_us - watch->since_us) / steps;
        if (!watch->hangs) /* a hang is no usual step */
            watch->usual_us = watch->usual_us
                                  ? watch->usual_us - watch->usual_us / FORGETS + step_us / FORGETS
                                  : step_us;
        watch->longest_us -= watch->longest_us / LONG_FORGETS;
        if (step_us > watch->longest_us)
            watch->longest_us = step_us;
    }
    bool recovers = watch->hangs && ended;
    if (ended || !watch->works)
        watch->since_us = now_us;
    watch->reported = true;
    watch->works = works;
    watch->hangs &= !ended;
    watch->steps_done = report->steps_done;
    watch->busy_us = report->busy_us;
    watch->reported_us = now_us;
    return recovers;
}

uint64_t step_watch_next_us(const struct step_watch *watch, uint64_t limit_us)
{
    if (!limit_us || !watch->works || watch->hangs)
        return UINT64_MAX;
    uint64_t first_us = limit_us * STEP_WATCH_FIRST_TIMES;
    uint64_t long_us = watch->longest_us * STEP_WATCH_LONG_TIMES;
    uint64_t most_us = watch->usual_us ? watch->usual_us * STEP_WATCH_USUAL_STEPS : first_us;
    if (long_us > first_us)
        long_us = first_us;
    if (most_us < long_us)
        most_us = long_us;
    if (most_us < limit_us)
        most_us = limit_us;
    uint64_t since_us = watch->since_us;
    if (watch->reported_us - since_us < watch->busy_us) /* reports had stopped meanwhile */
        since_us = watch->reported_us > watch->busy_us ? watch->reported_us - watch->busy_us : 0;
    return since_us + most_us;
}

bool step_watch_tick(struct step_watch *watch, uint64_t limit_us, uint64_t now_us)
{
    uint64_t at_us = step_watch_next_us(watch, limit_us);
    if (at_us == UINT64_MAX || at_us > now_us)
        return false;
    watch->hangs = true;
    return true;
}
