/* Workers of one model, and what a search among them chooses. */
#ifndef BATON_TESTS_UNIT_ROUTE_FIXTURE_H
#define BATON_TESTS_UNIT_ROUTE_FIXTURE_H

#include "router/planner/route_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Returns a worker of one model and layout; a test changes its own field. */
static inline struct route_worker worker(enum worker_role role, uint64_t key)
{
    return (struct route_worker){.key = key,
                                 .role = role,
                                 .ready = true,
                                 .model_hash = 7,
                                 .layout_hash = 8,
                                 .numerics_id = 9,
                                 .capacity_tokens = 1000,
                                 .unconfirmed_limit_tokens = 500};
}

static const struct route_request small = {.prompt_tokens = 100, .total_tokens = 150};

/* Two workers that refused each other. */
struct refusal {
    uint64_t prefill, decode;
};
static struct refusal refusals[4];
static size_t refusal_count;

/* Makes candidates of the workers, of their books, and of the refusals. */
static inline void make(struct candidates *candidates, const struct route_worker *workers,
                        size_t count)
{
    assert_int_equal(candidates_init(candidates, 1), STATUS_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(candidates_set(candidates, 0, &workers[i]), STATUS_OK);
        candidates_get(candidates, workers[i].key)->is = workers[i];
    }
    for (size_t i = 0; i < refusal_count; i++)
        assert_int_equal(candidates_misfit(candidates, refusals[i].prefill, refusals[i].decode),
                         STATUS_OK);
}

static inline struct route_choice choose(const struct route_worker *workers, size_t count,
                                         const struct route_request *request)
{
    struct candidates candidates;
    make(&candidates, workers, count);
    struct route_choice choice = route_request(&candidates, 0, request, NULL);
    candidates_deinit(&candidates);
    return choice;
}

static inline struct route_choice choose_reader(const struct route_worker *workers, size_t count,
                                                const struct route_request *request,
                                                const struct route_handle *handle)
{
    struct candidates candidates;
    make(&candidates, workers, count);
    struct route_choice choice = route_handle(&candidates, 0, request, handle, NULL);
    candidates_deinit(&candidates);
    return choice;
}

static inline uint64_t room_on(const struct route_worker *workers, size_t count,
                               const struct route_request *request,
                               const struct route_handle *handle)
{
    struct candidates candidates;
    make(&candidates, workers, count);
    uint64_t room = route_room(&candidates, 0, request, handle);
    candidates_deinit(&candidates);
    return room;
}

static inline int forget_refusals(void **state)
{
    (void)state;
    refusal_count = 0;
    return 0;
}

static inline void assert_choice(struct route_choice choice, enum route_outcome outcome,
                                 uint64_t prefill, uint64_t decode)
{
    assert_int_equal(choice.outcome, outcome);
    assert_int_equal(choice.prefill, prefill);
    assert_int_equal(choice.decode, decode);
}

#endif
