/* Thousands of cluster lives, one a seed: see sim.h for the played parts and the checks.
 *
 *     BATON_SIM_SEEDS=100000 test_handoff_sim     so many seeds, from BATON_SIM_FIRST (1) on
 *     BATON_SIM_SEED=1234 test_handoff_sim        this one, with every event printed
 *     BATON_SIM_SHRINK=0                          prints a failing life as it is; 1 or
 *                                                 more: shrinks it in at most so many lives
 *     BATON_SIM_IGNORE=reader,fence               does not check these invariants */
#include "tests/sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEEDS       3000
#define SHRINK_RUNS 20000

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    uint64_t value;
    if (!text)
        return otherwise;
    assert_true(str_to_u64(text, 0, UINT64_MAX, &value));
    return value;
}

static uint32_t ignored(void)
{
    const char *text = getenv("BATON_SIM_IGNORE");
    uint32_t set = 0;
    for (int i = 1; text && i < HOLDS_COUNT; i++)
        if (strstr(text, sim_invariant_name((enum sim_invariant)i)))
            set |= 1u << i;
    return set;
}

static void run_seed(struct sim_plan *plan, uint64_t seed, bool trace, struct sim_totals *totals)
{
    struct sim_result result;
    struct sim_totals again = {0};
    sim_plan_make(plan, seed);
    sim_run(plan, trace, totals, &result);
    if (result.broken == HOLDS_ALL)
        return;
    printf("BROKEN %s, seed %llu, after %llu events: %s\n", sim_invariant_name(result.broken),
           (unsigned long long)seed, (unsigned long long)result.event_count, result.failure);
    uint32_t runs = (uint32_t)number_of("BATON_SIM_SHRINK", SHRINK_RUNS);
    if (runs) {
        sim_shrink(plan, &result, runs);
        printf("The shortest life that was found where it breaks:\n");
    }
    sim_plan_print(plan);
    sim_run(plan, true, &again, &result);
    fflush(stdout);
    fail_msg("%s: %s (BATON_SIM_SEED=%llu)", sim_invariant_name(result.broken), result.failure,
             (unsigned long long)seed);
}

static void print_totals(const struct sim_totals *t)
{
#define SHOW(name) printf("  %-24s %llu\n", #name, (unsigned long long)t->name)
    SHOW(runs);
    SHOW(events);
    SHOW(ok);
    SHOW(cancelled);
    SHOW(deadline);
    SHOW(unavailable);
    SHOW(internal);
    SHOW(overloaded);
    SHOW(router_died);
    SHOW(admitted);
    SHOW(admitted_local);
    SHOW(ended_with_first_token);
    SHOW(bound_late);
    SHOW(regiven);
    SHOW(rerun);
    SHOW(orphans);
    SHOW(rereads);
    SHOW(held_again);
    SHOW(refused_blocks);
    SHOW(gone);
    SHOW(expired);
    SHOW(dropped);
    SHOW(early_bytes);
    SHOW(overtaken);
    SHOW(hung);
    SHOW(silent);
    SHOW(moved);
    SHOW(kept_out);
    SHOW(apart);
    SHOW(probed);
    SHOW(unpaid);
    SHOW(begun_anew);
#undef SHOW
    for (int i = 0; i < FAULT_COUNT; i++)
        printf("  fault %-18s %llu\n", sim_fault_name((enum sim_fault_kind)i),
               (unsigned long long)t->happened[i]);
    for (int i = 1; i <= SINK_REASON_INVALID; i++)
        printf("  given up: %-14s %llu\n", sink_reason_name((enum sink_reason)i),
               (unsigned long long)t->lost_by_reason[i]);
}

/* Checks that every kind of event happened. */
static void check_totals(const struct sim_totals *t)
{
    const uint64_t wanted[] = {t->ok,
                               t->cancelled,
                               t->deadline,
                               t->unavailable,
                               t->router_died,
                               t->admitted_local,
                               t->ended_with_first_token,
                               t->bound_late,
                               t->regiven,
                               t->rerun,
                               t->orphans,
                               t->rereads,
                               t->held_again,
                               t->refused_blocks,
                               t->gone,
                               t->expired,
                               t->dropped,
                               t->early_bytes,
                               t->overtaken,
                               t->hung,
                               t->silent,
                               t->moved,
                               t->kept_out,
                               t->apart,
                               t->probed,
                               t->unpaid,
                               t->begun_anew};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        assert_true(wanted[i] > 0);
    for (int i = 0; i < FAULT_COUNT; i++)
        assert_true(t->happened[i] > 0);
    /* test_sink*.c has the reasons of a peer that lies, or has more readers than places. */
    for (int i = SINK_REASON_GONE; i < SINK_REASON_INVALID; i++)
        assert_true(i == SINK_REASON_PROTOCOL || i == SINK_REASON_MADE_ROOM ||
                    t->lost_by_reason[i] > 0);
}

static void test_every_life_ends_well(void **state)
{
    (void)state;
    struct sim_totals totals = {0};
    struct sim_plan *plan = malloc(sizeof *plan);
    assert_non_null(plan);
    sim_ignored = ignored();
    if (getenv("BATON_SIM_SEED")) {
        run_seed(plan, number_of("BATON_SIM_SEED", 0), true, &totals);
        free(plan);
        return;
    }
    uint64_t first = number_of("BATON_SIM_FIRST", 1), seeds = number_of("BATON_SIM_SEEDS", SEEDS);
    for (uint64_t seed = first; seed < first + seeds; seed++)
        run_seed(plan, seed, false, &totals);
    free(plan);
    print_totals(&totals);
    if (seeds >= SEEDS)
        check_totals(&totals);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_life_ends_well)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
