/* scheduler: which sequences get blocks, which rows a step has, when an answer ends, and that every
 * block comes back. */
#include "common/base/rng.h"
#include "common/engine/sched/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK = 4, BLOCKS = 16, CONTEXT = 40, SEQUENCES = 4, CHUNK = 8, END = 2 };

static struct scheduler *make(void)
{
    static const uint32_t end_ids[] = {END};
    struct scheduler_config config = {.block_tokens = BLOCK,
                                      .block_count = BLOCKS,
                                      .max_sequences = SEQUENCES,
                                      .chunk_tokens = CHUNK,
                                      .context = CONTEXT,
                                      .end_ids = end_ids,
                                      .end_id_count = 1};
    struct scheduler *scheduler;
    assert_int_equal(scheduler_create(&config, &scheduler), STATUS_OK);
    return scheduler;
}

static struct sequence_spec spec_of(uint64_t request, enum sequence_plan plan, uint32_t tokens,
                                    uint32_t emitted, uint32_t max_tokens)
{
    struct sequence_spec spec = {.key = {request, 1},
                                 .plan = plan,
                                 .token_count = tokens,
                                 .emitted_count = emitted,
                                 .sampling = sampling_default()};
    spec.sampling.max_tokens = max_tokens;
    spec.tokens = calloc(tokens, sizeof *spec.tokens);
    for (uint32_t i = 0; i < tokens; i++)
        spec.tokens[i] = 10 + i;
    return spec;
}

static void add(struct scheduler *s, uint64_t request, enum sequence_plan plan, uint32_t tokens,
                uint32_t max_tokens)
{
    struct sequence_spec spec = spec_of(request, plan, tokens, 0, max_tokens);
    assert_int_equal(scheduler_add(s, &spec, NULL), STATUS_OK);
}

static uint32_t plan(struct scheduler *s, const struct planned_rows **parts)
{
    const struct step_plan *made = scheduler_plan(s, 0);
    assert_int_equal(made->swap_out_count + made->swap_in_count, 0);
    assert_false(made->freed);
    *parts = made->parts;
    return made->part_count;
}

static void test_what_never_fits_is_refused_with_the_numbers(void **state)
{
    (void)state;
    struct scheduler *s = make();
    struct error err;
    struct sequence_spec long_prompt = spec_of(1, PLAN_HAND_OFF, CONTEXT, 0, 1);
    assert_int_equal(scheduler_add(s, &long_prompt, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "40 tokens of prompt"));
    free(long_prompt.tokens);
    struct sequence_spec nothing_left = spec_of(1, PLAN_HAND_OFF, 8, 3, 3);
    assert_int_equal(scheduler_add(s, &nothing_left, &err), STATUS_INVALID);
    free(nothing_left.tokens);
    for (uint64_t i = 0; i < SEQUENCES; i++)
        add(s, i, PLAN_HAND_OFF, 4, 1);
    struct sequence_spec one_more = spec_of(9, PLAN_HAND_OFF, 4, 0, 1);
    assert_int_equal(scheduler_add(s, &one_more, &err), STATUS_LIMIT);
    free(one_more.tokens);
    scheduler_destroy(s);
}

static void test_a_pool_smaller_than_the_request(void **state)
{
    (void)state;
    struct scheduler_config config = {.block_tokens = BLOCK,
                                      .block_count = 3,
                                      .max_sequences = 2,
                                      .chunk_tokens = CHUNK,
                                      .context = CONTEXT};
    struct scheduler *s;
    struct error err;
    assert_int_equal(scheduler_create(&config, &s), STATUS_OK);
    struct sequence_spec spec = spec_of(1, PLAN_RECEIVE, 8, 0, 5);
    assert_int_equal(scheduler_add(s, &spec, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "needs 4 KV blocks"));
    free(spec.tokens);
    scheduler_destroy(s);
}

static void test_blocks_first_come_first_served(void **state)
{
    (void)state;
    struct scheduler *s = make();
    add(s, 1, PLAN_RECEIVE, 30, 10); /* 10 blocks */
    add(s, 2, PLAN_RECEIVE, 20, 12); /* 8: must wait */
    add(s, 3, PLAN_RECEIVE, 4, 1);   /* 2: would fit, but doesn't overtake */
    struct sequence *first = scheduler_reserve(s, 0);
    assert_int_equal(first->key.request, 1);
    assert_int_equal(first->state, SEQUENCE_RESERVED);
    assert_int_equal(first->block_count, 10);
    assert_null(scheduler_reserve(s, 0));
    assert_int_equal(scheduler_load(s).blocks[KV_BLOCK_LANDING], 10);
    assert_int_equal(scheduler_load(s).waiting, 2);
    scheduler_remove(s, first);
    assert_int_equal(scheduler_reserve(s, 0)->key.request, 2);
    assert_int_equal(scheduler_reserve(s, 0)->key.request, 3);
    scheduler_destroy(s);
}

static void test_decodes_first_then_prompts_share_the_chunk(void **state)
{
    (void)state;
    struct scheduler *s = make();
    const struct planned_rows *parts;
    add(s, 1, PLAN_RECEIVE, 6, 4);
    add(s, 2, PLAN_HAND_OFF, 5, 4);
    add(s, 3, PLAN_HAND_OFF, 9, 4);
    struct sequence *received = scheduler_reserve(s, 0);
    while (scheduler_reserve(s, 0))
        ;
    assert_int_equal(scheduler_admit(s, received, 99), FINISH_NONE);
    assert_int_equal(plan(s, &parts), 3);
    assert_ptr_equal(parts[0].sequence, received);
    assert_int_equal(parts[0].row_count, 1);
    assert_true(parts[0].samples);
    assert_int_equal(parts[1].row_count, 5);
    assert_true(parts[1].samples);
    assert_int_equal(parts[2].row_count, 3); /* the rest of 8 */
    assert_false(parts[2].samples);
    assert_int_equal(scheduler_rows_done(s, &parts[0], 50), FINISH_NONE);
    assert_int_equal(scheduler_rows_done(s, &parts[1], 51), FINISH_NONE);
    assert_int_equal(parts[1].sequence->state, SEQUENCE_HELD);
    assert_int_equal(scheduler_rows_done(s, &parts[2], 0), FINISH_NONE);
    assert_int_equal(plan(s, &parts), 2);
    assert_int_equal(parts[1].sequence->key.request, 3);
    assert_int_equal(parts[1].row_count, 6);
    assert_true(parts[1].samples);
    scheduler_destroy(s);
}

static enum finish_reason finish_with(uint32_t last, uint32_t answers, struct sampling sampling,
                                      uint32_t context)
{
    static const uint32_t end_ids[] = {END};
    uint32_t tokens[8] = {10, 11, 12, 13, 14, 15, 16, 17};
    tokens[2 + answers - 1] = last;
    struct sequence sequence = {
        .tokens = tokens, .token_count = 2 + answers, .prompt_count = 2, .sampling = sampling};
    return sequence_finish(&sequence, end_ids, 1, context);
}

static void test_finish_reasons(void **state)
{
    (void)state;
    struct sampling plain = sampling_default();
    plain.max_tokens = 3;
    struct sampling stops = plain, ignores = plain;
    stops.stop_ids[stops.stop_id_count++] = 42;
    ignores.ignore_eos = true;
    assert_int_equal(finish_with(END, 1, plain, 100), FINISH_EOS);
    assert_int_equal(finish_with(END, 1, ignores, 100), FINISH_NONE);
    assert_int_equal(finish_with(42, 1, plain, 100), FINISH_NONE);
    assert_int_equal(finish_with(42, 1, stops, 100), FINISH_STOP_TOKEN);
    assert_int_equal(finish_with(50, 3, plain, 100), FINISH_MAX_TOKENS);
    assert_int_equal(finish_with(END, 3, plain, 100), FINISH_EOS);
    assert_int_equal(finish_with(50, 2, plain, 4), FINISH_CONTEXT);
}

static void test_a_first_token_may_end_the_answer(void **state)
{
    (void)state;
    struct scheduler *s = make();
    const struct planned_rows *parts;
    add(s, 1, PLAN_RECEIVE, 4, 1);
    assert_int_equal(scheduler_admit(s, scheduler_reserve(s, 0), 7), FINISH_MAX_TOKENS);
    assert_int_equal(plan(s, &parts), 0);
    scheduler_destroy(s);
}

/* Random lives: rows are computed once each and in order, and at the end every block is free. */
static void test_random_lives_give_every_block_back(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct scheduler *s = make();
        struct rng rng = rng_seeded(seed);
        const struct planned_rows *parts;
        uint64_t next = 1;
        for (int step = 0; step < 200; step++) {
            uint32_t tokens = 1 + (uint32_t)rng_below(&rng, 20);
            struct sequence_spec spec = spec_of(next, (enum sequence_plan)rng_below(&rng, 3),
                                                tokens, 0, 1 + (uint32_t)rng_below(&rng, 15));
            if (scheduler_add(s, &spec, NULL) == STATUS_OK)
                next++;
            else
                free(spec.tokens);
            for (struct sequence *reserved; (reserved = scheduler_reserve(s, 0));)
                if (reserved->state == SEQUENCE_RESERVED && rng_below(&rng, 2))
                    scheduler_admit(s, reserved, 100);
            uint32_t count = plan(s, &parts), chunk = 0;
            for (uint32_t i = 0; i < count; i++) {
                struct sequence *q = parts[i].sequence;
                chunk += q->state == SEQUENCE_PREFILL ? parts[i].row_count : 0;
                assert_true(q->computed + parts[i].row_count <= q->token_count);
                assert_true((q->computed + parts[i].row_count + BLOCK - 1) / BLOCK <=
                            q->block_count);
                scheduler_rows_done(s, &parts[i], 3 + (uint32_t)rng_below(&rng, 100));
            }
            assert_true(chunk <= CHUNK);
            size_t cursor = 0;
            struct sequence *any = scheduler_next(s, &cursor);
            if (any && rng_below(&rng, 3) == 0) {
                assert_ptr_equal(scheduler_find(s, any->key), any);
                scheduler_remove(s, any);
            }
        }
        for (size_t cursor = 0; scheduler_next(s, &cursor); cursor = 0) {
            cursor = 0;
            scheduler_remove(s, scheduler_next(s, &cursor));
        }
        assert_int_equal(scheduler_load(s).blocks[KV_BLOCK_FREE], BLOCKS);
        scheduler_destroy(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_never_fits_is_refused_with_the_numbers),
        cmocka_unit_test(test_a_pool_smaller_than_the_request),
        cmocka_unit_test(test_blocks_first_come_first_served),
        cmocka_unit_test(test_decodes_first_then_prompts_share_the_chunk),
        cmocka_unit_test(test_finish_reasons),
        cmocka_unit_test(test_a_first_token_may_end_the_answer),
        cmocka_unit_test(test_random_lives_give_every_block_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
