/* model/logprobs: against libm, in order, floored, bits that must never change; and reading them
 * from a message. */
#include "common/base/fixed_math.h"
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/engine/model/logits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB 500

static double log_total(const float *logits, uint32_t vocab)
{
    double max = -INFINITY, total = 0;
    for (uint32_t i = 0; i < vocab; i++)
        max = fmax(max, (double)logits[i]);
    for (uint32_t i = 0; i < vocab; i++)
        total += exp((double)logits[i] - max);
    return max + log(total);
}

static void assert_near(float got, double want)
{
    if (fabs((double)got - want) > 2e-7 * (2 + fabs(want)))
        fail_msg("%.9g, should be %.9g", (double)got, want);
}

static void fill(float *logits, uint32_t vocab, double spread, struct rng *rng)
{
    for (uint32_t i = 0; i < vocab; i++)
        logits[i] = (float)((rng_unit(rng) - 0.5) * spread);
}

static void check_against_libm(const float *logits, uint32_t vocab, uint32_t token, uint32_t top)
{
    struct token_logprobs got;
    double total = log_total(logits, vocab);
    assert_int_equal(logprobs_of(logits, vocab, token, top, &got), STATUS_OK);
    assert_true(got.given);
    assert_near(got.logprob, (double)logits[token] - total);
    assert_int_equal(got.top_count, top < vocab ? top : vocab);
    for (uint32_t t = 0; t < got.top_count; t++) {
        uint32_t id = got.top_ids[t], before = 0;
        assert_near(got.top_logprobs[t], (double)logits[id] - total);
        for (uint32_t i = 0; i < vocab; i++)
            before += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
        assert_int_equal(before, t);
    }
}

static void test_against_libm(void **state)
{
    (void)state;
    static const double spreads[] = {0.1, 4, 16, 60, 400};
    static const uint32_t vocabs[] = {1, 3, 19, 20, 21, 63, 64, 65, VOCAB};
    struct rng rng = rng_seeded(7);
    float logits[VOCAB];
    for (size_t s = 0; s < sizeof spreads / sizeof *spreads; s++)
        for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++)
            for (uint32_t top = 0; top <= LOGPROBS_MAX_TOP; top++) {
                fill(logits, vocabs[v], spreads[s], &rng);
                check_against_libm(logits, vocabs[v], (uint32_t)rng_below(&rng, vocabs[v]), top);
            }
}

static void test_of_equals_the_lower_ids(void **state)
{
    (void)state;
    float logits[VOCAB];
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = (float)(i % 7);
    check_against_libm(logits, VOCAB, 3, LOGPROBS_MAX_TOP);
    memset(logits, 0, sizeof logits);
    struct token_logprobs got;
    assert_int_equal(logprobs_of(logits, VOCAB, 9, 3, &got), STATUS_OK);
    const uint32_t lowest[] = {0, 1, 2};
    assert_memory_equal(got.top_ids, lowest, sizeof lowest);
}

static void test_nothing_is_below_the_floor(void **state)
{
    (void)state;
    const float logits[] = {-INFINITY, 0, -20000, -3.4e38f};
    struct token_logprobs got;
    assert_int_equal(logprobs_of(logits, 4, 0, 4, &got), STATUS_OK);
    assert_true(got.logprob == LOGPROB_FLOOR && got.top_logprobs[0] == 0);
    for (int i = 1; i < 4; i++)
        assert_true(got.top_logprobs[i] == LOGPROB_FLOOR);
    assert_true(token_logprobs_read(
        &(struct logprobs_lists){got.logprob, got.top_ids, got.top_logprobs, 4, 4}, &got));
}

static void test_unsound_logits_are_refused(void **state)
{
    (void)state;
    static const float bad[][2] = {{NAN, 0}, {0, INFINITY}, {-INFINITY, -INFINITY}};
    struct token_logprobs got;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(logprobs_of(bad[i], 2, 0, 1, &got), STATUS_INTERNAL);
}

static void test_log_against_libm(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(8);
    for (int i = 0; i < 20000; i++) {
        double x = exp((rng_unit(&rng) - 0.5) * (i % 2 ? 1400 : 2));
        assert_true(fabs(log_positive(x) - log(x)) <= 1e-15 * (1 + fabs(log(x))));
    }
    assert_true(log_positive(1) == 0);
}

/* Clients compare them: a change of these bits is a change of numerics. */
static void test_these_bits_never_change(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(9);
    uint64_t hash = HASH_SEED;
    for (int row = 0; row < 50; row++) {
        float logits[VOCAB];
        struct token_logprobs got;
        fill(logits, VOCAB, 1 + row, &rng);
        assert_int_equal(logprobs_of(logits, VOCAB, (uint32_t)row, LOGPROBS_MAX_TOP, &got),
                         STATUS_OK);
        hash = hash_bytes(&got.logprob, sizeof got.logprob, hash);
        hash = hash_bytes(got.top_ids, sizeof got.top_ids, hash);
        hash = hash_bytes(got.top_logprobs, sizeof got.top_logprobs, hash);
    }
    assert_true(hash == UINT64_C(0x6ed711f5e38c129));
}

static void test_what_is_read_of_a_message(void **state)
{
    (void)state;
    const uint32_t ids[LOGPROBS_MAX_TOP + 1] = {7, 6, 5};
    const float logprobs[LOGPROBS_MAX_TOP + 1] = {-1, -2, -3},
                                            bad[] = {NAN, 0.5f, -1e4f, -INFINITY};
    struct token_logprobs got;
    struct logprobs_lists lists = {-0.5f, ids, logprobs, 3, 3};
    assert_true(token_logprobs_read(&lists, &got));
    assert_true(got.given && got.top_count == 3 && got.top_ids[2] == 5 &&
                got.top_logprobs[2] == -3);
    assert_true(token_logprobs_fit(&got, 8));
    assert_false(token_logprobs_fit(&got, 7));
    assert_true(token_logprobs_read(&(struct logprobs_lists){.logprob = 0}, &got));
    assert_true(token_logprobs_fit(&got, 0));

    lists.logprob_count = 2;
    assert_false(token_logprobs_read(&lists, &got));
    lists.id_count = lists.logprob_count = LOGPROBS_MAX_TOP;
    assert_true(token_logprobs_read(&lists, &got));
    lists.id_count = lists.logprob_count = LOGPROBS_MAX_TOP + 1;
    assert_false(token_logprobs_read(&lists, &got));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(token_logprobs_read(&(struct logprobs_lists){.logprob = bad[i]}, &got));
        assert_false(token_logprobs_read(&(struct logprobs_lists){-1, ids, &bad[i], 1, 1}, &got));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_libm),
        cmocka_unit_test(test_of_equals_the_lower_ids),
        cmocka_unit_test(test_nothing_is_below_the_floor),
        cmocka_unit_test(test_unsound_logits_are_refused),
        cmocka_unit_test(test_log_against_libm),
        cmocka_unit_test(test_these_bits_never_change),
        cmocka_unit_test(test_what_is_read_of_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
