/* Requests with a constraint that isn't compiled yet: their turns, the number that one owner may
 * have waiting, and that a request's end takes its compilation out of the queue. The test takes
 * every turn; constraints are compiled when it says so. */
#include "tests/unit/dispatch_fixture.h"

#include "router/dispatch/constraint_queue.h"
#include "tests/unit/checks_fixture.h"

#include <stdlib.h>

static struct asker askers[MAX_CALLS]; /* one a call */

static void open_world(struct world *world)
{
    struct constraint_checks *checks = constraint_checks_create();
    assert_non_null(checks);
    setup_checked(world, 1, MAX_CALLS, MAX_CALLS, checks);
}

/* For an answer that the expression takes. */
static void ask(struct world *world, size_t call, const char *peer, const char *regex)
{
    struct constraint_source *constraint =
        constraint_source_create(CONSTRAINT_REGEX, regex, strlen(regex));
    struct call_source source = {.constraint = constraint, .model_name = "tested", .peer = peer};
    submit_source(world, call, source, 1, &askers[call]);
    free(constraint);
    dispatch_turn(world->dispatch);
}

/* A call that has not ended ends then. */
static void go(struct world *world, size_t call)
{
    leave(world, call);
    assert_true(askers[call].ended);
}

/* The next one that is compiled. */
static void expect_compiled(struct world *world, struct told *told, const char *regex)
{
    struct constraint_checked *checked = wait_told(told);
    assert_string_equal(checked->source->text, regex);
    constraint_checks_taken(world->checks);
    constraint_checked_free(checked);
}

static void test_a_request_that_ends_takes_its_compilation_along(void **state)
{
    (void)state;
    static struct world world;
    struct told told;
    open_world(&world);
    ask(&world, 0, "10.0.0.1:1", "first");
    ask(&world, 1, "10.0.0.1:2", "cancelled");
    ask(&world, 2, "10.0.0.1:3", "shared");
    ask(&world, 3, "10.0.0.2:3", "shared");
    ask(&world, 4, "10.0.0.1:4", "twice");
    ask(&world, 5, "10.0.0.1:5", "twice");
    go(&world, 1);
    go(&world, 2);
    go(&world, 4);
    assert_int_equal(askers[1].reason, REASON_CANCELLED);
    start(world.checks, &told);
    expect_compiled(&world, &told, "first");
    expect_compiled(&world, &told, "shared");
    expect_compiled(&world, &told, "twice");
    constraint_checks_stop(world.checks);
    assert_int_equal(constraint_checks_counts(world.checks).compiled, 3);
    end(&told);
    go(&world, 0);
    go(&world, 3);
    go(&world, 5);
    teardown(&world);
}

/* Without keys, an address has its share of the room, and no more, and takes turns with others. */
static void test_an_address_has_a_share_of_the_room(void **state)
{
    (void)state;
    static struct world world;
    struct told told;
    char peer[32], regex[16];
    open_world(&world);
    for (size_t i = 0; i <= CONSTRAINT_WAITING_EACH; i++) {
        snprintf(peer, sizeof peer, "10.0.0.1:%zu", 1000 + i);
        snprintf(regex, sizeof regex, "greedy%zu", i);
        ask(&world, i, peer, regex);
        assert_int_equal(askers[i].ended, i == CONSTRAINT_WAITING_EACH);
    }
    assert_int_equal(askers[CONSTRAINT_WAITING_EACH].reason, REASON_OVERLOADED);
    ask(&world, MAX_CALLS - 1, "10.0.0.2:1000", "greedy63");
    assert_false(askers[MAX_CALLS - 1].ended);
    start(world.checks, &told);
    expect_compiled(&world, &told, "greedy0");
    expect_compiled(&world, &told, "greedy63");
    expect_compiled(&world, &told, "greedy1");
    constraint_checks_stop(world.checks);
    end(&told);
    for (size_t i = 0; i <= CONSTRAINT_WAITING_EACH; i++)
        go(&world, i);
    go(&world, MAX_CALLS - 1);
    teardown(&world);
}

/* No answer is constrained: nothing is waited for. */
static void test_a_prompt_alone_has_no_constraint(void **state)
{
    (void)state;
    static struct world world;
    struct constraint_source *regex = constraint_source_create(CONSTRAINT_REGEX, "a", 1);
    open_world(&world);
    for (size_t i = 0; i < 2; i++) {
        const struct request_params params = {.prompt_only = i == 0};
        struct call_source source = {
            .constraint = regex, .params = &params, .model_name = "tested", .peer = "10.0.0.1:1"};
        submit_source(&world, i, source, 1, &askers[i]);
        dispatch_turn(world.dispatch);
        assert_int_equal(world.calls[i]->constraint_waits, i == 1);
        go(&world, i);
    }
    free(regex);
    teardown(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_that_ends_takes_its_compilation_along),
        cmocka_unit_test(test_an_address_has_a_share_of_the_room),
        cmocka_unit_test(test_a_prompt_alone_has_no_constraint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
