/* step_loop with too few KV blocks. Sequences are swapped out, or dropped and computed again,
 * computed here or received, with and without cached prompts. They give the same bytes as alone. A
 * failed move or step ends the sequences that it concerns, with no wrong token. Every wait is for
 * an event. */
#include "common/base/failpoint.h"
#include "common/worker/step_loop.h"
#include "tests/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    BLOCK_TOKENS = 8,
    CHUNK = 12,
    REQUESTS = 6,
    PROMPT = 21,
    COMMON = 16, /* tokens that all prompts share */
    ANSWER = 32,
    ROOMY = 64,
    TIGHT = 9, /* two begin with 3 each, and need 7 each at last */
    WAIT_US = 60000000
};

struct side {
    struct engine *engine;
    char *pool; /* the test's own, as a transport's: the host reads it on every device */
    struct step_loop *loop;
};

struct answers {
    uint32_t counts[REQUESTS], tokens[REQUESTS][ANSWER];
    uint64_t hashes[REQUESTS][ANSWER];
};

static void open_side(struct side *side, uint32_t blocks, uint32_t swap_blocks, bool prefix_cache)
{
    struct error err = {""};
    struct engine_config engine = {.model_dir = "tests/golden/models/llama",
                                   .kernels = {.device = test_device(), .f32 = true, .threads = 1},
                                   .block_tokens = BLOCK_TOKENS,
                                   .block_count = blocks,
                                   .swap_blocks = swap_blocks,
                                   .max_rows = CHUNK + REQUESTS,
                                   .max_sequences = REQUESTS};
    if (engine_open(&engine, &side->engine, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    side->pool = calloc(1, engine_pool_bytes(side->engine));
    assert_non_null(side->pool);
    if (engine_attach_pool(side->engine, side->pool, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    struct step_loop_config loop = {.engine = side->engine,
                                    .chunk_tokens = CHUNK,
                                    .max_sequences = REQUESTS,
                                    .block_count = blocks,
                                    .swap_blocks = swap_blocks,
                                    .grow = true,
                                    .prefix_cache = prefix_cache,
                                    .cpu = -1};
    assert_int_equal(step_loop_start(&loop, &side->loop, &err), STATUS_OK);
}

static void close_side(struct side *side)
{
    step_loop_stop(side->loop);
    engine_close(side->engine);
    free(side->pool);
}

static struct sequence_spec spec_of(uint32_t request, enum sequence_plan plan)
{
    struct sequence_spec spec = {
        .key = {request, 1}, .plan = plan, .token_count = PROMPT, .sampling = sampling_default()};
    spec.sampling.temperature = 1;
    spec.sampling.seed = 100 + request;
    spec.sampling.max_tokens = ANSWER;
    spec.sampling.ignore_eos = spec.sampling.logits_hash = true;
    spec.tokens = calloc(PROMPT, sizeof *spec.tokens);
    for (uint32_t i = 0; i < PROMPT; i++)
        spec.tokens[i] = 3 + (i * 7 + (i < COMMON ? 0 : request * 13)) % 300;
    return spec;
}

static void add(struct side *side, uint32_t request, enum sequence_plan plan)
{
    struct sequence_spec spec = spec_of(request, plan);
    assert_int_equal(step_loop_add(side->loop, &spec), STATUS_OK);
}

static struct step_event *next(struct side *side)
{
    struct step_event *event = ring_wait(step_loop_events(side->loop), WAIT_US);
    assert_non_null(event);
    return event;
}

/* Returns how many answers have ended. */
static uint32_t note_tokens(const struct step_event *event, struct answers *answers)
{
    uint32_t ended = 0;
    for (uint32_t i = 0; i < event->token_count; i++) {
        const struct step_token *token = &event->tokens[i];
        uint32_t *count = &answers->counts[token->key.request];
        assert_int_equal(token->index, *count + 1);
        answers->tokens[token->key.request][*count] = token->token;
        assert_int_not_equal(token->logits_hash, 0);
        answers->hashes[token->key.request][*count] = token->logits_hash;
        (*count)++;
        ended += token->finish != FINISH_NONE;
    }
    return ended;
}

static uint32_t load_of(struct side *side, enum kv_block_state state)
{
    return atomic_load(&step_loop_load(side->loop)->blocks[state]);
}

/* Computes the requests one after the other, with room for all. */
static void answers_alone(struct answers *answers)
{
    struct side roomy;
    open_side(&roomy, ROOMY, 0, false);
    *answers = (struct answers){0};
    for (uint32_t request = 0; request < REQUESTS; request++) {
        add(&roomy, request, PLAN_LOCAL);
        for (uint32_t ended = 0; !ended;) {
            struct step_event *event = next(&roomy);
            if (event->kind == STEP_TOKENS)
                ended = note_tokens(event, answers);
            step_loop_recycle(roomy.loop, event);
        }
    }
    close_side(&roomy);
}

/* Prompts computed and held elsewhere, for receiving sequences. */
struct source {
    struct side side;
    uint32_t blocks[REQUESTS][8], counts[REQUESTS];
    struct answers first;
};

static void open_source(struct source *source)
{
    *source = (struct source){0};
    open_side(&source->side, ROOMY, 0, false);
    for (uint32_t request = 0; request < REQUESTS; request++)
        add(&source->side, request, PLAN_HAND_OFF);
    for (uint32_t done = 0; done < REQUESTS;) {
        struct step_event *event = next(&source->side);
        if (event->kind == STEP_RESERVED) {
            memcpy(source->blocks[event->key.request], event->blocks,
                   event->block_count * sizeof *event->blocks);
            source->counts[event->key.request] = event->block_count;
        } else if (event->kind == STEP_TOKENS) {
            note_tokens(event, &source->first);
            done += event->token_count;
        }
        step_loop_recycle(source->side.loop, event);
    }
}

/* Plays a handoff: reads the blocks that aren't here, then the sequence runs. */
static void receive(struct side *side, const struct source *source, const struct step_event *event)
{
    uint64_t request = event->key.request;
    size_t bytes = kv_layout_block_bytes(engine_layout(side->engine));
    char *to = side->pool;
    const char *from = source->side.pool;
    assert_true(event->block_count >= source->counts[request]);
    assert_int_equal(event->block_count, (PROMPT + 1 + BLOCK_TOKENS - 1) / BLOCK_TOKENS);
    for (uint32_t i = event->cached_tokens / BLOCK_TOKENS; i < source->counts[request]; i++)
        memcpy(to + event->blocks[i] * bytes, from + source->blocks[request][i] * bytes, bytes);
    step_loop_admit(side->loop, event->key, source->first.tokens[request][0],
                    source->first.hashes[request][0], &(struct token_logprobs){0});
}

/* All at once. */
static void answers_together(struct side *side, enum sequence_plan plan,
                             const struct source *source, struct answers *answers)
{
    *answers = (struct answers){0};
    for (uint32_t request = 0; request < REQUESTS; request++)
        add(side, request, plan);
    for (uint32_t ended = 0; ended < REQUESTS;) {
        struct step_event *event = next(side);
        assert_int_not_equal(event->kind, STEP_FAILED);
        assert_int_not_equal(event->kind, STEP_REFUSED);
        if (event->kind == STEP_RESERVED && plan == PLAN_RECEIVE)
            receive(side, source, event);
        else if (event->kind == STEP_TOKENS)
            ended += note_tokens(event, answers);
        step_loop_recycle(side->loop, event);
    }
}

static void test_preempted_sequences_give_the_bytes_that_they_give_alone(void **state)
{
    (void)state;
    static struct answers alone, together;
    static struct source source;
    answers_alone(&alone);
    open_source(&source);
    for (int i = 0; i < 8; i++) {
        enum sequence_plan plan = i & 1 ? PLAN_RECEIVE : PLAN_LOCAL;
        bool swaps = i & 2, prefix_cache = i & 4;
        struct side tight;
        open_side(&tight, TIGHT, swaps ? ROOMY : 0, prefix_cache);
        answers_together(&tight, plan, &source, &together);
        assert_memory_equal(&together, &alone, sizeof alone);
        const struct step_load *load = step_loop_load(tight.loop);
        uint64_t swapped = atomic_load(&load->preemptions[STEP_SWAPPED]),
                 dropped = atomic_load(&load->preemptions[STEP_DROPPED]);
        print_message("plan=%d swaps=%d cache=%d: %llu swapped, %llu dropped, %llu tokens found\n",
                      plan, swaps, prefix_cache, (unsigned long long)swapped,
                      (unsigned long long)dropped,
                      (unsigned long long)atomic_load(&load->prefix_hit_tokens));
        assert_true(swaps ? swapped > 0 : dropped > 0 && swapped == 0);
        assert_int_equal(atomic_load(&load->prefix_hit_tokens) > 0, prefix_cache);
        assert_int_equal(atomic_load(&load->swapped_blocks), 0);
        assert_int_equal(load_of(&tight, KV_BLOCK_FREE) + load_of(&tight, KV_BLOCK_CACHED), TIGHT);
        close_side(&tight);
    }
    close_side(&source.side);
}

/* A prompt that is handed off takes cached blocks: readers may have these before anything is
 * computed. */
static void test_a_cached_prompt_is_ready_at_once(void **state)
{
    (void)state;
    struct side side;
    open_side(&side, ROOMY, 0, true);
    uint32_t first_blocks[2] = {0};
    for (uint32_t request = 0; request < 2; request++) {
        add(&side, request, PLAN_HAND_OFF);
        for (bool done = false; !done;) {
            struct step_event *event = next(&side);
            if (event->kind == STEP_RESERVED && request == 0) {
                assert_int_equal(event->cached_tokens, 0);
                memcpy(first_blocks, event->blocks, sizeof first_blocks);
            } else if (event->kind == STEP_RESERVED) {
                assert_int_equal(event->cached_tokens, COMMON);
                assert_memory_equal(event->blocks, first_blocks, sizeof first_blocks);
                assert_int_not_equal(event->blocks[2], first_blocks[0]);
            }
            done = event->kind == STEP_TOKENS;
            step_loop_recycle(side.loop, event);
        }
    }
    assert_int_equal(engine_counters(side.engine).prompt_rows, 2 * PROMPT - COMMON);
    assert_int_equal(load_of(&side, KV_BLOCK_PINNED), 4); /* two of them for both */
    close_side(&side);
}

/* The first move fails. Sequences in that plan end with a sentence, the others with the same bytes
 * as alone. */
static void test_a_move_that_fails_ends_whom_it_concerns(void **state)
{
    (void)state;
    static struct answers alone, together;
    answers_alone(&alone);
    setenv("BATON_FAILPOINTS", "step.move_fails=fail", 1);
    struct error err;
    assert_int_equal(failpoint_init("step_loop", &err), STATUS_OK);
    struct side tight;
    open_side(&tight, TIGHT, ROOMY, true);
    together = (struct answers){0};
    bool failed[REQUESTS] = {false};
    for (uint32_t request = 0; request < REQUESTS; request++)
        add(&tight, request, PLAN_LOCAL);
    uint32_t failures = 0;
    for (uint32_t ended = 0; ended < REQUESTS;) {
        struct step_event *event = next(&tight);
        if (event->kind == STEP_FAILED) {
            assert_false(failed[event->key.request]); /* reported once */
            assert_non_null(strstr(event->err.text, "step.move_fails"));
            failed[event->key.request] = true;
            failures++;
            ended++;
            step_loop_remove(tight.loop, event->key);
        } else if (event->kind == STEP_TOKENS) {
            ended += note_tokens(event, &together);
        }
        step_loop_recycle(tight.loop, event);
    }
    assert_in_range(failures, 1, REQUESTS - 1);
    for (uint32_t request = 0; request < REQUESTS; request++) {
        uint32_t count = together.counts[request];
        assert_true(failed[request] ? count < ANSWER : count == ANSWER);
        assert_memory_equal(together.tokens[request], alone.tokens[request],
                            count * sizeof(uint32_t));
        assert_memory_equal(together.hashes[request], alone.hashes[request],
                            count * sizeof(uint64_t));
    }
    while (load_of(&tight, KV_BLOCK_USED)) /* the removals */
        step_loop_recycle(tight.loop, next(&tight));
    assert_int_equal(atomic_load(&step_loop_load(tight.loop)->swapped_blocks), 0);
    close_side(&tight);
}

/* Runs one request to its end. Returns the cached tokens of its prompt; *failed: a step failed
 * under it. */
static uint32_t run_one(struct side *side, uint32_t request, struct answers *answers, bool *failed)
{
    uint32_t cached_tokens = UINT32_MAX;
    *failed = false;
    add(side, request, PLAN_LOCAL);
    for (bool ended = false; !ended;) {
        struct step_event *event = next(side);
        if (event->kind == STEP_RESERVED)
            cached_tokens = event->cached_tokens;
        else if (event->kind == STEP_TOKENS)
            ended = note_tokens(event, answers) > 0;
        else if (event->kind == STEP_FAILED)
            ended = *failed = true;
        step_loop_recycle(side->loop, event);
    }
    if (!*failed)
        return cached_tokens;
    step_loop_remove(side->loop, (struct sequence_key){request, 1});
    struct step_event *removed = next(side);
    assert_int_equal(removed->kind, STEP_REMOVED);
    step_loop_recycle(side->loop, removed);
    return cached_tokens;
}

/* A failed device may have failed before, unseen: no sequence goes on from blocks computed
 * before. */
static void test_a_step_that_fails_leaves_nothing_cached(void **state)
{
    (void)state;
    enum { STEPS = (PROMPT + CHUNK - 1) / CHUNK + ANSWER - 1 }; /* steps of the first request */
    static struct answers alone, got;
    answers_alone(&alone);
    char spec[64];
    snprintf(spec, sizeof spec, "step.fails=fail@%d", STEPS + 1);
    setenv("BATON_FAILPOINTS", spec, 1);
    struct error err;
    assert_int_equal(failpoint_init("step_loop", &err), STATUS_OK);
    struct side side;
    open_side(&side, ROOMY, 0, true);
    got = (struct answers){0};
    static const uint32_t cached[] = {0, COMMON, 0, COMMON};
    for (uint32_t request = 0; request < 4; request++) {
        bool failed;
        assert_int_equal(run_one(&side, request, &got, &failed), cached[request]);
        assert_int_equal(failed, request == 1);
        assert_int_equal(got.counts[request], failed ? 0 : ANSWER);
        assert_memory_equal(got.hashes[request], alone.hashes[request],
                            got.counts[request] * sizeof(uint64_t));
    }
    close_side(&side);
}

/* Asks for events: `count` come, the first with this number and kind. Returns the last, copied. */
static struct prefix_event read_cache(struct side *side, bool restart, uint32_t count,
                                      uint64_t number, enum prefix_event_kind kind)
{
    struct prefix_event last = {0};
    step_loop_read_cache(side->loop, restart);
    struct step_event *event = next(side);
    assert_int_equal(event->kind, STEP_CACHE);
    assert_int_equal(event->cache_event_count, count);
    for (uint32_t i = 0; i < count; i++) {
        last = event->cache_events[i];
        assert_int_equal(last.number, number + i);
        assert_int_equal(last.kind, i ? PREFIX_STORED : kind);
    }
    step_loop_recycle(side->loop, event);
    return last;
}

static void test_what_is_cached_is_told(void **state)
{
    (void)state;
    enum { STORED = (PROMPT + ANSWER - 1) / BLOCK_TOKENS };
    static struct answers answers;
    struct side side;
    bool failed;
    answers = (struct answers){0};
    open_side(&side, ROOMY, 0, true);
    read_cache(&side, true, 1, 1, PREFIX_CLEARED);
    run_one(&side, 0, &answers, &failed);
    assert_int_equal(atomic_load(&step_loop_load(side.loop)->prefix_changes), STORED);
    struct prefix_event last = read_cache(&side, false, STORED, 2, PREFIX_STORED);
    assert_int_equal(last.position, STORED - 1);
    assert_int_equal(last.token_count, BLOCK_TOKENS);
    read_cache(&side, false, 0, 0, PREFIX_STORED);
    read_cache(&side, true, 1 + STORED, 2 + STORED, PREFIX_CLEARED); /* for a new reader */
    close_side(&side);
    open_side(&side, ROOMY, 0, false);
    read_cache(&side, true, 0, 0, PREFIX_STORED);
    close_side(&side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_preempted_sequences_give_the_bytes_that_they_give_alone),
        cmocka_unit_test(test_a_cached_prompt_is_ready_at_once),
        cmocka_unit_test(test_a_move_that_fails_ends_whom_it_concerns),
        cmocka_unit_test(test_a_step_that_fails_leaves_nothing_cached),
        cmocka_unit_test(test_what_is_cached_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
