/* Admission: places in all, each model's reserve, and the door, with calls that wait for their
 * refusal. */
#include "tests/unit/dispatch_fixture.h"

#include "common/base/rng.h"

static void test_calls_at_the_door_are_limited(void **state)
{
    (void)state;
    static struct world world;
    setup(&world, 1, 4, 1);
    const size_t most = 2 * 4 + DISPATCH_MAX_AT_DOOR;
    for (size_t i = 0; i < most; i++) {
        assert_int_equal(admit(&world, i), REASON_NONE);
        enum reason reason = dispatch_reserve(world.dispatch, world.calls[i], 0, 1);
        assert_int_equal(reason, i < 4 ? REASON_NONE : REASON_OVERLOADED);
    }
    assert_int_equal(admit(&world, most), REASON_OVERLOADED);
    leave(&world, most - 1); /* a call without a place makes room at the door, */
    assert_int_equal(admit(&world, most - 1), REASON_NONE);
    assert_int_equal(dispatch_reserve(world.dispatch, world.calls[most - 1], 0, 1),
                     REASON_OVERLOADED);
    leave(&world, 0); /* and a call with a place makes room inside */
    assert_int_equal(admit(&world, 0), REASON_NONE);
    assert_int_equal(dispatch_reserve(world.dispatch, world.calls[0], 0, 1), REASON_NONE);
    for (size_t i = 0; i < most; i++)
        leave(&world, i);
    teardown(&world);
}

/* Calls ask for one choice or several, in any order. There are never more than there are places,
 * and a call with a reserved or a free place is never refused. */
static void test_reserves_hold_in_any_order(void **state)
{
    (void)state;
    static struct world world;
    unsigned refused = 0, beyond_refused = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rng rng = rng_seeded(seed);
        size_t models = 1 + rng_below(&rng, 5);
        uint32_t max_requests = (uint32_t)(1 + rng_below(&rng, 40));
        uint32_t reserve = placement_reserve(max_requests, models);
        setup(&world, models, max_requests, 1);
        uint32_t held[SERVED_MODELS_MAX] = {0}, all = 0;
        size_t inside[MAX_CALLS], count = 0;
        for (size_t i = 0; i < MAX_CALLS; i++)
            inside[i] = i; /* [0 .. count) are inside */
        for (int step = 0; step < 400; step++) {
            if (count && rng_below(&rng, 100) < 40) {
                size_t at = rng_below(&rng, count), call = inside[at];
                held[world.calls[call]->model] -= world.calls[call]->place_count;
                all -= world.calls[call]->place_count;
                leave(&world, call);
                inside[at] = inside[--count];
                inside[count] = call;
                continue;
            }
            size_t model = rng_below(&rng, 3) ? 0 : rng_below(&rng, models), call = inside[count];
            uint32_t common = 0,
                     choices = rng_below(&rng, 3) ? 1 : 1 + (uint32_t)rng_below(&rng, 16);
            for (size_t i = 0; i < models; i++)
                common += held[i] > reserve ? held[i] - reserve : 0;
            uint32_t before = held[model] > reserve ? held[model] - reserve : 0,
                     after = held[model] + choices > reserve ? held[model] + choices - reserve : 0;
            bool free = common + after - before <= max_requests - reserve * (uint32_t)models;
            assert_int_equal(admit(&world, call), REASON_NONE);
            enum reason reason =
                dispatch_reserve(world.dispatch, world.calls[call], model, choices);
            assert_int_equal(reason, free ? REASON_NONE : REASON_OVERLOADED);
            if (reason) {
                refused++;
                beyond_refused += all < max_requests;
                leave(&world, call);
                continue;
            }
            held[model] += choices;
            all += choices;
            count++;
            assert_true(all <= max_requests);
        }
        while (count)
            leave(&world, inside[--count]);
        teardown(&world);
    }
    assert_true(refused > 100 && beyond_refused > 100);
}

/* One tenant may hold seven eighths of the places, in calls of any size. The rest is for others. */
static void test_a_tenant_leaves_places_to_others(void **state)
{
    (void)state;
    static struct world world;
    setup(&world, 1, 128, 1);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(admit(&world, i), REASON_NONE);
        world.calls[i]->tenant = i < 9 ? 1 : 2;
    }
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(dispatch_reserve(world.dispatch, world.calls[i], 0, 16), REASON_NONE);
    assert_int_equal(dispatch_reserve(world.dispatch, world.calls[7], 0, 1), REASON_OVERLOADED);
    assert_int_equal(dispatch_reserve(world.dispatch, world.calls[9], 0, 16), REASON_NONE);
    leave(&world, 0);
    assert_int_equal(dispatch_reserve(world.dispatch, world.calls[7], 0, 15), REASON_NONE);
    assert_int_equal(dispatch_reserve(world.dispatch, world.calls[8], 0, 2), REASON_OVERLOADED);
    assert_int_equal(dispatch_reserve(world.dispatch, world.calls[8], 0, 1), REASON_NONE);
    for (size_t i = 1; i < 10; i++)
        leave(&world, i);
    assert_int_equal(map_count(world.dispatch->tenants), 0);
    teardown(&world);
}

/* As many calls with several choices of one model as possible: the other model's places stay, and
 * the admitted count is right. */
static void test_choices_have_a_place_each(void **state)
{
    (void)state;
    static struct world world;
    static struct asker askers[MAX_CALLS];
    setup(&world, 2, 64, 64); /* a reserve of 16 each */
    for (size_t call = 0; call < 3; call++)
        submit(&world, call, 0, 16, &askers[call]);
    assert_int_equal(admit(&world, 3), REASON_NONE);
    assert_int_equal(dispatch_reserve(world.dispatch, world.calls[3], 0, 1), REASON_OVERLOADED);
    for (size_t call = 4; call < 20; call++)
        submit(&world, call, 1, 1, &askers[call]);
    dispatch_turn(world.dispatch);
    assert_int_equal(map_count(world.dispatch->requests), 64);
    for (size_t call = 0; call < 20; call++)
        assert_false(askers[call].ended);

    /* A call that ends makes room for a later one in the same batch, and not before. */
    close_with(&world, 1, RPC_OK);
    assert_int_equal(dispatch_reserve(world.dispatch, world.calls[3], 0, 16), REASON_OVERLOADED);
    dispatch_turn(world.dispatch);
    assert_true(askers[1].ended && askers[1].reason == REASON_CANCELLED);
    submit(&world, 1, 0, 16, &askers[1]);
    dispatch_turn(world.dispatch);
    assert_int_equal(map_count(world.dispatch->requests), 64);
    assert_false(askers[1].ended);
    for (size_t call = 0; call < 20; call++)
        leave(&world, call);
    assert_int_equal(map_count(world.dispatch->requests), 0);
    teardown(&world);
}

/* One that is refused when it begins gives its places back, too. */
static void test_a_call_that_finds_its_queue_full(void **state)
{
    (void)state;
    static struct world world;
    static struct asker asker;
    setup(&world, 1, 64, 4);
    submit(&world, 0, 0, 16, &asker);
    dispatch_turn(world.dispatch);
    assert_true(asker.ended && asker.reason == REASON_OVERLOADED);
    leave(&world, 0);
    teardown(&world);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_at_the_door_are_limited),
        cmocka_unit_test(test_reserves_hold_in_any_order),
        cmocka_unit_test(test_a_tenant_leaves_places_to_others),
        cmocka_unit_test(test_choices_have_a_place_each),
        cmocka_unit_test(test_a_call_that_finds_its_queue_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
