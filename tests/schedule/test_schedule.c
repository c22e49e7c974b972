/* Thousands of steps of random schedules. schedule_sim.h names the played parts and the invariants.
 * Each seed's life runs twice: step after step, and with steps in flight.
 *
 *     BATON_SCHEDULE_STEPS=100000 test_schedule   so many steps, 150 a life, from seed
 *                                                 BATON_SCHEDULE_FIRST (1) on
 *     BATON_SCHEDULE_SEED=1234 test_schedule      this life, with every event printed; with
 *                                                 BATON_SCHEDULE_AHEAD=1 the one with steps in
 *                                                 flight
 *     BATON_SCHEDULE_ONLY=test_overload*          these tests alone
 *     BATON_SCHEDULE_QUIET=1                      ends at the first broken rule, without its life
 */
#include "tests/schedule/schedule_sim.h"

#include "common/base/str.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define STEPS      100000
#define LIFE_STEPS 150

static struct life life;

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    uint64_t value;
    if (!text)
        return otherwise;
    assert_true(str_to_u64(text, 0, UINT64_MAX, &value));
    return value;
}

/* Prints the line by which schedule_mutants.py knows a broken rule. */
static void say_broken(enum life_invariant invariant, uint64_t seed, const char *sentence)
{
    printf("BROKEN %s, seed %llu: %s\n", life_invariant_name(invariant), (unsigned long long)seed,
           sentence);
    fflush(stdout);
    if (getenv("BATON_SCHEDULE_QUIET"))
        exit(EXIT_FAILURE);
}

static void run_life(uint64_t seed, bool ahead, bool trace)
{
    life_run(&life, seed, ahead, LIFE_STEPS, trace);
    if (life.broken == HOLDS_ALL)
        return;
    say_broken(life.broken, seed, life.failure);
    if (!trace)
        life_run(&life, seed, ahead, LIFE_STEPS, true);
    fflush(stdout);
    fail_msg("%s: %s (BATON_SCHEDULE_SEED=%llu%s)", life_invariant_name(life.broken), life.failure,
             (unsigned long long)seed, ahead ? " BATON_SCHEDULE_AHEAD=1" : "");
}

static void run(uint64_t seed)
{
    run_life(seed, false, false);
    run_life(seed, true, false);
}

/* Cached blocks that a hand-off kept from being evicted were counted as room: in these lives the
 * oldest had no row for a step. */
static void test_lives_that_broke_once(void **state)
{
    (void)state;
    static const uint64_t seeds[] = {57222, 117991};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        run(seeds[i]);
        assert_int_equal(life.broken, HOLDS_ALL);
    }
}

/* In virtual time. */
static void expect(bool holds, enum life_invariant invariant, const char *sentence)
{
    if (holds)
        return;
    say_broken(invariant, 0, sentence);
    fail_msg("%s: %s", life_invariant_name(invariant), sentence);
}

static void test_a_light_tenant_beside_a_heavy_one(void **state)
{
    (void)state;
    expect(fair_alternates(), HOLDS_TURN, "two equal tenants don't take turns");
    for (int grow = 0; grow < 2; grow++) {
        struct fair_result result = fair_run(grow);
        double ratio = (double)result.beside_us / (double)result.alone_us;
        printf(
            "%-9s P99 of the first token: alone %.1f ms, beside 128 answers of 2,000 tokens %.1f "
            "ms (x %.2f); %u and %u ended\n",
            grow ? "growing:" : "reserved:", (double)result.alone_us / 1000,
            (double)result.beside_us / 1000, ratio, result.light_count, result.heavy_count);
        expect(ratio <= 3, HOLDS_TURN, "the light tenant waits more than 3 times as long as alone");
        expect(result.light_count == 300, HOLDS_TURN, "some of the light tenant's never end");
        expect(result.heavy_count == 128, HOLDS_TURN, "some of the heavy tenant's never end");
    }
}

static void test_overload_with_deadlines(void **state)
{
    (void)state;
    static const double loads[] = {0.8, 5, 10, 0.8, 5, 10};
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        struct overload_result result = overload_run(loads[i], i < 3 ? 0 : 1000000);
        double wasted = (double)result.wasted_us / (double)result.work_us;
        printf("%sload %4.1f: %4u in time of %u that were possible, %4u missed, %.1f%% of the work "
               "was for them, %u given up early\n",
               i < 3 ? "" : "prompts alone, ", loads[i], result.in_time, result.capacity,
               result.missed, 100 * wasted, result.given_up_early);
        expect(wasted <= 0.1, HOLDS_DEADLINE, "more than a tenth of the work is for misses");
        expect(loads[i] > 1 || result.missed == 0, HOLDS_DEADLINE, "misses without overload");
        expect(loads[i] < 1 || result.in_time >= result.capacity * 0.8, HOLDS_DEADLINE,
               "overload leaves less than 80% of the goodput");
    }
    expect(deadline_alone(1.05, 100) == 100, HOLDS_DEADLINE, "given up though it is in time");
    expect(deadline_alone(0.5, 100) == 0, HOLDS_DEADLINE, "begun though it is late");
    expect(deadline_alone(0.9, 100) < 90, HOLDS_DEADLINE, "goes on though it is late");
}

static void test_random_schedules(void **state)
{
    (void)state;
    if (getenv("BATON_SCHEDULE_SEED")) {
        run_life(number_of("BATON_SCHEDULE_SEED", 0), number_of("BATON_SCHEDULE_AHEAD", 0), true);
        return;
    }
    uint64_t steps = number_of("BATON_SCHEDULE_STEPS", STEPS);
    uint64_t seed = number_of("BATON_SCHEDULE_FIRST", 1);
    while (life.step_count < steps)
        run(seed++);
    for (int i = 0; i < DID_COUNT; i++) {
        printf("%-12s %8llu\n", life_event_name((enum life_event)i),
               (unsigned long long)life.happened[i]);
        if (steps >= STEPS)
            assert_true(life.happened[i] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lives_that_broke_once),
                                       cmocka_unit_test(test_a_light_tenant_beside_a_heavy_one),
                                       cmocka_unit_test(test_overload_with_deadlines),
                                       cmocka_unit_test(test_random_schedules)};
    cmocka_set_test_filter(getenv("BATON_SCHEDULE_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
