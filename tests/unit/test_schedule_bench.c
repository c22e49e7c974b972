/* schedule_bench: it keeps the schedule full, and preempts where the pool is too small. */
#include "common/engine/sched/schedule_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static uint64_t ticks(void)
{
    static uint64_t now_ns;
    return now_ns += 10;
}

static void test_it_keeps_the_schedule_full(void **state)
{
    (void)state;
    struct schedule_bench bench = {.sequences = 24, .steps = 300, .now_ns = ticks};
    struct schedule_bench_result result;
    for (int policy = 0; policy < POLICIES; policy++) {
        bench.policy = (enum policy_kind)policy;
        assert_int_equal(schedule_bench_run(&bench, &result), STATUS_OK);
        assert_true(result.p50_ns == 10 && result.p99_ns == 10 && result.max_ns == 10);
        assert_true(result.mean_parts > 12 && result.mean_parts <= 24);
        assert_int_equal(result.dropped + result.swapped_out, 0);
    }
}

static void test_a_small_pool_preempts(void **state)
{
    (void)state;
    struct schedule_bench bench = {.sequences = 24,
                                   .steps = 300,
                                   .grow = true,
                                   .prefix_cache = true,
                                   .pool_percent = 60,
                                   .now_ns = ticks};
    struct schedule_bench_result result;
    assert_int_equal(schedule_bench_run(&bench, &result), STATUS_OK);
    assert_true(result.dropped + result.swapped_out > 0);
    assert_true(result.mean_parts > 6);
}

/* All sequences grow at once beyond the room: both ways of giving up blocks happen. Steps before
 * the timed ones aren't reported. */
static void test_long_answers_preempt_all_the_more(void **state)
{
    (void)state;
    struct schedule_bench bench = {.sequences = 64,
                                   .steps = 1000,
                                   .grow = true,
                                   .prefix_cache = true,
                                   .pool_percent = 40,
                                   .answers = {384, 448},
                                   .now_ns = ticks};
    struct schedule_bench_result result, begun;
    assert_int_equal(schedule_bench_run(&bench, &result), STATUS_OK);
    assert_true(result.swapped_out >= 16 && result.dropped >= 16);
    bench.steps = 1;
    assert_int_equal(schedule_bench_run(&bench, &begun), STATUS_OK);
    assert_true(begun.swapped_out + begun.dropped <= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_keeps_the_schedule_full),
        cmocka_unit_test(test_a_small_pool_preempts),
        cmocka_unit_test(test_long_answers_preempt_all_the_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
