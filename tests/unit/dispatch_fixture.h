/* A dispatcher without a thread, which the test is, and whoever asks something of it. */
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
    struct client_gone calls[MAX_CALLS];
};

static inline void call_free(struct client_gone *gone)
{
    (void)gone; /* the world's */
}

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
                                     .linger_us = 600000000,
                                     .limits = request_limits_default(),
                                     .incarnation = 1};
    assert_int_equal(dispatch_create(&config, &world->dispatch, &err), STATUS_OK);
    for (size_t i = 0; i < MAX_CALLS; i++)
        world->calls[i].free = call_free;
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

/* The call is over, and the dispatch thread, which this is, hears of it. */
static inline void leave(struct world *world, size_t call)
{
    dispatch_client_gone(world->dispatch, &world->calls[call]);
    dispatch_turn(world->dispatch);
    world->calls[call].model = 0;
}

/* What a client of the dispatcher sees: the end. */
struct asker {
    enum reason reason;
    atomic_bool ended; /* and `reason` is there: on any thread */
};

static inline void on_status(struct request *first, enum reason reason, const char *sentence)
{
    struct asker *asker = first->client.handle;
    assert_false(asker->ended);
    assert_true(*sentence);
    asker->reason = reason;
    atomic_store(&asker->ended, true);
}

static inline void on_reference(void *handle)
{
    (void)handle; /* the test's */
}

/* Of `source` the model, the client, what is asked for beside a prompt, and (NULL: some answer)
 * whether that is an answer. */
static inline uint64_t submit_client(struct world *world, size_t call, struct request_source source,
                                     uint32_t choices, struct asker *asker)
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
    source.call = &world->calls[call];
    source.deadline_us = UINT64_MAX;
    *asker = (struct asker){.reason = REASON_NONE};
    assert_int_equal(dispatch_admit(world->dispatch), REASON_NONE);
    enum reason reason =
        dispatch_admit_to(world->dispatch, &world->calls[call], source.model, choices);
    assert_int_equal(reason, REASON_NONE);
    struct request *request = request_create(&source);
    assert_non_null(request);
    dispatch_submit(world->dispatch, request);
    return world->calls[call].request;
}

static inline uint64_t submit_source(struct world *world, size_t call, struct request_source source,
                                     uint32_t choices, struct asker *asker)
{
    static const struct request_client_ops ops = {
        .status = on_status, .ref = on_reference, .unref = on_reference};
    source.client = (struct request_client){.ops = &ops, .handle = asker};
    return submit_client(world, call, source, choices, asker);
}

static inline uint64_t submit(struct world *world, size_t call, size_t model, uint32_t choices,
                              struct asker *asker)
{
    return submit_source(world, call, (struct request_source){.model = model}, choices, asker);
}

#endif
