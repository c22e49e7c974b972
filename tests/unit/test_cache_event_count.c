/* cache_event_count: a worker's events of its prefix cache are counted in order, and impossible
 * events are refused. */
#include "router/planner/cache_event_count.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { C = CACHE_CHANGE_CLEARED, S = CACHE_CHANGE_STORED, R = CACHE_CHANGE_REMOVED, EVENTS = 8 };

static bool take(struct cache_event_count *feed, uint64_t first, const int *kinds, size_t count,
                 uint64_t counts[CACHE_CHANGES])
{
    Baton__Worker__V1__CacheEvent events[EVENTS], *pointers[EVENTS];
    for (size_t i = 0; i < count; i++) {
        baton__worker__v1__cache_event__init(&events[i]);
        events[i].kind = (Baton__Worker__V1__CacheEventKind)kinds[i];
        events[i].token_count = kinds[i] == S ? 32 : 0;
        pointers[i] = &events[i];
    }
    Baton__Worker__V1__CacheEvents message = BATON__WORKER__V1__CACHE_EVENTS__INIT;
    message.first_number = first;
    message.n_events = count;
    message.events = pointers;
    return cache_event_count_take(feed, &message, counts);
}

static void test_a_stream_is_counted(void **state)
{
    (void)state;
    struct cache_event_count feed = {0};
    uint64_t counts[CACHE_CHANGES] = {0};
    assert_true(take(&feed, 40, (int[]){C, S, S, R}, 4, counts)); /* numbers go on over streams */
    assert_int_equal(feed.blocks, 1);
    assert_true(take(&feed, 44, NULL, 0, counts));
    assert_true(take(&feed, 44, (int[]){S, S}, 2, counts));
    assert_int_equal(feed.blocks, 3);
    assert_true(take(&feed, 46, (int[]){C, S}, 2, counts)); /* a new listing */
    assert_int_equal(feed.blocks, 1);
    assert_int_equal(feed.number, 47);
    assert_int_equal(counts[C], 2);
    assert_int_equal(counts[S], 5);
    assert_int_equal(counts[R], 1);
}

static void test_what_no_honest_worker_says_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        bool begun;
        uint64_t first;
        int kinds[3];
        size_t count;
    } cases[] = {
        {false, 1, {S}, 1},           /* no beginning */
        {false, 0, {C}, 1},           /* numbers begin at 1 */
        {false, 1, {C, R}, 2},        /* nothing was stored */
        {true, 4, {S}, 1},            /* a gap */
        {true, 2, {S}, 1},            /* a repeat */
        {true, 2, {C}, 1},            /* not even that */
        {true, 3, {S, 3}, 2},         /* no such event */
        {true, 3, {R, R}, 2},         /* more than there is */
        {true, 3, {S, -1}, 2},        /* nor this */
        {true, UINT64_MAX, {S, S}, 2} /* past the end of all numbers */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cache_event_count feed = {0}, before;
        uint64_t counts[CACHE_CHANGES] = {0};
        if (cases[i].begun)
            assert_true(take(&feed, 1, (int[]){C, S}, 2, counts));
        before = feed;
        assert_false(take(&feed, cases[i].first, cases[i].kinds, cases[i].count, counts));
        assert_int_equal(feed.begun, before.begun);
        assert_int_equal(feed.number, before.number);
        assert_int_equal(feed.blocks, before.blocks);
        assert_int_equal(counts[S], cases[i].begun);
        assert_int_equal(counts[R], 0);
    }
}

/* A stored block of no tokens would be a name for nothing. */
static void test_a_block_has_tokens(void **state)
{
    (void)state;
    struct cache_event_count feed = {0};
    uint64_t counts[CACHE_CHANGES] = {0};
    assert_true(take(&feed, 1, (int[]){C}, 1, counts));
    Baton__Worker__V1__CacheEvent event = BATON__WORKER__V1__CACHE_EVENT__INIT, *one = &event;
    event.kind = BATON__WORKER__V1__CACHE_EVENT_KIND__CACHE_STORED;
    Baton__Worker__V1__CacheEvents message = BATON__WORKER__V1__CACHE_EVENTS__INIT;
    message.first_number = 2;
    message.n_events = 1;
    message.events = &one;
    assert_false(cache_event_count_take(&feed, &message, counts));
    assert_int_equal(feed.blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stream_is_counted),
        cmocka_unit_test(test_what_no_honest_worker_says_changes_nothing),
        cmocka_unit_test(test_a_block_has_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
