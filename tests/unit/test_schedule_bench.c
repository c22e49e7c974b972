/* schedule_bench: it keeps the schedule full, and preempts where the pool is too small. BATON_SCHEDULE_BENCH=1 prints times. */
#include "common/base/clock.h"
#include "common/engine/sched/schedule_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

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

static void test_times_for_people(void **state)
{
    (void)state;
    if (!getenv("BATON_SCHEDULE_BENCH"))
        return;
    for (uint32_t sequences = 16; sequences <= 1024; sequences *= 4)
        for (int grow = 0; grow < 2; grow++) {
            struct schedule_bench bench = {.sequences = sequences,
                                           .steps = 400,
                                           .grow = grow,
                                           .prefix_cache = grow,
                                           .now_ns = clock_now_ns};
            struct schedule_bench_result result;
            assert_int_equal(schedule_bench_run(&bench, &result), STATUS_OK);
            printf("%4u sequences, %4.0f in a step%s: p50 %llu us, p99 %llu us; %llu preempted\n",
                   sequences, result.mean_parts, grow ? ", growing, cache" : "",
                   (unsigned long long)(result.p50_ns / 1000),
                   (unsigned long long)(result.p99_ns / 1000),
                   (unsigned long long)(result.swapped_out + result.dropped));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_keeps_the_schedule_full),
        cmocka_unit_test(test_a_small_pool_preempts),
        cmocka_unit_test(test_times_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
