/* The signals that ask a program to stop (SIGTERM, SIGINT, SIGHUP), as something to poll and a
 * count.
 *
 * One wish may come as several signals: a terminal sends Ctrl-C to everybody, and a wrapper passes
 * on what it got too. Those within STOP_SIGNALS_ONE_US of the one that counted are therefore the
 * same wish; a later one is the next wish ("now, really"). One thread.
 */
#ifndef BATON_BASE_STOP_SIGNALS_H
#define BATON_BASE_STOP_SIGNALS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define STOP_SIGNALS_ONE_US 250000u

struct stop_signals {
    int fd; /* readable: stop_signals_take has something to look at */
    uint32_t wishes;
    uint64_t counted_us; /* when the last wish was counted */
    bool
        /* SIGHUP is no wish, but sets hung_up; both are the owner's to set and clear */
        hangup_apart;
    bool hung_up;
};

/* Blocks the signals in this thread, and in those that it starts from now on: call it before any
 * thread starts. */
enum status stop_signals_open(struct stop_signals *signals, struct error *err) WARN_UNUSED;
void stop_signals_close(struct stop_signals *signals);
/* Takes in what came, without blocking. True: there is one more wish. */
bool stop_signals_take(struct stop_signals *signals, uint64_t now_us);

#endif
