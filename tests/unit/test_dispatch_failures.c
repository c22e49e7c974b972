/* Which requests leave a worker that hangs or are late, and what is remembered of failures. The
 * workers have no session: the test sets all that they would report. */
#include "tests/unit/dispatch_fixture.h"

#include "common/base/clock.h"

#include <stdlib.h>

static struct worker *comes(struct world *world, enum worker_role role, uint64_t numerics_id)
{
    struct workers *workers = &world->dispatch->workers;
    struct worker *worker = calloc(1, sizeof *worker);
    assert_non_null(worker);
    worker->key = ++workers->generation;
    worker->state = WORKER_UP;
    worker->info = (struct worker_info){.role = role,
                                        .numerics_id = numerics_id,
                                        .block_tokens = 16,
                                        .block_count = 100,
                                        .context = 1600};
    snprintf(worker->info.name, sizeof worker->info.name, "worker-%u", (unsigned)worker->key);
    workers->items[workers->count++] = workers->slots[worker->key % WORKERS_MAX_SLOTS] = worker;
    worker_changed(workers, worker, clock_now_us());
    return worker;
}

static void look_again(struct world *world)
{
    world->dispatch->failures_due_us = 0;
    failures_tick(world->dispatch);
}

/* An answer can't go on with other numerics: it waits for the worker that hangs. */
static void test_an_answer_leaves_for_one_of_its_kind(void **state)
{
    (void)state;
    static struct world world;
    struct asker asker;
    setup(&world, 1, 4, 4);
    struct worker *prefill = comes(&world, ROLE_PREFILL, 1);
    comes(&world, ROLE_DECODE, 1);
    submit(&world, 0, 0, 1, &asker);
    dispatch_turn(world.dispatch);
    struct request *request = &world.calls[0]->choices[0];
    assert_int_equal(request->life.prefill, prefill->key);
    uint32_t attempt = request->life.attempt;
    comes(&world, ROLE_PREFILL, 2);
    comes(&world, ROLE_DECODE, 2);
    prefill->watch.hangs = true;
    request->emitted_count = 1; /* its answer has begun */
    look_again(&world);
    assert_int_equal(request->life.state, REQUEST_PREFILL);
    assert_int_equal(request->life.attempt, attempt);
    comes(&world, ROLE_PREFILL, 1);
    look_again(&world);
    assert_int_equal(request->life.state, REQUEST_QUEUED);
    request->emitted_count = 0;
    leave(&world, 0);
    teardown(&world);
}

static void test_one_that_has_not_begun_leaves_for_any_kind(void **state)
{
    (void)state;
    static struct world world;
    struct asker asker;
    setup(&world, 1, 4, 4);
    struct worker *prefill = comes(&world, ROLE_PREFILL, 1);
    comes(&world, ROLE_DECODE, 1);
    submit(&world, 0, 0, 1, &asker);
    dispatch_turn(world.dispatch);
    struct request *request = &world.calls[0]->choices[0];
    prefill->watch.hangs = true;
    look_again(&world);
    assert_int_equal(request->life.state, REQUEST_PREFILL); /* there is no other */
    comes(&world, ROLE_PREFILL, 2);
    comes(&world, ROLE_DECODE, 2);
    look_again(&world);
    assert_int_equal(request->life.state, REQUEST_QUEUED);
    leave(&world, 0);
    teardown(&world);
}

/* One slow worker is no proof. Both are. */
static void test_no_request_is_late_by_one_slow_worker(void **state)
{
    (void)state;
    for (int slow = 1; slow <= 2; slow++) {
        static struct world world;
        struct asker asker = {.reason = REASON_NONE};
        setup(&world, 1, 4, 4);
        comes(&world, ROLE_PREFILL, 1);
        struct worker *chosen = comes(&world, ROLE_DECODE, 1),
                      *other = comes(&world, ROLE_DECODE, 1);
        chosen->steps.figures.steps = other->steps.figures.steps = 1000;
        chosen->steps.figures.cost.decode_row_us = 1e9;
        other->steps.figures.cost.decode_row_us = slow == 2 ? 1e9 : 1;
        other->load.queued_tokens = 1000; /* it is the busier one */
        worker_changed(&world.dispatch->workers, other, clock_now_us());
        make_call(&world, 0, (struct call_client){&asker_ops, &asker},
                  (struct call_source){.once = false}, 0, 1);
        world.calls[0]->sampling.ignore_eos = true; /* its length is known: */
        world.calls[0]->open_max_tokens = 0;        /* its client set max_tokens */
        world.calls[0]->deadline_us = clock_now_us() + 600000000;
        dispatch_submit(world.dispatch, &world.calls[0], 1);
        dispatch_turn(world.dispatch);
        assert_int_equal(asker.reason, slow == 2 ? REASON_DEADLINE : REASON_NONE);
        if (slow == 1)
            assert_int_equal(world.calls[0]->choices[0].life.decode, chosen->key);
        leave(&world, 0);
        teardown(&world);
    }
}

static void test_failures_of_a_worker_are_forgotten_with_it(void **state)
{
    (void)state;
    static struct world world;
    setup(&world, 1, 4, 4);
    struct breakers *breakers = &world.dispatch->breakers;
    const struct request_life life = {.state = REQUEST_DECODE,
                                      .prefill = comes(&world, ROLE_PREFILL, 1)->key,
                                      .decode = comes(&world, ROLE_DECODE, 1)->key};
    breakers_said(breakers, &life, &(struct breaker_said){.worker = life.decode, .reason = "read"},
                  1000000);
    breakers_left(breakers, life.decode, 1000000);
    assert_non_null(breakers_of_pair(breakers, life.prefill, life.decode));
    workers_sync(&world.dispatch->workers, clock_now_us()); /* neither is a member */
    assert_int_equal(world.dispatch->workers.count, 0);
    assert_null(breakers_of_pair(breakers, life.prefill, life.decode));
    assert_int_equal(breakers_of(breakers, life.decode)->failures, 0);
    teardown(&world);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_leaves_for_one_of_its_kind),
        cmocka_unit_test(test_one_that_has_not_begun_leaves_for_any_kind),
        cmocka_unit_test(test_no_request_is_late_by_one_slow_worker),
        cmocka_unit_test(test_failures_of_a_worker_are_forgotten_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
