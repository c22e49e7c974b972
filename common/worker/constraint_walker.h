/* A thread beside the steps that continues walks over the vocabulary for which no step has the time
 * (constraint_masks.h). Walks take turns of a few nodes, so a long one doesn't hold up short ones.
 *
 * A task, its walk and its bits belong to the walker from constraint_walker_post on, until _take or
 * _take_back returns them. The queue is under a lock, which is held only to link a task.
 *
 * The thread runs as SCHED_BATCH: when it is woken it pushes no other thread off its CPU, and from
 * then on it has the share of any thread. All calls are for the step thread; `through` is called on
 * the walker's. */
#ifndef BATON_WORKER_CONSTRAINT_WALKER_H
#define BATON_WORKER_CONSTRAINT_WALKER_H

#include "common/language/constrain/constraint_masks.h"

#include <sys/queue.h>

#define CONSTRAINT_WALKER_NODES 2048 /* a turn: about 25 us */

struct constraint_walker;

struct walker_task {
    struct constraint_walk *walk; /* begun */
    uint32_t *bits;
    void *owner; /* the caller's */
    TAILQ_ENTRY(walker_task) link;
    /* The walker's. WANTED: this turn is the last one, _take_back waits for it. */
    enum { TASK_IDLE, TASK_QUEUED, TASK_WALKED, TASK_WANTED, TASK_THROUGH } place;
};

/* Starts the thread. `through` is called on it each time a task is ready to be taken. STATUS_LIMIT:
 * no memory, or no thread. */
enum status constraint_walker_create(void (*through)(void *context), void *context,
                                     struct constraint_walker **walker) WARN_UNUSED;
/* Ends the thread: no walk continues after that. NULL is fine, and so is a second call. */
void constraint_walker_stop(struct constraint_walker *walker);
/* All tasks must have been taken back. NULL is fine. */
void constraint_walker_destroy(struct constraint_walker *walker);

/* Queues a task. Its walk starts at the next constraint_walker_wake, which costs nothing if no task
 * was posted. */
void constraint_walker_post(struct constraint_walker *walker, struct walker_task *task);
void constraint_walker_wake(struct constraint_walker *walker);
/* Returns a task with complete bits, or NULL. */
struct walker_task *constraint_walker_take(struct constraint_walker *walker);
/* Takes this task back, wherever it is. Waits at most for the end of its turn. Returns true if its
 * bits are complete; otherwise the walk may be continued, here or by another _post. */
bool constraint_walker_take_back(struct constraint_walker *walker, struct walker_task *task);

#endif
