/* Before a client gets the status of its call, everything visible to others is settled: places, the
 * count, the gauges, other choices. */
#include "tests/unit/dispatch_fixture.h"

/* The state that a client finds when it gets its status. */
struct looker {
    struct asker asker; /* first: the handle */
    struct world *world;
    uint32_t ended; /* calls that must be counted by then, with its own status */
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

static void on_told(void *handle, enum reason reason, const char *sentence)
{
    struct looker *looker = handle;
    struct world *world = looker->world;
    if (reason) {
        on_status(handle, reason, sentence);
    } else {
        assert_false(looker->asker.ended);
        looker->asker.ended = true;
    }
    if (!looker->ended)
        return;
    assert_int_equal(counted(world, reason), looker->ended);
    assert_int_equal(world->dispatch->places[0], 0);
    assert_int_equal(world->dispatch->places_beyond, 0);
    assert_true(alive(world) == 0);
}

static enum status on_choice(struct request *request, bool last)
{
    assert_int_equal(request->finish, FINISH_STOP_STRING);
    assert_true(last);
    return STATUS_OK;
}

/* Calls `first` and those that follow it, a group with the looker as client. */
static void submit_group(struct world *world, size_t first, const uint32_t *choices, size_t count,
                         struct looker *looker)
{
    static const struct call_client_ops ops = {.choice = on_choice,
                                               .status = on_told,
                                               .break_off = on_break_off,
                                               .ref = on_reference,
                                               .unref = on_reference};
    looker->world = world;
    for (size_t i = 0; i < count; i++)
        make_call(world, first + i, (struct call_client){&ops, looker},
                  (struct call_source){.once = true}, 0, choices[i]);
    dispatch_submit(world->dispatch, &world->calls[first], count);
}

/* Call 0, which has begun. */
static void setup_one(struct world *world, uint32_t max_queue, uint32_t choices,
                      struct looker *looker)
{
    setup(world, 1, 16, max_queue);
    submit_group(world, 0, &choices, 1, looker);
    dispatch_turn(world->dispatch);
}

static void expect_told(const struct looker *looker, enum reason reason)
{
    assert_true(looker->asker.ended);
    assert_int_equal(looker->asker.reason, reason);
}

/* Its one choice succeeds; the next turn reports it. */
static void answer(struct world *world, size_t call)
{
    struct request *request = &world->calls[call]->choices[0];
    struct life_actions actions;
    request_life_on_stop_string(&request->life, &actions);
    request_execute(world->dispatch, request, &actions);
}

static void test_of_one_that_has_no_worker(void **state)
{
    (void)state;
    static struct world world;
    struct looker looker = {.ended = 1};
    setup_one(&world, 16, 16, &looker);
    assert_false(looker.asker.ended);
    requests_fail_all(world.dispatch, REASON_DRAINING);
    assert_false(looker.asker.ended); /* but at the turn's end */
    dispatch_turn(world.dispatch);
    expect_told(&looker, REASON_DRAINING);
    leave(&world, 0);
    assert_int_equal(counted(&world, REASON_DRAINING), 1);
    teardown(&world);
}

static void test_of_one_that_is_refused(void **state)
{
    (void)state;
    static struct world world;
    struct looker looker = {.ended = 1};
    setup_one(&world, 4, 16, &looker);
    expect_told(&looker, REASON_OVERLOADED);
    leave(&world, 0);
    teardown(&world);
}

/* One request is refused, and the client gets this status for all of them: those before it end with
 * it. */
static void test_of_those_that_are_told_together(void **state)
{
    (void)state;
    static struct world world;
    struct looker looker = {.ended = 3};
    setup(&world, 1, 24, 10);
    submit_group(&world, 1, (const uint32_t[]){4, 4, 16}, 3, &looker);
    dispatch_turn(world.dispatch);
    expect_told(&looker, REASON_OVERLOADED);
    for (size_t call = 1; call <= 3; call++)
        leave(&world, call);
    assert_int_equal(counted(&world, REASON_OVERLOADED), 3);
    teardown(&world);
}

/* Two prompts of one answer: the first has gone well, and keeps its places and its end to
 * itself. */
static void setup_two(struct world *world, struct looker *looker)
{
    setup(world, 1, 16, 16);
    submit_group(world, 1, (const uint32_t[]){1, 1}, 2, looker);
    dispatch_turn(world->dispatch);
    answer(world, 1);
    dispatch_turn(world->dispatch);
    assert_int_equal(world->calls[1]->state, CALL_HELD);
    assert_false(looker->asker.ended);
    assert_int_equal(counted(world, REASON_NONE), 0);
    assert_int_equal(world->dispatch->places[0], 2);
}

/* It is counted together with the last one, with the client's status. */
static void test_of_one_that_a_sibling_settles(void **state)
{
    (void)state;
    static const enum reason reasons[] = {REASON_NONE, REASON_DRAINING};
    for (size_t i = 0; i < 2; i++) {
        static struct world world;
        struct looker looker = {.ended = 2};
        setup_two(&world, &looker);
        if (reasons[i])
            requests_fail_all(world.dispatch, reasons[i]);
        else
            answer(&world, 2);
        dispatch_turn(world.dispatch);
        expect_told(&looker, reasons[i]);
        leave(&world, 1);
        leave(&world, 2);
        assert_int_equal(counted(&world, reasons[i]), 2);
        assert_int_equal(map_count(world.dispatch->requests), 0);
        teardown(&world);
    }
}

/* Its client got no status yet. */
static void test_of_one_that_left_before_its_sibling_was_told(void **state)
{
    (void)state;
    static struct world world;
    struct looker looker = {.ended = 0};
    setup_two(&world, &looker);
    for (size_t call = 1; call <= 2; call++) {
        close_with(&world, call, RPC_CANCELLED);
        dispatch_turn(world.dispatch);
        assert_int_equal(counted(&world, REASON_CANCELLED), call);
    }
    assert_int_equal(world.dispatch->places[0], 0);
    assert_int_equal(map_count(world.dispatch->requests), 0);
    teardown(&world);
}

/* A client that bounds unread bytes itself: its calls are closed when their status is sent, and
 * later reports of its door change nothing. */
static void test_of_calls_that_close_when_told(void **state)
{
    (void)state;
    static const struct call_client_ops ops = {
        .choice = on_choice, .status = on_told, .ref = on_reference, .unref = on_reference};
    static struct world world;
    struct looker looker = {.ended = 2, .world = &world};
    setup(&world, 1, 16, 16);
    for (size_t call = 0; call < 2; call++)
        make_call(&world, call, (struct call_client){&ops, &looker},
                  (struct call_source){.once = true}, 0, 1);
    dispatch_submit(world.dispatch, world.calls, 2);
    dispatch_turn(world.dispatch);
    for (size_t call = 0; call < 2; call++) {
        assert_false(looker.asker.ended);
        answer(&world, call);
        dispatch_turn(world.dispatch);
    }
    expect_told(&looker, REASON_NONE);
    assert_int_equal(atomic_load(&world.dispatch->admitted), 0);
    for (size_t call = 0; call < 2; call++)
        leave(&world, call);
    assert_int_equal(counted(&world, REASON_NONE), 2);
    teardown(&world);
}

/* A client that has left is counted as cancelled, once, and its status is still reported. */
static void test_of_one_that_left(void **state)
{
    (void)state;
    static struct world world;
    struct looker looker = {.ended = 0};
    setup_one(&world, 16, 2, &looker);
    leave(&world, 0);
    expect_told(&looker, REASON_CANCELLED);
    assert_int_equal(counted(&world, REASON_CANCELLED), 1);
    assert_int_equal(map_count(world.dispatch->requests), 0);
    teardown(&world);
}

static size_t lingering(const struct world *world)
{
    size_t count = 0;
    const struct call *call;
    TAILQ_FOREACH(call, &world->dispatch->closing, link)
    count++;
    return count;
}

/* Answered calls stay until their clients have read the end, and take no place of others. */
static void test_calls_that_linger(void **state)
{
    (void)state;
    static struct world world;
    static struct looker lookers[8];
    setup(&world, 1, 4, 4);
    for (size_t call = 0; call < 8; call++) {
        lookers[call] = (struct looker){.ended = (uint32_t)call + 1};
        submit_group(&world, call, (const uint32_t[]){4}, 1, &lookers[call]);
        dispatch_turn(world.dispatch);
        requests_fail_all(world.dispatch, REASON_DRAINING);
        dispatch_turn(world.dispatch);
        assert_true(lookers[call].asker.ended);
    }
    assert_int_equal(lingering(&world), 8);
    for (size_t call = 0; call < 8; call++)
        leave(&world, call);
    assert_int_equal(lingering(&world), 0);
    assert_int_equal(map_count(world.dispatch->requests), 0);
    teardown(&world);
}

static uint32_t told_retry_s;

static void on_retry_after(void *handle, uint32_t seconds)
{
    assert_false(((struct asker *)handle)->ended); /* right before its status */
    told_retry_s = seconds;
}

/* A client that is refused because the queue is full hears when it drains; another one doesn't. */
static void test_the_overloaded_hear_when_to_try_again(void **state)
{
    (void)state;
    static struct world world;
    static const struct call_client_ops ops = {.status = on_status,
                                               .retry_after = on_retry_after,
                                               .break_off = on_break_off,
                                               .ref = on_reference,
                                               .unref = on_reference};
    struct asker askers[2];
    setup(&world, 1, 16, 4);
    told_retry_s = 0;
    submit_of(&world, 0, &ops, (struct call_source){.once = false}, 0, 4, &askers[0]);
    dispatch_turn(world.dispatch);
    struct placement_queue *queue = &world.dispatch->placement.queues[0];
    queue->recent_us[0] = world.dispatch->now_us - 7000000; /* the last placement */
    queue->placed = 1;
    world.dispatch->place_needed = true;
    dispatch_turn(world.dispatch);
    submit_of(&world, 1, &ops, (struct call_source){.once = false}, 0, 4, &askers[1]);
    dispatch_turn(world.dispatch);
    assert_true(askers[1].ended && askers[1].reason == REASON_OVERLOADED);
    assert_in_range(told_retry_s, 14, 60); /* one waits, and one would come */
    told_retry_s = 0;
    requests_fail_all(world.dispatch, REASON_DRAINING);
    dispatch_turn(world.dispatch);
    assert_true(askers[0].ended && !told_retry_s);
    leave(&world, 0);
    leave(&world, 1);
    teardown(&world);
}

/* Figures are copied to the status board when the next copy is due. States are shown at once,
 * unless there are many workers. */
static void test_loads_are_shown_at_a_bounded_rate(void **state)
{
    (void)state;
    static struct world world;
    static struct worker many[BOARD_AT_ONCE + 1];
    setup(&world, 1, 16, 16);
    struct dispatch *dispatch = world.dispatch;
    const uint64_t shown_us = UINT64_MAX / 2; /* long after this test */
    dispatch_turn(dispatch);
    dispatch->board_shown_us = shown_us;
    dispatch_show_soon(dispatch);
    dispatch_show_soon(dispatch);
    assert_int_equal(dispatch->board_due_us, shown_us + BOARD_EVERY_US);
    dispatch_turn(dispatch);
    assert_int_equal(dispatch->board_shown_us, shown_us);
    dispatch->board_changed = true;
    dispatch_turn(dispatch);
    assert_true(dispatch->board_shown_us < shown_us);
    assert_true(dispatch->board_due_us == UINT64_MAX);
    dispatch_show_soon(dispatch); /* the last copy is the one that counts */
    assert_true(dispatch->board_due_us < shown_us);
    for (size_t i = 0; i <= BOARD_AT_ONCE; i++)
        dispatch->workers.items[i] = &many[i];
    dispatch->workers.count = BOARD_AT_ONCE + 1;
    dispatch->board_due_us = UINT64_MAX;
    dispatch->board_shown_us = shown_us;
    dispatch->board_changed = true;
    dispatch_turn(dispatch);
    assert_int_equal(dispatch->board_shown_us, shown_us);
    dispatch->board_due_us = 1;
    dispatch_turn(dispatch);
    assert_int_equal(world.board.status.worker_count, BOARD_AT_ONCE + 1);
    dispatch->workers.count = 0;
    teardown(&world);
}

/* The gauges of tenants, which follow at a bounded rate. */
static void test_tenants_are_shown(void **state)
{
    (void)state;
    static struct world world;
    struct asker askers[2];
    setup(&world, 1, 4, 4);
    const struct model_metrics *metrics = &world.metrics.models[0];
    for (size_t i = 0; i < 2; i++) {
        submit(&world, i, 0, 1, &askers[i]);
        world.calls[i]->tenant = i + 1; /* before its choices begin */
    }
    dispatch_turn(world.dispatch);
    assert_true(gauge_value(metrics->tenants) == 2 && gauge_value(metrics->tenants_waiting) == 2);
    assert_true(gauge_value(metrics->tenant_share) == 0); /* none runs */
    leave(&world, 0);
    leave(&world, 1);
    world.dispatch->tenants_shown_us = 0;
    dispatch_turn(world.dispatch);
    assert_true(gauge_value(metrics->tenants) == 0 && gauge_value(metrics->tenants_waiting) == 0);
    teardown(&world);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_one_that_has_no_worker),
        cmocka_unit_test(test_of_one_that_is_refused),
        cmocka_unit_test(test_of_those_that_are_told_together),
        cmocka_unit_test(test_of_one_that_a_sibling_settles),
        cmocka_unit_test(test_of_one_that_left_before_its_sibling_was_told),
        cmocka_unit_test(test_of_calls_that_close_when_told),
        cmocka_unit_test(test_of_one_that_left),
        cmocka_unit_test(test_calls_that_linger),
        cmocka_unit_test(test_loads_are_shown_at_a_bounded_rate),
        cmocka_unit_test(test_tenants_are_shown),
        cmocka_unit_test(test_the_overloaded_hear_when_to_try_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
