/* The compute threads: every item once, whatever the threads, the grain and the sleep between jobs. */
#include "kernels/cpu/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_is_done_once),
        cmocka_unit_test(test_a_pool_that_never_worked_stops),
        cmocka_unit_test(test_a_missing_cpu_is_named),
        cmocka_unit_test(test_pinned_threads_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
