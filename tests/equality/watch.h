/* What the steps of an engine are made of, seen from inside them: `engine_step` and `pool_run` are
 * --wrap'd by the linker. Results are as they would be; what may differ is who computes a part of
 * them, which is what is asked here.
 *
 * Every third job of the pool (so that all operations have their turn, and most jobs run as they
 * come) begins when all threads have a part of it: else a thread that wakes late may have computed
 * nothing at all, and nobody could tell it from one that isn't there. */
#ifndef BATON_TESTS_WATCH_H
#define BATON_TESTS_WATCH_H

#include "common/engine/engine.h"

#include <stdatomic.h>

struct watch {
    const struct engine *engine;
    uint32_t threads;
    /* Of all steps so far; the step thread writes: */
    _Atomic uint32_t most_prompt_rows; /* of one step */
    _Atomic uint64_t prompt_parts;     /* a prompt's rows in a step are one */
    _Atomic uint32_t computed_by;      /* bit t: thread t, any of its jobs */
    atomic_bool late; /* WATCH_WAIT_S long a thread didn't come: nobody waits any more */
    uint64_t jobs;    /* step thread: that more than one thread can share */
};

#define WATCH_WAIT_S 60
#define WATCH_MAX    4 /* at a time */

/* Before its first step; `watch` stays where it is until watch_end, after the last one. */
void watch_begin(struct watch *watch, const struct engine *engine, uint32_t threads);
void watch_end(struct watch *watch);

#endif
