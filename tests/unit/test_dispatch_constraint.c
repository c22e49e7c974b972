/* Requests whose constraint nobody has compiled yet: who takes turns, what one of them may have waiting, and that one
 * which ends takes its compilation out of the queue. The test is the dispatch thread; constraints are compiled when it says so. */
#include "router/constraint_queue.h"
#include "router/dispatch_internal.h"
#include "router/request_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/checks_fixture.h"

#define MAX_CALLS (CONSTRAINT_WAITING_MAX + 2)

struct call {
    struct client_gone gone; /* first */
    bool over;
    enum reason reason;
};

struct world {
    struct served_models models;
    struct membership *membership;
    struct router_metrics metrics;
    struct status_board board;
    struct constraint_checks *checks;
    struct dispatch *dispatch;
    struct call calls[MAX_CALLS];
};

static void call_free(struct client_gone *gone)
{
    (void)gone; /* the world's */
}

static void ref(void *handle)
{
    (void)handle;
}

static void on_status(struct request *first, enum reason reason, const char *sentence)
{
    struct call *call = first->client.handle;
    assert_false(call->over);
    assert_true(*sentence);
    call->over = true;
    call->reason = reason;
}

static const struct request_client_ops ops = {.ref = ref, .unref = ref, .status = on_status};

static void setup(struct world *world)
{
    struct error err;
    memset(world, 0, sizeof *world);
    world->models.count = 1;
    struct membership_config members = {.limit = 1, .ttl_us = 1000000};
    assert_int_equal(membership_create(&members, &world->membership), STATUS_OK);
    assert_int_equal(router_metrics_create(&world->metrics, &world->models), STATUS_OK);
    status_board_init(&world->board);
    world->checks = constraint_checks_create();
    assert_non_null(world->checks);
    struct dispatch_config config = {.membership = world->membership,
                                     .metrics = &world->metrics,
                                     .board = &world->board,
                                     .models = &world->models,
                                     .checks = world->checks,
                                     .max_requests = MAX_CALLS,
                                     .max_queue = MAX_CALLS,
                                     .linger_us = 60000000,
                                     .limits = request_limits_default(),
                                     .incarnation = 1};
    assert_int_equal(dispatch_create(&config, &world->dispatch, &err), STATUS_OK);
}

static void teardown(struct world *world)
{
    dispatch_stop(world->dispatch);
    while (dispatch_turn(world->dispatch))
        ;
    dispatch_free(world->dispatch);
    constraint_checks_destroy(world->checks);
    status_board_deinit(&world->board);
    router_metrics_destroy(&world->metrics);
    membership_destroy(world->membership);
}

/* A request for an answer that the expression takes. */
static void submit(struct world *world, size_t number, const char *peer, const char *regex)
{
    static const uint32_t prompt[] = {1, 2, 3};
    struct call *call = &world->calls[number];
    struct request_params params = {.choices = 1, .seed_given = true};
    struct constraint_source *constraint =
        constraint_source_create(CONSTRAINT_REGEX, regex, strlen(regex));
    struct request_source source = {.params = &params,
                                    .prompt = prompt,
                                    .prompt_count = 3,
                                    .constraint = constraint,
                                    .client = {.ops = &ops, .handle = call},
                                    .model_name = "tested",
                                    .peer = peer,
                                    .deadline_us = UINT64_MAX};
    *call = (struct call){.gone.free = call_free};
    assert_int_equal(dispatch_admit(world->dispatch), REASON_NONE);
    assert_int_equal(dispatch_admit_to(world->dispatch, &call->gone, 0, 1), REASON_NONE);
    struct request *request = request_create(&source);
    assert_non_null(request);
    free(constraint);
    call->gone.request = dispatch_submit(world->dispatch, request);
    dispatch_turn(world->dispatch);
}

static void leave(struct world *world, size_t number)
{
    dispatch_client_gone(world->dispatch, &world->calls[number].gone);
    dispatch_turn(world->dispatch);
    assert_true(world->calls[number].over);
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
    setup(&world);
    submit(&world, 0, "10.0.0.1:1", "first");
    submit(&world, 1, "10.0.0.1:2", "cancelled");
    submit(&world, 2, "10.0.0.1:3", "shared");
    submit(&world, 3, "10.0.0.2:3", "shared");
    submit(&world, 4, "10.0.0.1:4", "twice");
    submit(&world, 5, "10.0.0.1:5", "twice");
    leave(&world, 1);
    leave(&world, 2);
    leave(&world, 4);
    assert_int_equal(world.calls[1].reason, REASON_CANCELLED);
    start(world.checks, &told);
    expect_compiled(&world, &told, "first");
    expect_compiled(&world, &told, "shared");
    expect_compiled(&world, &told, "twice");
    constraint_checks_stop(world.checks);
    assert_int_equal(constraint_checks_counts(world.checks).compiled, 3);
    end(&told);
    leave(&world, 0);
    leave(&world, 3);
    leave(&world, 5);
    teardown(&world);
}

/* Nobody has a key: an address has its share of the room, and no more, and takes turns with others. */
static void test_an_address_has_a_share_of_the_room(void **state)
{
    (void)state;
    static struct world world;
    struct told told;
    char peer[32], regex[16];
    setup(&world);
    for (size_t i = 0; i <= CONSTRAINT_WAITING_EACH; i++) {
        snprintf(peer, sizeof peer, "10.0.0.1:%zu", 1000 + i);
        snprintf(regex, sizeof regex, "greedy%zu", i);
        submit(&world, i, peer, regex);
        assert_int_equal(world.calls[i].over, i == CONSTRAINT_WAITING_EACH);
    }
    assert_int_equal(world.calls[CONSTRAINT_WAITING_EACH].reason, REASON_OVERLOADED);
    submit(&world, MAX_CALLS - 1, "10.0.0.2:1000", "greedy63");
    assert_false(world.calls[MAX_CALLS - 1].over);
    start(world.checks, &told);
    expect_compiled(&world, &told, "greedy0");
    expect_compiled(&world, &told, "greedy63");
    expect_compiled(&world, &told, "greedy1");
    constraint_checks_stop(world.checks);
    end(&told);
    for (size_t i = 0; i <= CONSTRAINT_WAITING_EACH; i++)
        leave(&world, i);
    leave(&world, MAX_CALLS - 1);
    teardown(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_that_ends_takes_its_compilation_along),
        cmocka_unit_test(test_an_address_has_a_share_of_the_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
