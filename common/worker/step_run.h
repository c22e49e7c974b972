/* One step: what the schedule planned, carried out by the engine, and what came of it told to the
 * schedule and in events. Step thread only.
 *
 * A sequence whose rows or token could not be had goes no further: it is held until whoever added
 * it removes it (STEP_FAILED). Where the device failed, or gave a number that is none, the prefix
 * cache forgets all that was computed before, too.
 */
#ifndef BATON_WORKER_STEP_RUN_H
#define BATON_WORKER_STEP_RUN_H

#include "common/engine/engine.h"
#include "common/engine/sched/scheduler.h"
#include "common/worker/step_constraints.h"
#include "common/worker/step_events.h"
#include "common/worker/step_load.h"

struct step_run { /* all borrowed */
    struct engine *engine;
    struct scheduler *scheduler;
    struct step_events *events;
    struct step_load *load;
    struct step_constraints *constraints;
    struct engine_sequence *inputs; /* scratch, one for each part of a plan */
    struct sequence **constrained;  /* scratch, one for each sequence */
    struct token_logprobs *scores;  /* scratch, one for each prompt row of a plan */
};

/* Before a step is planned: who has a constraint gets ready. True: one isn't, and there is more to
 * do for it here. */
bool step_run_prepare(struct step_run *run);
/* Whether there is anything in it to carry out. */
bool step_plan_works(const struct step_plan *plan);
void step_run_plan(struct step_run *run, const struct step_plan *plan);
/* Ends it: scheduler_remove, and what is kept of it beside the schedule. */
void step_run_remove(struct step_run *run, struct sequence *sequence);

#endif
