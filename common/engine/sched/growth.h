/* Blocks for sequences that grow, one at a time as their answers do, and room for one of a higher class that waits. Who has
 * none to take from others, waits a step or is preempted itself (preemption.h). */
#ifndef BATON_ENGINE_SCHED_GROWTH_H
#define BATON_ENGINE_SCHED_GROWTH_H

#include "common/engine/sched/scheduler_state.h"

/* Sees that each of the plan's parts has blocks for its rows. False: some have none, or were preempted for others. Then all
 * that lack a block are marked as stalled: the batch is to be planned anew without them, or what waits for nothing but rows (and
 * pins the blocks that they need) would wait for a place that a stalled one takes. */
bool growth_for_parts(struct scheduler *s);
/* Preempts lower classes for the first one that waits, if that is enough for it. It gets the blocks at the next
 * scheduler_reserve: after they were swapped out. */
void growth_for_class(struct scheduler *s);

#endif
