/* A thread that goes on, beside the steps, with walks over the vocabulary for which no step has the
 * time (constraint_walk.h). They take turns of a few nodes, so that one that takes long doesn't
 * hold up those that don't.
 *
 * A task, its walk and its bits are the walker's from _post on, until _take or _take_back gives
 * them back. The queue is under a lock, which nobody has for longer than it takes to link a task.
 * The thread runs as SCHED_BATCH: being woken, it pushes nobody off his CPU; from then on it has
 * the share of any thread. All but `through` is for one thread: the step thread. */
#ifndef BATON_WORKER_CONSTRAINT_WALKER_H
#define BATON_WORKER_CONSTRAINT_WALKER_H

#include "common/language/constrain/constraint_walk.h"

#include <sys/queue.h>

#define CONSTRAINT_WALKER_NODES 2048 /* of a turn: about 25 us */

struct constraint_walker;

struct walker_task {
    struct constraint_walk *walk; /* begun */
    uint32_t *bits;
    void *owner; /* the caller's */
    TAILQ_ENTRY(walker_task) link;
    /* The walker's. WANTED: in its turn, and it has no other (_take_back). */
    enum { TASK_IDLE, TASK_QUEUED, TASK_WALKED, TASK_WANTED, TASK_THROUGH } place;
};

/* `through` is called on the walker's thread, each time that a task is there to be taken. */
enum status constraint_walker_create(void (*through)(void *context), void *context,
                                     struct constraint_walker **walker) WARN_UNUSED;
/* Ends the thread: nothing goes on any more. NULL is fine, and twice. */
void constraint_walker_stop(struct constraint_walker *walker);
/* It has no tasks any more. NULL is fine. */
void constraint_walker_destroy(struct constraint_walker *walker);

/* It is begun with once the walker is woken, which costs nothing where nothing was posted. */
void constraint_walker_post(struct constraint_walker *walker, struct walker_task *task);
void constraint_walker_wake(struct constraint_walker *walker);
/* One whose bits are whole; NULL: none is. */
struct walker_task *constraint_walker_take(struct constraint_walker *walker);
/* That one, wherever it is; waits for the end of its turn if it has one, and no longer. True: its
 * bits are whole. Else the walk may be gone on with, here or by another _post. */
bool constraint_walker_take_back(struct constraint_walker *walker, struct walker_task *task);

#endif
