/* Several answers to one prompt (n > 1), by the schedule and the engine of a worker: they share the
 * prompt's blocks, what one of them writes is copied before, and each has the bytes of a request of
 * its own with its seed and choice. */
#include "common/worker/step_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK = 16, CHUNK = 32, BLOCKS = 64, ANSWERS = 3, LONGEST = 40, SEQUENCES = 4, CHILD = 10 };

struct answer {
    uint32_t count, tokens[LONGEST];
    uint64_t hashes[LONGEST];
};

struct world {
    struct step_run run;
    struct step_events events;
    struct step_load load;
    struct answer answers[ANSWERS]; /* by the key's attempt */
};

static struct engine *engine; /* tests/golden/models/llama */

static int open_engine(enum kv_choice kv)
{
    struct error err;
    struct engine_config config = {.model_dir = "tests/golden/models/llama",
                                   .kv = kv,
                                   .kernels = {.threads = 2},
                                   .block_tokens = BLOCK,
                                   .block_count = BLOCKS,
                                   .swap_blocks = BLOCKS,
                                   .max_rows = CHUNK + SEQUENCES,
                                   .max_sequences = SEQUENCES};
    return engine_open(&config, &engine, &err) != STATUS_OK ||
           engine_attach_pool(engine, NULL, &err) != STATUS_OK;
}

static int open_bf16(void **state)
{
    (void)state;
    return open_engine(KV_CHOICE_BF16);
}

static int open_int8(void **state)
{
    (void)state;
    return open_engine(KV_CHOICE_INT8);
}

static int close_engine(void **state)
{
    (void)state;
    engine_close(engine);
    return 0;
}

static struct world *make_world(uint32_t blocks, bool prefix_cache)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    struct scheduler_config config = {.block_tokens = BLOCK,
                                      .block_count = blocks,
                                      .max_sequences = SEQUENCES,
                                      .chunk_tokens = CHUNK,
                                      .context = 512,
                                      .grow = true,
                                      .host_slots = BLOCKS,
                                      .prefix_cache = prefix_cache};
    world->run =
        (struct step_run){.engine = engine, .events = &world->events, .load = &world->load};
    world->run.inputs = calloc(SEQUENCES, sizeof *world->run.inputs);
    assert_non_null(world->run.inputs);
    assert_int_equal(scheduler_create(&config, &world->run.scheduler), STATUS_OK);
    assert_int_equal(step_events_init(&world->events, SEQUENCES), STATUS_OK);
    return world;
}

static void drop_world(struct world *world)
{
    assert_int_equal(scheduler_load(world->run.scheduler).blocks[KV_BLOCK_USED], 0);
    scheduler_destroy(world->run.scheduler);
    step_events_deinit(&world->events);
    free(world->run.inputs);
    free(world);
}

static struct sampling sampling_of(uint32_t answer, uint32_t max_tokens)
{
    struct sampling sampling = sampling_default();
    sampling.seed = 70;
    sampling.choice = answer;
    sampling.max_tokens = max_tokens;
    sampling.ignore_eos = sampling.logits_hash = true;
    return sampling;
}

static void add(struct world *world, uint32_t answer, uint32_t prompt, uint32_t max_tokens)
{
    struct sequence_spec spec = {.key = {1, answer},
                                 .plan = PLAN_LOCAL,
                                 .token_count = prompt,
                                 .sampling = sampling_of(answer, max_tokens)};
    struct error err;
    spec.tokens = calloc(prompt, sizeof *spec.tokens);
    assert_non_null(spec.tokens);
    for (uint32_t i = 0; i < prompt; i++)
        spec.tokens[i] = 3 + i * 11 % 300;
    if (scheduler_add(world->run.scheduler, &spec, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static struct sequence *find(struct world *world, uint32_t answer)
{
    return scheduler_find(world->run.scheduler, (struct sequence_key){1, answer});
}

static struct sequence *fork_with(struct world *world, uint32_t answer,
                                  const struct sampling *sampling)
{
    struct sequence *child;
    struct error err;
    if (scheduler_fork(world->run.scheduler, find(world, 0), (struct sequence_key){1, answer},
                       sampling, &child, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return child;
}

static struct sequence *fork_of(struct world *world, uint32_t answer, uint32_t max_tokens)
{
    struct sampling sampling = sampling_of(answer, max_tokens);
    return fork_with(world, answer, &sampling);
}

static void take_tokens(struct world *world)
{
    struct step_event *event;
    while ((event = ring_pop(world->events.posted))) {
        assert_int_equal(event->kind, STEP_TOKENS);
        for (uint32_t i = 0; i < event->token_count; i++) {
            const struct step_token *token = &event->tokens[i];
            struct answer *answer = &world->answers[token->key.attempt];
            assert_int_equal(token->index, answer->count + 1);
            answer->tokens[answer->count] = token->token;
            assert_int_not_equal(token->logits_hash, 0);
            answer->hashes[answer->count++] = token->logits_hash;
        }
        step_events_recycle(&world->events, event);
    }
}

/* One step as a worker does it; false: there was nothing to do. */
static bool step(struct world *world)
{
    while (scheduler_reserve(world->run.scheduler, 0))
        ;
    const struct step_plan *plan = scheduler_plan(world->run.scheduler, 0);
    if (!step_plan_works(plan))
        return false;
    step_run_plan(&world->run, plan);
    take_tokens(world);
    return true;
}

static void run_until(struct world *world, uint32_t answer, uint32_t tokens)
{
    while (world->answers[answer].count < tokens)
        assert_true(step(world));
}

static void run_all(struct world *world)
{
    while (step(world))
        ;
}

/* The answers that separate requests get, one after the other. */
static void answer_alone(uint32_t prompt, const uint32_t lengths[ANSWERS],
                         struct answer answers[ANSWERS])
{
    for (uint32_t i = 0; i < ANSWERS; i++) {
        struct world *world = make_world(BLOCKS, false);
        add(world, i, prompt, lengths[i]);
        run_all(world);
        answers[i] = world->answers[i];
        assert_int_equal(answers[i].count, lengths[i]);
        drop_world(world);
    }
}

static void expect_answers(const struct world *world, const struct answer want[ANSWERS])
{
    for (uint32_t i = 0; i < ANSWERS; i++) {
        assert_int_equal(world->answers[i].count, want[i].count);
        assert_memory_equal(world->answers[i].tokens, want[i].tokens, sizeof want[i].tokens);
        assert_memory_equal(world->answers[i].hashes, want[i].hashes, sizeof want[i].hashes);
    }
    assert_memory_not_equal(want[0].tokens, want[1].tokens, sizeof want[0].tokens);
}

/* Prompts whose last row begins a block, ends one, and lies inside one; children that come as soon
 * as the prompt is computed, and after the parent has written its answer into the blocks behind; a
 * parent that ends before its children. */
static void test_forks_answer_like_requests_of_their_own(void **state)
{
    (void)state;
    static const uint32_t prompts[] = {49, 64, 75}, lengths[ANSWERS] = {12, LONGEST, 25};
    for (size_t p = 0; p < sizeof prompts / sizeof *prompts; p++) {
        uint32_t shared = (prompts[p] - 1) / BLOCK;
        struct answer want[ANSWERS];
        answer_alone(prompts[p], lengths, want);
        for (uint32_t later = 1; later <= CHILD; later += CHILD - 1) {
            struct world *world = make_world(BLOCKS, false);
            add(world, 0, prompts[p], lengths[0]);
            run_until(world, 0, 1);
            struct engine_counters before = engine_counters(engine);
            struct sequence *first = fork_of(world, 1, lengths[1]);
            run_until(world, 0, later);
            struct sequence *second = fork_of(world, 2, lengths[2]);
            const struct sequence *parent = find(world, 0);
            assert_memory_equal(second->blocks, parent->blocks, shared * sizeof(uint32_t));
            assert_memory_equal(first->blocks, parent->blocks, shared * sizeof(uint32_t));
            for (uint32_t b = shared; b < second->block_count; b++)
                for (uint32_t other = shared; other < parent->block_count; other++)
                    assert_int_not_equal(second->blocks[b], parent->blocks[other]);
            uint32_t used = parent->block_count + first->block_count + second->block_count;
            assert_int_equal(scheduler_load(world->run.scheduler).blocks[KV_BLOCK_USED],
                             used - 2 * shared);
            run_all(world);
            struct engine_counters after = engine_counters(engine);
            assert_int_equal(after.prompt_rows - before.prompt_rows, 2); /* one a child */
            expect_answers(world, want);
            drop_world(world);
        }
    }
}

/* Too few blocks for all three at their ends: somebody is swapped out, or dropped and computed
 * again, blocks that others read with them stay. */
static void test_forks_that_are_preempted_go_on(void **state)
{
    (void)state;
    enum { PROMPT = 75, TIGHT = 12 };
    static const uint32_t lengths[ANSWERS] = {LONGEST, LONGEST, LONGEST};
    struct answer want[ANSWERS];
    answer_alone(PROMPT, lengths, want);
    for (int cached = 0; cached < 2; cached++) {
        struct world *world = make_world(TIGHT, cached);
        add(world, 0, PROMPT, lengths[0]);
        run_until(world, 0, 1);
        fork_of(world, 1, lengths[1]);
        fork_of(world, 2, lengths[2]);
        run_all(world);
        struct scheduler_load load = scheduler_load(world->run.scheduler);
        assert_true(load.swapped_out + load.dropped > 0);
        expect_answers(world, want);
        drop_world(world);
    }
}

/* The choice alone tells them apart: a fork of the parent's choice draws the parent's tokens. */
static void test_forks_of_equal_seed_draw_apart(void **state)
{
    (void)state;
    struct world *world = make_world(BLOCKS, false);
    const struct sampling same = sampling_of(0, LONGEST), other = sampling_of(1, LONGEST);
    assert_int_equal(same.seed, other.seed);
    add(world, 0, 49, LONGEST);
    run_until(world, 0, 1);
    fork_with(world, 1, &same);
    fork_with(world, 2, &other);
    run_all(world);
    const struct answer *answers = world->answers;
    assert_int_equal(answers[2].count, LONGEST);
    assert_memory_equal(answers[0].tokens, answers[1].tokens, sizeof answers[0].tokens);
    assert_memory_not_equal(answers[0].tokens, answers[2].tokens, sizeof answers[0].tokens);
    drop_world(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forks_of_equal_seed_draw_apart),
        cmocka_unit_test(test_forks_answer_like_requests_of_their_own),
        cmocka_unit_test(test_forks_that_are_preempted_go_on),
    };
    return cmocka_run_group_tests_name("bf16", tests, open_bf16, close_engine) +
           cmocka_run_group_tests_name("int8", tests, open_int8, close_engine);
}
