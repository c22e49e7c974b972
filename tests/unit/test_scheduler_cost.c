/* scheduler: the reported times of steps and swaps decide the next plan, by the cost model and the
 * policy. */
#include "common/engine/sched/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { BLOCK = 4, STEP_US = 1000000, SWAP_BLOCK_US = 100 };

static struct scheduler *make(struct scheduler_config config, double row_us)
{
    struct scheduler *s;
    config.block_tokens = BLOCK;
    config.max_sequences = 8;
    config.chunk_tokens = 64;
    config.context = 60;
    config.cost = cost_model_default();
    config.cost.prefill_row_us = row_us;
    config.cost.prefill_position_us = 0;
    config.cost.step_us = STEP_US; /* rows are a small share of it: their cost is learned slowly */
    config.cost.block_bytes = 1000 * SWAP_BLOCK_US;
    config.cost.swap_bytes_per_us = 1000;
    assert_int_equal(scheduler_create(&config, &s), STATUS_OK);
    return s;
}

static void add(struct scheduler *s, enum sequence_plan plan, uint64_t request, uint32_t tokens,
                uint32_t max_tokens)
{
    struct sequence_spec spec = {
        .key = {request, 1}, .plan = plan, .token_count = tokens, .sampling = sampling_default()};
    spec.sampling.max_tokens = max_tokens;
    spec.tokens = calloc(tokens, sizeof *spec.tokens);
    assert_non_null(spec.tokens);
    assert_int_equal(scheduler_add(s, &spec, NULL), STATUS_OK);
}

/* One step with all around it; the first request that had rows, 0: none had. */
static uint64_t step(struct scheduler *s, uint64_t now_us, uint64_t took_us, uint64_t swap_us)
{
    for (struct sequence *sequence; (sequence = scheduler_reserve(s, now_us));)
        if (sequence->plan == PLAN_RECEIVE)
            assert_int_equal(scheduler_admit(s, sequence, 99), FINISH_NONE);
    const struct step_plan *plan = scheduler_plan(s, now_us);
    uint64_t first = plan->part_count ? plan->parts[0].sequence->key.request : 0;
    scheduler_step_done(s, plan, took_us, swap_us);
    for (uint32_t i = 0; i < plan->part_count; i++)
        if (scheduler_rows_done(s, &plan->parts[i], 99) != FINISH_NONE)
            scheduler_remove(s, plan->parts[i].sequence);
    return first;
}

/* Two that grow into each other's blocks: the newer one gives up 2 blocks with 8 rows. */
static void live_through_a_preemption(struct scheduler *s, uint64_t swap_us)
{
    add(s, PLAN_LOCAL, 1, 7, 9);
    add(s, PLAN_LOCAL, 2, 3, 9);
    while (step(s, 0, STEP_US, swap_us))
        ;
}

static void expect_preemptions(const struct scheduler *s, uint64_t swapped, uint64_t dropped)
{
    struct scheduler_load load = scheduler_load(s);
    assert_int_equal(load.swapped_out, swapped);
    assert_int_equal(load.dropped, dropped);
}

/* Out and in are 4 x 100 us; there is room in host memory each time. */
static void test_the_cheaper_of_swap_and_recompute(void **state)
{
    (void)state;
    struct scheduler_config config = {.block_count = 5, .grow = true, .host_slots = 5};
    struct scheduler *s = make(config, 48); /* 384 us */
    live_through_a_preemption(s, 2 * SWAP_BLOCK_US);
    expect_preemptions(s, 0, 1);
    scheduler_destroy(s);
    s = make(config, 52); /* 416 us */
    live_through_a_preemption(s, 2 * SWAP_BLOCK_US);
    expect_preemptions(s, 1, 0);
    live_through_a_preemption(s, 100 * SWAP_BLOCK_US); /* it turns out to be dearer */
    expect_preemptions(s, 2, 0);
    live_through_a_preemption(s, 100 * SWAP_BLOCK_US);
    expect_preemptions(s, 2, 1);
    scheduler_destroy(s);
}

static const struct scheduler_config one_place = {
    .block_count = 40, .policy = POLICY_MLFQ, .starve_us = 1000000, .max_batch_sequences = 1};

static void test_a_prompt_joins_the_queue_of_its_cost(void **state)
{
    (void)state;
    struct scheduler *s = make(one_place, 1000);
    add(s, PLAN_LOCAL, 1, 30, 20); /* 40 ms */
    add(s, PLAN_LOCAL, 2, 4, 1);   /* 10 ms */
    assert_int_equal(step(s, 0, 1, 0), 2);
    assert_int_equal(step(s, 1, 1, 0), 1);
    scheduler_destroy(s);
}

static void test_queues_by_what_steps_took(void **state)
{
    (void)state;
    struct scheduler *s = make(one_place, 1000);
    add(s, PLAN_RECEIVE, 1, 4, 20);
    add(s, PLAN_RECEIVE, 2, 4, 20);
    assert_int_equal(step(s, 0, 10000, 0), 1);
    assert_int_equal(step(s, 10000, 10000, 0), 2);
    assert_int_equal(step(s, 20000, 20000, 0), 1);
    assert_int_equal(step(s, 40000, 1, 0), 2);
    assert_int_equal(step(s, 1019999, 1, 0), 2);
    assert_int_equal(step(s, 1020000, 9999, 0), 1); /* no rows for a second */
    add(s, PLAN_RECEIVE, 3, 4, 20);
    assert_int_equal(step(s, 1029999, 1, 0), 1); /* the end of its quantum */
    assert_int_equal(step(s, 1030000, 1, 0), 3);
    scheduler_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cheaper_of_swap_and_recompute),
        cmocka_unit_test(test_a_prompt_joins_the_queue_of_its_cost),
        cmocka_unit_test(test_queues_by_what_steps_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
