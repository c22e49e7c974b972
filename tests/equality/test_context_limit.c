/* Requests to the context limit: one alone, and 64 at once in a pool for two and a half of them,
 * with host memory for one or none. All end at the end of the context, with the same bytes as
 * alone. A request that can never fit is refused at once, with the numbers. */
#include "common/base/rng.h"
#include "tests/equality/side.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    CONTEXT = 160,
    REQUESTS = 64,
    CONTEXT_BLOCKS = CONTEXT / SIDE_BLOCK_TOKENS,
    TIGHT = CONTEXT_BLOCKS * 5 / 2,
    SHORTEST = 100,
    CHUNK = 48
};

struct answer {
    uint32_t count, tokens[CONTEXT];
    uint64_t hashes[CONTEXT];
    enum finish_reason finish;
};

static void open_side(struct side *side, uint32_t blocks, uint32_t swap_blocks)
{
    side_open(side, &(struct side_config){.model = "tests/golden/models/qwen3",
                                          .threads = 1,
                                          .chunk = CHUNK,
                                          .sequences = REQUESTS,
                                          .blocks = blocks,
                                          .swap_blocks = swap_blocks,
                                          .context = CONTEXT,
                                          .prefix_cache = true});
}

/* Asks for more than the context has room for. */
static struct sequence_spec spec_of(uint32_t key, uint32_t prompt, uint32_t max_tokens)
{
    struct rng rng = rng_seeded(key + 1);
    struct sequence_spec spec = {
        .key = {key, 1}, .plan = PLAN_LOCAL, .token_count = prompt, .sampling = sampling_default()};
    spec.sampling.temperature = 1;
    spec.sampling.seed = key;
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.ignore_eos = spec.sampling.logits_hash = true;
    spec.tokens = malloc(prompt * sizeof *spec.tokens);
    assert_non_null(spec.tokens);
    for (uint32_t i = 0; i < prompt; i++)
        spec.tokens[i] = 3 + (uint32_t)rng_below(&rng, 380);
    return spec;
}

/* All prompts but some of the lengths are different; the last one leaves room for one token. */
static uint32_t prompt_of(uint32_t key)
{
    return key == REQUESTS - 1 ? CONTEXT - 1 : SHORTEST + key % (CONTEXT - SHORTEST);
}

static void add(struct side *side, uint32_t key)
{
    struct sequence_spec spec = spec_of(key, prompt_of(key), 10 * CONTEXT);
    side_add(side, &spec);
}

/* Until `count` of them have ended. */
static void collect(struct side *side, uint32_t count, struct answer *answers)
{
    for (uint32_t ended = 0; ended < count;) {
        struct step_event *event = side_next(side);
        if (event->kind != STEP_TOKENS && event->kind != STEP_RESERVED)
            fail_msg("event %d: %s", event->kind, event->err.text);
        for (uint32_t i = 0; i < event->token_count; i++) {
            const struct step_token *token = &event->tokens[i];
            struct answer *answer = &answers[token->key.request];
            assert_int_equal(token->index, answer->count + 1);
            assert_true(answer->count < CONTEXT);
            answer->tokens[answer->count] = token->token;
            assert_int_not_equal(token->logits_hash, 0);
            answer->hashes[answer->count++] = token->logits_hash;
            answer->finish = token->finish;
            ended += token->finish != FINISH_NONE;
        }
        step_loop_recycle(side->loop, event);
    }
}

static void test_too_many_at_once_give_the_bytes_that_they_give_alone(void **state)
{
    (void)state;
    static struct answer alone[REQUESTS], together[REQUESTS];
    struct side side;
    open_side(&side, CONTEXT_BLOCKS, 0); /* exactly the blocks that one request needs */
    for (uint32_t key = 0; key < REQUESTS; key++) {
        add(&side, key);
        collect(&side, 1, alone);
        assert_int_equal(alone[key].finish, FINISH_CONTEXT);
        assert_int_equal(prompt_of(key) + alone[key].count, CONTEXT);
    }
    side_close(&side);
    for (uint32_t slots = 0; slots <= CONTEXT_BLOCKS; slots += CONTEXT_BLOCKS) {
        open_side(&side, TIGHT, slots);
        memset(together, 0, sizeof together);
        for (uint32_t key = 0; key < REQUESTS; key++)
            add(&side, key);
        collect(&side, REQUESTS, together);
        assert_memory_equal(together, alone, sizeof alone);
        const struct step_load *load = step_loop_load(side.loop);
        assert_true(atomic_load(&load->preemptions[slots ? STEP_SWAPPED : STEP_DROPPED]) > 0);
        assert_int_equal(side_blocks(&side, KV_BLOCK_FREE) + side_blocks(&side, KV_BLOCK_CACHED),
                         TIGHT);
        side_close(&side);
    }
}

/* The next event is the refusal of `key`, in these words. */
static void expect_refusal(struct side *side, struct sequence_spec spec, enum status status,
                           const char *words)
{
    side_add(side, &spec);
    struct step_event *event = side_next(side);
    assert_int_equal(event->kind, STEP_REFUSED);
    assert_int_equal(event->status, status);
    assert_string_equal(event->err.text, words);
    step_loop_recycle(side->loop, event);
}

static void test_what_never_fits_is_refused_with_the_numbers(void **state)
{
    (void)state;
    enum { BLOCKS = CONTEXT_BLOCKS - 2, FITS = BLOCKS * SIDE_BLOCK_TOKENS };
    static struct answer answers[REQUESTS];
    struct side side;
    open_side(&side, BLOCKS, CONTEXT_BLOCKS);
    expect_refusal(&side, spec_of(1, 100, CONTEXT - 100), STATUS_INVALID,
                   "the request needs 20 KV blocks of 8 tokens, the worker has 18: shorten the "
                   "prompt or max_tokens, or start the worker with more --kv-tokens");
    expect_refusal(&side, spec_of(2, FITS, 1), STATUS_INVALID,
                   "the request needs 19 KV blocks of 8 tokens, the worker has 18: shorten the "
                   "prompt or max_tokens, or start the worker with more --kv-tokens");
    expect_refusal(&side, spec_of(3, CONTEXT, 1), STATUS_INVALID,
                   "160 tokens of prompt do not fit the context of 160 tokens with room for an "
                   "answer");
    struct sequence_spec spec = spec_of(4, 100, FITS - 100);
    side_add(&side, &spec);
    collect(&side, 1, answers);
    assert_int_equal(answers[4].count, FITS - 100);
    assert_int_equal(answers[4].finish, FINISH_MAX_TOKENS);
    side_close(&side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_too_many_at_once_give_the_bytes_that_they_give_alone),
        cmocka_unit_test(test_what_never_fits_is_refused_with_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
