/* Counts the cost of placing a request, without a clock: the number of basic blocks of placement
 * that run (as tests/schedule/cost does). It must not grow with the requests that run, and with the
 * workers at most as their square root. A request arrives, is placed, its prompt and its handoff
 * end, and it ends: all of that is counted. */
#include "router/planner/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define LIVES 100 /* counted ones */
/* Bounds the cost of each policy, divided by that of least-tokens. Measured: 4.97 and 2.83. */
#define MOST_COSTLY          5.0
#define MOST_WITHOUT_CLASSES 3.0

static uint64_t blocks_run;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    blocks_run++;
}

struct cost {
    struct placement placement;
    struct placement_request *requests;
    size_t running;
};

static void start(struct cost *c, enum placement_policy policy, bool has_classes, size_t workers,
                  size_t running)
{
    const struct placement_config config = {.model_count = 1,
                                            .policy = policy,
                                            .has_classes = has_classes,
                                            .seed = 1,
                                            .local_us = 1000000};
    assert_int_equal(placement_init(&c->placement, &config), STATUS_OK);
    c->running = running;
    c->requests = calloc(running, sizeof *c->requests);
    assert_non_null(c->requests);
    for (uint64_t key = 1; key <= workers; key++) {
        const struct route_worker worker = {.key = key,
                                            .role = key % 2 ? ROLE_PREFILL : ROLE_DECODE,
                                            .ready = true,
                                            .capacity_tokens = 100000,
                                            .pool_tokens = 1000000,
                                            .unconfirmed_limit_tokens = 1000000000};
        assert_int_equal(placement_worker_set(&c->placement, 0, &worker), STATUS_OK);
    }
}

/* A request arrives with an open length, and is placed. */
static void place(struct cost *c, size_t i)
{
    struct placement_request *request = &c->requests[i];
    uint64_t tokens;
    placement_arrived(&c->placement, request, 0, i % 50);
    placement_wait(&c->placement, request, PLACEMENT_NEW, 1);
    placement_begin(&c->placement, 0, 1);
    assert_ptr_equal(placement_next(&c->placement), request);
    const struct placement_ask ask = {
        .request = {.prompt_tokens = 100, .total_tokens = 200},
        .most_tokens = 300,
        .predict = {.prompt_tokens = 100,
                    .answer_tokens = 100,
                    .answer_p90_tokens = 200,
                    .objective = {.ttft_us = 400000, .tpot_us = 40000}},
        .slo_class = 0,
        .percentile = 90};
    struct route_choice choice = placement_choose(&c->placement, request, &ask, &tokens);
    assert_int_equal(choice.outcome, ROUTE_PLACED);
    assert_int_equal(tokens, 300);
    placement_stop_waiting(&c->placement, request);
    struct placement_use use = {.prefill = choice.prefill,
                                .decode = choice.decode,
                                .working = true,
                                .prompt_tokens = 100,
                                .longest_tokens = tokens,
                                .expected_tokens = 200,
                                .slack_us = 400000,
                                .tolerance_us = 40000,
                                .weight = BOOKS_WEIGHT_ONE};
    placement_track(&c->placement, request, &use);
    placement_placed(&c->placement, request, choice.prefill, choice.decode);
    assert_null(placement_next(&c->placement));
    use.prefilled = use.confirmed = use.drawing = true;
    placement_track(&c->placement, request, &use);
}

/* Returns the mean count of a request's life while `running` others run. */
static double cost_of(enum placement_policy policy, bool has_classes, size_t workers,
                      size_t running)
{
    static struct cost c;
    start(&c, policy, has_classes, workers, running);
    for (size_t i = 0; i < running; i++)
        place(&c, i);
    uint64_t before = blocks_run;
    for (size_t i = 0; i < LIVES; i++) {
        placement_ended(&c.placement, &c.requests[i % running]);
        place(&c, i % running);
    }
    double each = (double)(blocks_run - before) / LIVES;
    for (size_t i = 0; i < running; i++)
        placement_ended(&c.placement, &c.requests[i]);
    placement_deinit(&c.placement);
    free(c.requests);
    printf("%17s%s, %5zu workers, %6zu requests: %7.0f blocks each\n",
           placement_policy_names[policy], has_classes ? "" : " (no classes)", workers, running,
           each);
    assert_true(each > 100); /* they are counted */
    return each;
}

/* 4,000 workers are 16 times 250: the root of it is 4. */
static void test_a_placement_costs_at_most_the_root_of_the_workers(void **state)
{
    (void)state;
    double least = 0, least_of_many = 0;
    for (int i = 0; i <= PLACEMENT_POLICY_COUNT; i++) {
        bool classes = i < PLACEMENT_POLICY_COUNT; /* the last time goodput has none */
        enum placement_policy policy = classes ? (enum placement_policy)i : PLACEMENT_GOODPUT;
        double most = classes ? MOST_COSTLY : MOST_WITHOUT_CLASSES;
        double few = cost_of(policy, classes, 250, 100);
        double many = cost_of(policy, classes, 4000, 100);
        assert_true(many <= 4 * few);
        if (policy == PLACEMENT_LEAST_TOKENS) {
            least = few;
            least_of_many = many;
        }
        assert_true(few <= most * least && many <= most * least_of_many);
    }
}

static void test_a_placement_does_not_cost_more_while_many_run(void **state)
{
    static const enum placement_policy policies[] = {PLACEMENT_LEAST_TOKENS, PLACEMENT_GOODPUT};
    (void)state;
    for (int i = 0; i < 2; i++) {
        double few = cost_of(policies[i], true, 100, 100);
        assert_true(cost_of(policies[i], true, 100, i ? 1000 : 10000) <= 1.05 * few);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_placement_costs_at_most_the_root_of_the_workers),
        cmocka_unit_test(test_a_placement_does_not_cost_more_while_many_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
