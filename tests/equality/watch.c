#include "tests/equality/watch.h"

#include "common/base/assert.h"
#include "common/base/u32.h"
#include "kernels/cpu/pool.h"

#include <pthread.h>
#include <time.h>

enum { HELD_JOBS = 3 /* every third job is held */ };

static struct watch *_Atomic watches[WATCH_MAX];

/* The watch of the step that this thread computes; NULL: no step, or no watch. */
static _Thread_local struct watch *stepping;

void watch_begin(struct watch *watch, const struct engine *engine, uint32_t threads)
{
    *watch = (struct watch){.engine = engine, .threads = threads};
    for (int i = 0; i < WATCH_MAX; i++) {
        struct watch *nobody = NULL;
        if (atomic_compare_exchange_strong(&watches[i], &nobody, watch))
            return;
    }
    ASSERT(!"room for another watch");
}

void watch_end(struct watch *watch)
{
    for (int i = 0; i < WATCH_MAX; i++) {
        struct watch *it = watch;
        atomic_compare_exchange_strong(&watches[i], &it, NULL);
    }
}

/* --- steps --- */

enum status __real_engine_submit(struct engine *engine, struct engine_sequence *sequences,
                                 uint32_t count, engine_ticket *ticket, struct error *err);
enum status __wrap_engine_submit(struct engine *engine, struct engine_sequence *sequences,
                                 uint32_t count, engine_ticket *ticket, struct error *err);

static struct watch *find(const struct engine *engine)
{
    for (int i = 0; i < WATCH_MAX; i++) {
        struct watch *watch = atomic_load(&watches[i]);
        if (watch && watch->engine == engine)
            return watch;
    }
    return NULL;
}

static void note_step(struct watch *watch, const struct engine_sequence *sequences, uint32_t count)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        rows += sequences[i].prompt_rows;
        watch->prompt_parts += sequences[i].prompt_rows > 0;
    }
    if (rows > watch->most_prompt_rows)
        watch->most_prompt_rows = rows;
}

enum status __wrap_engine_submit(struct engine *engine, struct engine_sequence *sequences,
                                 uint32_t count, engine_ticket *ticket, struct error *err)
{
    stepping = find(engine);
    if (stepping)
        note_step(stepping, sequences, count);
    enum status status = __real_engine_submit(engine, sequences, count, ticket, err);
    stepping = NULL;
    return status;
}

/* --- jobs of the compute threads --- */

void __real_pool_run(struct pool *pool, uint32_t count, uint32_t grain, pool_work *work,
                     void *context);
void __wrap_pool_run(struct pool *pool, uint32_t count, uint32_t grain, pool_work *work,
                     void *context);

struct job {
    pool_work *work;
    void *context;
    struct watch *watch;
    bool held;
    uint32_t here; /* bit t: thread t has begun a chunk; under the lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;

static void wait_for_all(struct job *job, uint32_t thread)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += WATCH_WAIT_S;
    pthread_mutex_lock(&lock);
    job->here |= 1u << thread;
    pthread_cond_broadcast(&came);
    while (job->here != (1u << job->watch->threads) - 1 && !job->watch->late)
        job->watch->late = pthread_cond_timedwait(&came, &lock, &end) != 0;
    pthread_mutex_unlock(&lock);
}

static void work_watched(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    struct job *job = context;
    atomic_fetch_or(&job->watch->computed_by, 1u << thread);
    if (job->held)
        wait_for_all(job, thread);
    job->work(job->context, thread, first, last);
}

void __wrap_pool_run(struct pool *pool, uint32_t count, uint32_t grain, pool_work *work,
                     void *context)
{
    struct job job = {.work = work, .context = context, .watch = stepping};
    if (!stepping) {
        __real_pool_run(pool, count, grain, work, context);
        return;
    }
    if (divide_up(count, grain) >= stepping->threads)
        job.held = stepping->jobs++ % HELD_JOBS == 0;
    __real_pool_run(pool, count, grain, work_watched, &job);
}
