/* Which requests leave a worker that hangs or are late, what is remembered of failures, and when a
 * decode worker is bound. The workers have no session: the test sets all that they would report. */
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

/* A step of the worker begins, and hasn't ended when it is looked at again. */
static void hang(struct world *world, struct worker *worker)
{
    struct dispatch *dispatch = world->dispatch;
    dispatch->config.step_timeout_us = 1000000;
    worker_reported_steps(dispatch, worker, &(struct step_report_seen){.busy_us = 1, .running = 1});
    dispatch->now_us += 3000001; /* no step of it is known */
    look_again(world);
    assert_true(worker->watch.hangs);
}

static void tick(struct dispatch *dispatch, struct request *request, uint64_t now_us)
{
    struct life_actions actions;
    dispatch->now_us = now_us;
    request_life_on_tick(&request->life, now_us, &actions);
    request_execute(dispatch, request, &actions);
}

static double hung(const struct world *world, bool decode)
{
    return gauge_value(world->metrics.models[0].workers_hung[decode]);
}

static bool serves(const struct world *world)
{
    uint64_t at_us;
    return placement_serves(&world->dispatch->placement, 0, world->dispatch->now_us, &at_us);
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
    request->emitted_count = 1; /* its answer has begun */
    hang(&world, prefill);
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
    hang(&world, prefill);
    assert_int_equal(request->life.state, REQUEST_PREFILL); /* there is no other */
    comes(&world, ROLE_PREFILL, 2);
    comes(&world, ROLE_DECODE, 2);
    look_again(&world);
    assert_int_equal(request->life.state, REQUEST_QUEUED);
    leave(&world, 0);
    teardown(&world);
}

/* A worker that hangs is away: decode workers do the work of the only prefill worker when it has
 * hung for local-prefill-wait, and until then the router isn't ready. */
static void test_a_hung_worker_is_away(void **state)
{
    (void)state;
    static struct world world;
    struct asker asker;
    setup(&world, 1, 4, 4);
    struct dispatch *dispatch = world.dispatch;
    struct worker *prefill = comes(&world, ROLE_PREFILL, 1),
                  *decode = comes(&world, ROLE_DECODE, 1);
    submit(&world, 0, 0, 1, &asker);
    dispatch_turn(dispatch);
    struct request *request = &world.calls[0]->choices[0];
    assert_int_equal(request->life.prefill, prefill->key);
    assert_true(serves(&world));
    hang(&world, prefill);
    assert_true(hung(&world, false) == 1 && hung(&world, true) == 0);
    assert_false(serves(&world));
    assert_int_equal(request->life.state, REQUEST_PREFILL);
    dispatch->now_us += dispatch->config.limits.local_us;
    assert_true(serves(&world));
    look_again(&world);
    assert_int_equal(request->life.state, REQUEST_QUEUED);
    dispatch_place(dispatch);
    assert_int_equal(request->life.state, REQUEST_DECODE);
    assert_int_equal(request->life.prefill, 0);
    assert_int_equal(request->life.decode, decode->key);
    hang(&world, decode); /* nothing is left: it stays there, and no other comes */
    assert_int_equal(request->life.state, REQUEST_DECODE);
    assert_false(serves(&world));
    worker_reported_steps(dispatch, decode, &(struct step_report_seen){.steps_done = 1});
    assert_true(serves(&world));
    worker_reported_steps(dispatch, prefill, &(struct step_report_seen){.steps_done = 1});
    assert_true(hung(&world, false) == 0 && hung(&world, true) == 0);
    assert_int_equal(prefill->away_since_us, 0);
    hang(&world, prefill);
    worker_reported_steps(dispatch, prefill, NULL); /* its session has ended */
    assert_true(hung(&world, false) == 0);
    leave(&world, 0);
    teardown(&world);
}

/* A long wait in the queue of its worker is no silence. After it the worker has all the time, and
 * requests that come to the queue later give it no more. */
static void test_silence_begins_after_the_wait_in_a_queue(void **state)
{
    (void)state;
    static struct world world;
    struct asker asker;
    setup(&world, 1, 4, 4);
    struct dispatch *dispatch = world.dispatch;
    uint64_t limit_us = dispatch->config.limits.silence_us = 60000000;
    struct worker *prefill = comes(&world, ROLE_PREFILL, 1);
    comes(&world, ROLE_DECODE, 1);
    submit(&world, 0, 0, 1, &asker);
    dispatch_turn(dispatch);
    struct request *request = &world.calls[0]->choices[0];
    assert_int_equal(request->life.prefill, prefill->key);
    const uint64_t placed_us = request->life.placed_us, queued_us = placed_us + limit_us - 100000;
    dispatch->now_us = queued_us;
    prefill->load.queued_requests = 1;
    worker_reported_steps(dispatch, prefill, &(struct step_report_seen){.steps_done = 1});
    dispatch->now_us += 50000;
    prefill->load.queued_requests = 0;
    worker_reported_steps(dispatch, prefill, &(struct step_report_seen){.steps_done = 2});
    tick(dispatch, request, placed_us + limit_us);
    assert_int_equal(request->life.state, REQUEST_PREFILL);
    assert_int_equal(request_life_next_us(&request->life), queued_us + limit_us);
    dispatch->now_us = queued_us + limit_us - 100000;
    prefill->load.queued_requests = 1;
    worker_reported_steps(dispatch, prefill, &(struct step_report_seen){.steps_done = 3});
    prefill->load.queued_requests = 0;
    tick(dispatch, request, queued_us + limit_us - 1);
    assert_int_equal(request->life.state, REQUEST_PREFILL);
    tick(dispatch, request, queued_us + limit_us);
    assert_int_equal(request->life.state, REQUEST_QUEUED);
    leave(&world, 0);
    teardown(&world);
}

/* Fails a read of the pair at that time. */
static void pair_fails(struct world *world, const struct worker *prefill,
                       const struct worker *decode, uint64_t at_us)
{
    const struct request_life life = {.state = REQUEST_DECODE,
                                      .attempt = 1,
                                      .prefill = prefill->key,
                                      .decode = decode->key,
                                      .placed_us = at_us};
    breakers_said(&world->dispatch->breakers, &life,
                  &(struct breaker_said){.worker = decode->key, .attempt = 1, .reason = "read"},
                  at_us);
}

/* Returns how many of these requests are on the pair. */
static unsigned count_on(struct world *world, size_t first, size_t end,
                         const struct worker *prefill, const struct worker *decode)
{
    unsigned count = 0;
    for (size_t i = first; i < end; i++) {
        const struct request_life *life = &world->calls[i]->choices[0].life;
        assert_int_equal(life->state, REQUEST_PREFILL);
        count += life->prefill == prefill->key && life->decode == decode->key;
    }
    return count;
}

static void test_a_pair_that_fails_gets_no_requests_until_it_is_probed(void **state)
{
    (void)state;
    enum { CALLS = 24 };
    static struct world world;
    static struct asker askers[3 * CALLS];
    setup(&world, 1, 3 * CALLS, 3 * CALLS);
    struct dispatch *dispatch = world.dispatch;
    struct breakers *breakers = &dispatch->breakers;
    struct worker *p1 = comes(&world, ROLE_PREFILL, 1), *d1 = comes(&world, ROLE_DECODE, 1);
    struct worker *p2 = comes(&world, ROLE_PREFILL, 1), *d2 = comes(&world, ROLE_DECODE, 1);
    breakers->limits.failures = 3;
    breakers->limits.backoff_us = breakers->limits.max_backoff_us = 600000000;
    breakers->limits.probe_us = 600000000;
    uint64_t now_us = clock_now_us();
    for (uint64_t i = 3; i > 0; i--)
        pair_fails(&world, p1, d1, now_us - i * 100000);
    for (size_t i = 0; i < CALLS; i++)
        submit(&world, i, 0, 1, &askers[i]);
    dispatch_turn(dispatch);
    assert_int_equal(count_on(&world, 0, CALLS, p1, d1), 0);
    const struct candidates *all = &dispatch->placement.candidates;
    assert_true(candidates_get(all, p1->key)->is.requests > CALLS / 4); /* with the other one */
    assert_true(candidates_get(all, d1->key)->is.requests > CALLS / 4);
    assert_true(gauge_value(world.metrics.models[0].pairs_kept_out) == 1);
    assert_int_equal(world.board.status.pair_count, 1);
    assert_int_equal(world.board.status.pairs[0].breaker, BREAKER_OPEN);
    /* The time of the probe: one goes there, though the others have more work. */
    p2->load.queued_tokens = d2->load.queued_tokens = 10000;
    worker_changed(&dispatch->workers, p2, clock_now_us());
    worker_changed(&dispatch->workers, d2, clock_now_us());
    breakers_of_pair(breakers, p1->key, d1->key)->probe_us = 1;
    dispatch->breakers_due_us = 0;
    for (size_t i = CALLS; i < 2 * CALLS; i++)
        submit(&world, i, 0, 1, &askers[i]);
    dispatch_turn(dispatch);
    assert_int_equal(count_on(&world, CALLS, 2 * CALLS, p1, d1), 1);
    assert_int_equal(world.board.status.pairs[0].breaker, BREAKER_HALF_OPEN);
    /* It works: others may go there again. */
    breaker_good(breakers_of_pair(breakers, p1->key, d1->key), &breakers->limits, UINT64_MAX,
                 clock_now_us());
    breakers->changes++;
    for (size_t i = 2 * CALLS; i < 3 * CALLS; i++)
        submit(&world, i, 0, 1, &askers[i]);
    dispatch_turn(dispatch);
    assert_true(count_on(&world, 2 * CALLS, 3 * CALLS, p1, d1) > 1);
    assert_true(gauge_value(world.metrics.models[0].pairs_kept_out) == 0);
    assert_int_equal(world.board.status.pair_count, 0);
    for (size_t i = 0; i < 3 * CALLS; i++)
        leave(&world, i);
    teardown(&world);
}

/* Its prefill worker could not compute a step: its next prompt is charged to the budget. */
static void step_fails(struct world *world, size_t call)
{
    struct life_actions actions;
    struct request *request = &world->calls[call]->choices[0];
    request_life_on_lost(&request->life, request->life.prefill, request->life.attempt, true,
                         &actions);
    request_execute(world->dispatch, request, &actions);
    assert_int_equal(request->life.state, REQUEST_QUEUED);
}

static void test_retries_wait_for_the_budget(void **state)
{
    (void)state;
    static struct world world;
    static struct asker askers[4];
    setup(&world, 1, 4, 4);
    struct dispatch *dispatch = world.dispatch;
    struct retry_budget *budget = &dispatch->budgets[0];
    comes(&world, ROLE_PREFILL, 1);
    comes(&world, ROLE_DECODE, 1);
    for (size_t i = 0; i < 4; i++)
        submit(&world, i, 0, 1, &askers[i]);
    dispatch_turn(dispatch);
    budget->millionths = 1000000; /* one */
    budget->limits.per_second = 1;
    budget->filled_us = dispatch->now_us;
    step_fails(&world, 3);
    step_fails(&world, 2);
    step_fails(&world, 1);
    step_fails(&world, 0);
    assert_int_equal(dispatch->held_count, 3);
    assert_int_equal(dispatch->placement.waiting, 1);
    assert_int_equal(counter_value(world.metrics.models[0].retries_held), 3);
    assert_int_equal(failures_next_us(dispatch), dispatch->now_us + 1000000);
    request_fail(dispatch, &world.calls[1]->choices[0], TERMINAL_DEADLINE, "deadline");
    assert_int_equal(dispatch->held_count, 2);
    dispatch->now_us += 999999;
    look_again(&world);
    assert_int_equal(dispatch->held_count, 2);
    dispatch->now_us++;
    failures_tick(dispatch); /* it is due */
    assert_int_equal(dispatch->held_count, 1);
    assert_true(world.calls[0]->choices[0].placing.waiting); /* it came first */
    assert_true(world.calls[2]->choices[0].held);
    dispatch_place(dispatch);
    assert_int_equal(world.calls[0]->choices[0].life.state, REQUEST_PREFILL);
    assert_int_equal(world.calls[2]->choices[0].life.state, REQUEST_QUEUED);
    dispatch->now_us += 1000000;
    failures_tick(dispatch);
    dispatch_place(dispatch);
    assert_int_equal(world.calls[2]->choices[0].life.state, REQUEST_PREFILL);
    assert_int_equal(dispatch->held_count, 0);
    assert_int_equal(counter_value(world.metrics.models[0].retries), 3);
    for (size_t i = 0; i < 4; i++)
        leave(&world, i);
    teardown(&world);
}

/* There is some budget by the time that one more fails: the one that has waited for it gets it. */
static void test_no_retry_overtakes_one_that_waits(void **state)
{
    (void)state;
    static struct world world;
    static struct asker askers[2];
    setup(&world, 1, 4, 4);
    struct dispatch *dispatch = world.dispatch;
    struct retry_budget *budget = &dispatch->budgets[0];
    comes(&world, ROLE_PREFILL, 1);
    comes(&world, ROLE_DECODE, 1);
    for (size_t i = 0; i < 2; i++)
        submit(&world, i, 0, 1, &askers[i]);
    dispatch_turn(dispatch);
    budget->millionths = 0;
    budget->limits.per_second = 1;
    budget->filled_us = dispatch->now_us;
    step_fails(&world, 0);
    assert_int_equal(dispatch->held_count, 1);
    dispatch->now_us += 1000000;
    step_fails(&world, 1);
    assert_int_equal(dispatch->held_count, 2);
    assert_true(failures_next_us(dispatch) <= dispatch->now_us);
    failures_tick(dispatch);
    assert_int_equal(dispatch->held_count, 1);
    assert_true(world.calls[0]->choices[0].placing.waiting);
    assert_true(world.calls[1]->choices[0].held);
    assert_int_equal(failures_next_us(dispatch), dispatch->now_us + 1000000);
    for (size_t i = 0; i < 2; i++)
        leave(&world, i);
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
        chosen->learnt.steps.figures.steps = other->learnt.steps.figures.steps = 1000;
        chosen->learnt.steps.figures.cost.decode_row_us = 1e9;
        other->learnt.steps.figures.cost.decode_row_us = slow == 2 ? 1e9 : 1;
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

/* With bind_late the decode worker of the placement is a guess, which holds the place. The real one
 * is chosen when the prefill starts. */
static void test_a_decode_worker_is_bound_when_the_prefill_starts(void **state)
{
    (void)state;
    static struct world world;
    struct asker asker;
    struct life_actions actions;
    setup(&world, 1, 4, 4);
    struct dispatch *dispatch = world.dispatch;
    dispatch->config.limits.bind_late = true;
    struct worker *prefill = comes(&world, ROLE_PREFILL, 1), *guess = comes(&world, ROLE_DECODE, 1);
    submit(&world, 0, 0, 1, &asker);
    dispatch_turn(dispatch);
    struct request *request = &world.calls[0]->choices[0];
    const struct candidates *candidates = &dispatch->placement.candidates;
    assert_int_equal(request->life.state, REQUEST_PREFILL);
    assert_int_equal(request->life.decode, guess->key);
    assert_int_equal(candidates_get(candidates, guess->key)->books.coming.rows, 1);
    struct worker *second = comes(&world, ROLE_DECODE, 1); /* unused for longer than the guess */
    request->handle.numerics_id = 1;
    assert_true(request_life_on_opened(&request->life, prefill->key, 1,
                                       (struct handle_ref){.generation = 1}, &actions));
    request_execute(dispatch, request, &actions);
    assert_int_equal(request->life.state, REQUEST_REGIVE);
    assert_int_equal(candidates_get(candidates, guess->key)->is.requests, 0);
    assert_true(candidates_get(candidates, prefill->key)->is.work_tokens > 0); /* it computes */
    dispatch_place(dispatch);
    assert_int_equal(request->life.state, REQUEST_DECODE);
    assert_int_equal(request->life.decode, second->key);
    assert_int_equal(request->life.attempt, 1);
    assert_int_equal(request->trace.attempt_count, 1); /* not told as another reader */
    assert_int_equal(counter_value(world.metrics.models[0].regives), 0);
    assert_true(placement_recount(&dispatch->placement));
    leave(&world, 0);
    teardown(&world);
}

/* Its prefill worker drains, and one decode worker has failed to read from there: the other one
 * reads, though it has more work. */
static void test_a_failing_pair_is_kept_apart_while_its_prefill_worker_drains(void **state)
{
    (void)state;
    static struct world world;
    struct asker asker;
    struct life_actions actions;
    setup(&world, 1, 4, 4);
    struct dispatch *dispatch = world.dispatch;
    dispatch->config.limits.bind_late = true;
    dispatch->breakers.limits.failures = 3;
    dispatch->breakers.limits.backoff_us = dispatch->breakers.limits.max_backoff_us = 600000000;
    struct worker *prefill = comes(&world, ROLE_PREFILL, 1), *fails = comes(&world, ROLE_DECODE, 1),
                  *busy = comes(&world, ROLE_DECODE, 1);
    submit(&world, 0, 0, 1, &asker);
    dispatch_turn(dispatch);
    struct request *request = &world.calls[0]->choices[0];
    for (uint64_t i = 3; i > 0; i--)
        pair_fails(&world, prefill, fails, clock_now_us() - i * 100000);
    busy->load.queued_tokens = 10000;
    worker_changed(&dispatch->workers, busy, clock_now_us());
    prefill->load.draining = prefill->dismissed = true;
    worker_changed(&dispatch->workers, prefill, clock_now_us());
    dispatch->now_us = clock_now_us();
    failures_apply(dispatch);
    assert_true(gauge_value(world.metrics.models[0].pairs_kept_out) == 1);
    request->handle.numerics_id = 1;
    assert_true(request_life_on_opened(&request->life, prefill->key, 1,
                                       (struct handle_ref){.generation = 1}, &actions));
    request_execute(dispatch, request, &actions);
    assert_int_equal(request->life.state, REQUEST_REGIVE);
    dispatch_place(dispatch);
    assert_int_equal(request->life.decode, busy->key);
    leave(&world, 0);
    teardown(&world);
}

/* Its prefill worker fails while it waits for a reader. It gets no place before its pause ends. */
static void test_a_pause_ends_the_wait_for_a_reader(void **state)
{
    (void)state;
    static struct world world;
    struct asker asker;
    struct life_actions actions;
    setup(&world, 1, 4, 4);
    struct dispatch *dispatch = world.dispatch;
    dispatch->config.limits.bind_late = true;
    struct worker *prefill = comes(&world, ROLE_PREFILL, 1);
    comes(&world, ROLE_DECODE, 1);
    submit(&world, 0, 0, 1, &asker);
    dispatch_turn(dispatch);
    struct request *request = &world.calls[0]->choices[0];
    request->life.attempt = 3; /* the next retry comes after a pause */
    request->handle.numerics_id = 1;
    assert_true(request_life_on_opened(&request->life, prefill->key, 3,
                                       (struct handle_ref){.generation = 1}, &actions));
    request_execute(dispatch, request, &actions);
    assert_true(request->placing.waiting);
    request_life_on_lost(&request->life, prefill->key, 3, true, &actions);
    request_execute(dispatch, request, &actions);
    assert_int_equal(request->life.state, REQUEST_QUEUED);
    assert_true(request->life.place_at_us != UINT64_MAX);
    dispatch->place_needed = true;
    dispatch_place(dispatch);
    assert_int_equal(request->life.state, REQUEST_QUEUED);
    request_life_on_tick(&request->life, request->life.place_at_us, &actions);
    request_execute(dispatch, request, &actions);
    assert_true(request->placing.waiting);
    assert_int_equal(request->placing.turn, PLACEMENT_AGAIN);
    leave(&world, 0);
    teardown(&world);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pause_ends_the_wait_for_a_reader),
        cmocka_unit_test(test_a_decode_worker_is_bound_when_the_prefill_starts),
        cmocka_unit_test(test_a_failing_pair_is_kept_apart_while_its_prefill_worker_drains),
        cmocka_unit_test(test_an_answer_leaves_for_one_of_its_kind),
        cmocka_unit_test(test_one_that_has_not_begun_leaves_for_any_kind),
        cmocka_unit_test(test_a_hung_worker_is_away),
        cmocka_unit_test(test_silence_begins_after_the_wait_in_a_queue),
        cmocka_unit_test(test_a_pair_that_fails_gets_no_requests_until_it_is_probed),
        cmocka_unit_test(test_retries_wait_for_the_budget),
        cmocka_unit_test(test_no_retry_overtakes_one_that_waits),
        cmocka_unit_test(test_no_request_is_late_by_one_slow_worker),
        cmocka_unit_test(test_failures_of_a_worker_are_forgotten_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
