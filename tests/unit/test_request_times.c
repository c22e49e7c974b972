/* request_times: durations by a worker's own clock, told once, bounded. */
#include "common/worker/request_times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define T0 5000000u
static const struct sequence_key one = {7, 1}, two = {7, 2}, three = {8, 1};

static void test_a_prompt_that_is_computed(void **state)
{
    (void)state;
    struct request_times times;
    Baton__Worker__V1__Prefilled told;
    assert_int_equal(request_times_init(&times, 2), STATUS_OK);
    request_times_begin(&times, one, true, T0);
    request_times_reserved(&times, one, 32, T0 + 10);
    request_times_chunk(&times, one, T0 + 100);
    request_times_chunk(&times, two, T0 + 150); /* another attempt's */
    request_times_chunk(&times, one, T0 + 200);
    assert_false(request_times_prefilled(&times, two, &told));
    assert_true(request_times_prefilled(&times, one, &told));
    assert_int_equal(told.request, 7);
    assert_int_equal(told.attempt, 1);
    assert_int_equal(told.queued_us, 10);
    assert_int_equal(told.cached_tokens, 32);
    assert_int_equal(told.chunk_count, 2);
    assert_int_equal(told.n_chunk_end_us, 2);
    assert_int_equal(told.chunk_end_us[1], 200);
    assert_false(request_times_prefilled(&times, one, &told)); /* once */
    assert_int_equal(times.untold, 0);
    request_times_deinit(&times);
}

static void test_more_chunks_than_are_kept(void **state)
{
    (void)state;
    struct request_times times;
    Baton__Worker__V1__Prefilled told;
    assert_int_equal(request_times_init(&times, 1), STATUS_OK);
    request_times_begin(&times, one, true, T0);
    for (uint32_t i = 1; i <= REQUEST_TIMES_MAX_CHUNKS + 5; i++)
        request_times_chunk(&times, one, T0 + i);
    assert_true(request_times_prefilled(&times, one, &told));
    assert_int_equal(told.chunk_count, REQUEST_TIMES_MAX_CHUNKS + 5);
    assert_int_equal(told.n_chunk_end_us, REQUEST_TIMES_MAX_CHUNKS);
    assert_int_equal(told.chunk_end_us[0], 1);
    assert_int_equal(told.chunk_end_us[REQUEST_TIMES_MAX_CHUNKS - 1], REQUEST_TIMES_MAX_CHUNKS + 5);
    request_times_deinit(&times);
}

static void test_a_pull(void **state)
{
    (void)state;
    struct request_times times;
    Baton__Worker__V1__Pulled told = BATON__WORKER__V1__PULLED__INIT;
    assert_int_equal(request_times_init(&times, 1), STATUS_OK);
    request_times_begin(&times, one, false, T0);
    assert_int_equal(times.untold, 0);
    request_times_reserved(&times, one, 0, T0 + 5);
    request_times_read(&times, one, T0 + 20);
    request_times_read(&times, one, T0 + 30); /* the first one counts */
    request_times_pulled(&times, two, T0 + 50, &told);
    assert_int_equal(told.done_us, 0);
    request_times_pulled(&times, one, T0 + 50, &told);
    assert_int_equal(told.queued_us, 5);
    assert_int_equal(told.read_us, 20);
    assert_int_equal(told.done_us, 50);
    request_times_deinit(&times);
}

/* One more than there is room for is not told, and takes nobody's place; one that is dropped makes
 * room. */
static void test_one_request_more(void **state)
{
    (void)state;
    struct request_times times;
    Baton__Worker__V1__Prefilled told;
    assert_int_equal(request_times_init(&times, 2), STATUS_OK);
    request_times_begin(&times, one, true, T0);
    request_times_begin(&times, two, true, T0);
    request_times_begin(&times, three, true, T0);
    assert_int_equal(times.untold, 2);
    assert_false(request_times_prefilled(&times, three, &told));
    request_times_drop(&times, one);
    request_times_drop(&times, one);
    assert_int_equal(times.untold, 1);
    request_times_begin(&times, three, true, T0);
    request_times_begin(&times, three, true, T0 + 9); /* again: anew */
    assert_int_equal(times.untold, 2);
    request_times_chunk(&times, three, T0 + 10);
    assert_true(request_times_prefilled(&times, three, &told));
    assert_int_equal(told.chunk_end_us[0], 1);
    request_times_deinit(&times);
}

static void test_times_that_can_not_be(void **state)
{
    (void)state;
    struct request_times times;
    Baton__Worker__V1__Prefilled told;
    assert_int_equal(request_times_init(&times, 1), STATUS_OK);
    request_times_begin(&times, one, true, T0);
    request_times_reserved(&times, one, 0, T0 - 1);
    request_times_chunk(&times, one, T0 + ((uint64_t)UINT32_MAX + 7));
    assert_true(request_times_prefilled(&times, one, &told));
    assert_int_equal(told.queued_us, 0);
    assert_int_equal(told.chunk_end_us[0], UINT32_MAX);
    request_times_deinit(&times);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prompt_that_is_computed),
        cmocka_unit_test(test_more_chunks_than_are_kept),
        cmocka_unit_test(test_a_pull),
        cmocka_unit_test(test_one_request_more),
        cmocka_unit_test(test_times_that_can_not_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
