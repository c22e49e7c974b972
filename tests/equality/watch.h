/* Records the rows of an engine's steps and the threads that compute them. The linker wraps
 * `engine_submit` and `pool_run` (--wrap). Results don't change; only the thread that computes a
 * part may differ, and this is recorded.
 *
 * Every third job of the pool begins only when all threads have a part of it. (So all operations
 * have their turn, and most jobs run as they come.) Otherwise a thread that wakes late may have
 * computed nothing at all, and the test could not distinguish it from a missing one. */
#ifndef BATON_TESTS_WATCH_H
#define BATON_TESTS_WATCH_H

#include "common/engine/engine.h"

#include <stdatomic.h>

struct watch {
    const struct engine *engine;
    uint32_t threads;
    /* The step thread writes these, for all steps so far: */
    _Atomic uint32_t most_prompt_rows; /* the most in one step */
    _Atomic uint64_t prompt_parts;     /* a prompt's rows in one step count as one part */
    _Atomic uint32_t computed_by;      /* bit t: thread t, any of its jobs */
    atomic_bool late; /* a thread didn't come within WATCH_WAIT_S: no job waits any more */
    uint64_t jobs;    /* step thread: jobs that more than one thread can share */
};

#define WATCH_WAIT_S 60
#define WATCH_MAX    4 /* engines watched at a time */

/* Call before the engine's first step. `watch` must not move until watch_end, after the last
 * step. */
void watch_begin(struct watch *watch, const struct engine *engine, uint32_t threads);
void watch_end(struct watch *watch);

#endif
