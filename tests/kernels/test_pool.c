/* The compute threads: every item once, whatever the threads, the grain and the sleep between
 * jobs. */
#include "kernels/cpu/pool.h"

#include "common/base/failpoint.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ITEMS = 1000, THREADS = 3 };

struct tally {
    uint32_t done[ITEMS]; /* each item is one thread's alone */
    atomic_uint calls;
    atomic_bool bad_thread;
};

static void count_items(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    struct tally *tally = context;
    atomic_fetch_add(&tally->calls, 1);
    if (thread >= THREADS || first >= last)
        atomic_store(&tally->bad_thread, true);
    for (uint32_t i = first; i < last; i++)
        tally->done[i]++;
}

static void count_any(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    for (uint32_t i = first; i < last; i++)
        ((struct tally *)context)->done[i]++;
}

static void check_jobs(uint32_t threads, bool may_spin, uint32_t jobs)
{
    static const uint32_t grains[] = {1, 7, 64, ITEMS, 5000};
    struct pool *pool = NULL;
    assert_int_equal(pool_create(threads, NULL, may_spin, &pool, NULL), STATUS_OK);
    for (uint32_t job = 0; job < jobs; job++) {
        struct tally tally;
        memset(&tally, 0, sizeof tally);
        uint32_t count = job % (ITEMS + 1);
        pool_run(pool, count, grains[job % 5], count_items, &tally);
        for (uint32_t i = 0; i < ITEMS; i++)
            assert_int_equal(tally.done[i], i < count ? 1 : 0);
        assert_false(atomic_load(&tally.bad_thread));
        if (threads == 1)
            assert_true(atomic_load(&tally.calls) <= 1);
        if (job % 50 == 0)
            pool_rest(pool);
    }
    pool_destroy(pool);
}

static void test_every_item_is_done_once(void **state)
{
    (void)state;
    check_jobs(1, false, 1200);
    check_jobs(THREADS, false, 1200);
    check_jobs(2, true, 1200);
}

static void test_a_pool_that_never_worked_stops(void **state)
{
    (void)state;
    struct pool *pool = NULL;
    assert_int_equal(pool_create(THREADS, NULL, true, &pool, NULL), STATUS_OK);
    pool_destroy(pool);
    pool_destroy(NULL);
}

static void test_a_missing_cpu_is_named(void **state)
{
    (void)state;
    struct pool *pool = NULL;
    struct error err = {{0}};
    static const int cpus[] = {0, 1000};
    assert_int_equal(pool_create(2, cpus, false, &pool, &err), STATUS_INVALID);
    assert_null(pool);
    assert_non_null(strstr(err.text, "CPU 1000"));
}

static void test_pinned_threads_work(void **state)
{
    (void)state;
    struct pool *pool = NULL;
    static const int cpus[] = {0, 0};
    assert_int_equal(pool_create(2, cpus, false, &pool, NULL), STATUS_OK);
    struct tally tally;
    memset(&tally, 0, sizeof tally);
    pool_run(pool, ITEMS, 3, count_items, &tally);
    for (uint32_t i = 0; i < ITEMS; i++)
        assert_int_equal(tally.done[i], 1);
    pool_destroy(pool);
}

/* A thread that is held up in its first chunk until all other items are done: if one of them waited
 * for it, this would never end (ctest's limit). */
struct hold_up {
    uint32_t thread, count, grain;
    uint32_t done[ITEMS];
    uint32_t others, held_items;
    bool held;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static void work_or_hang(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    struct hold_up *job = context;
    pthread_mutex_lock(&job->lock);
    if (thread == job->thread && !job->held) {
        job->held = true;
        job->held_items = last - first;
        pthread_cond_broadcast(&job->changed);
        while (job->others + job->held_items < job->count)
            pthread_cond_wait(&job->changed, &job->lock);
    } else {
        /* Another thread's first chunk waits until the one is held, so that each job is held up. */
        while (!job->held)
            pthread_cond_wait(&job->changed, &job->lock);
        job->others += last - first;
        pthread_cond_broadcast(&job->changed);
    }
    pthread_mutex_unlock(&job->lock);
    for (uint32_t i = first; i < last; i++)
        job->done[i]++;
}

static void test_a_held_thread_holds_up_one_chunk(void **state)
{
    (void)state;
    for (int spin = 0; spin <= 1; spin++)
        for (uint32_t held = 0; held < THREADS; held++) {
            struct pool *pool = NULL;
            assert_int_equal(pool_create(THREADS, NULL, spin, &pool, NULL), STATUS_OK);
            struct hold_up job = {.thread = held, .count = ITEMS, .grain = 8};
            pthread_mutex_init(&job.lock, NULL);
            pthread_cond_init(&job.changed, NULL);
            pool_run(pool, ITEMS, job.grain, work_or_hang, &job);
            assert_true(job.held);
            assert_in_range(job.held_items, 1, job.grain);
            for (uint32_t i = 0; i < ITEMS; i++)
                assert_int_equal(job.done[i], 1);
            pthread_cond_destroy(&job.changed);
            pthread_mutex_destroy(&job.lock);
            pool_destroy(pool);
        }
}

static char folder[] = "/tmp/baton-pool-XXXXXX";
static char log_path[64], go_path[128];

static bool was_hit(void)
{
    char line[128] = "";
    FILE *log = fopen(log_path, "r");
    if (log) {
        if (!fgets(line, sizeof line, log))
            line[0] = '\0';
        fclose(log);
    }
    return strstr(line, "pool.join") != NULL;
}

static void check_whole_job(struct pool *pool)
{
    struct tally tally;
    memset(&tally, 0, sizeof tally);
    pool_run(pool, ITEMS, 3, count_items, &tally);
    for (uint32_t i = 0; i < ITEMS; i++)
        assert_int_equal(tally.done[i], 1);
    assert_false(atomic_load(&tally.bad_thread));
}

/* Its share is done by the others, job after job, and it comes back when it can. */
static void test_a_thread_that_does_not_come_is_not_waited_for(void **state)
{
    (void)state;
    struct error err;
    struct pool *pool = NULL;
    assert_non_null(mkdtemp(folder));
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    snprintf(go_path, sizeof go_path, "%s.pool.join.go", log_path);
    setenv("BATON_FAILPOINT_LOG", log_path, 1);
    setenv("BATON_FAILPOINTS_ALLOW", "1", 1); /* this test is built for release, too */
    setenv("BATON_FAILPOINTS", "pool.join=pause@1", 1);
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
    assert_int_equal(pool_create(THREADS, NULL, false, &pool, NULL), STATUS_OK);
    while (!was_hit())
        check_whole_job(pool);
    for (uint32_t job = 0; job < 100; job++)
        check_whole_job(pool);
    FILE *go = fopen(go_path, "w");
    assert_non_null(go);
    fclose(go);
    check_whole_job(pool);
    pool_destroy(pool); /* waits for the one that was away */
    unsetenv("BATON_FAILPOINTS");
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
    unlink(go_path);
    unlink(log_path);
    assert_int_equal(rmdir(folder), 0);
}

static void test_pools_stop_in_every_state(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        struct pool *pool = NULL;
        assert_int_equal(pool_create(1 + round % 5, NULL, round % 2, &pool, NULL), STATUS_OK);
        for (uint32_t job = 0; job < round % 4; job++) {
            struct tally tally;
            memset(&tally, 0, sizeof tally);
            pool_run(pool, ITEMS, 1 + round, count_any, &tally);
        }
        if (round % 3 == 0)
            pool_rest(pool);
        pool_destroy(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_is_done_once),
        cmocka_unit_test(test_a_pool_that_never_worked_stops),
        cmocka_unit_test(test_a_missing_cpu_is_named),
        cmocka_unit_test(test_pinned_threads_work),
        cmocka_unit_test(test_a_held_thread_holds_up_one_chunk),
        cmocka_unit_test(test_a_thread_that_does_not_come_is_not_waited_for),
        cmocka_unit_test(test_pools_stop_in_every_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
