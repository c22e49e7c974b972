/* Watches from a worker's reports whether its step thread gets on: a kernel that hangs, a dead
 * device or a stopped process is noticed although the worker's other threads answer. PURE.
 *
 * A worker hangs if one step of it takes longer than `limit_us`, by its own clock or by the
 * router's, or if it had sequences to compute and no report has come for so long. A step may take
 * longer on a slow machine. 20 times the usual step is always allowed, and 3 limits while no step
 * is known. Up to 3 limits, twice the longest step lately is allowed, too: a long prompt takes
 * steps that are longer than the usual one by far. A thread between two steps doesn't hang: it
 * waits for room, or for a constraint. The next step that ends is the end of the hang. */
#ifndef BATON_ROUTER_PLANNER_STEP_WATCH_H
#define BATON_ROUTER_PLANNER_STEP_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#define STEP_WATCH_USUAL_STEPS 20 /* so many usual steps may pass without an end */
#define STEP_WATCH_FIRST_TIMES 3  /* so many limits, if the usual step is unknown */
#define STEP_WATCH_LONG_TIMES  2  /* so many of the longest step lately */

/* A worker's report about its steps. */
struct step_report_seen {
    uint64_t steps_done; /* since its start */
    uint64_t busy_us;    /* how long the current step has run; 0: none runs */
    uint32_t running;    /* sequences that are computed */
};

struct step_watch { /* all 0: nothing is known */
    bool reported, works, hangs;
    uint64_t steps_done;
    uint64_t since_us; /* works: it may be in the same step since then, by the router's clock */
    uint64_t busy_us, reported_us; /* its own clock's, and when it said so */
    uint64_t usual_us;             /* a usual step: a mean that forgets slowly; 0: unknown */
    uint64_t longest_us;           /* the longest one lately, also of a hang */
};

/* Returns true if it is the end of a hang. */
bool step_watch_report(struct step_watch *watch, const struct step_report_seen *report,
                       uint64_t now_us);
/* Returns true if it hangs from now on. limit_us 0: it never does. Call it at step_watch_next_us
 * or later. */
bool step_watch_tick(struct step_watch *watch, uint64_t limit_us, uint64_t now_us);
uint64_t step_watch_next_us(const struct step_watch *watch, uint64_t limit_us);

#endif
