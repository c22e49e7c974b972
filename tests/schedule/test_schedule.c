/* Thousands of steps of random schedules. schedule_sim.h names the played parts and the invariants.
 *
 *     BATON_SCHEDULE_STEPS=100000 test_schedule   so many steps, 150 a life, from seed
 *                                                 BATON_SCHEDULE_FIRST (1) on
 *     BATON_SCHEDULE_SEED=1234 test_schedule      this life, with every event printed
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

static void run(uint64_t seed, bool trace)
{
    life_run(&life, seed, LIFE_STEPS, trace);
    if (life.broken == HOLDS_ALL)
        return;
    printf("BROKEN %s, seed %llu: %s\n", life_invariant_name(life.broken), (unsigned long long)seed,
           life.failure);
    if (!trace && !getenv("BATON_SCHEDULE_QUIET"))
        life_run(&life, seed, LIFE_STEPS, true);
    fflush(stdout);
    fail_msg("%s: %s (BATON_SCHEDULE_SEED=%llu)", life_invariant_name(life.broken), life.failure,
             (unsigned long long)seed);
}

/* Cached blocks that a hand-off kept from being evicted were counted as room: in these lives the
 * oldest had no row for a step. */
static void test_lives_that_broke_once(void **state)
{
    (void)state;
    static const uint64_t seeds[] = {57222, 117991};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        run(seeds[i], false);
        assert_int_equal(life.broken, HOLDS_ALL);
    }
}

static void test_random_schedules(void **state)
{
    (void)state;
    if (getenv("BATON_SCHEDULE_SEED")) {
        run(number_of("BATON_SCHEDULE_SEED", 0), true);
        return;
    }
    uint64_t steps = number_of("BATON_SCHEDULE_STEPS", STEPS);
    uint64_t seed = number_of("BATON_SCHEDULE_FIRST", 1);
    while (life.step_count < steps)
        run(seed++, false);
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
                                       cmocka_unit_test(test_random_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
