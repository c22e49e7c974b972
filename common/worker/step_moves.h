/* The moves of KV blocks in a step's plan, carried out by the engine. Step thread. */
#ifndef BATON_WORKER_STEP_MOVES_H
#define BATON_WORKER_STEP_MOVES_H

#include "common/engine/engine.h"
#include "common/engine/sched/scheduler.h"

/* Swap-outs, then swap-ins: what one list frees, a later one may fill. swap_us:
 * what the swaps took. After a failure none of the plan's sequences can go on: what was to be saved
 * may be lost, and what was to be filled may not be. */
enum status step_moves_run(struct engine *engine, const struct step_plan *plan, uint64_t *swap_us,
                           struct error *err) WARN_UNUSED;

#endif
