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
static uint32_t ones(void *context, const struct sequence *sequence, uint32_t skip, uint32_t most,
                     uint32_t *drafts)
{
    (void)context;
    (void)sequence;
    assert_int_equal(skip, 0);
    for (uint32_t i = 0; i < most; i++)
        drafts[i] = 1;
    return most;
}

/* Drafts have the rows that decodes and prompts leave, in blocks that are there. The longest prefix
 * of them that is drawn counts, and the answer goes on behind it. */
static void test_drafts_take_what_is_left(void **state)
{
    (void)state;
    struct scheduler_config config = {.block_tokens = BLOCK,
                                      .block_count = BLOCKS,
                                      .max_sequences = SEQUENCES,
                                      .chunk_tokens = CHUNK,
                                      .context = CONTEXT,
                                      .draft_tokens = 5,
                                      .drafter = ones};
    struct scheduler *s;
    const struct planned_rows *parts;
    assert_int_equal(scheduler_create(&config, &s), STATUS_OK);
    struct sequence_spec specs[] = {spec_of(1, PLAN_LOCAL, 4, 0, 9),
                                    spec_of(2, PLAN_LOCAL, 3, 0, 9)};
    specs[0].may_draft = true;
    for (int i = 0; i < 2; i++)
        assert_int_equal(scheduler_add(s, &specs[i], NULL), STATUS_OK);
    while (scheduler_reserve(s, 0))
        continue;
    assert_int_equal(plan(s, &parts), 2);
    struct sequence *sequence = parts[0].sequence;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(parts[i].draft_count, 0); /* prompts */
        assert_int_equal(scheduler_rows_done(s, &parts[i], 1), FINISH_NONE);
        assert_false(scheduler_draft_holds(&parts[i]));
    }
    add(s, 3, PLAN_LOCAL, 8, 1); /* its prompt takes all rows but two */
    while (scheduler_reserve(s, 0))
        continue;
    assert_int_equal(plan(s, &parts), 3);
    assert_int_equal(parts[0].draft_count, SEQUENCES + CHUNK - 10);
    assert_int_equal(parts[0].row_count, 1 + SEQUENCES + CHUNK - 10);
    assert_int_equal(parts[1].draft_count, 0); /* it may not */
    assert_int_equal(scheduler_rows_done(s, &parts[0], 7), FINISH_NONE);
    assert_false(scheduler_draft_holds(&parts[0])); /* 1 was proposed */
    assert_int_equal(sequence->token_count, 6);
    assert_int_equal(sequence->computed, 5);
    assert_int_equal(scheduler_rows_done(s, &parts[1], 7), FINISH_NONE);
    assert_int_equal(scheduler_rows_done(s, &parts[2], 7), FINISH_MAX_TOKENS);
    assert_int_equal(plan(s, &parts), 2);
    assert_int_equal(parts[0].draft_count, 5);
    assert_int_equal(scheduler_rows_done(s, &parts[0], 1), FINISH_NONE);
    assert_true(scheduler_draft_holds(&parts[0]));
    assert_int_equal(scheduler_draft_done(s, &parts[0], 1), FINISH_NONE);
    assert_int_equal(scheduler_draft_done(s, &parts[0], 8), FINISH_NONE);
    assert_false(scheduler_draft_holds(&parts[0]));
    assert_int_equal(sequence->token_count, 9);
    assert_int_equal(sequence->computed, 8);
    assert_int_equal(scheduler_rows_done(s, &parts[1], 7), FINISH_NONE);
    assert_int_equal(plan(s, &parts), 2);
    assert_int_equal(parts[0].first, 8);
    assert_int_equal(parts[0].draft_count, 3); /* 5 of 9 tokens are drawn, and one needs none */
    assert_int_equal(scheduler_rows_done(s, &parts[0], 1), FINISH_NONE);
    for (int i = 0; i < 3; i++)
        assert_int_equal(scheduler_draft_done(s, &parts[0], 1),
                         i < 2 ? FINISH_NONE : FINISH_MAX_TOKENS);
    scheduler_destroy(s);
}

static void test_lookup_proposes_what_followed(void **state)
{
    (void)state;
    uint32_t tokens[] = {5, 6, 7, 8, 1, 6, 7, 9, 2, 5, 6, 7}, drafts[4];
    struct sequence sequence = {.tokens = tokens, .token_count = 12};
    assert_int_equal(sequence_lookup(&sequence, 0, 4, drafts), 4); /* 5 6 7, not the later 6 7 */
    const uint32_t wanted[] = {8, 1, 6, 7};
    assert_memory_equal(drafts, wanted, sizeof wanted);
    assert_int_equal(sequence_lookup(&sequence, 2, 2, drafts), 2);
    assert_memory_equal(drafts, wanted + 2, 2 * sizeof *wanted);
    tokens[0] = 3;
    assert_int_equal(sequence_lookup(&sequence, 0, 1, drafts), 1);
    assert_int_equal(drafts[0], 9); /* the later 6 7 */
    for (uint32_t i = 0; i < 12; i++)
        tokens[i] = i % 2;
    assert_int_equal(sequence_lookup(&sequence, 1, 4, drafts), 4); /* it goes round */
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(drafts[i], (1 + i) % 2);
    for (uint32_t i = 0; i < 12; i++)
        tokens[i] = i;
    for (sequence.token_count = 1; sequence.token_count <= 12; sequence.token_count++)
        assert_int_equal(sequence_lookup(&sequence, 0, 4, drafts), 0);
    static uint32_t many[SEQUENCE_LOOKBACK + 3];
    sequence = (struct sequence){.tokens = many, .token_count = SEQUENCE_LOOKBACK + 3};
    for (uint32_t i = 0; i < SEQUENCE_LOOKBACK + 3; i++)
        many[i] = 10 + i;
    memcpy(many + SEQUENCE_LOOKBACK + 1, many + 1, 2 * sizeof *many);
    assert_int_equal(sequence_lookup(&sequence, 0, 1, drafts), 0); /* too far back */
    sequence.tokens++;
    sequence.token_count -= 1;
    memcpy(many + SEQUENCE_LOOKBACK + 1, many + 3, 2 * sizeof *many);
    assert_int_equal(sequence_lookup(&sequence, 0, 1, drafts), 1);
    assert_int_equal(drafts[0], many[5]);
}

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
        cmocka_unit_test(test_drafts_take_what_is_left),
        cmocka_unit_test(test_lookup_proposes_what_followed),
        cmocka_unit_test(test_random_lives_give_every_block_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
