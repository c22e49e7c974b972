/* scheduler: which sequences surely miss their deadlines, by the times of the steps so far. */
#include "common/engine/sched/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* A row of a prompt takes long, so that prompts outweigh answers where they count. */
enum { BLOCK = 4, ROW_US = 1000000, STEP_US = 20000 };

struct served {
    struct scheduler *scheduler;
    uint64_t now_us;
};

static struct served start(uint32_t block_count, uint32_t host_slots)
{
    struct scheduler_config config = {.block_tokens = BLOCK,
                                      .block_count = block_count,
                                      .max_sequences = 8,
                                      .chunk_tokens = 64,
                                      .context = 400,
                                      .grow = host_slots > 0,
                                      .host_slots = host_slots,
                                      .cost = cost_model_default()};
    config.cost.prefill_row_us = ROW_US;
    config.cost.prefill_position_us = 0;
    config.cost.decode_row_us = 1e-3;
    config.cost.step_us = STEP_US;
    config.cost.swap_bytes_per_us = 1e9; /* swap, where there are slots */
    struct served served = {.now_us = 1};
    assert_int_equal(scheduler_create(&config, &served.scheduler), STATUS_OK);
    return served;
}

/* left_us 0: no deadline */
static void add(struct served *served, uint64_t request, uint32_t tokens, uint32_t max_tokens,
                uint64_t left_us)
{
    struct sequence_spec spec = {.key = {request, 1},
                                 .plan = PLAN_LOCAL,
                                 .arrived_us = served->now_us,
                                 .deadline_left_us = left_us,
                                 .token_count = tokens,
                                 .sampling = sampling_default()};
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.ignore_eos = true;
    spec.tokens = calloc(tokens, sizeof *spec.tokens);
    assert_non_null(spec.tokens);
    assert_int_equal(scheduler_add(served->scheduler, &spec, NULL), STATUS_OK);
}

static struct sequence *find(const struct served *served, uint64_t request)
{
    return scheduler_find(served->scheduler, (struct sequence_key){request, 1});
}

/* One step, which takes as long as expected, and `more_us`. Ended sequences go. */
static void step(struct served *served, uint64_t more_us)
{
    struct scheduler *s = served->scheduler;
    while (scheduler_reserve(s, served->now_us))
        ;
    const struct step_plan *plan = scheduler_plan(s, served->now_us);
    uint64_t took_us = STEP_US + more_us;
    for (uint32_t i = 0; i < plan->part_count; i++)
        if (plan->parts[i].sequence->state == SEQUENCE_PREFILL)
            took_us += (uint64_t)ROW_US * plan->parts[i].row_count;
    served->now_us += took_us;
    scheduler_step_done(s, plan, took_us, 1);
    for (uint32_t i = 0; i < plan->part_count; i++)
        if (scheduler_rows_done(s, &plan->parts[i], 99) != FINISH_NONE)
            scheduler_remove(s, plan->parts[i].sequence);
}

static bool misses(struct served *served)
{
    return scheduler_next_missed(served->scheduler, served->now_us) != NULL;
}

/* A hiccup, or some slow steps, don't make steps slow that were fast. */
static void test_slow_steps_end_none_that_is_in_time(void **state)
{
    (void)state;
    static const struct {
        int count;
        uint64_t more_us;
    } slow[] = {{1, 2000000}, {20, 200000}};
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        struct served served = start(200, 0);
        add(&served, 1, 1, 300, 0);
        for (int steps = 0; steps < 50; steps++)
            step(&served, 0);
        for (int steps = 0; steps < slow[i].count; steps++)
            step(&served, slow[i].more_us);
        add(&served, 2, 1, 100, ROW_US + 105 * STEP_US);
        for (int steps = 0; find(&served, 2); steps++) {
            assert_false(misses(&served));
            step(&served, 0);
        }
        scheduler_destroy(served.scheduler);
    }
}

/* The first steps of a worker may be a hiccup: before some were measured they end none. Then the
 * fastest of them counts. */
static void test_first_steps_end_none_that_is_in_time(void **state)
{
    (void)state;
    struct served served = start(200, 0);
    add(&served, 1, 1, 300, 0);
    step(&served, 0); /* its prompt */
    step(&served, 100 * STEP_US);
    add(&served, 2, 1, 100, ROW_US + 105 * STEP_US);
    for (int steps = 0; find(&served, 2); steps++) {
        assert_false(misses(&served));
        step(&served, 0);
    }
    add(&served, 3, 1, 300, ROW_US + 100 * STEP_US); /* 300 take too long */
    assert_true(misses(&served));
    scheduler_destroy(served.scheduler);
}

/* The rows of a sequence in host memory are there when it goes on. */
static void test_a_swapped_prompt_is_not_computed_again(void **state)
{
    (void)state;
    struct served served = start(5, 5);
    for (uint64_t request = 3; request < 13; request++) { /* the cost of prompts is known */
        add(&served, request, 1, 1, 0);
        step(&served, 0);
    }
    add(&served, 1, 7, 9, 0);
    add(&served, 2, 3, 9, 11 * ROW_US);
    while (find(&served, 2)->state != SEQUENCE_SWAPPED)
        step(&served, 0);
    uint64_t left_us = find(&served, 2)->deadline_us - served.now_us;
    assert_true(left_us < ROW_US && left_us > 20 * STEP_US);
    assert_false(misses(&served));
    scheduler_destroy(served.scheduler);
}

/* Prompts count once some were measured. The guess before may be many times off. */
static void test_a_guess_of_a_prompt_ends_none(void **state)
{
    (void)state;
    struct served served = start(200, 0);
    for (uint64_t measured = 0; measured < 9; measured++) {
        add(&served, 100, 10, 1, 5 * ROW_US);
        assert_int_equal(misses(&served), measured >= 8);
        scheduler_remove(served.scheduler, find(&served, 100));
        served.now_us += ROW_US;
        assert_false(misses(&served)); /* the next search is a new one */
        add(&served, 1 + measured, 1, 1, 0);
        step(&served, 0);
    }
    scheduler_destroy(served.scheduler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_steps_end_none_that_is_in_time),
        cmocka_unit_test(test_first_steps_end_none_that_is_in_time),
        cmocka_unit_test(test_a_swapped_prompt_is_not_computed_again),
        cmocka_unit_test(test_a_guess_of_a_prompt_ends_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
