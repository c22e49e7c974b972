/* retry_budget: arrivals and time fill it, each retry takes one, it reports when the next comes. */
#include "router/planner/retry_budget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define S 1000000u

static const struct retry_budget_limits limits = {.percent = 10, .per_second = 2, .most = 5};

static uint32_t take_all(struct retry_budget *budget, uint64_t now_us)
{
    uint32_t taken = 0;
    while (retry_budget_take(budget, now_us))
        taken++;
    return taken;
}

static void test_arrivals_fill_it(void **state)
{
    (void)state;
    struct retry_budget budget;
    retry_budget_init(&budget, &limits, 7);
    assert_int_equal(retry_budget_left(&budget, 7), 5);
    assert_int_equal(take_all(&budget, 7), 5);
    for (uint32_t i = 0; i < 9; i++)
        retry_budget_arrived(&budget);
    assert_false(retry_budget_take(&budget, 7));
    retry_budget_arrived(&budget);
    assert_int_equal(retry_budget_next_us(&budget), 7);
    assert_int_equal(take_all(&budget, 7), 1);
    for (uint32_t i = 0; i < 1000; i++)
        retry_budget_arrived(&budget);
    assert_int_equal(take_all(&budget, 7), 5); /* no more are saved up */
}

static void test_time_fills_it(void **state)
{
    (void)state;
    struct retry_budget budget;
    retry_budget_init(&budget, &limits, 0);
    assert_int_equal(take_all(&budget, 0), 5);
    assert_int_equal(retry_budget_next_us(&budget), S / 2);
    assert_false(retry_budget_take(&budget, S / 2 - 1));
    assert_int_equal(retry_budget_next_us(&budget), S / 2);
    assert_true(retry_budget_take(&budget, S / 2));
    assert_int_equal(take_all(&budget, S / 2 + 2 * S), 4);
    assert_int_equal(take_all(&budget, UINT64_MAX), 5);
    assert_int_equal(take_all(&budget, 0), 0); /* a clock that went back gives nothing */
}

/* Whatever the order: no more than was there, than arrivals brought, and than time brought. */
static void test_the_bound(void **state)
{
    (void)state;
    struct retry_budget budget;
    retry_budget_init(&budget, &limits, 0);
    uint32_t taken = 0;
    for (uint64_t i = 1; i <= 10000; i++) {
        if (i % 3)
            retry_budget_arrived(&budget);
        taken += retry_budget_take(&budget, i * 1000);
        uint64_t arrived = i - i / 3;
        assert_true(1000 * taken <= 1000 * limits.most + 100 * arrived + 2 * i);
    }
    assert_true(taken > 600); /* and it gives what it has */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrivals_fill_it),
        cmocka_unit_test(test_time_fills_it),
        cmocka_unit_test(test_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
