#include "common/worker/constraint_walker.h"

#include "common/base/assert.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

TAILQ_HEAD(tasks, walker_task);

struct constraint_walker {
    pthread_t thread;
    void (*through)(void *context);
    void *context;
    bool stopped, posted; /* the step thread's; posted: since it was woken */
    /* Under the lock: */
    pthread_mutex_t lock;
    pthread_cond_t work;   /* a task was queued, or `ends` was set */
    pthread_cond_t let_go; /* a turn is over */
    struct tasks queue, done;
    bool ends;
};

static void put(struct tasks *tasks, struct walker_task *task, int place)
{
    TAILQ_INSERT_TAIL(tasks, task, link);
    task->place = place;
}

static struct walker_task *take_first(struct tasks *tasks, int place)
{
    struct walker_task *task = TAILQ_FIRST(tasks);
    if (!task)
        return NULL;
    TAILQ_REMOVE(tasks, task, link);
    task->place = place;
    return task;
}

/* Called under the lock, which is released during the walk. A WANTED task isn't queued again: this
 * thread could get the lock back, and walk on, before the thread that waits for the task. */
static void take_turn(struct constraint_walker *walker, struct walker_task *task)
{
    uint64_t nodes = CONSTRAINT_WALKER_NODES;
    pthread_mutex_unlock(&walker->lock);
    bool whole = constraint_walk_go(task->walk, task->bits, &nodes);
    pthread_mutex_lock(&walker->lock);
    if (whole)
        put(&walker->done, task, TASK_THROUGH);
    else if (task->place == TASK_WANTED)
        task->place = TASK_IDLE;
    else
        put(&walker->queue, task, TASK_QUEUED);
    pthread_cond_signal(&walker->let_go);
    if (!whole)
        return;
    pthread_mutex_unlock(&walker->lock);
    walker->through(walker->context);
    pthread_mutex_lock(&walker->lock);
}

static void *walker_main(void *argument)
{
    struct constraint_walker *walker = argument;
    pthread_setname_np(pthread_self(), "baton-walk");
    /* if the system allows it */
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){0});
    pthread_mutex_lock(&walker->lock);
    while (!walker->ends) {
        struct walker_task *task = take_first(&walker->queue, TASK_WALKED);
        if (task)
            take_turn(walker, task);
        else
            pthread_cond_wait(&walker->work, &walker->lock);
    }
    pthread_mutex_unlock(&walker->lock);
    return NULL;
}

enum status constraint_walker_create(void (*through)(void *context), void *context,
                                     struct constraint_walker **out)
{
    struct constraint_walker *walker = calloc(1, sizeof *walker);
    if (!walker)
        return STATUS_LIMIT;
    walker->through = through;
    walker->context = context;
    TAILQ_INIT(&walker->queue);
    TAILQ_INIT(&walker->done);
    pthread_mutex_init(&walker->lock, NULL);
    pthread_cond_init(&walker->work, NULL);
    pthread_cond_init(&walker->let_go, NULL);
    if (pthread_create(&walker->thread, NULL, walker_main, walker)) {
        walker->stopped = true;
        constraint_walker_destroy(walker);
        return STATUS_LIMIT;
    }
    *out = walker;
    return STATUS_OK;
}

void constraint_walker_stop(struct constraint_walker *walker)
{
    if (!walker || walker->stopped)
        return;
    pthread_mutex_lock(&walker->lock);
    walker->ends = true;
    pthread_cond_signal(&walker->work);
    pthread_mutex_unlock(&walker->lock);
    pthread_join(walker->thread, NULL);
    walker->stopped = true;
}

void constraint_walker_destroy(struct constraint_walker *walker)
{
    if (!walker)
        return;
    constraint_walker_stop(walker);
    ASSERT(TAILQ_EMPTY(&walker->queue) && TAILQ_EMPTY(&walker->done));
    pthread_cond_destroy(&walker->let_go);
    pthread_cond_destroy(&walker->work);
    pthread_mutex_destroy(&walker->lock);
    free(walker);
}

void constraint_walker_post(struct constraint_walker *walker, struct walker_task *task)
{
    ASSERT(task->place == TASK_IDLE);
    pthread_mutex_lock(&walker->lock);
    put(&walker->queue, task, TASK_QUEUED);
    pthread_mutex_unlock(&walker->lock);
    walker->posted = true;
}

void constraint_walker_wake(struct constraint_walker *walker)
{
    if (walker->posted)
        pthread_cond_signal(&walker->work); /* tasks were queued under the lock: none is missed */
    walker->posted = false;
}

struct walker_task *constraint_walker_take(struct constraint_walker *walker)
{
    pthread_mutex_lock(&walker->lock);
    struct walker_task *task = take_first(&walker->done, TASK_IDLE);
    pthread_mutex_unlock(&walker->lock);
    return task;
}

bool constraint_walker_take_back(struct constraint_walker *walker, struct walker_task *task)
{
    pthread_mutex_lock(&walker->lock);
    ASSERT(task->place != TASK_IDLE);
    if (task->place == TASK_WALKED)
        task->place = TASK_WANTED;
    while (task->place == TASK_WANTED)
        pthread_cond_wait(&walker->let_go, &walker->lock);
    bool whole = task->place == TASK_THROUGH;
    if (task->place != TASK_IDLE)
        TAILQ_REMOVE(whole ? &walker->done : &walker->queue, task, link);
    task->place = TASK_IDLE;
    pthread_mutex_unlock(&walker->lock);
    return whole;
}
