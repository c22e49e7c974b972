/* step_run: only plans with rows count for the steps that fail in a row. */
#include "common/worker/step_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Blocks that move say nothing of the device's steps. */
static void test_a_plan_without_rows_resets_no_count_of_failed_steps(void **state)
{
    (void)state;
    struct engine_config config = {.model_dir = "tests/golden/models/llama",
                                   .kernels = {.f32 = true, .threads = 1},
                                   .block_tokens = 8,
                                   .block_count = 8,
                                   .swap_blocks = 8,
                                   .max_rows = 4,
                                   .max_sequences = 4};
    struct scheduler_config schedule = {.block_tokens = 8,
                                        .block_count = 8,
                                        .max_sequences = 4,
                                        .chunk_tokens = 4,
                                        .context = 16,
                                        .cost = cost_model_default()};
    static struct step_load load;
    struct step_run run = {.load = &load, .failed_in_row = 1, .failed_limit = 2};
    struct error err = {""};
    if (engine_open(&config, &run.engine, &err) != STATUS_OK ||
        engine_attach_pool(run.engine, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(scheduler_create(&schedule, &run.scheduler), STATUS_OK);
    assert_int_equal(scheduler_plan(run.scheduler, 0)->part_count, 0);
    struct block_move move = {.from = 1, .to = 2};
    step_run_plan(&run, &(struct step_plan){.swap_outs = &move, .swap_out_count = 1});
    assert_int_equal(run.failed_in_row, 1);
    scheduler_destroy(run.scheduler);
    engine_close(run.engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_plan_without_rows_resets_no_count_of_failed_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
