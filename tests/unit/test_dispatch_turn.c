/* Turns: a thread that brings a message handles it, unless another thread has the turn or the
 * message is for the dispatch thread. No message is left behind. */
#include "tests/unit/dispatch_fixture.h"

#include "common/base/clock.h"
#include "common/base/rng.h"

#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <sys/eventfd.h>

#define MANY    100  /* more than a helper takes */
#define LONG_US 2000 /* after such a turn helpers pause, whatever they had saved up */

#define POSTERS  2
#define ROUNDS   1000
#define LATEST_S 50 /* the thread looks by itself after 60 s */

/* As with a thread that sleeps. */
static void setup_helped(struct world *world, uint32_t max_queue)
{
    setup(world, 1, MANY, max_queue);
    atomic_store(&world->dispatch->helped, true);
}

/* A while later. */
static void rest(struct world *world)
{
    world->dispatch->help_from_us = 0;
}

static bool bell_rang(struct world *world)
{
    struct pollfd bell = {.fd = world->dispatch->bell_fd, .events = POLLIN};
    eventfd_t rung;
    return poll(&bell, 1, 0) == 1 && !eventfd_read(world->dispatch->bell_fd, &rung);
}

static void test_who_asks_takes_the_turn(void **state)
{
    (void)state;
    static struct world world;
    static struct asker asker;
    setup_helped(&world, 1);
    submit(&world, 0, 0, 16, &asker); /* more than may wait */
    assert_true(asker.ended && asker.reason == REASON_OVERLOADED);
    rest(&world);
    close_with(&world, 0, RPC_OK);
    assert_int_equal(atomic_load(&world.dispatch->admitted), 0);
    assert_false(bell_rang(&world));
    teardown(&world);
}

/* Timed work is the dispatch thread's, which must not sleep longer than until then. */
static void test_the_thread_is_told_of_an_earlier_time(void **state)
{
    (void)state;
    static struct world world;
    static struct asker askers[2];
    setup_helped(&world, MANY);
    submit(&world, 0, 0, 1, &askers[0]);
    assert_true(bell_rang(&world));
    assert_int_equal(world.dispatch->armed_us, requests_next_us(world.dispatch));
    rest(&world);
    submit(&world, 1, 0, 1, &askers[1]); /* is due later */
    assert_false(bell_rang(&world));
    for (size_t call = 0; call < 2; call++) {
        rest(&world);
        close_with(&world, call, RPC_OK);
        assert_true(askers[call].ended && askers[call].reason == REASON_CANCELLED);
    }
    assert_int_equal(map_count(world.dispatch->requests), 0);
    teardown(&world);
}

/* After a stop nothing is judged by its time until other threads could read what came meanwhile. A
 * turn that is a little late judges at once. */
static void test_after_a_stop_time_waits(void **state)
{
    (void)state;
    static const uint64_t late_us[] = {2000000, 500000, 2000000};
    for (size_t i = 0; i < 3; i++) {
        static struct world world;
        static struct asker asker;
        bool stopped = i != 1, at_once = i == 2;
        asker = (struct asker){0};
        setup(&world, 1, MANY, MANY);
        submit(&world, 0, 0, 1, &asker);
        dispatch_turn(world.dispatch);
        struct dispatch *dispatch = world.dispatch;
        struct request *request = &world.calls[0]->choices[0];
        assert_true(requests_next_us(dispatch) > clock_now_us());
        uint64_t due_us = clock_now_us() - late_us[i];
        request->life.no_worker_since_us -= requests_next_us(dispatch) - due_us;
        due_heap_set(&dispatch->due_requests, &request->due, due_us);
        dispatch->armed_us = due_us;
        dispatch->place_needed = at_once; /* the stop came before a turn that was due at once */
        if (at_once)
            assert_true(dispatch_arm(dispatch) == dispatch->now_us);
        dispatch->armed_us -= at_once ? late_us[i] : 0;
        uint64_t begun_us = clock_now_us();
        dispatch_turn(dispatch);
        assert_int_equal(asker.ended, !stopped);
        if (stopped) {
            assert_true(dispatch->judge_from_us > begun_us);
            while (clock_now_us() < dispatch->judge_from_us)
                poll(NULL, 0, 1);
            dispatch_turn(dispatch);
        }
        assert_true(asker.ended && asker.reason == REASON_NO_WORKERS);
        assert_int_equal(dispatch->judge_from_us, 0);
        leave(&world, 0);
        teardown(&world);
    }
}

static void take_the_turn(struct dispatch *dispatch)
{
    pthread_mutex_lock(&dispatch->turn); /* no record says that this thread has it */
}

static void test_what_comes_in_anothers_turn_is_his(void **state)
{
    (void)state;
    static struct world world;
    static struct asker askers[2];
    setup_helped(&world, 1);
    take_the_turn(world.dispatch);
    submit(&world, 0, 0, 16, &askers[0]);
    assert_false(askers[0].ended);
    pthread_mutex_unlock(&world.dispatch->turn);
    submit(&world, 1, 0, 16, &askers[1]);
    assert_true(askers[0].ended && askers[1].ended);
    rest(&world);
    for (size_t call = 0; call < 2; call++)
        close_with(&world, call, RPC_OK);
    teardown(&world);
}

static void release_late(void *handle)
{
    uint64_t until_us = clock_now_us() + LONG_US;
    (void)handle;
    while (clock_now_us() < until_us)
        ;
}

/* After a turn, helpers pause for a multiple of its time, however long they had paused before. */
static void test_helpers_have_a_part_of_the_time(void **state)
{
    (void)state;
    static struct world world;
    static struct asker asker;
    const struct call_client_ops ops = {
        .status = on_status, .break_off = on_break_off, .ref = on_reference, .unref = release_late};
    setup_helped(&world, 1);
    submit_of(&world, 0, &ops, (struct call_source){.once = false}, 0, 16, &asker);
    rest(&world);
    uint64_t begun_us = clock_now_us();
    close_with(&world, 0, RPC_OK);
    assert_int_equal(atomic_load(&world.dispatch->admitted), 0);
    assert_true(world.dispatch->help_from_us > begun_us + 2 * LONG_US);
    teardown(&world);
}

static void test_nobody_helps_when_they_had_it(void **state)
{
    (void)state;
    static struct world world;
    static struct asker asker;
    setup_helped(&world, 1);
    world.dispatch->help_from_us = UINT64_MAX;
    submit(&world, 0, 0, 16, &asker);
    assert_false(asker.ended);
    assert_true(bell_rang(&world));
    dispatch_turn(world.dispatch);
    assert_true(asker.ended);
    rest(&world);
    close_with(&world, 0, RPC_OK);
    teardown(&world);
}

/* Nothing overtakes a message for the dispatch thread. */
static void test_what_is_the_threads_waits_for_it(void **state)
{
    (void)state;
    static struct world world;
    static struct asker asker;
    setup_helped(&world, 1);
    dispatch_membership_changed(world.dispatch);
    assert_true(bell_rang(&world));
    submit(&world, 0, 0, 16, &asker);
    assert_false(asker.ended);
    assert_true(bell_rang(&world));
    dispatch_turn(world.dispatch);
    assert_true(asker.ended);
    rest(&world);
    close_with(&world, 0, RPC_OK);
    teardown(&world);
}

static void test_a_helper_takes_so_much_and_no_more(void **state)
{
    (void)state;
    static struct world world;
    setup_helped(&world, 1);
    for (size_t call = 0; call < MANY; call++) {
        assert_int_equal(admit(&world, call), REASON_NONE);
        assert_int_equal(dispatch_reserve(world.dispatch, world.calls[call], 0, 1), REASON_NONE);
    }
    take_the_turn(world.dispatch);
    for (size_t call = 0; call + 1 < MANY; call++)
        close_with(&world, call, RPC_OK);
    pthread_mutex_unlock(&world.dispatch->turn);
    assert_false(bell_rang(&world));
    close_with(&world, MANY - 1, RPC_OK);
    uint32_t left = atomic_load(&world.dispatch->admitted);
    assert_true(left > 0 && left < MANY);
    assert_true(bell_rang(&world));
    dispatch_turn(world.dispatch);
    assert_int_equal(atomic_load(&world.dispatch->admitted), 0);
    teardown(&world);
}

struct poster {
    struct world *world;
    size_t call;
    struct asker asker;
    struct rng rng;
    unsigned posts;
    pthread_t thread;
};

static struct poster posters[POSTERS];
static atomic_bool released[POSTERS]; /* one for each call */
static atomic_uint arrived;

static void on_release(void *handle)
{
    const struct poster *poster =
        (struct poster *)((char *)handle - offsetof(struct poster, asker));
    atomic_store(&released[poster->call], true);
}

static void wait_until(const atomic_bool *told)
{
    while (!atomic_load(told))
        sched_yield();
}

/* Each post begins together with the others, a little before or after them, and no later post finds
 * messages that were left behind. Alone in its millisecond it meets a helper's turn, otherwise
 * mostly the thread's. */
static void wait_for_others(struct poster *poster)
{
    bool own = ++poster->posts <= ROUNDS;
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < poster->posts * POSTERS)
        sched_yield();
    uint64_t begin_us = clock_now_us();
    if (own)
        begin_us += 1000 - begin_us % 1000;
    begin_us += rng_below(&poster->rng, own ? 20 : 100);
    while (clock_now_us() < begin_us)
        ;
}

static void *post_rounds(void *argument)
{
    struct poster *poster = argument;
    struct world *world = poster->world;
    static const struct call_client_ops ops = {
        .status = on_status, .break_off = on_break_off, .ref = on_reference, .unref = on_release};
    for (unsigned round = 0; round < ROUNDS; round++) {
        wait_for_others(poster);
        submit_of(world, poster->call, &ops, (struct call_source){.once = false}, 0,
                  16 /* more than may wait */, &poster->asker);
        wait_until(&poster->asker.ended);
        atomic_store(&released[poster->call], false);
        wait_for_others(poster);
        close_with(world, poster->call, RPC_OK);
        wait_until(&released[poster->call]);
    }
    return NULL;
}

static void test_nothing_is_left_lying_among_threads(void **state)
{
    (void)state;
    static struct world world;
    struct timespec latest;
    setup_helped(&world, 1);
    assert_int_equal(pthread_create(&world.dispatch->thread, NULL, dispatch_main, world.dispatch),
                     0);
    for (size_t i = 0; i < POSTERS; i++)
        posters[i] = (struct poster){.world = &world, .call = i, .rng = rng_seeded(i)};
    clock_gettime(CLOCK_REALTIME, &latest);
    latest.tv_sec += LATEST_S;
    for (size_t i = 0; i < POSTERS; i++)
        assert_int_equal(pthread_create(&posters[i].thread, NULL, post_rounds, &posters[i]), 0);
    for (size_t i = 0; i < POSTERS; i++)
        assert_int_equal(pthread_timedjoin_np(posters[i].thread, NULL, &latest), 0);
    dispatch_stop(world.dispatch);
    pthread_join(world.dispatch->thread, NULL);
    teardown(&world);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_asks_takes_the_turn),
        cmocka_unit_test(test_the_thread_is_told_of_an_earlier_time),
        cmocka_unit_test(test_after_a_stop_time_waits),
        cmocka_unit_test(test_what_comes_in_anothers_turn_is_his),
        cmocka_unit_test(test_helpers_have_a_part_of_the_time),
        cmocka_unit_test(test_nobody_helps_when_they_had_it),
        cmocka_unit_test(test_what_is_the_threads_waits_for_it),
        cmocka_unit_test(test_a_helper_takes_so_much_and_no_more),
        cmocka_unit_test(test_nothing_is_left_lying_among_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
