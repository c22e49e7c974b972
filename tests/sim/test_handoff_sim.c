/* Thousands of cluster lives, one a seed: see sim.h for what is played and what is checked.
 *
 *     BATON_SIM_SEEDS=100000 test_handoff_sim     that many seeds
 *     BATON_SIM_SEED=1234 test_handoff_sim        this one, with every event printed */
#include "tests/sim/sim.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SEEDS 2000

static volatile uint64_t current_seed;

/* An ASSERT in the code under test: the seed is worth more than the core. */
static void on_abort(int signal_number)
{
    char line[64];
    int length = snprintf(line, sizeof line, "\nBATON_SIM_SEED=%llu aborted\n",
                          (unsigned long long)current_seed);
    if (write(STDERR_FILENO, line, (size_t)length) < 0)
        _exit(1);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    uint64_t value;
    if (!text)
        return otherwise;
    assert_true(str_to_u64(text, 0, UINT64_MAX, &value));
    return value;
}

static void run_seed(uint64_t seed, bool trace, struct sim_totals *totals)
{
    char failure[512];
    current_seed = seed;
    if (sim_run(seed, trace, totals, failure))
        return;
    if (!trace)
        sim_run(seed, true, totals, failure);
    fail_msg("%s (BATON_SIM_SEED=%llu)", failure, (unsigned long long)seed);
}

static void print_totals(const struct sim_totals *t)
{
#define SHOW(name) printf("  %-24s %llu\n", #name, (unsigned long long)t->name)
    SHOW(runs);
    SHOW(events);
    SHOW(faults);
    SHOW(ok);
    SHOW(cancelled);
    SHOW(unavailable);
    SHOW(overloaded);
    SHOW(deadline);
    SHOW(admitted);
    SHOW(admitted_local);
    SHOW(ended_with_first_token);
    SHOW(regiven);
    SHOW(rerun);
    SHOW(orphans);
    SHOW(rereads);
    SHOW(held_again);
    SHOW(gone);
    SHOW(expired);
    SHOW(dropped);
    SHOW(early_bytes);
#undef SHOW
    for (int i = 1; i <= SINK_REASON_INVALID; i++)
        printf("  lost: %-18s %llu\n", sink_reason_name((enum sink_reason)i),
               (unsigned long long)t->lost_by_reason[i]);
}

static void test_every_life_ends_well(void **state)
{
    (void)state;
    struct sim_totals totals = {0};
    signal(SIGABRT, on_abort);
    if (getenv("BATON_SIM_SEED")) {
        run_seed(number_of("BATON_SIM_SEED", 0), true, &totals);
        return;
    }
    uint64_t seeds = number_of("BATON_SIM_SEEDS", SEEDS);
    for (uint64_t seed = 1; seed <= seeds; seed++)
        run_seed(seed, false, &totals);
    print_totals(&totals);
    if (seeds < SEEDS)
        return;
    /* What the seeds are for did happen. */
    const uint64_t wanted[] = {totals.faults,
                               totals.ok,
                               totals.cancelled,
                               totals.admitted_local,
                               totals.ended_with_first_token,
                               totals.regiven,
                               totals.rerun,
                               totals.orphans,
                               totals.rereads,
                               totals.held_again,
                               totals.gone,
                               totals.expired,
                               totals.dropped,
                               totals.early_bytes,
                               totals.lost_by_reason[SINK_REASON_GONE],
                               totals.lost_by_reason[SINK_REASON_PEER_DOWN],
                               totals.lost_by_reason[SINK_REASON_SILENT],
                               totals.lost_by_reason[SINK_REASON_READ],
                               totals.lost_by_reason[SINK_REASON_CHECKSUM],
                               totals.lost_by_reason[SINK_REASON_LIMIT]};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        assert_true(wanted[i] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_life_ends_well)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
