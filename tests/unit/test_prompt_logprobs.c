/* Logprobs of a prompt's tokens equal, bit by bit, those of the rows before them computed one by
 * one, in whatever chunks, and with the prompt's beginning in the prefix cache. On a real engine,
 * through the step loop. */
#include "common/engine/model/logits.h"
#include "common/worker/step_loop.h"
#include "tests/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    BLOCK_TOKENS = 16,
    BLOCKS = 16,
    LARGEST_CHUNK = 80,
    PROMPT = 100,
    TOP = 5,
    WAIT_US = 60000000
};

static struct engine *engine;
static struct step_loop *loop;
static uint32_t prompt[PROMPT];
static struct token_logprobs expected[PROMPT], told[PROMPT]; /* by token; [0] has none */

static int open_engine(void **state)
{
    (void)state;
    struct error err = {""};
    struct engine_config config = {.model_dir = "tests/golden/models/llama-wide",
                                   .kernels = {.device = test_device(), .threads = 1},
                                   .block_tokens = BLOCK_TOKENS,
                                   .block_count = BLOCKS,
                                   .max_rows = PROMPT + 4,
                                   .max_sequences = 3};
    if (engine_open(&config, &engine, &err) != STATUS_OK ||
        engine_attach_pool(engine, NULL, &err) != STATUS_OK) {
        print_error("%s\n", err.text);
        return 1;
    }
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = 3 + i * i % 370;
    return 0;
}

static void expect_one_by_one(void);

static int open_engine_and_expect(void **state)
{
    if (open_engine(state))
        return 1;
    expect_one_by_one();
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    engine_close(engine);
    return 0;
}

/* From the row of each prefix of the prompt, drawn from like any other. */
static void expect_one_by_one(void)
{
    static const uint32_t blocks[] = {0, 1, 2, 3, 4, 5, 6};
    struct sampling sampling = sampling_default();
    for (uint32_t i = 1; i < PROMPT; i++) {
        struct engine_sequence s = {.tokens = prompt,
                                    .token_count = i,
                                    .blocks = blocks,
                                    .block_count = 7,
                                    .sample_count = 1,
                                    .sampling = &sampling,
                                    .reads_logits = true};
        struct error err;
        assert_int_equal(engine_step(engine, &s, 1, &err), STATUS_OK);
        assert_int_equal(
            logprobs_of(s.logits, engine_shape(engine)->vocab, prompt[i], TOP, &expected[i]),
            STATUS_OK);
    }
}

static void start_loop(uint32_t chunk, bool prefix_cache)
{
    struct error err;
    struct step_loop_config config = {.engine = engine,
                                      .chunk_tokens = chunk,
                                      .max_sequences = 3,
                                      .block_count = BLOCKS,
                                      .prefix_cache = prefix_cache,
                                      .cpu = -1};
    if (step_loop_start(&config, &loop, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void add(enum sequence_plan plan, uint32_t from)
{
    static uint64_t requests;
    struct sequence_spec spec = {.key = {++requests, 1},
                                 .plan = plan,
                                 .token_count = PROMPT,
                                 .sampling = sampling_default()};
    spec.sampling.max_tokens = 3;
    spec.sampling.ignore_eos = true;
    spec.sampling.prompt_logprobs = from > 0;
    spec.sampling.prompt_logprobs_from = from;
    spec.sampling.top_prompt_logprobs = TOP;
    spec.tokens = malloc(sizeof prompt);
    assert_non_null(spec.tokens);
    memcpy(spec.tokens, prompt, sizeof prompt);
    assert_int_equal(step_loop_add(loop, &spec), STATUS_OK);
}

struct seen {
    uint32_t events, next, cached_tokens, tokens;
};

/* To the end of one that was added; of a hand-off, to its first token. */
static struct seen run(enum sequence_plan plan, uint32_t from)
{
    struct seen seen = {.next = from};
    memset(told, 0, sizeof told);
    add(plan, from);
    for (bool ended = false; !ended;) {
        struct step_event *event = ring_wait(step_loop_events(loop), WAIT_US);
        assert_non_null(event);
        if (event->kind == STEP_RESERVED)
            seen.cached_tokens = event->cached_tokens;
        if (event->kind == STEP_PROMPT_LOGPROBS) {
            assert_int_equal(seen.tokens, 0); /* all of them before the answer */
            assert_int_equal(event->first_token, seen.next);
            assert_in_range(event->logprobs_count, 1, STEP_EVENT_LOGPROBS);
            memcpy(told + seen.next, event->logprobs,
                   event->logprobs_count * sizeof *event->logprobs);
            seen.next += event->logprobs_count;
            seen.events++;
        }
        if (event->kind == STEP_TOKENS) {
            seen.tokens++;
            ended = event->tokens[0].finish != FINISH_NONE || event->tokens[0].hand_off;
            if (event->tokens[0].hand_off)
                step_loop_remove(loop, event->tokens[0].key);
        }
        if (event->kind == STEP_FAILED || event->kind == STEP_REFUSED)
            fail_msg("%s", event->err.text);
        step_loop_recycle(loop, event);
    }
    return seen;
}

static void check_told(uint32_t from)
{
    for (uint32_t i = from; i < PROMPT; i++) {
        assert_true(told[i].given && told[i].logprob == expected[i].logprob);
        assert_int_equal(told[i].top_count, TOP);
        assert_memory_equal(told[i].top_ids, expected[i].top_ids, TOP * sizeof(uint32_t));
        assert_memory_equal(told[i].top_logprobs, expected[i].top_logprobs, TOP * sizeof(float));
    }
}

static void test_in_whatever_chunks_at_either_place(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {1, 7, 33, LARGEST_CHUNK};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
        for (int local = 0; local < 2; local++) {
            start_loop(chunks[i], false);
            struct seen seen = run(local ? PLAN_LOCAL : PLAN_HAND_OFF, 1);
            assert_int_equal(seen.next, PROMPT);
            check_told(1);
            step_loop_stop(loop);
        }
}

static void test_what_is_cached_is_computed_where_it_is_asked_about(void **state)
{
    (void)state;
    start_loop(LARGEST_CHUNK, true);
    run(PLAN_LOCAL, 0);
    assert_int_equal(run(PLAN_LOCAL, 0).cached_tokens, 96);
    struct seen seen = run(PLAN_LOCAL, 1);
    assert_int_equal(seen.cached_tokens, 0);
    assert_int_equal(seen.next, PROMPT);
    check_told(1);
    /* From 50 on: row 49 gives its logprobs, so the 48 rows of three blocks may come from the
     * cache. */
    seen = run(PLAN_HAND_OFF, 50);
    assert_int_equal(seen.cached_tokens, 48);
    assert_int_equal(seen.next, PROMPT);
    check_told(50);
    seen = run(PLAN_LOCAL, 49);
    assert_int_equal(seen.cached_tokens, 48);
    check_told(49);
    assert_int_equal(run(PLAN_LOCAL, 48).cached_tokens, 32);
    assert_int_equal(run(PLAN_LOCAL, PROMPT).events, 0); /* there is none from there on */
    assert_int_equal(run(PLAN_LOCAL, 0).events, 0);
    step_loop_stop(loop);
}

static void test_a_step_with_more_than_an_event_has(void **state)
{
    (void)state;
    start_loop(LARGEST_CHUNK, false);
    assert_int_equal(run(PLAN_LOCAL, 1).events, 3 + 1); /* 80 rows, then 19 */
    check_told(1);
    step_loop_stop(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_whatever_chunks_at_either_place),
        cmocka_unit_test(test_what_is_cached_is_computed_where_it_is_asked_about),
        cmocka_unit_test(test_a_step_with_more_than_an_event_has),
    };
    return cmocka_run_group_tests(tests, open_engine_and_expect, close_engine);
}
