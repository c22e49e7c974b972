/* Decisions of the dispatcher about SLO classes: ranks in the queue, and which requests are
 * rejected as they arrive. */
#include "dispatch_fixture.h"

#include "common/base/clock.h"

#define CHAT  0
#define BATCH 1
#define RUSH  2

/* A client that hears when to come back. */
struct rejected {
    struct asker asker; /* first */
    uint32_t retry_after_s;
};

static void on_retry_after(void *handle, uint32_t seconds)
{
    ((struct rejected *)handle)->retry_after_s = seconds;
}

static const struct call_client_ops ops = {.status = on_status,
                                           .retry_after = on_retry_after,
                                           .break_off = on_break_off,
                                           .ref = on_reference,
                                           .unref = on_reference};

static const struct slo_classes classes = {
    .count = 3,
    .standard = SLO_NONE,
    .items = {[CHAT] = {.name = "chat", .objective = {.ttft_us = 100000}},
              [BATCH] = {.name = "batch", .priority = PRIORITY_OFFLINE},
              [RUSH] = {.name = "rush", .objective = {.tpot_us = 1000}}}};

/* No worker is there: all that arrive wait. One is placed in a second, as the queue remembers. */
static void begin(struct world *world)
{
    setup(world, 1, 64, 64);
    world->models.items[0].limits.slo = &classes;
    assert_int_equal(decisions_init(world->dispatch), STATUS_OK);
    assert_int_equal(decision_ring_create(16, 0, &world->dispatch->config.views.decisions),
                     STATUS_OK);
    world->dispatch->placement.queues[0].pace_us = 1000000;
}

static void end(struct world *world, size_t calls)
{
    for (size_t i = 0; i < calls; i++)
        if (world->calls[i])
            close_with(world, i, RPC_CANCELLED);
    dispatch_turn(world->dispatch);
    decision_ring_destroy(world->dispatch->config.views.decisions);
    world->dispatch->config.views.decisions = NULL;
    teardown(world);
}

/* The class is calibrated, and nothing is let through any more. */
static void calibrate(struct world *world, uint32_t class)
{
    struct admission_class *of = &world->dispatch->decisions[class].admission;
    for (int i = 0; i < CALIBRATION_LEAST; i++)
        calibration_note(&of->calibrations[ADMISSION_ARRIVAL], i % 2 ? 0.99 : 0.01,
                         i % 2 ? 0.99 : 0.01, i % 2);
    assert_true(calibration_is_good(&of->calibrations[ADMISSION_ARRIVAL]));
    of->share = 1;
}

static void arrives(struct world *world, size_t call, uint32_t class, struct rejected *client)
{
    *client = (struct rejected){.retry_after_s = 0};
    make_call(world, call, (struct call_client){&ops, client},
              (struct call_source){.arrival_us = clock_now_us()}, 0, 1);
    world->calls[call]->slo_class = class;
    world->calls[call]->priority =
        class == SLO_NONE ? PRIORITY_NORMAL : classes.items[class].priority;
    if (class != SLO_NONE)
        world->calls[call]->objective = classes.items[class].objective;
    dispatch_submit(world->dispatch, &world->calls[call], 1);
    dispatch_turn(world->dispatch);
}

static void test_one_that_would_wait_too_long_is_rejected(void **state)
{
    (void)state;
    static struct world world;
    struct rejected clients[6];
    struct str json;
    begin(&world);
    arrives(&world, 0, CHAT, &clients[0]);
    arrives(&world, 1, CHAT, &clients[1]); /* nothing is known of the class's predictions */
    assert_false(clients[1].asker.ended);
    assert_false(world.calls[1]->choices[0].admission.held);
    calibrate(&world, CHAT);
    arrives(&world, 2, CHAT, &clients[2]); /* 3 s, and it has 100 ms */
    assert_true(clients[2].asker.ended);
    assert_int_equal(clients[2].asker.reason, REASON_SLO_UNATTAINABLE);
    assert_in_range(clients[2].retry_after_s, 3, 5); /* 2.9 s to 4.35 s */
    arrives(&world, 3, BATCH, &clients[3]);
    arrives(&world, 4, RUSH, &clients[4]); /* it has no TTFT */
    arrives(&world, 5, SLO_NONE, &clients[5]);
    for (size_t i = 3; i < 6; i++)
        assert_false(clients[i].asker.ended);
    str_init(&json, 1 << 16);
    const char *name = world.calls[2]->name;
    assert_true(decision_ring_json(world.dispatch->config.views.decisions, name, 0, &json));
    assert_non_null(strstr(json.data, "\"verdict\": \"rejected\"")); /* though none is sampled */
    assert_non_null(strstr(json.data, "\"status\": \"slo_unattainable\", \"known\": false"));
    str_deinit(&json);
    end(&world, 6);
}

/* A class that is calibrated, and one that arrives when none waits. */
static void test_the_first_in_the_queue_is_not_judged(void **state)
{
    (void)state;
    static struct world world;
    struct rejected client;
    begin(&world);
    calibrate(&world, CHAT);
    arrives(&world, 0, CHAT, &client);
    assert_false(client.asker.ended);
    assert_false(world.calls[0]->choices[0].admission.at[ADMISSION_ARRIVAL].known);
    end(&world, 1);
}

static void test_each_class_has_its_rank(void **state)
{
    (void)state;
    static struct world world;
    struct rejected clients[3];
    begin(&world);
    arrives(&world, 0, CHAT, &clients[0]);
    arrives(&world, 1, BATCH, &clients[1]);
    arrives(&world, 2, SLO_NONE, &clients[2]);
    const struct placement_request *chat = &world.calls[0]->choices[0].placing,
                                   *batch = &world.calls[1]->choices[0].placing,
                                   *none = &world.calls[2]->choices[0].placing;
    assert_true(chat->has_ttft && !batch->has_ttft && !none->has_ttft);
    assert_int_equal(chat->due_us, world.calls[0]->arrival_us + 100000);
    assert_int_equal(batch->priority, PRIORITY_OFFLINE);
    assert_true(none->due_us > chat->due_us && none->due_us < UINT64_MAX);
    end(&world, 3);
}

/* Placement learns of a class from what the cluster does, as the class's figures do. */
static void test_what_clients_do_does_not_change_what_a_class_is_worth(void **state)
{
    (void)state;
    static struct world world;
    struct rejected clients[4];
    begin(&world);
    const struct goodput_class *chat = &world.dispatch->placement.classes[0][CHAT];
    const struct {
        enum terminal_status status;
        enum reason reason;
        bool counts;
    } ends[] = {{TERMINAL_OVERLOADED, REASON_SLOW_READER, false},
                {TERMINAL_INVALID, REASON_NO_TOKEN_ALLOWED, false},
                {TERMINAL_DEADLINE, REASON_DEADLINE, false}, /* at once */
                {TERMINAL_UNAVAILABLE, REASON_NO_WORKERS, true}};
    for (size_t i = 0; i < 4; i++) {
        arrives(&world, i, CHAT, &clients[i]);
        world.calls[i]->choices[0].timing.arrival_us = world.dispatch->now_us;
        request_fail(world.dispatch, &world.calls[i]->choices[0], ends[i].status,
                     reason_name(ends[i].reason));
        dispatch_turn(world.dispatch);
        assert_true(clients[i].asker.ended);
        assert_int_equal(chat->ended, ends[i].counts);
    }
    assert_true(chat->missed > 0);
    end(&world, 4);
}

/* A deadline that comes before the class's objectives teaches nothing about predictions. Otherwise
 * one client's deadlines would get the requests of others rejected. */
static void test_short_deadlines_are_no_misses(void **state)
{
    (void)state;
    static struct world world;
    struct rejected clients[3];
    begin(&world);
    const struct calibration *seen =
        &world.dispatch->decisions[CHAT].admission.calibrations[ADMISSION_ARRIVAL];
    world.dispatch->placement.queues[0].pace_us = 60000; /* they may attain their 100 ms */
    for (size_t i = 0; i < 3; i++)
        arrives(&world, i, CHAT, &clients[i]);
    struct request *in_time = &world.calls[1]->choices[0], *late = &world.calls[2]->choices[0];
    assert_true(in_time->admission.at[ADMISSION_ARRIVAL].known);
    in_time->timing.arrival_us = world.dispatch->now_us;
    request_fail(world.dispatch, in_time, TERMINAL_DEADLINE, "deadline");
    dispatch_turn(world.dispatch);
    assert_true(clients[1].asker.ended);
    assert_int_equal(seen->requests, 0);
    late->timing.arrival_us -= 200000;
    request_fail(world.dispatch, late, TERMINAL_DEADLINE, "deadline");
    dispatch_turn(world.dispatch);
    assert_int_equal(seen->requests, 1);
    end(&world, 3);
}

/* Without classes the order is that of arrival. */
static void test_without_classes_there_are_no_ranks(void **state)
{
    (void)state;
    static struct world world;
    struct rejected client;
    setup(&world, 1, 64, 64);
    arrives(&world, 0, SLO_NONE, &client);
    const struct placement_request *one = &world.calls[0]->choices[0].placing;
    assert_true(one->due_us == UINT64_MAX && !one->has_ttft);
    assert_int_equal(one->priority, PRIORITY_NORMAL);
    close_with(&world, 0, RPC_CANCELLED);
    dispatch_turn(world.dispatch);
    teardown(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_that_would_wait_too_long_is_rejected),
        cmocka_unit_test(test_the_first_in_the_queue_is_not_judged),
        cmocka_unit_test(test_each_class_has_its_rank),
        cmocka_unit_test(test_without_classes_there_are_no_ranks),
        cmocka_unit_test(test_what_clients_do_does_not_change_what_a_class_is_worth),
        cmocka_unit_test(test_short_deadlines_are_no_misses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
