/* route_policy: blocked workers and blocked pairs are the last resort. */
#include "tests/unit/route_fixture.h"

/* A breaker's worker gets requests only where no other is ready, even if the others are full. */
static void test_a_blocked_worker_is_the_last_resort(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_DECODE, 3), worker(ROLE_DECODE, 4)};
    struct candidates all;
    struct route_request asked = small;
    asked.now_us = 1000;
    w[1].work_tokens = w[3].work_tokens = 900;
    make(&all, w, COUNT(w));
    candidates_block(&all, 1, 1001);
    candidates_block(&all, 3, 1001);
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_PLACED, 2, 4);
    candidates_get(&all, 4)->is.requests = candidates_get(&all, 4)->is.max_requests = 1;
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_FULL, 0, 0);
    const struct route_handle handle = {
        .prefill = 2, .model_hash = 7, .layout_hash = 8, .numerics_id = 9};
    assert_choice(route_handle(&all, 0, &asked, &handle, NULL), ROUTE_FULL, 0, 0);
    candidates_block(&all, 2, 1001);
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_PLACED, 1, 3);
    candidates_get(&all, 4)->is.ready = false;
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_PLACED, 1, 3);
    assert_choice(route_handle(&all, 0, &asked, &handle, NULL), ROUTE_PLACED, 0, 3);
    asked.now_us = 1001; /* the blocks are over */
    candidates_get(&all, 4)->is.ready = true;
    candidates_get(&all, 4)->is.requests = 0;
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_PLACED, 1, 3);
    candidates_deinit(&all);
}

/* A breaker's pair is the last resort, and both of its workers take other partners. */
static void test_a_blocked_pair_is_the_last_resort(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_DECODE, 3), worker(ROLE_DECODE, 4)};
    const struct candidate_pair apart[] = {{1, 3, 1001}, {2, 4, 1001}, {1, 9, 1001}, {9, 3, 1001}};
    struct candidates all;
    struct route_request asked = small;
    asked.now_us = 1000;
    w[1].work_tokens = 50;
    w[3].work_tokens = 40;
    make(&all, w, COUNT(w));
    assert_int_equal(candidates_block_pairs(&all, apart, COUNT(apart)), STATUS_OK);
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_PLACED, 1, 4);
    candidates_get(&all, 3)->is.work_tokens = candidates_get(&all, 1)->is.work_tokens = 900;
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_PLACED, 1, 4); /* 940, not 950 */
    candidates_get(&all, 4)->is.work_tokens = 1000;
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_PLACED, 2, 3);
    struct route_request prompt = asked; /* no bytes are read */
    prompt.ends_at_prefill = true;
    assert_int_equal(route_request(&all, 0, &prompt, NULL).prefill, 2);
    candidates_get(&all, 1)->is.ready = false;
    candidates_get(&all, 3)->is.requests = candidates_get(&all, 3)->is.max_requests = 1;
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_FULL, 0, 0); /* it waits for 3 */
    candidates_get(&all, 3)->is.ready = false;
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_PLACED, 2, 4);
    candidates_get(&all, 3)->is.ready = true;
    candidates_get(&all, 3)->is.requests = 0;
    asked.now_us = 1001; /* the blocks are over */
    candidates_get(&all, 4)->is.work_tokens = 1;
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_PLACED, 2, 4);
    asked.now_us = 1000;
    assert_int_equal(candidates_block_pairs(&all, apart, 1), STATUS_OK); /* one may pair again */
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_PLACED, 2, 4);
    candidates_remove(&all, 3);
    assert_int_equal(candidates_get(&all, 4)->kind->blocked_pairs, 0);
    assert_int_equal(candidates_block_pairs(&all, NULL, 0), STATUS_OK);
    candidates_deinit(&all);
}

/* The best workers are all kept apart: the best pair is found all the same. A prompt alone goes to
 * the best prefill worker. */
static void test_the_best_pair_beside_blocked_ones(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_PREFILL, 2),
                               worker(ROLE_DECODE, 3),  worker(ROLE_DECODE, 4),
                               worker(ROLE_DECODE, 5),  worker(ROLE_DECODE, 6),
                               worker(ROLE_DECODE, 7)};
    struct candidate_pair apart[] = {{1, 3, 1}, {1, 4, 1}, {1, 5, 1}, {1, 6, 1}, {1, 7, 1}};
    struct candidates all;
    w[1].work_tokens = 500;
    w[6].work_tokens = 10;
    make(&all, w, COUNT(w));
    assert_int_equal(candidates_block_pairs(&all, apart, 4), STATUS_OK);
    assert_choice(route_request(&all, 0, &small, NULL), ROUTE_PLACED, 1, 7);
    assert_int_equal(candidates_block_pairs(&all, apart, 5), STATUS_OK);
    assert_int_equal(route_request(&all, 0, &small, NULL).prefill, 2);
    struct route_request prompt = small;
    prompt.ends_at_prefill = true;
    assert_int_equal(route_request(&all, 0, &prompt, NULL).prefill, 1);
    candidates_deinit(&all);
}

static void test_a_handle_goes_round_blocked_pairs(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 3),
                               worker(ROLE_DECODE, 4)};
    const struct candidate_pair apart[] = {{1, 4, 1001}, {1, 3, 1001}};
    const struct route_handle handle = {
        .prefill = 1, .model_hash = 7, .layout_hash = 8, .numerics_id = 9};
    struct candidates all;
    struct route_request asked = small;
    asked.now_us = 1000;
    asked.ends_at_prefill = true; /* it has a handle: its bytes are read all the same */
    w[1].work_tokens = 900;
    make(&all, w, COUNT(w));
    assert_int_equal(candidates_block_pairs(&all, apart, 1), STATUS_OK);
    assert_choice(route_handle(&all, 0, &asked, &handle, NULL), ROUTE_PLACED, 0, 3);
    candidates_get(&all, 3)->is.requests = candidates_get(&all, 3)->is.max_requests = 1;
    assert_choice(route_handle(&all, 0, &asked, &handle, NULL), ROUTE_FULL, 0, 0);
    assert_int_equal(candidates_block_pairs(&all, apart, 2), STATUS_OK);
    assert_choice(route_handle(&all, 0, &asked, &handle, NULL), ROUTE_PLACED, 0, 4);
    candidates_deinit(&all);
}

/* A decode worker with nothing but blocked pairs doesn't compute prompts: it has prefill
 * workers. */
static void test_blocked_pairs_lead_to_no_local_prefill(void **state)
{
    (void)state;
    struct route_worker w[] = {worker(ROLE_PREFILL, 1), worker(ROLE_DECODE, 3)};
    const struct candidate_pair apart[] = {{1, 3, 1001}};
    struct candidates all;
    struct route_request asked = small;
    asked.now_us = asked.local_away_us = 1000;
    make(&all, w, COUNT(w));
    assert_int_equal(candidates_block_pairs(&all, apart, 1), STATUS_OK);
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_PLACED, 1, 3);
    candidates_get(&all, 1)->is.ready = false;
    candidates_get(&all, 1)->is.away_since_us = 999;
    assert_choice(route_request(&all, 0, &asked, NULL), ROUTE_PLACED, 0, 3);
    candidates_deinit(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_blocked_worker_is_the_last_resort, forget_refusals),
        cmocka_unit_test_setup(test_a_blocked_pair_is_the_last_resort, forget_refusals),
        cmocka_unit_test_setup(test_the_best_pair_beside_blocked_ones, forget_refusals),
        cmocka_unit_test_setup(test_a_handle_goes_round_blocked_pairs, forget_refusals),
        cmocka_unit_test_setup(test_blocked_pairs_lead_to_no_local_prefill, forget_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
