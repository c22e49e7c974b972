/* What planning a step costs, counted and not timed: how many basic blocks of the scheduler run. The scheduler is compiled once
 * more for it (-fsanitize-coverage=trace-pc calls __sanitizer_cov_trace_pc in each), and schedule_bench takes the count for
 * its clock. So these figures are the same on any machine at any load; what they mean in microseconds, `baton bench schedule` says.
 *
 * Means: where few run, most steps begin and end no sequence, and the step in the middle shows none of that work. Not counted
 * is what libraries do: hashes of blocks, and the move of at most 8 bytes a sequence when one leaves. */
#include "common/engine/sched/schedule_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define FEW  16
#define MANY 1024

/* Heaps of blocks get higher: 1.01. A scan of all sequences for each one that ends is 1.15, one for each part of a step 20. */
#define LINEAR ((double)MANY / FEW * 1.05)

/* Of one step with 256 running, a third of it by sanitizers and coverage: at about 0.7 ns each far below the 100 us that it may take. */
#define RUNNING      256
#define RUNNING_MOST 40000

static uint64_t blocks_run;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    blocks_run++;
}

static uint64_t count_now(void)
{
    return blocks_run;
}

static const struct {
    const char *name;
    bool grow, receives;
    uint32_t pool_percent;
} modes[] = {
    {"all blocks reserved", .grow = false},
    {"growing, prefix cache", .grow = true},
    {"growing, received", .grow = true, .receives = true},
    {"growing, too few blocks", .grow = true, .pool_percent = 60},
};

static double cost_of(size_t mode, int policy, uint32_t sequences)
{
    struct schedule_bench bench = {.sequences = sequences,
                                   .steps = 100 * MANY / sequences, /* as many lives in each */
                                   .policy = (enum policy_kind)policy,
                                   .grow = modes[mode].grow,
                                   .prefix_cache = modes[mode].grow,
                                   .receives = modes[mode].receives,
                                   .pool_percent = modes[mode].pool_percent,
                                   .now_ns = count_now};
    struct schedule_bench_result result;
    assert_int_equal(schedule_bench_run(&bench, &result), STATUS_OK);
    return result.mean_ns;
}

static void test_a_step_costs_at_most_in_proportion_to_its_sequences(void **state)
{
    (void)state;
    for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode++)
        for (int policy = 0; policy < POLICIES; policy++) {
            double few = cost_of(mode, policy, FEW), many = cost_of(mode, policy, MANY);
            printf("%-24s %-5s %6.0f of %u, %7.0f of %u: x %.1f\n", modes[mode].name,
                   policy_of((enum policy_kind)policy)->name, few, FEW, many, MANY, many / few);
            assert_true(few > FEW); /* they are counted */
            assert_true(many / few <= LINEAR);
        }
}

static void test_a_step_of_256_is_cheap(void **state)
{
    (void)state;
    for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode++)
        for (int policy = 0; policy < POLICIES; policy++) {
            double blocks = cost_of(mode, policy, RUNNING);
            printf("%-24s %-5s %6.0f\n", modes[mode].name,
                   policy_of((enum policy_kind)policy)->name, blocks);
            assert_true(blocks <= RUNNING_MOST);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_costs_at_most_in_proportion_to_its_sequences),
        cmocka_unit_test(test_a_step_of_256_is_cheap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
