#include "kernels/cpu/pool.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/u32.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CACHE_LINE  64
#define SPIN_NS     100000 /* two or three times the cost of sleeping and waking */
#define SPIN_PAUSES 32     /* pauses between looks at the clock: a microsecond or two */
#define JOB_OPEN    0x80000000u

/* The chunks that one thread takes first: next .. end - 1 are not taken yet. */
struct share {
    _Alignas(CACHE_LINE) atomic_uint_fast64_t next; /* may go beyond end */
    uint64_t end;
};

struct pool {
    uint32_t threads;
    bool spins, caller_pinned;
    int caller_cpu; /* -1: not pinned */
    struct pool_thread *workers;
    uint32_t started;

    /* The job. The caller writes it while `state` is 0, and threads that have joined read it. */
    pool_work *work;
    void *context;
    uint32_t count, grain;
    struct share *shares; /* [threads] */

    _Alignas(CACHE_LINE) atomic_uint sequence; /* futex: counts jobs (and the stop) */
    atomic_uint sleepers;                      /* workers in or near futex_wait(sequence) */
    atomic_bool awake, stop;
    _Alignas(CACHE_LINE) atomic_uint state; /* futex: JOB_OPEN | threads that have joined */
    atomic_bool caller_sleeps;
};

struct pool_thread {
    struct pool *pool;
    pthread_t handle;
    uint32_t index;
};

static void futex_wait(atomic_uint *word, unsigned expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* The end of spinning. */
struct spin {
    uint64_t until_ns; /* 0: not begun */
};

/* Spins a little. false: it has spun long enough, sleep. */
static bool spin_on(struct spin *spin)
{
    for (int i = 0; i < SPIN_PAUSES; i++)
        relax();
    uint64_t now = clock_now_ns();
    if (!spin->until_ns)
        spin->until_ns = now + SPIN_NS;
    return now < spin->until_ns;
}

/* --- a job --- */

/* Deals the chunks. Neighbouring chunks go to one thread, and the same ones each time that a job of
 * this size runs. */
static void deal_chunks(struct pool *pool)
{
    uint64_t chunks = divide_up(pool->count, pool->grain);
    for (uint64_t t = 0; t < pool->threads; t++) {
        atomic_store_explicit(&pool->shares[t].next, chunks * t / pool->threads,
                              memory_order_relaxed);
        pool->shares[t].end = chunks * (t + 1) / pool->threads;
    }
}

static void take_share(struct pool *pool, struct share *share, uint32_t thread)
{
    for (;;) {
        uint64_t chunk = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
        if (chunk >= share->end)
            return;
        uint64_t first = chunk * pool->grain, last = first + pool->grain;
        if (last > pool->count)
            last = pool->count;
        pool->work(pool->context, thread, (uint32_t)first, (uint32_t)last);
    }
}

/* Takes the thread's own share, then the rest of the others' shares. */
static void take_chunks(struct pool *pool, uint32_t thread)
{
    for (uint32_t i = 0; i < pool->threads; i++)
        take_share(pool, &pool->shares[(thread + i) % pool->threads], thread);
}

/* Waits for a job after number `seen`; returns its number. */
static unsigned wait_for_job(struct pool *pool, unsigned seen)
{
    struct spin spin = {0};
    unsigned now = atomic_load(&pool->sequence);
    while (now == seen && pool->spins && atomic_load(&pool->awake) && spin_on(&spin))
        now = atomic_load(&pool->sequence);
    while (now == seen) {
        atomic_fetch_add(&pool->sleepers, 1);
        futex_wait(&pool->sequence, seen);
        atomic_fetch_sub(&pool->sleepers, 1);
        now = atomic_load(&pool->sequence);
    }
    return now;
}

static bool join_job(struct pool *pool)
{
    unsigned state = atomic_load(&pool->state);
    while (state & JOB_OPEN)
        if (atomic_compare_exchange_weak(&pool->state, &state, state + 1))
            return true;
    return false;
}

static void leave_job(struct pool *pool)
{
    if (atomic_fetch_sub(&pool->state, 1) == 1 && atomic_load(&pool->caller_sleeps))
        futex_wake(&pool->state, 1);
}

static void *worker_main(void *argument)
{
    struct pool_thread *self = argument;
    struct pool *pool = self->pool;
    for (unsigned seen = 0;;) {
        seen = wait_for_job(pool, seen);
        if (atomic_load(&pool->stop))
            return NULL;
        FAILPOINT("pool.join");
        if (!join_job(pool))
            continue;
        take_chunks(pool, self->index);
        leave_job(pool);
    }
}

/* --- threads --- */

static int pin(pthread_t thread, int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return pthread_setaffinity_np(thread, sizeof set, &set);
}

static enum status start_worker(struct pool *pool, uint32_t index, const int *cpus,
                                struct error *err)
{
    struct pool_thread *worker = &pool->workers[index - 1];
    *worker = (struct pool_thread){.pool = pool, .index = index};
    int code = pthread_create(&worker->handle, NULL, worker_main, worker);
    if (code)
        return error_set(err, STATUS_IO, "compute thread %u of %u can't be started: %s", index,
                         pool->threads, strerror(code));
    pool->started++;
    if (!cpus)
        return STATUS_OK;
    code = pin(worker->handle, cpus[index]);
    if (code)
        return error_set(err, STATUS_INVALID, "compute thread %u can't be pinned to CPU %d: %s",
                         index, cpus[index], strerror(code));
    return STATUS_OK;
}

/* Returns whether there is a CPU for each thread. A thread that spins on the CPU of one that has
 * work keeps it from working. */
static bool has_cpus_for(uint32_t threads, const int *cpus)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t i = 0; cpus && i < threads; i++)
        CPU_SET(cpus[i], &set);
    if (!cpus && sched_getaffinity(0, sizeof set, &set) != 0)
        return false;
    return (uint32_t)CPU_COUNT(&set) >= threads;
}

enum status pool_create(uint32_t threads, const int *cpus, bool may_spin, struct pool **pool,
                        struct error *err)
{
    ASSERT(threads >= 1);
    for (uint32_t i = 0; cpus && i < threads; i++)
        if (cpus[i] < 0 || cpus[i] >= CPU_SETSIZE)
            return error_set(err, STATUS_INVALID, "compute thread %u: there is no CPU %d", i,
                             cpus[i]);
    struct pool *p = aligned_alloc(CACHE_LINE, sizeof *p);
    if (!p)
        return error_set(err, STATUS_LIMIT, "no memory for the compute threads");
    memset(p, 0, sizeof *p);
    p->threads = threads;
    p->spins = may_spin && has_cpus_for(threads, cpus);
    p->caller_cpu = cpus ? cpus[0] : -1;
    p->workers = calloc(threads, sizeof *p->workers);
    p->shares = aligned_alloc(CACHE_LINE, threads * sizeof *p->shares);
    enum status status = STATUS_OK;
    if (!p->workers || !p->shares)
        status = error_set(err, STATUS_LIMIT, "no memory for %u compute threads", threads);
    for (uint32_t i = 1; i < threads && status == STATUS_OK; i++)
        status = start_worker(p, i, cpus, err);
    if (status != STATUS_OK) {
        pool_destroy(p);
        return status;
    }
    *pool = p;
    return STATUS_OK;
}

static void announce(struct pool *pool)
{
    atomic_fetch_add(&pool->sequence, 1);
    if (atomic_load(&pool->sleepers))
        futex_wake(&pool->sequence, (int)pool->threads);
}

void pool_destroy(struct pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    announce(pool);
    for (uint32_t i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].handle, NULL);
    free(pool->workers);
    free(pool->shares);
    free(pool);
}

static void wait_for_workers(struct pool *pool)
{
    struct spin spin = {0};
    while (pool->spins && atomic_load(&pool->state) && spin_on(&spin))
        ;
    atomic_store(&pool->caller_sleeps, true);
    for (unsigned state; (state = atomic_load(&pool->state));)
        futex_wait(&pool->state, state);
    atomic_store(&pool->caller_sleeps, false);
}

void pool_run(struct pool *pool, uint32_t count, uint32_t grain, pool_work *work, void *context)
{
    ASSERT(grain >= 1);
    if (!pool->caller_pinned) {
        pool->caller_pinned = true;
        if (pool->caller_cpu >= 0)
            (void)pin(pthread_self(), pool->caller_cpu); /* if refused: slower, not wrong */
    }
    if (pool->threads == 1 || count <= grain) {
        if (count)
            work(context, 0, 0, count);
        return;
    }
    pool->work = work;
    pool->context = context;
    pool->count = count;
    pool->grain = grain;
    deal_chunks(pool);
    atomic_store(&pool->awake, true);
    atomic_store(&pool->state, JOB_OPEN);
    announce(pool);
    take_chunks(pool, 0);
    atomic_fetch_and(&pool->state, ~JOB_OPEN);
    wait_for_workers(pool);
}

void pool_rest(struct pool *pool)
{
    atomic_store(&pool->awake, false);
}
