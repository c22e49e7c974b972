/* quota: a minute's worth at once, and then no more than the rate. Unused tokens are given back.
 * Waiting for the reported time is enough, and a shorter wait isn't. */
#include "router/ops/quota.h"

#include "common/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#define SECOND_US 1000000u

static const uint64_t start_us = 77 * (uint64_t)SECOND_US;

static bool begins(struct quota *quota, const struct quota_limits *limits, uint64_t now_us,
                   uint64_t *retry_us)
{
    return quota_begin(quota, limits, now_us, retry_us) == QUOTA_GRANTED;
}

/* A request with one choice, which ran for no time at all. */
static void ends(struct quota *quota, const struct quota_limits *limits, uint64_t reserved,
                 uint64_t used, uint64_t now_us)
{
    quota_end(quota, limits, reserved, used, now_us);
    quota_choice_ended(quota, 0);
}

static void test_no_limits(void **state)
{
    (void)state;
    struct quota quota = {0};
    const struct quota_limits none = {0};
    uint64_t retry_us;
    for (int i = 0; i < 100000; i++) {
        assert_true(begins(&quota, &none, start_us, &retry_us));
        assert_int_equal(quota_reserve(&quota, &none, UINT32_MAX, start_us, &retry_us),
                         QUOTA_GRANTED);
    }
    assert_int_equal(quota.running, 100000);
}

static void test_requests_of_a_minute(void **state)
{
    (void)state;
    struct quota quota = {0};
    const struct quota_limits limits = {.requests_per_minute = 6};
    uint64_t retry_us;
    for (int i = 0; i < 6; i++)
        assert_true(begins(&quota, &limits, start_us, &retry_us));
    assert_int_equal(quota_begin(&quota, &limits, start_us, &retry_us), QUOTA_REQUESTS);
    assert_int_equal(retry_us, 10 * SECOND_US);
    assert_int_equal(quota.running, 6); /* a refused one doesn't run */
    assert_int_equal(quota_begin(&quota, &limits, start_us + 10 * SECOND_US - 1, &retry_us),
                     QUOTA_REQUESTS);
    assert_int_equal(retry_us, 1);
    assert_true(begins(&quota, &limits, start_us + 10 * SECOND_US, &retry_us));
    assert_false(begins(&quota, &limits, start_us + 10 * SECOND_US, &retry_us));
    uint64_t later_us = start_us + 3600 * (uint64_t)SECOND_US; /* rest is not saved up */
    for (int i = 0; i < 6; i++)
        assert_true(begins(&quota, &limits, later_us, &retry_us));
    assert_false(begins(&quota, &limits, later_us, &retry_us));
}

static void test_tokens_are_reserved_and_settled(void **state)
{
    (void)state;
    struct quota quota = {0};
    const struct quota_limits limits = {.tokens_per_minute = 600};
    uint64_t retry_us;
    assert_true(begins(&quota, &limits, start_us, &retry_us));
    assert_int_equal(quota_reserve(&quota, &limits, 500, start_us, &retry_us), QUOTA_GRANTED);
    assert_true(begins(&quota, &limits, start_us, &retry_us));
    assert_int_equal(quota_reserve(&quota, &limits, 130, start_us, &retry_us), QUOTA_TOKENS);
    assert_int_equal(retry_us, 3 * SECOND_US);
    ends(&quota, &limits, 0, 0, start_us); /* the refused one */
    ends(&quota, &limits, 500, 470, start_us);
    assert_int_equal(quota.running, 0);
    assert_true(begins(&quota, &limits, start_us, &retry_us));
    assert_int_equal(quota_reserve(&quota, &limits, 130, start_us, &retry_us), QUOTA_GRANTED);
    assert_int_equal(quota_reserve(&quota, &limits, 1, start_us, &retry_us), QUOTA_TOKENS);
    assert_int_equal(retry_us, SECOND_US / 10);
}

static void test_more_tokens_than_a_minute_has(void **state)
{
    (void)state;
    struct quota quota = {0};
    const struct quota_limits limits = {.tokens_per_minute = 600};
    uint64_t retry_us;
    assert_int_equal(quota_reserve(&quota, &limits, 601, start_us, &retry_us), QUOTA_NEVER);
    assert_int_equal(quota_reserve(&quota, &limits, UINT64_MAX, start_us, &retry_us), QUOTA_NEVER);
    assert_int_equal(quota_reserve(&quota, &limits, 600, start_us, &retry_us), QUOTA_GRANTED);
}

static void test_requests_at_once(void **state)
{
    (void)state;
    struct quota quota = {0};
    const struct quota_limits limits = {.running = 2, .requests_per_minute = 3};
    uint64_t retry_us;
    assert_true(begins(&quota, &limits, start_us, &retry_us));
    assert_true(begins(&quota, &limits, start_us, &retry_us));
    assert_int_equal(quota_begin(&quota, &limits, start_us, &retry_us), QUOTA_RUNNING);
    assert_true(retry_us > 0);
    ends(&quota, &limits, 0, 0, start_us);
    assert_true(begins(&quota, &limits, start_us, &retry_us)); /* the refused one took no request */
    ends(&quota, &limits, 0, 0, start_us);
    assert_int_equal(quota_begin(&quota, &limits, start_us, &retry_us), QUOTA_REQUESTS);
}

static void test_each_choice_runs(void **state)
{
    (void)state;
    struct quota quota = {0};
    const struct quota_limits limits = {.running = 16};
    uint64_t retry_us = 7;
    assert_true(begins(&quota, &limits, start_us, &retry_us));
    assert_int_equal(quota_run(&quota, &limits, 16, &retry_us), QUOTA_TOO_MANY);
    assert_int_equal(quota_run(&quota, &limits, 15, &retry_us), QUOTA_GRANTED);
    assert_int_equal(quota.running, 16);
    assert_int_equal(quota_begin(&quota, &limits, start_us, &retry_us), QUOTA_RUNNING);
    quota_choice_ended(&quota, 0);
    assert_true(begins(&quota, &limits, start_us, &retry_us));
    assert_int_equal(quota_run(&quota, &limits, 1, &retry_us), QUOTA_RUNNING);
    assert_int_equal(quota.running, 16);
    const struct quota_limits none = {.running = 0};
    assert_int_equal(quota_run(&quota, &none, 1000, &retry_us), QUOTA_GRANTED);
}

/* 16 choices of 32 s each end at a pace of one in 2 s. */
static void test_the_wait_is_the_time_until_enough_have_ended(void **state)
{
    (void)state;
    struct quota quota = {0};
    const struct quota_limits limits = {.running = 16};
    uint64_t retry_us;
    assert_true(begins(&quota, &limits, start_us, &retry_us));
    assert_int_equal(quota_run(&quota, &limits, 15, &retry_us), QUOTA_GRANTED);
    assert_int_equal(quota_begin(&quota, &limits, start_us, &retry_us), QUOTA_RUNNING);
    assert_int_equal(retry_us, SECOND_US); /* none has ended: a guess */
    for (int i = 0; i < 200; i++) {
        quota_choice_ended(&quota, 32 * SECOND_US);
        assert_true(begins(&quota, &limits, start_us, &retry_us));
    }
    assert_int_equal(quota_begin(&quota, &limits, start_us, &retry_us), QUOTA_RUNNING);
    assert_int_equal(retry_us, 2 * SECOND_US);
    quota_choice_ended(&quota, 32 * SECOND_US);
    assert_true(begins(&quota, &limits, start_us, &retry_us));
    assert_int_equal(quota_run(&quota, &limits, 4, &retry_us), QUOTA_RUNNING);
    assert_int_equal(retry_us, 8 * SECOND_US);
    for (int i = 0; i < 100; i++) { /* at most a minute */
        quota_choice_ended(&quota, UINT64_MAX);
        assert_true(begins(&quota, &limits, start_us, &retry_us));
    }
    assert_int_equal(quota_begin(&quota, &limits, start_us, &retry_us), QUOTA_RUNNING);
    assert_int_equal(retry_us, QUOTA_MINUTE_US);
}

static void test_the_largest_numbers_do_not_overflow(void **state)
{
    (void)state;
    struct quota quota = {0};
    const struct quota_limits limits = {.requests_per_minute = 1000000000,
                                        .tokens_per_minute = 1000000000};
    uint64_t retry_us;
    assert_true(begins(&quota, &limits, UINT64_MAX - 5, &retry_us));
    assert_int_equal(quota_reserve(&quota, &limits, 1000000000, UINT64_MAX - 5, &retry_us),
                     QUOTA_GRANTED);
    assert_int_equal(quota_reserve(&quota, &limits, 1000000000, UINT64_MAX - 5, &retry_us),
                     QUOTA_TOKENS);
    assert_int_equal(retry_us, QUOTA_MINUTE_US);
    ends(&quota, &limits, 1000000000, 0, UINT64_MAX);
    assert_int_equal(quota.tokens_used, 0);
}

/* A caller that waits as long as it was told is admitted then, and not a microsecond before. Over
 * any time no more than a minute's worth and the rate come through. */
static void test_random_lives(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct rng rng = rng_seeded(seed);
        const struct quota_limits limits = {.requests_per_minute = 1 + rng_below(&rng, 500),
                                            .tokens_per_minute = 1 + rng_below(&rng, 100000)};
        struct quota quota = {0};
        uint64_t now_us = start_us, requests = 0, used = 0, retry_us;
        for (int i = 0; i < 300; i++) {
            now_us += rng_below(&rng, 2) ? rng_below(&rng, 3 * SECOND_US) : 0;
            if (!begins(&quota, &limits, now_us, &retry_us)) {
                struct quota sooner = quota, then = quota;
                uint64_t ignored;
                assert_true(retry_us > 0 && retry_us <= QUOTA_MINUTE_US);
                assert_false(begins(&sooner, &limits, now_us + retry_us - 1, &ignored));
                assert_true(begins(&then, &limits, now_us + retry_us, &ignored));
                continue;
            }
            requests++;
            uint64_t tokens = 1 + rng_below(&rng, limits.tokens_per_minute), spent = 0;
            enum quota_verdict verdict = quota_reserve(&quota, &limits, tokens, now_us, &retry_us);
            if (verdict == QUOTA_GRANTED) {
                used += spent = rng_below(&rng, tokens + 1);
                ends(&quota, &limits, tokens, spent, now_us);
            } else {
                assert_int_equal(verdict, QUOTA_TOKENS);
                struct quota then = quota;
                assert_int_equal(
                    quota_reserve(&then, &limits, tokens, now_us + retry_us, &retry_us),
                    QUOTA_GRANTED);
                ends(&quota, &limits, 0, 0, now_us);
            }
            uint64_t elapsed_us = now_us - start_us;
            assert_true(requests <= limits.requests_per_minute + 1 +
                                        limits.requests_per_minute * elapsed_us / QUOTA_MINUTE_US);
            assert_true(used <= limits.tokens_per_minute + 1 +
                                    limits.tokens_per_minute * elapsed_us / QUOTA_MINUTE_US);
            assert_int_equal(quota.running, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_limits),
        cmocka_unit_test(test_requests_of_a_minute),
        cmocka_unit_test(test_tokens_are_reserved_and_settled),
        cmocka_unit_test(test_more_tokens_than_a_minute_has),
        cmocka_unit_test(test_requests_at_once),
        cmocka_unit_test(test_each_choice_runs),
        cmocka_unit_test(test_the_wait_is_the_time_until_enough_have_ended),
        cmocka_unit_test(test_the_largest_numbers_do_not_overflow),
        cmocka_unit_test(test_random_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
