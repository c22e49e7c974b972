/* The order of the placement policies in virtual time: on small workloads goodput attains at least
 * 95 % of what the best other policy does. The tournament has the real sizes (tests/bench). With
 * BATON_LONG=1: more workloads, and more requests. */
#include "common/engine/mock/mock_engine.h"
#include "tests/bench/tournament/contest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define LEAST 0.95

static const struct shape pairs = {.name = "2P+2D", .prefills = 2, .decodes = 2},
                          alone = {.name = "3 colocated", .decodes = 3};

static struct contest_result run(const struct contest *contest)
{
    struct contest_result result;
    struct error err;
    if (contest_run(contest, &result, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_true(result.consistent);
    return result;
}

/* `rate`: requests a second and device, somewhat more than least-tokens can do. */
static void check_order(const struct shape *shape, const char *workload, double rate,
                        uint32_t count)
{
    struct contest contest = {.shape = shape,
                              .workload = workload_find(workload),
                              .rate = rate * (shape->prefills + shape->decodes),
                              .count = count,
                              .seed = 1};
    struct error err;
    double best = 0;
    const char *name = "";
    if (profile_read("a100-opt-13b-tp1-distserve", &contest.profile, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    contest.profile.link_bytes_per_second = 50e9;
    contest.profile.noise_sigma = 0.05;
    for (enum placement_policy p = 0; p < PLACEMENT_POLICY_COUNT; p++) {
        contest.policy = p;
        double attained = run(&contest).attained;
        print_message("%s, %s: %s %.0f of %u\n", workload, shape->name, placement_policy_names[p],
                      attained, count);
        if (p != PLACEMENT_GOODPUT && attained > best) {
            best = attained;
            name = placement_policy_names[p];
        }
    }
    contest.policy = PLACEMENT_GOODPUT;
    double attained = run(&contest).attained;
    if (attained < LEAST * best)
        fail_msg("%s, %s: goodput attains %.0f, %s %.0f", workload, shape->name, attained, name,
                 best);
}

static void test_goodput_is_first_or_nearly(void **state)
{
    (void)state;
    check_order(&pairs, "prefixes", 4.5, 160);
    check_order(&alone, "prefixes", 3.2, 160);
}

static void test_goodput_is_first_or_nearly_for_long(void **state)
{
    (void)state;
    if (!getenv("BATON_LONG"))
        skip();
    check_order(&pairs, "prefixes", 4.2, 600);
    check_order(&alone, "prefixes", 3.2, 600);
    check_order(&pairs, "siblings", 0.8, 600);
    check_order(&alone, "siblings", 0.8, 600);
    check_order(&pairs, "turns", 2.9, 1500);
    check_order(&alone, "turns", 2.9, 1500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goodput_is_first_or_nearly),
        cmocka_unit_test(test_goodput_is_first_or_nearly_for_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
