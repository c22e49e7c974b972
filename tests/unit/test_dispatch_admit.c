/* Who gets in: places in all, each model's reserve, and the door, where those stand who are about to be told that there is none. */
#include "router/dispatch_internal.h"

#include "common/base/log.h"
#include "common/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MAX_CALLS 512

struct world {
    struct served_models models;
    struct membership *membership;
    struct router_metrics metrics;
    struct status_board board;
    struct dispatch *dispatch;
    struct client_gone calls[MAX_CALLS];
};

static void call_free(struct client_gone *gone)
{
    (void)gone; /* the world's */
}

static void setup(struct world *world, size_t model_count, uint32_t max_requests)
{
    struct error err;
    memset(world, 0, sizeof *world);
    world->models.count = model_count;
    for (size_t i = 0; i < model_count; i++)
        snprintf(world->models.items[i].name, sizeof world->models.items[i].name, "m%zu", i);
    struct membership_config members = {.limit = 1, .ttl_us = 1000000};
    assert_int_equal(membership_create(&members, &world->membership), STATUS_OK);
    assert_int_equal(router_metrics_create(&world->metrics, &world->models), STATUS_OK);
    status_board_init(&world->board);
    struct dispatch_config config = {.membership = world->membership,
                                     .metrics = &world->metrics,
                                     .board = &world->board,
                                     .models = &world->models,
                                     .max_requests = max_requests,
                                     .max_queue = 1,
                                     .limits = request_limits_default(),
                                     .incarnation = 1};
    assert_int_equal(dispatch_create(&config, &world->dispatch, &err), STATUS_OK);
    for (size_t i = 0; i < MAX_CALLS; i++)
        world->calls[i].free = call_free;
}

static void teardown(struct world *world)
{
    assert_int_equal(atomic_load(&world->dispatch->admitted), 0);
    assert_int_equal(atomic_load(&world->dispatch->admitted_beyond), 0);
    dispatch_stop(world->dispatch);
    while (dispatch_turn(world->dispatch, 0))
        ;
    dispatch_free(world->dispatch);
    status_board_deinit(&world->board);
    router_metrics_destroy(&world->metrics);
    membership_destroy(world->membership);
}

/* The call is over, and the dispatch thread, which this is, hears of it. */
static void leave(struct world *world, size_t call)
{
    dispatch_client_gone(world->dispatch, &world->calls[call]);
    dispatch_turn(world->dispatch, 0);
    world->calls[call].model = 0;
}

static void test_calls_at_the_door_are_limited(void **state)
{
    (void)state;
    static struct world world;
    setup(&world, 1, 4);
    const size_t most = 4 + DISPATCH_MAX_AT_DOOR;
    for (size_t i = 0; i < most; i++) {
        assert_int_equal(dispatch_admit(world.dispatch), REASON_NONE);
        enum reason reason = dispatch_admit_to(world.dispatch, &world.calls[i], 0);
        assert_int_equal(reason, i < 4 ? REASON_NONE : REASON_OVERLOADED);
    }
    assert_int_equal(dispatch_admit(world.dispatch), REASON_OVERLOADED);
    leave(&world, most - 1); /* one who had no place makes room at the door, */
    assert_int_equal(dispatch_admit(world.dispatch), REASON_NONE);
    assert_int_equal(dispatch_admit_to(world.dispatch, &world.calls[most - 1], 0),
                     REASON_OVERLOADED);
    leave(&world, 0); /* and one who had one makes room inside */
    assert_int_equal(dispatch_admit(world.dispatch), REASON_NONE);
    assert_int_equal(dispatch_admit_to(world.dispatch, &world.calls[0], 0), REASON_NONE);
    for (size_t i = 0; i < most; i++)
        leave(&world, i);
    teardown(&world);
}

/* In any order: never more than there are places, never one refused for whom a place is kept, or for whom there is a free one. */
static void test_reserves_hold_in_any_order(void **state)
{
    (void)state;
    static struct world world;
    unsigned refused = 0, beyond_refused = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rng rng = rng_seeded(seed);
        size_t models = 1 + rng_below(&rng, 5);
        uint32_t max_requests = (uint32_t)(1 + rng_below(&rng, 40));
        uint32_t reserve = route_pools_reserve(max_requests, models);
        setup(&world, models, max_requests);
        uint32_t held[SERVED_MODELS_MAX] = {0};
        size_t inside[MAX_CALLS], count = 0;
        for (size_t i = 0; i < MAX_CALLS; i++)
            inside[i] = i; /* [0 .. count) are inside */
        for (int step = 0; step < 400; step++) {
            if (count && rng_below(&rng, 100) < 40) {
                size_t at = rng_below(&rng, count), call = inside[at];
                held[world.calls[call].model - 1]--;
                leave(&world, call);
                inside[at] = inside[--count];
                inside[count] = call;
                continue;
            }
            size_t model = rng_below(&rng, 3) ? 0 : rng_below(&rng, models), call = inside[count];
            uint32_t common = 0;
            for (size_t i = 0; i < models; i++)
                common += held[i] > reserve ? held[i] - reserve : 0;
            bool free = held[model] < reserve || common < max_requests - reserve * (uint32_t)models;
            assert_int_equal(dispatch_admit(world.dispatch), REASON_NONE);
            enum reason reason = dispatch_admit_to(world.dispatch, &world.calls[call], model);
            assert_int_equal(reason, free ? REASON_NONE : REASON_OVERLOADED);
            if (reason) {
                refused++;
                beyond_refused += count < max_requests;
                leave(&world, call);
                continue;
            }
            held[model]++;
            count++;
            assert_true(count <= max_requests);
        }
        while (count)
            leave(&world, inside[--count]);
        teardown(&world);
    }
    assert_true(refused > 100 && beyond_refused > 100);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_at_the_door_are_limited),
        cmocka_unit_test(test_reserves_hold_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
