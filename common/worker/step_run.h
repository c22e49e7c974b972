/* Steps: has the engine carry out plans of the schedule, then reports the results to the schedule
 * and in events. Step thread only.
 *
 * If the engine runs ahead, a step is handed over while the one before it is in flight, and the
 * results of that one follow: the device works while the host plans, reports and sends. Otherwise a
 * step has ended before the next one is planned. If a step fails, the one behind it counts as
 * failed, too: none of its tokens are told. Both have ended before the next one is handed over, so
 * that the failure ends with them.
 *
 * A sequence goes no further if its rows or its token can't be computed. STEP_FAILED is posted, and
 * it is held until its owner removes it. If the device failed, or gave a number that is not a
 * number, the prefix cache forgets everything that was computed before, too.
 *
 * Each step that was computed is reported: with its tokens, or, if it has none, at the latest when
 * the thread has nothing to do, or STEP_EVENT_REPORTS wait. In between events without tokens come
 * at most every 5 ms, since small steps may take microseconds. */
#ifndef BATON_WORKER_STEP_RUN_H
#define BATON_WORKER_STEP_RUN_H

#include "common/engine/engine.h"
#include "common/engine/sched/scheduler.h"
#include "common/worker/step_constraints.h"
#include "common/worker/step_events.h"

/* A step from its plan to its results. */
struct step_flight {
    const struct step_plan *plan;
    engine_ticket ticket;
    struct engine_sequence *inputs; /* one for each part of the plan */
    struct token_logprobs *scores;  /* one for each prompt row of the plan */
    struct engine_draw *draws;      /* one for each draft of the plan */
    struct step_report report;
    uint64_t begun_us;
    bool prompt_rows; /* it has some */
    bool failed;      /* the step before it did */
    bool counted;     /* the step behind it failed first, with it: one failure */
};

struct step_run { /* everything is borrowed */
    struct engine *engine;
    struct scheduler *scheduler;
    struct step_events *events;
    struct step_load *load;
    struct step_constraints *constraints;
    struct sequence **constrained; /* scratch, one for each sequence */
    /* Steps in flight are `oldest` and the ones behind it; the second place is only for an engine
     * that runs ahead. */
    struct step_flight flights[ENGINE_TICKETS];
    uint32_t oldest, in_flight;
    bool runs_ahead;
    bool sends_reports;
    uint32_t report_count;
    struct step_report reports[STEP_EVENT_REPORTS]; /* [report_count]: to be sent */
    uint64_t reported_us;                           /* when some were sent last */
    uint32_t failed_in_row;                         /* steps with rows, up to the last one */
    uint32_t failed_limit;                          /* 0: any number may fail */
    void (*broken)(void *context, bool lost);       /* called at failed_limit */
    void *broken_context;
};

/* Works on the constraints of the sequences, before a step is planned. Returns true while one of
 * them is not ready and there is more to do for it on this thread. */
bool step_run_prepare(struct step_run *run);
/* Returns true if the plan has rows to compute or blocks to move. */
bool step_plan_works(const struct step_plan *plan);
/* Swaps blocks out, then in (swap-ins may fill what swap-outs freed), then computes the rows. If a
 * move fails, no sequence of the plan goes on: saved blocks may be lost, and blocks to be filled
 * may be empty. When it returns, this step alone may be in flight; a plan without rows, or a step
 * that failed, leaves none. */
void step_run_plan(struct step_run *run, const struct step_plan *plan);
/* Ends the steps in flight. */
void step_run_land(struct step_run *run);
/* Sends the reports that wait. Call it before the thread waits for a job. */
void step_run_flush(struct step_run *run);
/* Removes the sequence from the schedule, and its constraint. */
void step_run_remove(struct step_run *run, struct sequence *sequence);

#endif
