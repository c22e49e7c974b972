/* The signals that ask a program to stop (SIGTERM, SIGINT, SIGHUP), as a descriptor to poll and a
 * count of wishes.
 *
 * One wish may come as several signals: a terminal sends Ctrl-C to its whole process group, and a
 * wrapper passes on its own signal too. Signals within STOP_SIGNALS_ONE_US of the one that counted
 * are therefore the same wish. A later one is the next wish ("now, really"). One thread. */
#ifndef BATON_BASE_STOP_SIGNALS_H
#define BATON_BASE_STOP_SIGNALS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define STOP_SIGNALS_ONE_US 250000u

struct stop_signals {
    int fd; /* readable: call stop_signals_take */
    uint32_t wishes;
    uint64_t counted_us; /* time of the last counted wish */
    /* With hangup_apart SIGHUP is no wish, but sets hung_up. The owner sets and clears both. */
    bool hangup_apart, hung_up;
};

/* Blocks the signals in this thread, and in threads that it starts later. Call before any thread
 * starts. */
enum status stop_signals_open(struct stop_signals *signals, struct error *err) WARN_UNUSED;
void stop_signals_close(struct stop_signals *signals);
/* Reads the pending signals without blocking. Returns whether there is one more wish. */
bool stop_signals_take(struct stop_signals *signals, uint64_t now_us);

#endif
