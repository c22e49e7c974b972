/* request_life: each rule of a request's way through the router, as events and the actions they
 * cause. */
#include "tests/unit/request_life_fixture.h"

#include <stdio.h>

static void test_the_whole_life(void **state)
{
    struct fixture *f = *state;
    expect(f, "place");
    decoding(f);
    assert_int_equal(f->life.ref.generation, 1);
    token(f, P1, 1, 1, FINISH_NONE);
    expect(f, "deliver 1 id 101");
    token(f, D1, 1, 1, FINISH_NONE); /* both sides send the first */
    expect(f, "");
    token(f, D1, 1, 2, FINISH_NONE);
    expect(f, "deliver 2 id 102");
    token(f, D1, 1, 3, FINISH_EOS);
    expect(f, "deliver 3 id 103; >1 release a1; finish ok eos (finished)");
    assert_int_equal(f->life.status, TERMINAL_OK);
    assert_int_equal(f->life.dropped, 0);
}

static void test_the_end_with_the_first_token_from_either_side(void **state)
{
    struct fixture *f = *state;
    decoding(f);
    token(f, D1, 1, 1, FINISH_MAX_TOKENS); /* prefill's was lost with its session */
    expect(f, "deliver 1 id 101; >1 release a1; finish ok max_tokens (finished)");
    token(f, P1, 1, 1, FINISH_MAX_TOKENS);
    expect(f, "");
}

static void test_nothing_happens_after_the_end(void **state)
{
    struct fixture *f = *state;
    decoding(f);
    request_life_on_cancel(&f->life, &f->out);
    expect(f, ">1 release a1; >11 release a1; finish cancelled none (cancelled)");
    request_life_on_cancel(&f->life, &f->out);
    expect(f, "");
    request_life_on_stop_string(&f->life, &f->out);
    expect(f, "");
    request_life_on_fail(&f->life, TERMINAL_INTERNAL, "x", &f->out);
    expect(f, "");
    request_life_on_tick(&f->life, UINT64_MAX, &f->out);
    expect(f, "");
    placed(f, P1, D1);
    expect(f, "");
    assert_false(opened(f, P1, 1));
    token(f, D1, 1, 1, FINISH_EOS);
    expect(f, "");
    lost(f, D1, 1);
    expect(f, "");
    refused(f, D1, 1, true);
    expect(f, "");
    session_lost(f, D1);
    expect(f, "");
    assert_int_equal(request_life_next_us(&f->life), UINT64_MAX);
    assert_int_equal(f->life.status, TERMINAL_CANCELLED);
}

static void test_local_prefill_on_decode(void **state)
{
    struct fixture *f = *state;
    placed(f, 0, D1);
    expect(f, ">11 decode a1 emitted 0");
    token(f, D1, 1, 1, FINISH_NONE);
    expect(f, "deliver 1 id 101");
    session_lost(f, D1);
    expect(f, ">11 release a1; place not d11");
    placed(f, 0, D2);
    expect(f, ">12 decode a2 emitted 1");
    token(f, D2, 2, 2, FINISH_EOS);
    expect(f, "deliver 2 id 102; finish ok eos (finished)");
}

static void test_prefill_worker_dies_before_opened(void **state)
{
    struct fixture *f = *state;
    placed(f, P1, D1);
    session_lost(f, P1);
    expect(f, ">1 release a1; place not p1");
    assert_int_equal(f->life.runs, 0);
    assert_false(opened(f, P1, 1)); /* late, of the older attempt */
    placed(f, P2, D1);
    expect(f, ">2 prefill a2 emitted 0");
    assert_false(opened(f, P1, 1));
    assert_false(opened(f, P1, 2)); /* not from the worker that was asked */
    assert_true(opened(f, P2, 2));
    assert_int_equal(f->life.runs, 1);
}

static void test_after_decode_only_decode_says_that_prefill_is_lost(void **state)
{
    struct fixture *f = *state;
    decoding(f);
    session_lost(f, P1);
    expect(f, "");
    lost(f, D1, 1);
    expect(f, ">1 release a1; >11 release a1; place not p1 not d11");
    lost(f, D1, 1);
    expect(f, "");
    placed(f, P2, D1);
    expect(f, ">2 prefill a2 emitted 0");
}

static void test_decode_worker_dies_before_its_first_token(void **state)
{
    struct fixture *f = *state;
    decoding(f);
    token(f, P1, 1, 1, FINISH_NONE);
    session_lost(f, D1);
    expect(f, ">11 release a1; place_decode not d11"); /* only the old reader gets a message */
    token(f, P1, 1, 2, FINISH_NONE);                   /* a token of the older attempt */
    expect(f, "");
    placed(f, P2, D2); /* there is a handle: prefill is not chosen again */
    expect(f,
           /* the count that the handle covers, not the delivered one */
           ">12 decode a2 emitted 0 handle");
    assert_int_equal(f->life.runs, 1);
    assert_int_equal(f->life.prefill, P1);
    token(f, D2, 2, 1, FINISH_NONE);
    expect(f, "");
    token(f, D2, 2, 2, FINISH_EOS);
    expect(f, "deliver 2 id 102; >1 release a2; finish ok eos (finished)");
}

static void test_decode_worker_dies_after_tokens(void **state)
{
    struct fixture *f = *state;
    decoding(f);
    for (uint32_t i = 1; i <= 3; i++)
        token(f, D1, 1, i, FINISH_NONE);
    session_lost(f, D1);
    expect(f, ">1 release a1; >11 release a1; place not d11");
    token(f, D1, 1, 4, FINISH_NONE); /* a paused worker wakes up */
    expect(f, "");
    placed(f, P1, D2);
    expect(f, ">1 prefill a2 emitted 3");
    opened(f, P1, 2);
    expect(f, ">12 decode a2 emitted 3 handle");
    token(f, P1, 2, 4, FINISH_NONE);
    expect(f, "deliver 4 id 104");
}

static void test_decode_worker_dies_before_the_handle_is_there(void **state)
{
    struct fixture *f = *state;
    placed(f, P1, D1);
    session_lost(f, D1);
    expect(f, "");
    assert_true(opened(f, P1, 1));
    expect(f, "place_decode");
    placed(f, 0, D2);
    expect(f, ">12 decode a1 emitted 0 handle");
}

static void test_runs_are_limited(void **state)
{
    struct fixture *f = *state; /* 3 runs */
    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        placed(f, P1, D1);
        opened(f, P1, attempt);
        lost(f, D1, attempt);
    }
    expect(f, ">1 release a3; >11 release a3; finish unavailable none (retries)");
}

static void test_attempts_are_limited(void **state)
{
    struct fixture *f = *state; /* 6 attempts */
    for (uint32_t attempt = 1; attempt <= 5; attempt++) {
        placed(f, P1, D1);
        refused(f, P1, attempt, true);
        expect(f, attempt == 1   ? ">1 release a1; place not p1"
                  : attempt == 2 ? ">1 release a2; place not p1"
                  : attempt == 3 ? ">1 release a3; place not p1"
                  : attempt == 4 ? ">1 release a4; place not p1"
                                 : ">1 release a5; place not p1");
    }
    placed(f, P1, D1);
    refused(f, P1, 6, true);
    expect(f, ">1 release a6; finish overloaded none (attempts)");
    assert_int_equal(f->life.runs, 0);
}

static void test_giving_the_handle_again_costs_no_run_but_is_limited(void **state)
{
    struct fixture *f = *state;
    decoding(f);
    for (uint32_t attempt = 1; attempt <= 5; attempt++) {
        session_lost(f, D1);
        placed(f, 0, D1);
    }
    assert_int_equal(f->life.runs, 1);
    session_lost(f, D1);
    expect(f, ">1 release a6; >11 release a6; finish unavailable none (attempts)");
}

static void test_workers_that_die_before_opened_are_limited(void **state)
{
    struct fixture *f = *state;
    f->life.limits.losses = 3;
    for (uint64_t prefill = 1; prefill <= 3; prefill++) {
        placed(f, prefill, D1);
        session_lost(f, prefill);
    }
    expect(f, ">3 release a3; finish unavailable none (losses)");
    assert_int_equal(f->life.runs, 0);
}

/* If runs end by a failed step of either worker, the request ends with that reason, not with that
 * of dead workers. */
static void test_steps_that_fail_are_told(void **state)
{
    struct fixture *f = *state; /* 3 runs */
    placed(f, P1, D1);
    opened(f, P1, 1);
    step_failed(f, P2, 1); /* it takes no part */
    expect(f, "");
    step_failed(f, P1, 1);
    expect(f, ">1 release a1; >11 release a1; place not p1");
    lost(f, D1, 1); /* the reader hears it too */
    expect(f, "");
    placed(f, P2, D1);
    opened(f, P2, 2);
    step_failed(f, D1, 2);
    expect(f, ">2 release a2; >11 release a2; place not d11");
    placed(f, P1, D2);
    opened(f, P1, 3);
    lost(f, D2, 3); /* and may be heard first */
    expect(f, ">1 release a3; >12 release a3; finish internal none (step_failed)");
}

/* Another worker would get the same result: no retry, however many runs are left. */
static void test_no_token_that_may_be_drawn_ends_it(void **state)
{
    struct fixture *f = *state; /* 3 runs */
    struct life_actions out;
    placed(f, P1, D1);
    opened(f, P1, 1);
    request_life_on_banned(&f->life, P2, 1, &out); /* it takes no part */
    assert_int_equal(out.count, 0);
    request_life_on_banned(&f->life, D1, 2, &out); /* an attempt that doesn't exist */
    assert_int_equal(out.count, 0);
    request_life_on_banned(&f->life, P1, 1, &f->out);
    expect(f, ">1 release a1; >11 release a1; finish invalid none (no_token_allowed)");
}

static void test_a_step_that_failed_is_past_with_the_next_token(void **state)
{
    struct fixture *f = *state;
    f->life.limits.runs = 2;
    placed(f, P1, D1);
    opened(f, P1, 1);
    step_failed(f, P1, 1);
    placed(f, P1, D1);
    opened(f, P1, 2);
    token(f, P1, 2, 1, FINISH_NONE);
    lost(f, D1, 2);
    expect(f, ">1 release a2; >11 release a2; finish unavailable none (retries)");
}

static void test_sessions_lost_count_together(void **state)
{
    struct fixture *f = *state;
    f->life.limits.losses = 3;
    placed(f, P1, D1);
    session_lost(f, P1); /* before opened */
    placed(f, P2, D1);
    opened(f, P2, 2);
    session_lost(f, D1); /* given again */
    placed(f, 0, D2);
    refused(f, D2, 3, true); /* no loss */
    expect(f, ">12 release a3; place_decode not d12");
    placed(f, 0, D2);
    lost(f, D2, 4); /* a run, but no loss: a reader that died may have confirmed the handle */
    expect(f, ">2 release a4; >12 release a4; place not p2 not d12");
    placed(f, P1, D2);
    session_lost(f, P1);
    expect(f, ">1 release a5; finish unavailable none (losses)");
}

static void test_retries_pause_longer_and_longer(void **state)
{
    struct fixture *f = *state;
    f->life.limits.pause_us = 100;
    f->life.limits.max_pause_us = 300;
    placed(f, P1, D1);
    refused(f, P1, 1, true);
    expect(f, ">1 release a1; place not p1");    /* the first one at once */
    assert_int_equal(f->life.again, AGAIN_FREE); /* nothing was computed */
    static const uint64_t pauses[] = {100, 200, 300, 300};
    uint64_t now_us = 1000;
    for (uint32_t i = 0; i < 4; i++) {
        request_life_on_placed(&f->life, now_us, P1, D1, &f->out);
        refused(f, P1, i + 2, true);
        assert_int_equal(f->out.count, 1); /* the release alone */
        assert_int_equal(f->life.state, REQUEST_QUEUED);
        now_us += pauses[i];
        assert_int_equal(request_life_next_us(&f->life), now_us);
        tick(f, now_us - 1);
        expect(f, "");
        tick(f, now_us);
        expect(f, "place not p1");
        tick(f, now_us + 1);
        expect(f, ""); /* once */
        assert_int_equal(request_life_next_us(&f->life), DEADLINE);
    }
    request_life_on_placed(&f->life, now_us, P1, D1, &f->out);
    refused(f, P1, 6, true);
    expect(f, ">1 release a6; finish overloaded none (attempts)");
}

static void test_a_pause_before_the_handle_is_given_again(void **state)
{
    struct fixture *f = *state;
    f->life.limits.pause_us = 100;
    f->life.limits.max_pause_us = 100;
    decoding(f);
    refused(f, D1, 1, true);
    request_life_on_placed(&f->life, 50, 0, D2, &f->out);
    refused(f, D2, 2, true);
    expect(f, ">12 release a2");
    assert_false(opened(f, P1, 1)); /* an older attempt's Opened */
    tick(f, 150);
    expect(f, "place_decode not d12");
}

static void test_the_end_during_a_pause(void **state)
{
    struct fixture *f = *state;
    f->life.limits.pause_us = f->life.limits.max_pause_us = DEADLINE * 2;
    decoding(f);
    lost(f, D1, 1);
    placed(f, P1, D1);
    lost(f, D1, 2);
    opened(f, P1, 2);
    lost(f, D1, 2);
    expect(f, ">1 release a2; >11 release a2");
    tick(f, DEADLINE);
    expect(f, "finish deadline none (deadline)");
    tick(f, UINT64_MAX - 1);
    expect(f, "");
}

static void test_a_handle_that_nobody_can_read_is_computed_elsewhere(void **state)
{
    struct fixture *f = *state;
    decoding(f);
    request_life_on_no_reader(&f->life, &f->out);
    expect(f, ""); /* no reader was asked for */
    refused(f, D1, 1, true);
    expect(f, ">11 release a1; place_decode not d11");
    request_life_on_no_place(&f->life, 100, false, UINT64_MAX, &f->out);
    assert_int_equal(request_life_next_us(&f->life), 1100);
    request_life_on_no_reader(&f->life, &f->out);
    expect(f, ">1 release a2; place not p1");
    tick(f, 1100); /* there are workers: it may wait for the retry budget */
    expect(f, "");
    placed(f, P2, D1);
    expect(f, ">2 prefill a3 emitted 0");
}

static void test_refusals(void **state)
{
    struct fixture *f = *state;
    placed(f, P1, D1);
    refused(f, D1, 1, false); /* it wasn't asked */
    expect(f, "");
    opened(f, P1, 1);
    refused(f, P1, 1, true); /* too late: it was opened */
    expect(f, "");
    refused(f, D1, 1, true);
    expect(f, ">11 release a1; place_decode not d11");
    placed(f, 0, D2);
    refused(f, D2, 2, false);
    expect(f, ">1 release a2; >12 release a2; finish invalid none (refused)");
}

static void test_a_refused_local_decode_costs_no_run(void **state)
{
    struct fixture *f = *state;
    placed(f, 0, D1);
    assert_int_equal(f->life.runs, 1);
    refused(f, D1, 1, true);
    expect(f, ">11 release a1; place not d11");
    assert_int_equal(f->life.runs, 0);
}

static void test_a_gap_runs_again(void **state)
{
    struct fixture *f = *state;
    decoding(f);
    token(f, D1, 1, 2, FINISH_NONE);
    expect(f, ">1 release a1; >11 release a1; place");
    assert_int_equal(f->life.delivered, 0);
}

static void test_deadline_in_every_state(void **state)
{
    struct fixture *f = *state;
    request_life_on_tick(&f->life, DEADLINE - 1, &f->out);
    expect(f, "");
    assert_int_equal(request_life_next_us(&f->life), DEADLINE);
    decoding(f);
    request_life_on_tick(&f->life, DEADLINE, &f->out);
    expect(f, ">1 release a1; >11 release a1; finish deadline none (deadline)");
    start(f);
    request_life_on_tick(&f->life, DEADLINE, &f->out);
    expect(f, "finish deadline none (deadline)");
    start(f);
    placed(f, P1, D1);
    request_life_on_tick(&f->life, DEADLINE, &f->out);
    expect(f, ">1 release a1; finish deadline none (deadline)");
    start(f);
    decoding(f);
    session_lost(f, D1);
    request_life_on_tick(&f->life, DEADLINE, &f->out);
    expect(f, ">1 release a2; finish deadline none (deadline)"); /* ends attempts <= 2 */
}

static void test_waiting_without_workers_is_limited(void **state)
{
    struct fixture *f = *state; /* 1000 us */
    request_life_on_no_place(&f->life, 100, false, UINT64_MAX, &f->out);
    request_life_on_no_place(&f->life, 300, false, UINT64_MAX, &f->out);
    assert_int_equal(request_life_next_us(&f->life), 1100);
    request_life_on_no_place(&f->life, 400, true, UINT64_MAX, &f->out); /* full is not gone */
    assert_int_equal(request_life_next_us(&f->life), DEADLINE);
    request_life_on_no_place(&f->life, 500, false, UINT64_MAX, &f->out);
    request_life_on_tick(&f->life, 1499, &f->out);
    expect(f, "");
    request_life_on_tick(&f->life, 1500, &f->out);
    expect(f, "finish unavailable none (no_worker)");
}

static void test_a_decode_worker_may_prefill_after_a_while(void **state)
{
    struct fixture *f = *state;
    f->life.limits.local_us = 400;
    request_life_on_no_place(&f->life, 100, false, 100, &f->out);
    assert_int_equal(request_life_next_us(&f->life), 500);
    request_life_on_tick(&f->life, 499, &f->out);
    assert_false(f->life.local);
    request_life_on_tick(&f->life, 500, &f->out);
    expect(f, "");
    assert_true(f->life.local);
    assert_int_equal(request_life_next_us(&f->life), 1100); /* and not for ever */
    request_life_on_no_place(&f->life, 600, true, UINT64_MAX, &f->out);
    assert_false(f->life.local);
    request_life_on_no_place(&f->life, 700, false, 700, &f->out);
    request_life_on_tick(&f->life, 1100, &f->out);
    assert_true(f->life.local);
    placed(f, 0, D1);
    expect(f, ">11 decode a1 emitted 0");
    assert_false(f->life.local);
}

/* It is the prefill workers' absence that counts, not how long this request has been here. */
static void test_who_comes_late_does_not_wait_for_prefill_workers_again(void **state)
{
    struct fixture *f = *state;
    f->life.limits.local_us = 400;
    request_life_on_no_place(&f->life, 1000, false, 700, &f->out); /* away for 300 */
    assert_false(f->life.local);
    assert_int_equal(request_life_next_us(&f->life), 1100);
    request_life_on_no_place(&f->life, 1050, false, 1050, &f->out); /* one came, and went */
    assert_int_equal(request_life_next_us(&f->life), 1450);
    request_life_on_no_place(&f->life, 1060, false, 600, &f->out);
    assert_true(f->life.local);                                           /* at once */
    request_life_on_no_place(&f->life, 1070, false, UINT64_MAX, &f->out); /* no decode worker */
    assert_false(f->life.local);
    assert_int_equal(request_life_next_us(&f->life), 2000);
}

static void test_waiting_ends_with_a_place(void **state)
{
    struct fixture *f = *state;
    request_life_on_no_place(&f->life, 100, false, UINT64_MAX, &f->out);
    decoding(f);
    assert_int_equal(request_life_next_us(&f->life), DEADLINE);
    session_lost(f, D1);
    request_life_on_no_place(&f->life, 2000, false, UINT64_MAX, &f->out);
    request_life_on_tick(&f->life, 3000, &f->out);
    expect(f, ">1 release a2; finish unavailable none (no_worker)");
}

static void test_stop_string_and_failure(void **state)
{
    struct fixture *f = *state;
    decoding(f);
    token(f, P1, 1, 1, FINISH_NONE);
    request_life_on_stop_string(&f->life, &f->out);
    expect(f, ">1 release a1; >11 release a1; finish ok stop_string (finished)");
    start(f);
    request_life_on_fail(&f->life, TERMINAL_OVERLOADED, "queue_full", &f->out);
    expect(f, "finish overloaded none (queue_full)");
}

/* A decode worker hears nothing, and is no part of it. */
static void test_a_prompt_alone_ends_at_its_prefill_worker(void **state)
{
    struct fixture *f = *state;
    static const enum finish_reason ends[] = {FINISH_NONE, FINISH_EOS, FINISH_MAX_TOKENS};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        start_as(f, true);
        placed(f, P1, 0);
        expect(f, ">1 prefill a1 emitted 0");
        assert_false(opened(f, P1, 1));
        expect(f, "");
        assert_int_equal(f->life.runs, 1);
        token(f, P1, 1, 1, ends[i]);
        expect(f, "deliver 1 id 101; >1 release a1; finish ok max_tokens (finished)");
    }
}

/* No decode worker gets its handle; an end that came first keeps its name. */
static void test_an_answer_of_one_token_ends_at_its_prefill_worker(void **state)
{
    struct fixture *f = *state;
    static const enum finish_reason sent[] = {FINISH_NONE, FINISH_EOS, FINISH_MAX_TOKENS};
    static const char *const told[] = {"max_tokens", "eos", "max_tokens"};
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
        start(f);
        placed(f, P1, 0);
        expect(f, ">1 prefill a1 emitted 0");
        assert_false(opened(f, P1, 1));
        expect(f, "");
        assert_false(opened(f, P1, 1)); /* it came twice: still one run */
        assert_int_equal(f->life.runs, 1);
        token(f, P1, 1, 1, sent[i]);
        char end[100];
        snprintf(end, sizeof end, "deliver 1 id 101; >1 release a1; finish ok %s (finished)",
                 told[i]);
        expect(f, end);
    }
}

static void test_an_answer_of_one_token_is_computed_again(void **state)
{
    struct fixture *f = *state;
    placed(f, P1, 0);
    opened(f, P1, 1);
    session_lost(f, P1);
    expect(f, ">1 release a1; place not p1");
    token(f, P1, 1, 1, FINISH_MAX_TOKENS); /* late */
    expect(f, "");
    placed(f, P2, D1); /* and again, now with a reader that gets the handle */
    assert_true(opened(f, P2, 2));
    expect(f, ">11 decode a2 emitted 0 handle");
}

/* One token of a longer answer is left. */
static void test_the_last_token_is_computed_again(void **state)
{
    struct fixture *f = *state;
    placed(f, P1, D1);
    opened(f, P1, 1);
    token(f, P1, 1, 1, FINISH_NONE);
    token(f, D1, 1, 2, FINISH_NONE);
    session_lost(f, D1);
    placed(f, P2, 0);
    expect(f, ">2 prefill a2 emitted 2");
    assert_false(opened(f, P2, 2));
    token(f, P2, 2, 3, FINISH_MAX_TOKENS);
    expect(f, "deliver 3 id 103; >2 release a2; finish ok max_tokens (finished)");
}

/* A worker that goes on after its one token gets a release. */
static void test_a_prompt_alone_on_a_decode_worker(void **state)
{
    struct fixture *f = *state;
    start_as(f, true);
    placed(f, 0, D1);
    expect(f, ">11 decode a1 emitted 0");
    token(f, D1, 1, 1, FINISH_NONE);
    expect(f, "deliver 1 id 101; >11 release a1; finish ok max_tokens (finished)");
    start_as(f, true);
    placed(f, 0, D1);
    token(f, D1, 1, 1, FINISH_EOS);
    expect(f, "deliver 1 id 101; finish ok max_tokens (finished)");
}

static void test_what_is_told_of_a_prompt_alone_is_not_computed_again(void **state)
{
    struct fixture *f = *state;
    start_as(f, true);
    placed(f, P1, 0);
    opened(f, P1, 1);
    session_lost(f, P1); /* before it gets the release */
    expect(f, ">1 release a1; place not p1");
    placed(f, P2, 0);
    request_life_on_told(&f->life);
    session_lost(f, P2);
    expect(f, "deliver 1 id 0; >2 release a2; finish ok max_tokens (finished)");
    start_as(f, true);
    placed(f, P1, 0);
    request_life_on_told(&f->life);
    step_failed(f, P1, 1);
    expect(f, "deliver 1 id 0; >1 release a1; finish ok max_tokens (finished)");
    start_as(f, true);
    placed(f, 0, D1);
    request_life_on_told(&f->life);
    session_lost(f, D1);
    expect(f, "deliver 1 id 0; >11 release a1; finish ok max_tokens (finished)");
    start(f); /* a prompt with an answer is computed again */
    placed(f, P1, D1);
    request_life_on_told(&f->life);
    session_lost(f, P1);
    expect(f, ">1 release a1; place not p1");
}

/* A run counts even without an Opened. */
static void test_runs_of_a_prompt_alone_are_limited(void **state)
{
    struct fixture *f = *state; /* 3 runs */
    start_as(f, true);
    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        placed(f, P1, 0);
        opened(f, P1, attempt);
        step_failed(f, P1, attempt);
    }
    expect(f, ">1 release a3; finish internal none (step_failed)");
}

/* -------------------------------------------------------------------------------- bound late */

/* The handle is open, and waits for a decode worker: D1 was a guess. */
static void binding(struct fixture *f)
{
    f->life.limits.bind_late = true;
    f->life.limits.silence_us = 1000;
    placed(f, P1, D1);
    expect(f, ">1 prefill a1 emitted 0");
    assert_int_equal(f->life.decode, D1); /* the books hold the place */
    assert_true(opened(f, P1, 1));
    expect(f, "place_decode");
    assert_int_equal(f->life.state, REQUEST_REGIVE);
    assert_int_equal(f->life.decode, 0);
    assert_true(request_life_works(&f->life));
}

static void test_the_decode_worker_is_bound_when_the_prefill_starts(void **state)
{
    struct fixture *f = *state;
    binding(f);
    placed(f, 0, D2);
    expect(f, ">12 decode a1 emitted 0 handle");
    assert_int_equal(f->life.attempt, 1); /* the guess cost nothing */
    assert_int_equal(f->life.runs, 1);
    session_lost(f, D1);
    expect(f, "");
    token(f, P1, 1, 1, FINISH_NONE);
    token(f, D2, 1, 1, FINISH_NONE);
    token(f, D2, 1, 2, FINISH_EOS);
    expect(f, "deliver 2 id 102; >1 release a1; finish ok eos (finished)");
    assert_int_equal(f->life.dropped, 0);
}

static void test_a_token_that_comes_before_the_decode_worker_is_bound(void **state)
{
    struct fixture *f = *state;
    binding(f);
    assert_int_equal(request_life_owing(&f->life), P1);
    token(f, P1, 1, 1, FINISH_NONE);
    expect(f, "deliver 1 id 101");
    assert_int_equal(request_life_owing(&f->life), 0);
    placed(f, 0, D1);
    expect(f, ">11 decode a1 emitted 0 handle");
    token(f, D1, 1, 1, FINISH_NONE);
    expect(f, "");
    start(f);
    binding(f);
    token(f, P1, 1, 1, FINISH_EOS);
    expect(f, "deliver 1 id 101; >1 release a1; finish ok eos (finished)");
}

static void test_failures_before_the_decode_worker_is_bound(void **state)
{
    struct fixture *f = *state;
    binding(f);
    step_failed(f, P1, 1);
    expect(f, ">1 release a1; place not p1");
    assert_false(request_life_works(&f->life));
    placed(f, P2, D1);
    assert_true(opened(f, P2, 2));
    expect(f, "place_decode not p1");
    request_life_on_no_reader(&f->life, &f->out);
    expect(f, ">2 release a2; place not p2");
    start(f);
    binding(f);
    tick(f, 1000);
    expect(f, "silent 1");
    request_life_on_silent(&f->life, P1, &f->out);
    expect(f, ">1 release a1; place not p1");
    assert_int_equal(f->life.losses, 1);
    start(f);
    binding(f);
    session_lost(f, P2);
    expect(f, "");
    session_lost(f, P1); /* no reader would tell that it is gone */
    expect(f, ">1 release a1; place not p1");
    assert_int_equal(f->life.losses, 1);
    assert_int_equal(f->life.again, AGAIN_FREE);
    start(f);
    binding(f);
    token(f, P1, 1, 1, FINISH_NONE);
    request_life_on_moved(&f->life, P1, &f->out); /* its prompt is computed, but not read */
    expect(f, ">1 release a1; place not p1");
    assert_int_equal(f->life.losses, 0);
    start(f);
    binding(f);
    request_life_on_cancel(&f->life, &f->out);
    expect(f, ">1 release a1; finish cancelled none (cancelled)");
    token(f, P1, 1, 1, FINISH_EOS);
    expect(f, "");
}

static void test_a_handle_that_was_bound_is_given_again_as_others_are(void **state)
{
    struct fixture *f = *state;
    binding(f);
    placed(f, 0, D1);
    session_lost(f, D1);
    expect(f, ">11 release a1; place_decode not d11");
    assert_false(request_life_works(&f->life)); /* its prefill isn't asked for anything */
    placed(f, 0, D2);
    expect(f, ">12 decode a2 emitted 0 handle");
    start(f);
    f->life.limits.bind_late = true;
    placed(f, 0, D1); /* it computes the prompt: there is nothing to bind */
    expect(f, ">11 decode a1 emitted 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_the_whole_life),
        T(test_the_end_with_the_first_token_from_either_side),
        T(test_nothing_happens_after_the_end),
        T(test_local_prefill_on_decode),
        T(test_prefill_worker_dies_before_opened),
        T(test_after_decode_only_decode_says_that_prefill_is_lost),
        T(test_decode_worker_dies_before_its_first_token),
        T(test_decode_worker_dies_after_tokens),
        T(test_decode_worker_dies_before_the_handle_is_there),
        T(test_runs_are_limited),
        T(test_attempts_are_limited),
        T(test_giving_the_handle_again_costs_no_run_but_is_limited),
        T(test_workers_that_die_before_opened_are_limited),
        T(test_sessions_lost_count_together),
        T(test_retries_pause_longer_and_longer),
        T(test_a_pause_before_the_handle_is_given_again),
        T(test_the_end_during_a_pause),
        T(test_a_handle_that_nobody_can_read_is_computed_elsewhere),
        T(test_refusals),
        T(test_steps_that_fail_are_told),
        T(test_no_token_that_may_be_drawn_ends_it),
        T(test_a_step_that_failed_is_past_with_the_next_token),
        T(test_a_refused_local_decode_costs_no_run),
        T(test_a_gap_runs_again),
        T(test_deadline_in_every_state),
        T(test_waiting_without_workers_is_limited),
        T(test_waiting_ends_with_a_place),
        T(test_a_decode_worker_may_prefill_after_a_while),
        T(test_who_comes_late_does_not_wait_for_prefill_workers_again),
        T(test_stop_string_and_failure),
        T(test_a_prompt_alone_ends_at_its_prefill_worker),
        T(test_an_answer_of_one_token_ends_at_its_prefill_worker),
        T(test_an_answer_of_one_token_is_computed_again),
        T(test_the_last_token_is_computed_again),
        T(test_a_prompt_alone_on_a_decode_worker),
        T(test_what_is_told_of_a_prompt_alone_is_not_computed_again),
        T(test_runs_of_a_prompt_alone_are_limited),
        T(test_the_decode_worker_is_bound_when_the_prefill_starts),
        T(test_a_token_that_comes_before_the_decode_worker_is_bound),
        T(test_failures_before_the_decode_worker_is_bound),
        T(test_a_handle_that_was_bound_is_given_again_as_others_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
