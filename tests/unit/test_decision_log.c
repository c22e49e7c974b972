/* decision_log: the choices that a decision keeps, and why one of them won. */
#include "router/planner/decision_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct decision_alternative scored(uint64_t prefill, double total)
{
    return (struct decision_alternative){.prefill = prefill, .decode = 100, .total = total};
}

static struct decision of_totals(const double *totals, uint32_t count)
{
    struct decision decision;
    decision_begin(&decision, "goodput");
    for (uint32_t i = 0; i < count; i++)
        decision_consider(&decision, &(struct decision_alternative){
                                         .prefill = i + 1, .decode = 100, .total = totals[i]});
    return decision;
}

static void test_the_best_alternatives_are_kept_in_order(void **state)
{
    (void)state;
    const double totals[] = {9, 3, 7, 3, 1, 8, 2, 6, 5, 4};
    struct decision decision = of_totals(totals, 10);
    assert_int_equal(decision.considered, 10);
    assert_int_equal(decision.count, DECISION_MAX_ALTERNATIVES);
    const uint64_t order[] = {5, 7, 2, 4, 10, 9, 8, 3}; /* equal totals as they came */
    for (uint32_t i = 0; i < decision.count; i++)
        assert_int_equal(decision.alternatives[i].prefill, order[i]);
    assert_string_equal(decision.policy, "goodput");
    assert_true(decision.slo_class == DECISION_NO_CLASS);
}

static void test_the_winner_is_kept_though_it_is_not_among_the_best(void **state)
{
    (void)state;
    const double totals[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct decision decision = of_totals(totals, 9);
    struct decision_alternative explored = scored(9, 9), best = scored(1, 1);
    decision_choose(&decision, &explored, DECISION_EXPLORED);
    assert_int_equal(decision.count, DECISION_MAX_ALTERNATIVES);
    assert_int_equal(decision.chosen, DECISION_MAX_ALTERNATIVES - 1);
    assert_int_equal(decision.alternatives[decision.chosen].prefill, 9);
    assert_int_equal(decision.alternatives[6].prefill, 7);
    assert_int_equal(decision.why, DECISION_EXPLORED);
    assert_int_equal(decision.considered, 9);
    decision_choose(&decision, &best, DECISION_LEAST); /* asked again */
    assert_int_equal(decision.chosen, 0);
}

static void test_the_totals_say_why_the_least_won(void **state)
{
    (void)state;
    const double least[] = {2, 1, 3}, tie[] = {2, 1, 1}, only[] = {2}, none[] = {0};
    const struct {
        const double *totals;
        uint32_t count, chosen;
        enum decision_why why;
    } table[] = {{least, 3, 2, DECISION_LEAST},
                 {tie, 3, 3, DECISION_TIE},
                 {only, 1, 1, DECISION_ONLY},
                 {none, 0, 1, DECISION_ONLY}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct decision decision = of_totals(table[i].totals, table[i].count);
        uint32_t at = table[i].chosen;
        struct decision_alternative chosen =
            scored(at, table[i].count ? table[i].totals[at - 1] : 0);
        decision_choose(&decision, &chosen, DECISION_LEAST);
        assert_int_equal(decision.why, table[i].why);
        assert_int_equal(decision.alternatives[decision.chosen].prefill, at);
    }
    decision_consider(NULL, &(struct decision_alternative){0}); /* a search that keeps none */
    decision_choose(NULL, &(struct decision_alternative){0}, DECISION_LEAST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_best_alternatives_are_kept_in_order),
        cmocka_unit_test(test_the_winner_is_kept_though_it_is_not_among_the_best),
        cmocka_unit_test(test_the_totals_say_why_the_least_won),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
