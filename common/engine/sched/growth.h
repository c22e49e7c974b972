/* Blocks for sequences that grow, one at a time as their answers do, and room for one of a higher
 * class that waits. Who has none to take from others, waits a step or is preempted itself
 * (preemption.h). */
#ifndef BATON_ENGINE_SCHED_GROWTH_H
#define BATON_ENGINE_SCHED_GROWTH_H

#include "common/engine/sched/scheduler_state.h"

/* Sees that each of the plan's parts has blocks for its rows. False: some have none, or were
 * preempted for others. The batch is to be planned anew without them. */
bool growth_for_parts(struct scheduler *s);
/* Marks those that decode and lack a block as stalled, or nobody: what waits for nothing but rows
 * (and pins the blocks that they need) would else wait for a place that a stalled one takes. */
void growth_mark_stalled(struct scheduler *s, bool mark);
/* Preempts lower classes for the first one that waits, if that is enough for it. It gets the blocks
 * at the next scheduler_reserve: after they were swapped out. */
void growth_for_class(struct scheduler *s);

#endif
