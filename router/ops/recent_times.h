/* The times of the requests that ended lately, for figures of the last minute: a histogram's
 * buckets are too wide for that, and tell of the whole life. The dispatch thread notes, any thread
 * asks. Bounded: of more than fit, the newest. */
#ifndef BATON_ROUTER_OPS_RECENT_TIMES_H
#define BATON_ROUTER_OPS_RECENT_TIMES_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECENT_TIMES_CAPACITY  8192
#define RECENT_TIMES_WINDOW_US 60000000u

enum recent_kind { RECENT_QUEUE, RECENT_TTFT, RECENT_TPOT, RECENT_REQUEST, RECENT_KINDS };
const char *recent_kind_name(enum recent_kind kind); /* "queue", "ttft", "tpot", "e2e" */

struct recent_sample {
    uint64_t ended_us;
    double us[RECENT_KINDS]; /* below 0: it has none */
};

struct recent_figure {
    size_t count;
    double p50_us, p99_us; /* 0 without a count */
};

struct recent_times;

enum status recent_times_create(struct recent_times **times) WARN_UNUSED;
void recent_times_destroy(struct recent_times *times);

void recent_times_note(struct recent_times *times, const struct recent_sample *sample);
/* Of those that ended in the window before now_us. False: no memory to sort them. */
bool recent_times_read(struct recent_times *times, uint64_t now_us,
                       struct recent_figure figures[RECENT_KINDS]);

#endif
