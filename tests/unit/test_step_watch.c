/* step_watch: a step that doesn't end is noticed, and nothing else is taken for one. */
#include "router/planner/step_watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS    1000u
#define S     1000000u
#define LIMIT (5 * S)

static bool report(struct step_watch *watch, uint64_t now_us, uint64_t steps, uint64_t busy_us,
                   uint32_t running)
{
    const struct step_report_seen seen = {
        .steps_done = steps, .busy_us = busy_us, .running = running};
    return step_watch_report(watch, &seen, now_us);
}

static bool tick(struct step_watch *watch, uint64_t now_us)
{
    return step_watch_tick(watch, LIMIT, now_us);
}

static void test_a_step_that_does_not_end(void **state)
{
    (void)state;
    struct step_watch watch = {0};
    assert_int_equal(step_watch_next_us(&watch, LIMIT), UINT64_MAX);
    report(&watch, 1 * S, 10, 50 * MS, 3);
    for (uint64_t at_us = 1 * S + 100 * MS; at_us < 5 * S; at_us += 100 * MS) {
        assert_false(report(&watch, at_us, 11, at_us - 1 * S, 3));
        assert_false(tick(&watch, at_us));
    }
    uint64_t due_us = step_watch_next_us(&watch, LIMIT);
    assert_in_range(due_us, 6 * S, 6 * S + 100 * MS);
    assert_false(tick(&watch, due_us - 1));
    assert_true(tick(&watch, due_us));
    assert_false(tick(&watch, due_us + S)); /* once */
    assert_int_equal(step_watch_next_us(&watch, LIMIT), UINT64_MAX);
    assert_false(report(&watch, due_us + S, 11, 7 * S, 3));
    assert_true(watch.hangs);
    assert_true(report(&watch, due_us + 2 * S, 12, 0, 3));
    assert_false(watch.hangs);
    due_us += 2 * S; /* this step was a long one: the next may be, too */
    assert_in_range(step_watch_next_us(&watch, LIMIT), due_us + 2 * LIMIT, due_us + 3 * LIMIT);
}

/* A router that just came knows it from the worker's clock alone. The step may be a slow machine's
 * usual one: it has more time. */
static void test_by_the_workers_own_clock(void **state)
{
    (void)state;
    struct step_watch watch = {0};
    report(&watch, 100 * S, 10, 4 * S, 1);
    assert_int_equal(step_watch_next_us(&watch, LIMIT), 111 * S);
    assert_true(tick(&watch, 111 * S));
}

static void test_a_stopped_process_reports_no_more(void **state)
{
    (void)state;
    struct step_watch watch = {0};
    report(&watch, 1 * S, 10, 0, 2); /* between two steps */
    assert_false(tick(&watch, 16 * S - 1));
    assert_true(tick(&watch, 16 * S));
    assert_true(report(&watch, 17 * S, 10, 0, 2));
}

static void test_no_sign_of_a_hang(void **state)
{
    (void)state;
    struct step_watch watch = {0};
    report(&watch, 1 * S, 10, 0, 0);
    assert_false(tick(&watch, 100 * S)); /* idle */
    for (uint64_t at_us = 100 * S; at_us < 200 * S; at_us += S) {
        report(&watch, at_us, 10, 0, 4); /* waits for a constraint, in no step */
        assert_false(tick(&watch, at_us));
    }
    report(&watch, 200 * S, 11, MS, 4);
    assert_false(step_watch_tick(&watch, 0, UINT64_MAX)); /* no limit */
    report(&watch, 201 * S, 12, MS, 4);
    assert_false(tick(&watch, 205 * S));
}

static void test_a_slow_machine_has_more_time(void **state)
{
    (void)state;
    struct step_watch watch = {0};
    for (uint64_t i = 0; i < 50; i++)
        report(&watch, 2 * S * i, i, MS, 1);
    assert_in_range(watch.usual_us, 2 * S - MS, 2 * S + MS);
    uint64_t due_us = step_watch_next_us(&watch, LIMIT);
    assert_in_range(due_us, 98 * S + 39 * S, 98 * S + 41 * S);
    for (uint64_t i = 1; i < 100; i++) /* it got faster */
        report(&watch, 98 * S + i * 100 * MS, 49 + 10 * i, MS, 1);
    assert_in_range(watch.usual_us, 9 * MS, 12 * MS);
}

/* A prompt's steps among an answer's: the longest lately counts too, even one that was taken for a
 * hang. The bound is three limits. */
static void test_long_steps_are_remembered(void **state)
{
    (void)state;
    struct step_watch watch = {0};
    uint64_t at_us = S, steps = 0;
    for (uint64_t i = 0; i < 50; i++)
        report(&watch, at_us += 10 * MS, ++steps, MS, 1);
    report(&watch, at_us + 4 * S, ++steps, MS, 1);
    at_us += 4 * S;
    for (uint64_t i = 0; i < 50; i++)
        report(&watch, at_us += 10 * MS, ++steps, MS, 1);
    assert_in_range(watch.usual_us, 9 * MS, 20 * MS);
    uint64_t allowed_us = step_watch_next_us(&watch, LIMIT) - at_us;
    assert_in_range(allowed_us, 7 * S, 8 * S); /* 8 s, a little of which is forgotten */
    assert_true(tick(&watch, at_us + allowed_us));
    assert_true(report(&watch, at_us += 100 * S, ++steps, MS, 1));
    assert_in_range(watch.usual_us, 9 * MS, 20 * MS);
    assert_int_equal(step_watch_next_us(&watch, LIMIT), at_us - MS + 3 * LIMIT);
    for (uint64_t i = 0; i < 8000; i++)
        report(&watch, at_us += 10 * MS, ++steps, MS, 1);
    assert_int_equal(step_watch_next_us(&watch, LIMIT), at_us - MS + LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_that_does_not_end),
        cmocka_unit_test(test_by_the_workers_own_clock),
        cmocka_unit_test(test_a_stopped_process_reports_no_more),
        cmocka_unit_test(test_no_sign_of_a_hang),
        cmocka_unit_test(test_a_slow_machine_has_more_time),
        cmocka_unit_test(test_long_steps_are_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
