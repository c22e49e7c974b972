/* link_model and step_profile: shares of a link, times of steps. */
#include "common/base/domain/link_model.h"
#include "common/base/domain/step_profile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define START_US 1000000000000u /* a clock far from 0, where a double has few digits left */

static void assert_near(double value, double wanted)
{
    if (fabs(value - wanted) > 1e-6 * (1 + fabs(wanted)))
        fail_msg("%.9g, wanted %.9g", value, wanted);
}

/* Advances to the link's own next moment, again and again; returns when the flow is done. */
static uint64_t run_until_done(struct link_model *link, const struct link_flow *flow)
{
    for (int i = 0; i < 1000; i++) {
        uint64_t next_us = link_next_us(link);
        assert_true(next_us != UINT64_MAX);
        link_advance(link, next_us);
        if (link_done(flow))
            return next_us - START_US;
    }
    fail_msg("it never ends");
    return 0;
}

static void test_a_flow_alone_takes_its_bytes_and_the_latency(void **state)
{
    (void)state;
    struct link_model link = {.bytes_per_us = 1000, .latency_us = 50};
    struct link_flow flow = {0};
    assert_true(link_next_us(&link) == UINT64_MAX);
    link_add(&link, &flow, 1e6, START_US);
    assert_false(link_done(&flow));
    assert_int_equal(run_until_done(&link, &flow), 1050);
    assert_true(link_next_us(&link) == UINT64_MAX);
    link_remove(&link, &flow);
    link_remove(&link, &flow); /* it isn't there any more */
    assert_null(link.flows);
}

static void test_flows_share_evenly_and_one_that_ends_leaves_its_share(void **state)
{
    (void)state;
    struct link_model link = {.bytes_per_us = 1000};
    struct link_flow large = {0}, small = {0};
    link_add(&link, &large, 4e6, START_US);
    link_advance(&link, START_US + 1000); /* alone: 1 MB is through */
    assert_near(large.left_bytes, 3e6);
    link_add(&link, &small, 1e6, START_US + 1000);
    /* half each: the small one takes 2000, and the large one has 2 MB left, alone again */
    assert_int_equal(run_until_done(&link, &small), 3000);
    assert_near(large.left_bytes, 2e6);
    assert_int_equal(run_until_done(&link, &large), 5000); /* though the small one is there still */
    link_remove(&link, &small);
}

static void test_a_flow_that_is_taken_away_leaves_its_share(void **state)
{
    (void)state;
    struct link_model link = {.bytes_per_us = 1000};
    struct link_flow flows[3] = {{0}};
    for (int i = 0; i < 3; i++)
        link_add(&link, &flows[i], 3e6, START_US);
    link_advance(&link, START_US + 3000); /* 1 MB each */
    link_remove(&link, &flows[1]);
    link_remove(&link, &flows[2]);
    assert_int_equal(run_until_done(&link, &flows[0]), 5000);
}

/* Until its latency is over a flow has no share, and none of its bytes move. */
static void test_a_flow_that_waits_for_its_latency_takes_nothing(void **state)
{
    (void)state;
    struct link_model link = {.bytes_per_us = 1000};
    struct link_flow first = {0}, late = {0};
    link_add(&link, &first, 5e6, START_US);
    link.latency_us = 2000;
    link_add(&link, &late, 1e6, START_US);
    link_advance(&link, START_US + 1000);
    assert_near(first.left_bytes, 4e6);
    assert_near(late.left_bytes, 1e6);
    link_advance(&link, START_US + 3000); /* 2000 alone, then half each */
    assert_near(first.left_bytes, 2.5e6);
    assert_near(late.left_bytes, 0.5e6);
}

/* The whole work is done by the time that it takes, in whatever steps time comes. */
static void test_no_time_is_lost_or_won_in_small_steps(void **state)
{
    (void)state;
    struct link_model fine = {.bytes_per_us = 3125, .latency_us = 7},
                      coarse = {.bytes_per_us = 3125, .latency_us = 7};
    struct link_flow a[5] = {{0}}, b[5] = {{0}};
    for (uint32_t i = 0; i < 5; i++) {
        link_add(&fine, &a[i], 1e5 * (i + 1), START_US + 11 * i);
        link_add(&coarse, &b[i], 1e5 * (i + 1), START_US + 11 * i);
    }
    for (uint64_t us = 44; us <= 400; us++)
        link_advance(&fine, START_US + us);
    link_advance(&coarse, START_US + 400);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(link_done(&a[i]), link_done(&b[i]));
        if (!link_done(&a[i]) && fabs(a[i].left_bytes - b[i].left_bytes) > 100)
            fail_msg("%g and %g bytes left", a[i].left_bytes, b[i].left_bytes);
    }
}

static const struct step_profile PROFILE = {
    .prefill = {.step_us = 20000, .prefill_row_us = 100, .prefill_position_us = 0.5},
    .decode = {.step_us = 23000, .decode_row_us = 60, .decode_context_us = 0.25},
    .decode_large = {.step_us = 19000, .decode_row_us = 120, .decode_context_us = 0.125},
    .large_from = 95,
    .kv_bytes_per_token = 1000,
};

static double time_of(const struct step_profile *profile, uint32_t prefill, uint64_t positions,
                      uint32_t decode, uint64_t context)
{
    const struct step_shape shape = {prefill, positions, decode, context};
    return step_profile_us(profile, &shape, 0);
}

static void test_times_of_prompts_of_answers_and_of_both(void **state)
{
    (void)state;
    assert_near(time_of(&PROFILE, 100, 4950, 0, 0), 20000 + 10000 + 2475);
    assert_near(time_of(&PROFILE, 0, 0, 10, 4000), 23000 + 600 + 1000);
    /* both: the larger offset once, and the rows of both */
    assert_near(time_of(&PROFILE, 100, 4950, 10, 4000), 23000 + 12475 + 1600);
    assert_near(time_of(&PROFILE, 0, 0, 94, 0), 23000 + 94 * 60);
    assert_near(time_of(&PROFILE, 0, 0, 95, 800), 19000 + 95 * 120 + 100);
    assert_near(time_of(&PROFILE, 1, 0, 95, 0), 20000 + 100 + 95 * 120);
}

static void test_stairs(void **state)
{
    (void)state;
    struct step_profile profile = PROFILE;
    profile.prefill_tile = 64;
    profile.bucket_count = 3;
    profile.decode_buckets[0] = 1;
    profile.decode_buckets[1] = 8;
    profile.decode_buckets[2] = 16;
    assert_near(time_of(&profile, 65, 0, 0, 0), 20000 + 128 * 100);
    assert_near(time_of(&profile, 64, 0, 0, 0), 20000 + 64 * 100);
    assert_near(time_of(&profile, 0, 0, 1, 0), 23000 + 60);
    assert_near(time_of(&profile, 0, 0, 2, 100), 23000 + 8 * 60 + 25);
    assert_near(time_of(&profile, 0, 0, 17, 0), 23000 + 17 * 60);
    assert_near(time_of(&profile, 64, 0, 0, 0), 20000 + 6400); /* no decode row: no bucket */
}

static void test_noise_has_mean_1_and_its_sigma_and_repeats(void **state)
{
    (void)state;
    struct step_profile profile = PROFILE, other = PROFILE;
    profile.noise_sigma = other.noise_sigma = 0.2;
    other.noise_seed = 7;
    const struct step_shape shape = {.decode_rows = 10};
    double sum = 0, logs = 0, squares = 0;
    uint32_t count = 20000, equal = 0;
    for (uint32_t step = 0; step < count; step++) {
        double us = step_profile_us(&profile, &shape, step), factor = us / 23600;
        assert_true(us == step_profile_us(&profile, &shape, step));
        equal += us == step_profile_us(&other, &shape, step);
        sum += factor;
        logs += log(factor);
        squares += log(factor) * log(factor);
    }
    double mean = logs / count, sigma = sqrt(squares / count - mean * mean);
    assert_true(fabs(sum / count - 1) < 0.01);
    assert_true(fabs(sigma - 0.2) < 0.01);
    assert_int_equal(equal, 0);
}

static void test_swapped_tokens_take_their_bytes(void **state)
{
    (void)state;
    struct step_profile profile = PROFILE;
    assert_near(step_profile_swap_us(&profile, 64), 0);
    profile.swap_bytes_per_second = 1e9;
    assert_near(step_profile_swap_us(&profile, 64), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_flow_alone_takes_its_bytes_and_the_latency),
        cmocka_unit_test(test_flows_share_evenly_and_one_that_ends_leaves_its_share),
        cmocka_unit_test(test_a_flow_that_is_taken_away_leaves_its_share),
        cmocka_unit_test(test_a_flow_that_waits_for_its_latency_takes_nothing),
        cmocka_unit_test(test_no_time_is_lost_or_won_in_small_steps),
        cmocka_unit_test(test_times_of_prompts_of_answers_and_of_both),
        cmocka_unit_test(test_stairs),
        cmocka_unit_test(test_noise_has_mean_1_and_its_sigma_and_repeats),
        cmocka_unit_test(test_swapped_tokens_take_their_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
