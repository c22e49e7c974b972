/* request_life: retries count per progress; planned moves, the budget, workers that are silent or
 * drain. */
#include "tests/unit/request_life_fixture.h"

/* Attempt `attempt` gives `tokens` tokens, and then its decode worker is lost. */
static void gets_on_and_is_lost(struct fixture *f, uint32_t attempt, uint32_t tokens)
{
    placed(f, P1, D1);
    assert_true(opened(f, P1, attempt));
    for (uint32_t i = 0; i < tokens; i++)
        token(f, D1, attempt, f->life.delivered + 1, FINISH_NONE);
    session_lost(f, D1);
}

/* However often its workers die, if it gets on in between. */
static void test_retries_count_per_progress(void **state)
{
    struct fixture *f = *state;
    f->life.limits.losses = 3;
    f->life.limits.progress_tokens = 10;
    for (uint32_t attempt = 1; attempt <= 9; attempt++) { /* more than each limit */
        gets_on_and_is_lost(f, attempt, 10);
        assert_int_equal(f->life.state, REQUEST_QUEUED);
        assert_int_equal(f->out.items[f->out.count - 1].again, AGAIN_FREE);
    }
    assert_int_equal(f->life.runs, 9);
    for (uint32_t attempt = 10; attempt <= 11; attempt++) { /* one token too few */
        gets_on_and_is_lost(f, attempt, 9);
        assert_int_equal(f->life.state, attempt == 10 ? REQUEST_QUEUED : REQUEST_ENDED);
    }
    assert_string_equal(f->life.reason, "retries");
}

static void test_without_progress_the_limits_stay(void **state)
{
    struct fixture *f = *state; /* 3 runs */
    f->life.limits.progress_tokens = 10;
    for (uint32_t attempt = 1; attempt <= 3; attempt++)
        gets_on_and_is_lost(f, attempt, 9);
    assert_int_equal(f->life.state, REQUEST_ENDED);
    start(f);
    assert_int_equal(f->life.limits.progress_tokens, 0); /* never */
    for (uint32_t attempt = 1; attempt <= 3; attempt++)
        gets_on_and_is_lost(f, attempt, 100);
    assert_int_equal(f->life.state, REQUEST_ENDED);
}

static void moved(struct fixture *f, uint64_t worker)
{
    request_life_on_moved(&f->life, worker, &f->out);
}

static void test_planned_moves_count_nowhere(void **state)
{
    struct fixture *f = *state;
    f->life.limits.losses = 1;
    f->life.limits.pause_us = f->life.limits.max_pause_us = 100;
    for (uint32_t attempt = 1; attempt <= 20; attempt += 2) {
        placed(f, P1, D1);
        moved(f, P2); /* another's */
        expect(f, "");
        moved(f, P1); /* before Opened */
        assert_int_equal(f->out.items[f->out.count - 1].again, AGAIN_MOVED);
        placed(f, P1, D1);
        assert_true(opened(f, P1, attempt + 1));
        token(f, D1, attempt + 1, f->life.delivered + 1, FINISH_NONE);
        moved(f, P1); /* its handle is read: the reader decides */
        expect(f, "");
        moved(f, D1);
        assert_int_equal(f->out.items[f->out.count - 1].again, AGAIN_MOVED); /* and no pause */
    }
    assert_int_equal(f->life.runs, 10);
    placed(f, P1, D1); /* the limits are as at first */
    opened(f, P1, 21);
    lost(f, D1, 21);
    assert_int_equal(f->life.state, REQUEST_QUEUED);
    placed(f, P1, D1);
    session_lost(f, P1);
    expect(f, ">1 release a22; finish unavailable none (losses)");
}

static void test_a_planned_move_before_the_first_token_of_decode(void **state)
{
    struct fixture *f = *state;
    f->life.limits.attempts = 1;
    decoding(f);
    moved(f, D1);
    expect(f, ">11 release a1; place_decode not d11");
    placed(f, 0, D2);
    expect(f, ">12 decode a2 emitted 0 handle");
    refused(f, D2, 2, true);
    expect(f, ">1 release a2; >12 release a2; finish overloaded none (attempts)");
}

static enum life_again again(const struct fixture *f)
{
    const struct life_action *last = &f->out.items[f->out.count - 1];
    assert_int_equal(last->kind, LIFE_PLACE);
    return last->again;
}

static void test_which_retries_are_charged(void **state)
{
    struct fixture *f = *state;
    f->life.limits.runs = f->life.limits.losses = f->life.limits.attempts = 100;
    assert_int_equal(again(f), AGAIN_NOT);
    placed(f, P1, D1);
    refused(f, P1, 1, true);
    assert_int_equal(again(f), AGAIN_FREE); /* nothing was computed */
    placed(f, 0, D1);
    refused(f, D1, 2, true);
    assert_int_equal(again(f), AGAIN_FREE);
    placed(f, P1, D1);
    session_lost(f, P1);
    assert_int_equal(again(f), AGAIN_FREE); /* the first loss */
    placed(f, P1, D1);
    session_lost(f, P1);
    assert_int_equal(again(f), AGAIN_CHARGED);
    placed(f, P1, D1);
    opened(f, P1, 5);
    step_failed(f, P1, 5);
    assert_int_equal(again(f), AGAIN_CHARGED);
    placed(f, P1, D1);
    opened(f, P1, 6);
    lost(f, D1, 6);
    assert_int_equal(again(f), AGAIN_CHARGED);
    placed(f, P1, D1);
    opened(f, P1, 7);
    refused(f, D1, 7, true);
    request_life_on_no_reader(&f->life, &f->out);
    assert_int_equal(again(f), AGAIN_CHARGED); /* its prompt was computed */
}

static void test_silence_of_the_worker_that_owes_a_token(void **state)
{
    struct fixture *f = *state;
    f->life.limits.silence_us = 100;
    assert_int_equal(request_life_owing(&f->life), 0);
    assert_int_equal(request_life_next_us(&f->life), DEADLINE); /* none is waited for */
    request_life_on_placed(&f->life, 1000, P1, D1, &f->out);
    assert_int_equal(request_life_owing(&f->life), P1);
    assert_int_equal(request_life_next_us(&f->life), 1100);
    request_life_on_sign(&f->life, 1050, P1, 1);
    request_life_on_sign(&f->life, 1060, P1, 2); /* there is no such attempt */
    request_life_on_sign(&f->life, 1070, P2, 1);
    assert_int_equal(request_life_next_us(&f->life), 1150);
    opened(f, P1, 1);
    tick(f, 1149);
    expect(f, "");
    tick(f, 1150); /* its reader is up, but waits for it */
    expect(f, "silent 1");
    assert_int_equal(request_life_next_us(&f->life), 1250); /* it waits in a queue: once more */
    token(f, P1, 1, 1, FINISH_NONE);
    assert_int_equal(request_life_owing(&f->life), D1);
    tick(f, 1250);
    expect(f, "silent 11");
    request_life_on_silent(&f->life, D1, &f->out);
    expect(f, ">11 release a1; place_decode not d11"); /* the handle is still good */
    assert_int_equal(request_life_next_us(&f->life), DEADLINE);
    request_life_on_placed(&f->life, 1300, 0, D2, &f->out);
    token(f, D2, 2, 2, FINISH_NONE);
    tick(f, 1400);
    expect(f, "silent 12");
    request_life_on_silent(&f->life, D2, &f->out);
    expect(f, ">1 release a2; >12 release a2; place not d12");
    assert_int_equal(f->life.losses, 2);
}

static void test_a_hung_worker_is_left(void **state)
{
    struct fixture *f = *state;
    placed(f, P1, D1);
    request_life_on_silent(&f->life, D1, &f->out); /* owes nothing yet: another is chosen later */
    expect(f, "");
    opened(f, P1, 1);
    expect(f, "place_decode");
    placed(f, 0, D2);
    assert_int_equal(request_life_owing(&f->life), P1);
    session_lost(f, D2);
    placed(f, 0, D1);
    assert_int_equal(request_life_owing(&f->life), P1); /* as far as is known */
    request_life_on_silent(&f->life, P1, &f->out);
    expect(f, ">1 release a2; >11 release a2; place not p1");
    placed(f, P2, D1);
    opened(f, P2, 3);
    token(f, P2, 3, 1, FINISH_NONE);
    request_life_on_silent(&f->life, P2, &f->out); /* its part is done */
    expect(f, "");
}

/* A prompt takes longer than the silence that is allowed, and its handle gets another reader
 * meanwhile: that one owes nothing until the prompt is computed, and then has all of the time. */
static void test_a_new_reader_owes_nothing_before_the_prompt_is_computed(void **state)
{
    struct fixture *f = *state;
    for (int by_token = 0; by_token < 2; by_token++) {
        start(f);
        f->life.limits.silence_us = 100;
        request_life_on_placed(&f->life, 1000, P1, D1, &f->out);
        opened(f, P1, 1);
        session_lost(f, D1);
        request_life_on_placed(&f->life, 1050, 0, D2, &f->out);
        request_life_on_sign(&f->life, 1060, D1, 1); /* an older attempt's */
        request_life_on_sign(&f->life, 1060, P2, 1); /* it doesn't compute the handle */
        assert_int_equal(request_life_owing(&f->life), P1);
        tick(f, 1150);
        expect(f, "silent 1"); /* the worker has a queue */
        tick(f, 1250);
        expect(f, "silent 1");
        request_life_on_prefilled(&f->life, 1260, P2, 1);
        request_life_on_prefilled(&f->life, 1260, P1, 3);
        assert_int_equal(request_life_owing(&f->life), P1);
        if (by_token) {
            request_life_on_sign(&f->life, 1340, P1, 1);
            token(f, P1, 1, 1, FINISH_NONE);
            expect(f, ""); /* it is of the attempt before, but a sign of this */
        } else {
            request_life_on_prefilled(&f->life, 1340, P1, 1);
        }
        assert_int_equal(request_life_owing(&f->life), D2);
        request_life_on_silent(&f->life, P1, &f->out); /* its part is done */
        expect(f, "");
        assert_int_equal(request_life_next_us(&f->life), 1440);
        tick(f, 1440);
        expect(f, "silent 12");
        request_life_on_silent(&f->life, D2, &f->out);
        expect(f, ">12 release a2; place_decode not d12");
    }
}

static void test_a_guess_that_drains_is_kept_for_this_placement(void **state)
{
    struct fixture *f = *state;
    f->life.limits.bind_late = true;
    placed(f, P1, D1);
    request_life_keep_guess(&f->life);
    assert_true(opened(f, P1, 1));
    expect(f, ">11 decode a1 emitted 0 handle");
    lost(f, D1, 1);
    placed(f, P2, D2);
    assert_true(opened(f, P2, 2));
    expect(f, "place_decode not p1 not d11");
}

static void test_a_reader_that_failed_is_not_bound_again(void **state)
{
    struct fixture *f = *state;
    f->life.limits.bind_late = true;
    placed(f, P1, D1);
    assert_true(opened(f, P1, 1));
    expect(f, "place_decode"); /* D1 was a guess */
    placed(f, 0, D1);
    lost(f, D1, 1);
    expect(f, ">1 release a1; >11 release a1; place not p1 not d11");
    placed(f, P2, D2);
    assert_true(opened(f, P2, 2));
    expect(f, "place_decode not p1 not d11");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_retries_count_per_progress),
        T(test_without_progress_the_limits_stay),
        T(test_planned_moves_count_nowhere),
        T(test_a_planned_move_before_the_first_token_of_decode),
        T(test_which_retries_are_charged),
        T(test_silence_of_the_worker_that_owes_a_token),
        T(test_a_hung_worker_is_left),
        T(test_a_new_reader_owes_nothing_before_the_prompt_is_computed),
        T(test_a_guess_that_drains_is_kept_for_this_placement),
        T(test_a_reader_that_failed_is_not_bound_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
