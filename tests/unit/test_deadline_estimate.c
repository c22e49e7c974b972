/* deadline_estimate: the least time of a request, and which ones surely miss their deadlines. */
#include "router/planner/deadline_estimate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct step_cost COST = {.step_us = 8000,
                                      .prefill_row_us = 20,
                                      .prefill_position_us = 0.01,
                                      .decode_row_us = 30,
                                      .decode_context_us = 0.5};

static void test_the_least_time_has_the_prompt_and_the_steps(void **state)
{
    (void)state;
    const struct deadline_work work = {.prompt_rows = 100, .answer_tokens = 11, .context = 100};
    /* 8000 + 100 x 20 + 4950 x 0.01, and 10 steps of 8000 + 30 + 0.5 x (100 .. 109) */
    const uint64_t prompt_us = 10049, answer_us = 10 * 8030 + 522;
    assert_int_equal(deadline_least_us(&COST, NULL, &work), prompt_us);
    assert_int_equal(deadline_least_us(NULL, &COST, &work), answer_us);
    uint64_t us = deadline_least_us(&COST, &COST, &work);
    assert_true(us >= prompt_us + answer_us && us <= prompt_us + answer_us + 1);
    assert_int_equal(deadline_least_us(NULL, NULL, &work), 0);
    /* The answer's first token comes with the prompt. */
    assert_int_equal(deadline_least_us(NULL, &COST, &(struct deadline_work){5, 1, 5}), 0);
    assert_int_equal(deadline_least_us(&COST, &COST, &(struct deadline_work){0, 1, 5}), 0);
}

static void test_the_largest_numbers_do_not_overflow(void **state)
{
    (void)state;
    const struct step_cost slow = {1e9, 1e9, 1e9, 1e9, 1e9};
    const struct deadline_work work = {UINT32_MAX, UINT32_MAX, UINT64_MAX};
    uint64_t us = deadline_least_us(&slow, &slow, &work);
    assert_int_equal(us, UINT64_MAX / 2);
    assert_true(deadline_is_missed(0, UINT64_MAX / 4, us));
    assert_false(deadline_is_missed(UINT64_MAX - 1, UINT64_MAX, us));
}

static void test_only_a_length_that_is_sure_counts(void **state)
{
    (void)state;
    assert_int_equal(deadline_least_tokens(true, 100, 0, 0), 100);
    assert_int_equal(deadline_least_tokens(true, 100, 0, 99), 1);
    assert_int_equal(deadline_least_tokens(true, 100, 0, 100), 1);
    assert_int_equal(deadline_least_tokens(false, 100, 0, 0), 1);
    assert_int_equal(deadline_least_tokens(false, 100, 30, 10), 20);
}

static void test_only_certain_misses_are_misses(void **state)
{
    (void)state;
    assert_false(deadline_is_missed(1000, 2000, 1333)); /* three quarters fit */
    assert_true(deadline_is_missed(1000, 2000, 1400));
    assert_false(deadline_is_missed(1000, UINT64_MAX, UINT64_MAX / 2));
    assert_false(deadline_is_missed(1000, 1001, 0));
    assert_true(deadline_is_missed(1001, 1001, 0)); /* it has passed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_least_time_has_the_prompt_and_the_steps),
        cmocka_unit_test(test_the_largest_numbers_do_not_overflow),
        cmocka_unit_test(test_only_a_length_that_is_sure_counts),
        cmocka_unit_test(test_only_certain_misses_are_misses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
