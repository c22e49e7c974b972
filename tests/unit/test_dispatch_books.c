/* Before a client is told the end of its call all that others may see of that is settled: places, the count, the gauges, other choices. */
#include "tests/unit/dispatch_fixture.h"

/* What its client finds in the moment that it is told. */
struct looker {
    struct asker asker; /* first: the handle */
    struct world *world;
    uint32_t siblings[2]; /* calls of others that are told with it; none is call 0 */
    enum reason why;      /* its whole call was told so; REASON_NONE: it wasn't */
    uint32_t ended;       /* requests that must be counted by then, as what it is told */
};

static uint64_t counted(const struct world *world, enum reason reason)
{
    return counter_value(world->metrics.models[0].requests_by_reason[reason]);
}

static double alive(const struct world *world)
{
    double alive = 0;
    for (int state = 0; state < REQUEST_ENDED; state++)
        alive += gauge_value(world->metrics.models[0].requests_by_state[state]);
    return alive;
}

static void on_told(struct request *first, enum reason reason, const char *sentence)
{
    struct looker *looker = first->client.handle;
    struct world *world = looker->world;
    looker->asker.reason = reason;
    for (size_t i = 0; i < 2 && looker->siblings[i]; i++)
        dispatch_settle(world->dispatch, world->calls[looker->siblings[i]].request);
    on_status(first, reason, sentence);
    if (!looker->ended)
        return;
    assert_int_equal(counted(world, reason), looker->ended);
    assert_int_equal(world->dispatch->places[0], 0);
    assert_int_equal(world->dispatch->places_beyond, 0);
    assert_true(alive(world) == 0);
}

static enum reason on_why(const struct request *first)
{
    return ((struct looker *)first->client.handle)->why;
}

static void submit_looker(struct world *world, size_t call, uint32_t choices, struct looker *looker)
{
    static const struct request_client_ops ops = {
        .status = on_told, .why = on_why, .ref = on_reference, .unref = on_reference};
    looker->world = world;
    submit_client(world, call, (struct request_source){.client = {&ops, looker}}, choices,
                  &looker->asker);
}

static void test_of_one_that_has_no_worker(void **state)
{
    (void)state;
    static struct world world;
    struct looker looker = {.ended = 1};
    setup(&world, 1, 16, 16);
    submit_looker(&world, 0, 16, &looker);
    dispatch_turn(world.dispatch);
    assert_false(looker.asker.ended);
    request_fail_all(world.dispatch, REASON_DRAINING);
    assert_false(looker.asker.ended); /* but at the turn's end */
    dispatch_turn(world.dispatch);
    assert_true(looker.asker.ended && looker.asker.reason == REASON_DRAINING);
    leave(&world, 0);
    assert_int_equal(counted(&world, REASON_DRAINING), 1);
    teardown(&world);
}

static void test_of_one_that_is_refused(void **state)
{
    (void)state;
    static struct world world;
    struct looker looker = {.ended = 1};
    setup(&world, 1, 16, 4);
    submit_looker(&world, 0, 16, &looker);
    dispatch_turn(world.dispatch);
    assert_true(looker.asker.ended && looker.asker.reason == REASON_OVERLOADED);
    leave(&world, 0);
    teardown(&world);
}

/* One is refused, which its client is told of all: those before it end with it. */
static void test_of_those_that_are_told_together(void **state)
{
    (void)state;
    static struct world world;
    struct looker lookers[4] = {{.ended = 0},
                                {.why = REASON_OVERLOADED, .ended = 3},
                                {.why = REASON_OVERLOADED, .ended = 3},
                                {.siblings = {1, 2}, .ended = 3}};
    setup(&world, 1, 24, 10);
    submit_looker(&world, 1, 4, &lookers[1]);
    submit_looker(&world, 2, 4, &lookers[2]);
    dispatch_turn(world.dispatch);
    assert_false(lookers[1].asker.ended || lookers[2].asker.ended);
    submit_looker(&world, 3, 16, &lookers[3]);
    dispatch_turn(world.dispatch);
    for (size_t call = 1; call <= 3; call++) {
        assert_true(lookers[call].asker.ended && lookers[call].asker.reason == REASON_OVERLOADED);
        leave(&world, call);
    }
    assert_int_equal(counted(&world, REASON_OVERLOADED), 3);
    teardown(&world);
}

/* Who left is counted as that, once, and is told all the same. */
static void test_of_one_that_left(void **state)
{
    (void)state;
    static struct world world;
    struct looker looker = {.ended = 0};
    setup(&world, 1, 16, 16);
    submit_looker(&world, 0, 2, &looker);
    dispatch_turn(world.dispatch);
    leave(&world, 0);
    assert_true(looker.asker.ended);
    assert_int_equal(looker.asker.reason, REASON_CANCELLED);
    assert_int_equal(counted(&world, REASON_CANCELLED), 1);
    assert_int_equal(map_count(world.dispatch->requests), 0);
    teardown(&world);
}

/* Answered calls stay until their clients have read the end, and are in nobody's way. */
static void test_calls_that_linger(void **state)
{
    (void)state;
    static struct world world;
    static struct looker lookers[8];
    setup(&world, 1, 4, 4);
    for (size_t call = 0; call < 8; call++) {
        lookers[call] = (struct looker){.ended = (uint32_t)call + 1};
        submit_looker(&world, call, 4, &lookers[call]);
        dispatch_turn(world.dispatch);
        request_fail_all(world.dispatch, REASON_DRAINING);
        dispatch_turn(world.dispatch);
        assert_true(lookers[call].asker.ended);
    }
    assert_int_equal(map_count(world.dispatch->requests), 8);
    for (size_t call = 0; call < 8; call++)
        leave(&world, call);
    assert_int_equal(map_count(world.dispatch->requests), 0);
    teardown(&world);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_one_that_has_no_worker),
        cmocka_unit_test(test_of_one_that_is_refused),
        cmocka_unit_test(test_of_those_that_are_told_together),
        cmocka_unit_test(test_of_one_that_left),
        cmocka_unit_test(test_calls_that_linger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
