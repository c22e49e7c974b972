/* Counts the cost of planning a step, without a clock: the number of basic blocks of the scheduler
 * that run. The scheduler is compiled once more for it (-fsanitize-coverage=trace-pc calls
 * __sanitizer_cov_trace_pc in each), and schedule_bench takes the count as its clock. So these
 * figures are the same on any machine at any load; `baton bench schedule` prints microseconds. The
 * figures are means per sequence with rows in the step. With few sequences, most steps begin and
 * end none, and the median step shows none of that work. The work of libraries isn't counted:
 * hashes of blocks, and the move of at most 8 bytes a sequence when one leaves. */
#include "common/engine/sched/schedule_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define FEW  16
#define MANY 1024

/* Bounds a running sequence's cost among many, divided by its cost among few. Measured: 0.95 at
 * most. A scan of all sequences for each one that ends gives 1.03, one for each part of a step 20.
 */
#define LINEAR 1.0

/* Bounds the count of one step with 256 running sequences: 28,500, a fifth of it by sanitizers. It
 * is 31,100 if blocks are counted that no share bounds, and answers ranked that all have a place.
 * At about 0.7 ns each this is far below the limit of 100 us. */
#define RUNNING      256
#define RUNNING_MOST 30000

/* Bounds the most expensive step, divided by the mean step, in which a few sequences end, begin and
 * give up their blocks. Measured: 2.9. */
#define WORST 3.2

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

/* With too few blocks, all sequences begin before the first one ends, so that most have to give up
 * their blocks. */
#define TOO_FEW .grow = true, .pool_percent = 40, .answers = {384, 448}, .lives = 4

static const struct mode {
    const char *name;
    bool grow, receives;
    uint32_t pool_percent;
    struct schedule_bench_answers answers;
    uint32_t lives; /* how many times the steps of the others; 0: 1 */
} modes[] = {
    {"all blocks reserved", .grow = false},
    {"growing, prefix cache", .grow = true},
    {"growing, received", .grow = true, .receives = true},
    {"too few blocks", TOO_FEW},
    {"too few blocks, received", TOO_FEW, .receives = true},
};
enum { MODES = sizeof modes / sizeof *modes };

static struct schedule_bench_result run(const struct mode *mode, enum policy_kind policy,
                                        uint32_t sequences)
{
    uint32_t lives = mode->lives ? mode->lives : 1;
    struct schedule_bench bench = {.sequences = sequences,
                                   .steps = lives * 100 * MANY / sequences, /* as many in each */
                                   .policy = policy,
                                   .grow = mode->grow,
                                   .prefix_cache = mode->grow,
                                   .receives = mode->receives,
                                   .pool_percent = mode->pool_percent,
                                   .answers = mode->answers,
                                   .now_ns = count_now};
    struct schedule_bench_result result;
    assert_int_equal(schedule_bench_run(&bench, &result), STATUS_OK);
    return result;
}

/* Otherwise its cost shows nothing about preemption. */
static void check_preempted(const struct mode *mode, const struct schedule_bench_result *result,
                            uint32_t sequences)
{
    if (mode->pool_percent) {
        assert_true(result->swapped_out > 0 && result->dropped > 0);
        assert_true(result->swapped_out + result->dropped >= sequences / 4);
    } else {
        /* room for all on average: answers may all be long at once */
        assert_true(result->swapped_out + result->dropped <= sequences / 8);
    }
}

static void check_mode(const struct mode *mode, enum policy_kind policy)
{
    static const uint32_t sizes[] = {FEW, RUNNING, MANY};
    double each[3];
    printf("%-25s %-5s", mode->name, policy_of(policy)->name);
    for (int i = 0; i < 3; i++) {
        struct schedule_bench_result result = run(mode, policy, sizes[i]);
        each[i] = result.mean_ns / result.mean_parts;
        double worst = (double)result.max_ns / result.mean_ns;
        printf(" | %4.0f of %4u: %4.0f each, worst x %.1f, preempted %3.0f", result.mean_parts,
               sizes[i], each[i], worst, (double)(result.swapped_out + result.dropped));
        assert_true(each[i] > 1); /* they are counted */
        assert_true(sizes[i] != RUNNING || result.mean_ns <= RUNNING_MOST);
        assert_true(sizes[i] == FEW || worst <= WORST);
        check_preempted(mode, &result, sizes[i]);
    }
    printf(" | x %.2f\n", each[2] / each[0]);
    assert_true(each[2] / each[0] <= LINEAR);
}

static void test_a_step_costs_at_most_in_proportion_to_its_sequences(void **state)
{
    (void)state;
    for (int mode = 0; mode < MODES; mode++)
        for (int policy = 0; policy < POLICIES; policy++)
            check_mode(&modes[mode], (enum policy_kind)policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_costs_at_most_in_proportion_to_its_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
