/* A dispatcher and its clients. The test takes its turns. */
#ifndef BATON_TESTS_UNIT_DISPATCH_FIXTURE_H
#define BATON_TESTS_UNIT_DISPATCH_FIXTURE_H

#include "router/dispatch/dispatch_internal.h"
#include "router/request_parse.h"

#include "common/base/log.h"

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
    struct constraint_checks *checks;
    struct dispatch *dispatch;
    struct call *calls[MAX_CALLS]; /* the door's references; NULL: none */
};

/* checks: the dispatcher's, destroyed by teardown; NULL: none. */
static inline void setup_checked(struct world *world, size_t model_count, uint32_t max_requests,
                                 uint32_t max_queue, struct constraint_checks *checks)
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
    world->checks = checks;
    struct dispatch_config config = {.membership = world->membership,
                                     .metrics = &world->metrics,
                                     .board = &world->board,
                                     .models = &world->models,
                                     .checks = checks,
                                     .max_requests = max_requests,
                                     .max_queue = max_queue,
                                     .prefix_limit = 1024,
                                     .linger_us = 600000000,
                                     .limits = request_limits_default(),
                                     .incarnation = 1};
    assert_int_equal(dispatch_create(&config, &world->dispatch, &err), STATUS_OK);
}

static inline void setup(struct world *world, size_t model_count, uint32_t max_requests,
                         uint32_t max_queue)
{
    setup_checked(world, model_count, max_requests, max_queue, NULL);
}

static inline void teardown(struct world *world)
{
    assert_int_equal(atomic_load(&world->dispatch->admitted), 0);
    assert_int_equal(world->dispatch->places_beyond, 0);
    for (size_t i = 0; i < SERVED_MODELS_MAX; i++)
        assert_int_equal(world->dispatch->places[i], 0);
    dispatch_stop(world->dispatch);
    while (dispatch_turn(world->dispatch))
        ;
    dispatch_free(world->dispatch);
    constraint_checks_destroy(world->checks);
    status_board_deinit(&world->board);
    router_metrics_destroy(&world->metrics);
    membership_destroy(world->membership);
}

/* Ends the client's side of the call; the next turn handles it. */
static inline void close_with(struct world *world, size_t call, enum rpc_code code)
{
    dispatch_close(world->dispatch, world->calls[call], code);
    call_unref(world->calls[call]);
    world->calls[call] = NULL;
}

static inline void leave(struct world *world, size_t call)
{
    close_with(world, call, RPC_OK);
    dispatch_turn(world->dispatch);
}

/* A client's view of its call: the end. */
struct asker {
    enum reason reason;
    atomic_bool ended; /* `reason` is set before it; any thread */
};

static inline void on_status(void *handle, enum reason reason, const char *sentence)
{
    struct asker *asker = handle;
    assert_false(asker->ended);
    assert_true(*sentence);
    asker->reason = reason;
    atomic_store(&asker->ended, true);
}

static inline void on_reference(void *handle)
{
    (void)handle; /* the test's */
}

static inline size_t on_break_off(void *handle, enum reason reason, const char *sentence)
{
    (void)handle;
    (void)reason;
    (void)sentence;
    return 0;
}

static const struct call_client_ops asker_ops = {
    .status = on_status, .break_off = on_break_off, .ref = on_reference, .unref = on_reference};

static inline enum reason admit(struct world *world, size_t call)
{
    return dispatch_admit(world->dispatch, (struct call_client){.ops = &asker_ops},
                          &world->calls[call]);
}

/* Makes an admitted call of the client. `source` names the outputs beside a prompt, and (params
 * NULL: some answer) whether one is an answer. */
static inline void make_call(struct world *world, size_t call, struct call_client client,
                             struct call_source source, size_t model, uint32_t choices)
{
    static const uint32_t prompt[] = {1, 2};
    const struct request_params params = {.choices = choices,
                                          .seed_given = true,
                                          .prompt_only =
                                              source.params && source.params->prompt_only,
                                          .sampling.max_tokens = 4};
    source.params = &params;
    source.prompt = prompt;
    source.prompt_count = 2;
    source.deadline_us = UINT64_MAX;
    enum reason reason = dispatch_admit(world->dispatch, client, &world->calls[call]);
    assert_int_equal(reason, REASON_NONE);
    reason = dispatch_reserve(world->dispatch, world->calls[call], model, choices);
    assert_int_equal(reason, REASON_NONE);
    assert_true(call_fill(world->calls[call], &source));
}

static inline void submit_of(struct world *world, size_t call, const struct call_client_ops *ops,
                             struct call_source source, size_t model, uint32_t choices,
                             struct asker *asker)
{
    *asker = (struct asker){.reason = REASON_NONE};
    make_call(world, call, (struct call_client){ops, asker}, source, model, choices);
    dispatch_submit(world->dispatch, &world->calls[call], 1);
}

static inline void submit_source(struct world *world, size_t call, struct call_source source,
                                 uint32_t choices, struct asker *asker)
{
    submit_of(world, call, &asker_ops, source, 0, choices, asker);
}

static inline void submit(struct world *world, size_t call, size_t model, uint32_t choices,
                          struct asker *asker)
{
    submit_of(world, call, &asker_ops, (struct call_source){.once = false}, model, choices, asker);
}

#endif
