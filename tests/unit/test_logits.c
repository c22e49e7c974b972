/* logits: the edits against plain counting, by the definitions, and the sampler's draws with
 * them. */
#include "common/engine/model/logits.h"

#include "common/base/rng.h"
#include "common/engine/model/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 40, LONGEST = 100 };

static uint32_t counted(const uint32_t *tokens, uint32_t count, uint32_t id)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        found += tokens[i] == id;
    return found;
}

/* As OpenAI and vLLM define them. */
static float oracle(float logit, uint32_t in_all, uint32_t in_answer, const struct sampling *s)
{
    if (in_all)
        logit = logit > 0 ? logit / s->repetition_penalty : logit * s->repetition_penalty;
    if (in_answer) {
        logit -= s->frequency_penalty * (float)in_answer;
        logit -= s->presence_penalty;
    }
    return logit;
}

static void test_against_counting(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(4);
    uint32_t counts[VOCAB] = {0};
    for (int trial = 0; trial < 500; trial++) {
        float logits[VOCAB], edited[VOCAB];
        uint32_t tokens[LONGEST], count = 1 + (uint32_t)rng_below(&rng, LONGEST),
                                  answer = (uint32_t)rng_below(&rng, count + 1);
        for (uint32_t i = 0; i < count; i++)
            tokens[i] = (uint32_t)rng_below(&rng, VOCAB + 2); /* two that are no tokens */
        for (uint32_t i = 0; i < VOCAB; i++)
            edited[i] = logits[i] = (float)(rng_unit(&rng) * 16 - 8);
        struct sampling sampling = sampling_default();
        sampling.presence_penalty = (float)(rng_unit(&rng) * 4 - 2);
        sampling.frequency_penalty = trial % 3 ? (float)(rng_unit(&rng) * 4 - 2) : 0;
        sampling.repetition_penalty = trial % 4 ? (float)(rng_unit(&rng) * 2 + 0.1) : 1;
        logit_edits_penalize(edited, VOCAB, counts, &sampling,
                             &(struct logit_history){tokens, count, answer});
        for (uint32_t i = 0; i < VOCAB; i++) {
            float want = oracle(logits[i], counted(tokens, count, i),
                                counted(tokens + count - answer, answer, i), &sampling);
            assert_true(edited[i] == want);
            assert_int_equal(counts[i], 0);
        }
    }
}

static void test_what_penalizes(void **state)
{
    (void)state;
    struct sampling sampling = sampling_default();
    assert_false(logit_edits_penalizes(&sampling));
    sampling.presence_penalty = -0.5f;
    assert_true(logit_edits_penalizes(&sampling));
    sampling = sampling_default();
    sampling.frequency_penalty = 1;
    assert_true(logit_edits_penalizes(&sampling));
    sampling = sampling_default();
    sampling.repetition_penalty = 1.5f;
    assert_true(logit_edits_penalizes(&sampling));
}

static void test_a_bias_moves_or_bans(void **state)
{
    (void)state;
    float logits[] = {1, 2, 3, 4};
    const struct logit_bias biases[] = {{0, 2.5f}, {1, -100}, {3, -99.5f}, {7, 100}};
    struct sampling sampling = sampling_default();
    sampling.bias_count = 4; /* the last is no token: passed over */
    sampling.biases = biases;
    logit_edits_bias(logits, 4, &sampling);
    const float want[] = {3.5f, -INFINITY, 3, -95.5f};
    for (int i = 0; i < 4; i++)
        assert_true(logits[i] == want[i]);
}

/* No edit makes a number that is none. */
static void test_extreme_numbers_stay_numbers(void **state)
{
    (void)state;
    float logits[] = {3e38f, -3e38f, -INFINITY, 0};
    uint32_t counts[4] = {0};
    const uint32_t tokens[] = {0, 1, 2, 3};
    struct sampling sampling = sampling_default();
    sampling.repetition_penalty = 0.01f;
    sampling.frequency_penalty = sampling.presence_penalty = -2;
    logit_edits_penalize(logits, 4, counts, &sampling, &(struct logit_history){tokens, 4, 4});
    assert_true(isfinite(logits[0]) && logits[0] > 3e38f);
    assert_true(isfinite(logits[1]));
    assert_true(logits[2] == -INFINITY);
    assert_true(logits[3] == 4);
}

static void test_the_sampler_draws_what_is_left(void **state)
{
    (void)state;
    struct sampler sampler;
    assert_int_equal(sampler_init(&sampler, 5), STATUS_OK);
    const float logits[] = {5, 4.5f, 4, 3, 1};
    const uint32_t tokens[] = {1, 0, 0, 2};
    const struct logit_bias ban = {3, -100}, favour = {4, 4.25f};
    struct sampling sampling = sampling_default();
    struct sampler_row row = {.logits = logits, .tokens = tokens, .token_count = 4, .index = 3};
    uint32_t token;
    sampling.temperature = 0;
    assert_int_equal(sampler_draw(&sampler, &row, &sampling, &token), STATUS_OK);
    assert_int_equal(token, 0);
    sampling.frequency_penalty = 0.5f; /* 0 twice: 4; 1 is of the prompt */
    assert_int_equal(sampler_draw(&sampler, &row, &sampling, &token), STATUS_OK);
    assert_int_equal(token, 1);
    sampling.repetition_penalty = 2; /* 1.5, 2.25, 1.5: 3 is left */
    assert_int_equal(sampler_draw(&sampler, &row, &sampling, &token), STATUS_OK);
    assert_int_equal(token, 3);
    sampling.bias_count = 1;
    sampling.biases = &ban;
    assert_int_equal(sampler_draw(&sampler, &row, &sampling, &token), STATUS_OK);
    assert_int_equal(token, 1);
    sampling.biases = &favour;
    assert_int_equal(sampler_draw(&sampler, &row, &sampling, &token), STATUS_OK);
    assert_int_equal(token, 4);
    sampler_deinit(&sampler);
}

/* Banning all tokens is reported, as by any other ban. */
static void test_biases_that_leave_nothing(void **state)
{
    (void)state;
    struct sampler sampler;
    assert_int_equal(sampler_init(&sampler, 2), STATUS_OK);
    const float logits[] = {1, 2};
    const struct logit_bias bans[] = {{0, -100}, {1, -100}};
    struct sampling sampling = sampling_default();
    sampling.bias_count = 2;
    sampling.biases = bans;
    uint32_t token;
    struct sampler_row row = {.logits = logits};
    assert_int_equal(sampler_draw(&sampler, &row, &sampling, &token), STATUS_INVALID);
    sampler_deinit(&sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_counting),
        cmocka_unit_test(test_what_penalizes),
        cmocka_unit_test(test_a_bias_moves_or_bans),
        cmocka_unit_test(test_extreme_numbers_stay_numbers),
        cmocka_unit_test(test_the_sampler_draws_what_is_left),
        cmocka_unit_test(test_biases_that_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
