/* Who gives its blocks up for others, what becomes of its rows, and the moves of blocks that the
 * next plan carries out.
 *
 * Victims: the newest of the lowest class first, never the oldest of the highest class that runs,
 * so that one always gets to its end. What a handle pins, what lands from elsewhere, and what a
 * plan is about to swap in, is nobody's victim.
 */
#ifndef BATON_ENGINE_SCHED_PREEMPTION_H
#define BATON_ENGINE_SCHED_PREEMPTION_H

#include "common/engine/sched/scheduler_state.h"

/* `count` more blocks behind those that it has; they are free (reuse_make_free). */
void preemption_take(struct scheduler *s, struct sequence *sequence, uint32_t count);
/* A SWAPPED sequence gets blocks; the next plan fills them from its slots. */
void preemption_swap_in(struct scheduler *s, struct sequence *sequence, uint32_t count);

/* Begins a plan: moves so far are its moves, and slots that the last one emptied are free. */
void preemption_begin_plan(struct scheduler *s);
/* Blocks swapped in by this plan have content from now on. */
void preemption_end_plan(struct scheduler *s);

/* The oldest of the highest class that ran when this plan was begun: never a victim. NULL: none. */
const struct sequence *preemption_protected(struct scheduler *s);
/* The next victim of this plan whose class is at least lowest_class; NULL: none. Each is found
 * once. */
struct sequence *preemption_victim(struct scheduler *s, uint32_t lowest_class);
/* Takes all its blocks: swapped out, if there are slots and it is cheaper than to compute its rows
 * again (prompt and answer so far, like a prompt), else dropped. It waits at the head of its
 * class. */
void preemption_take_from(struct scheduler *s, struct sequence *victim);

/* The sequence ends: its moves don't happen, its slots are free. */
void preemption_forget(struct scheduler *s, const struct sequence *sequence);

#endif
