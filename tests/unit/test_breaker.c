/* breaker: each transition, the window, failures that come together, the side that is charged. */
#include "router/planner/breaker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS 1000u
#define S  1000000u

static const struct breaker_limits limits = {.failures = 3,
                                             .percent = 50,
                                             .least_outcomes = 10,
                                             .window_us = 10 * S,
                                             .together_us = 10 * MS,
                                             .backoff_us = S,
                                             .max_backoff_us = 4 * S,
                                             .probe_us = 5 * S};

/* Placed and failed at the same moment. */
static bool fails(struct breaker *breaker, uint64_t now_us)
{
    return breaker_failed(breaker, &limits, now_us, now_us);
}

static bool works(struct breaker *breaker, uint64_t now_us)
{
    return breaker_good(breaker, &limits, now_us, now_us);
}

static bool admits(const struct breaker *breaker, uint64_t now_us)
{
    return breaker_admits(breaker, &limits, now_us);
}

static uint64_t opened(struct breaker *breaker)
{
    *breaker = (struct breaker){0};
    for (uint64_t i = 1; i < limits.failures; i++)
        assert_false(fails(breaker, i * S));
    assert_true(fails(breaker, 3 * S));
    assert_int_equal(breaker->state, BREAKER_OPEN);
    return 3 * S;
}

static void test_failures_in_a_row_open_it(void **state)
{
    (void)state;
    struct breaker breaker = {0};
    assert_true(admits(&breaker, 0));
    assert_int_equal(breaker_next_us(&breaker, &limits), UINT64_MAX);
    fails(&breaker, 1 * S);
    fails(&breaker, 2 * S);
    assert_false(works(&breaker, 3 * S)); /* the row ends */
    fails(&breaker, 4 * S);
    assert_false(fails(&breaker, 5 * S));
    assert_true(admits(&breaker, 5 * S));
    assert_true(fails(&breaker, 6 * S));
    assert_false(admits(&breaker, 6 * S));
    assert_int_equal(breaker.opened_count, 1);
    assert_int_equal(breaker_next_us(&breaker, &limits), 7 * S);
    assert_false(admits(&breaker, 7 * S - 1));
    assert_true(admits(&breaker, 7 * S));
}

/* A step that fails ends all its sequences. */
static void test_failures_that_come_together_are_one(void **state)
{
    (void)state;
    struct breaker breaker = {0};
    for (uint64_t i = 0; i < 64; i++)
        assert_false(fails(&breaker, S + i * 100));
    assert_int_equal(breaker.failures, 1);
    fails(&breaker, S + limits.together_us);
    assert_int_equal(breaker.failures, 2);
}

static void test_a_worker_that_works_now_and_then_opens_it(void **state)
{
    (void)state;
    struct breaker breaker = {0};
    for (uint64_t i = 1; i <= 4; i++) {
        assert_false(works(&breaker, i * S / 2));
        assert_false(fails(&breaker, i * S / 2 + S / 4));
    }
    assert_false(works(&breaker, 5 * S / 2));
    assert_true(fails(&breaker, 11 * S / 4)); /* the tenth: half have failed */
    struct breaker good = {0};
    for (uint64_t i = 1; i <= 40; i++) {
        assert_false(works(&good, i * S / 4));
        assert_false(works(&good, i * S / 4 + 1));
        assert_false(fails(&good, i * S / 4 + 2)); /* a third */
    }
}

static void test_the_window_forgets(void **state)
{
    (void)state;
    struct breaker breaker = {0};
    for (uint64_t i = 1; i <= 4; i++) {
        fails(&breaker, i * 100 * MS);
        works(&breaker, i * 100 * MS + 1);
    }
    for (uint64_t i = 0; i < 6; i++) { /* two halves later */
        assert_false(works(&breaker, 11 * S + i));
        assert_false(fails(&breaker, 11 * S + 20 * MS * (i + 1)) && i < 4);
    }
    assert_int_equal(breaker.state, BREAKER_OPEN); /* by its own ten */
}

static void test_one_probe_at_a_time(void **state)
{
    (void)state;
    struct breaker breaker;
    uint64_t at_us = opened(&breaker) + limits.backoff_us;
    assert_true(admits(&breaker, at_us));
    breaker_placed(&breaker, &limits, at_us);
    assert_int_equal(breaker.state, BREAKER_HALF_OPEN);
    assert_false(admits(&breaker, at_us + 1));
    assert_false(breaker_good(&breaker, &limits, at_us - 1, at_us + 1)); /* it was placed earlier */
    breaker_placed(&breaker, &limits, at_us + 1); /* by force: the probe is still the first one */
    assert_false(admits(&breaker, at_us + 1));
    assert_true(breaker_good(&breaker, &limits, at_us, at_us + 2));
    assert_int_equal(breaker.state, BREAKER_CLOSED);
    assert_true(admits(&breaker, at_us + 2));
    /* Requests that were placed before it closed say nothing. */
    for (uint64_t i = 0; i < 5; i++)
        assert_false(breaker_failed(&breaker, &limits, at_us, at_us + (i + 1) * S));
    assert_int_equal(breaker.failures, 0);
}

static void test_a_probe_that_fails_waits_twice_as_long(void **state)
{
    (void)state;
    struct breaker breaker;
    uint64_t at_us = opened(&breaker);
    static const uint64_t waits_us[] = {1 * S, 2 * S, 4 * S, 4 * S};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(breaker_next_us(&breaker, &limits), at_us + waits_us[i]);
        at_us += waits_us[i];
        breaker_placed(&breaker, &limits, at_us);
        assert_true(fails(&breaker, at_us)); /* one is enough */
        assert_int_equal(breaker.state, BREAKER_OPEN);
    }
    breaker_placed(&breaker, &limits, at_us + 4 * S);
    assert_true(works(&breaker, at_us + 4 * S));
    for (uint64_t i = 0; i < 3; i++)
        fails(&breaker, at_us + (5 + i) * S);
    assert_int_equal(breaker_next_us(&breaker, &limits), at_us + 7 * S + limits.backoff_us);
}

/* Its client left, or its answer is long. */
static void test_a_probe_without_an_outcome_is_replaced(void **state)
{
    (void)state;
    struct breaker breaker;
    uint64_t at_us = opened(&breaker) + limits.backoff_us;
    breaker_placed(&breaker, &limits, at_us);
    assert_int_equal(breaker_next_us(&breaker, &limits), at_us + limits.probe_us);
    assert_false(admits(&breaker, at_us + limits.probe_us - 1));
    assert_true(admits(&breaker, at_us + limits.probe_us));
    breaker_placed(&breaker, &limits, at_us + limits.probe_us);
    assert_false(admits(&breaker, at_us + limits.probe_us));
    /* The first probe's outcome comes late, and counts. */
    struct breaker slow = breaker;
    assert_true(breaker_good(&slow, &limits, at_us, at_us + limits.probe_us + 1));
    assert_int_equal(slow.state, BREAKER_CLOSED);
    assert_true(breaker_failed(&breaker, &limits, at_us, at_us + limits.probe_us + 1));
    assert_int_equal(breaker.state, BREAKER_OPEN);
}

static void test_while_open_nothing_counts(void **state)
{
    (void)state;
    struct breaker breaker;
    uint64_t at_us = opened(&breaker);
    assert_false(fails(&breaker, at_us + 500 * MS));
    assert_false(works(&breaker, at_us + 500 * MS));
    assert_int_equal(breaker_next_us(&breaker, &limits), at_us + limits.backoff_us);
}

static void test_no_limit_no_breaker(void **state)
{
    (void)state;
    struct breaker breaker = {0};
    struct breaker_limits off = limits;
    off.failures = 0;
    for (uint64_t i = 1; i < 100; i++)
        assert_false(breaker_failed(&breaker, &off, i * S, i * S));
    assert_int_equal(breaker.state, BREAKER_CLOSED);
}

static void test_the_side_that_failed(void **state)
{
    (void)state;
    enum { P = 1, D = 2 };
    static const struct {
        struct blame_cause cause;
        struct blame blame;
    } rows[] = {
        {{P, P, D, "step_failed", false, false}, {P, 0}},
        {{D, P, D, "step_failed", false, false}, {D, 0}},
        {{D, 0, D, "step_failed", false, false}, {D, 0}},
        {{D, P, D, "step_failed", false, true}, {0, 0}}, /* perhaps it is the request */
        {{D, P, D, "read", false, false}, {P, D}},
        {{D, P, D, "checksum", false, false}, {P, D}},
        {{D, P, D, "silent", false, false}, {P, D}},
        {{D, P, D, "peer_down", false, false}, {P, D}},
        {{D, P, D, "gone", false, false}, {P, D}},
        {{D, P, D, "protocol", false, false}, {P, D}},
        {{D, P, D, "pairing", true, false}, {P, D}},
        {{D, P, D, "made_room", false, false}, {0, 0}},
        {{D, P, D, "limit", true, false}, {0, 0}},
        {{D, P, D, "draining", true, false}, {0, 0}},
        {{D, P, D, "invalid", true, false}, {0, 0}},
        {{P, P, D, "limit", true, false}, {0, 0}},
        {{D, P, D, "layout_mismatch", true, false}, {0, 0}}, /* misfits have their own memory */
        {{D, P, D, "no_token_allowed", false, false}, {0, 0}},
        {{D, P, D, "step_failed", true, false}, {0, 0}}, /* a refusal computed nothing */
        {{D, P, D, "read: closed", false, false}, {P, D}},
        {{D, P, D, "read_ahead", false, false}, {0, 0}},
        {{D, P, D, "rea", false, false}, {0, 0}},
        {{P, P, D, "read", false, false}, {0, 0}}, /* it is not the one that reads */
        {{D, 0, D, "read", false, false}, {0, 0}}, /* there was nothing to read */
        {{D, P, D, "a reason of another version", false, false}, {0, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct blame blame = blame_of(&rows[i].cause);
        assert_int_equal(blame.worker, rows[i].blame.worker);
        assert_int_equal(blame.reader, rows[i].blame.reader);
    }
}

enum { P1 = 1, P2 = 2, D1 = 11, D2 = 12, SLOTS = 10007 };

static void set_up(struct breakers *breakers)
{
    assert_int_equal(breakers_init(breakers, &limits, SLOTS), STATUS_OK);
}

/* Opens the breaker of a worker; the last failure is at at_us. */
static void open_worker(struct breakers *breakers, uint64_t worker, uint64_t at_us)
{
    for (uint64_t i = limits.failures; i-- > 0;)
        breakers_left(breakers, worker, at_us - i * S / 10);
    assert_int_equal(breakers_of(breakers, worker)->state, BREAKER_OPEN);
}

static void test_never_more_than_half_are_kept_out(void **state)
{
    (void)state;
    static const size_t most[] = {0, 0, 1, 1, 2, 2, 3};
    for (size_t count = 0; count < sizeof most / sizeof *most; count++) {
        struct breakers breakers;
        struct breaker_candidate candidates[6] = {{0}};
        const size_t sizes[] = {0, count};
        set_up(&breakers);
        for (size_t i = 0; i < count; i++) {
            candidates[i] = (struct breaker_candidate){.pool = 1, .worker = 1 + i};
            open_worker(&breakers, 1 + i, 10 * S + i * 1000);
        }
        uint64_t next_us = breakers_keep_out(&breakers, candidates, count, sizes, 10 * S + 10000);
        assert_int_equal(next_us, count ? 11 * S : UINT64_MAX);
        for (size_t i = 0; i < count; i++) { /* the latest ones */
            size_t at = candidates[i].worker - 1;
            assert_int_equal(candidates[i].until_us,
                             at >= count - most[count] ? 11 * S + at * 1000 : 0);
        }
        breakers_keep_out(&breakers, candidates, count, sizes, 12 * S); /* all may be probed */
        for (size_t i = 0; i < count; i++)
            assert_int_equal(candidates[i].until_us, 0);
        breakers_deinit(&breakers);
    }
}

/* A request on its way, placed at `at_us`. */
static struct request_life placed(struct breakers *breakers, uint64_t prefill, uint64_t decode,
                                  uint64_t at_us)
{
    struct request_life life;
    struct life_actions out;
    struct request_limits usual = request_limits_default();
    request_life_init(&life, &usual, UINT64_MAX, false, &out);
    request_life_on_placed(&life, at_us, prefill, decode, &out);
    breakers_placed(breakers, &life, at_us);
    return life;
}

static void said(struct breakers *breakers, const struct request_life *life, uint64_t worker,
                 uint32_t attempt, const char *reason, uint64_t now_us)
{
    const struct breaker_said what = {worker, attempt, reason, false};
    breakers_said(breakers, life, &what, now_us);
}

static void token(struct breakers *breakers, struct request_life *life, uint64_t worker,
                  uint32_t index, uint64_t now_us)
{
    struct life_actions out;
    const struct life_token what = {.worker = worker, .attempt = 1, .index = index};
    breakers_token(breakers, life, &what, now_us);
    request_life_on_token(life, &what, &out);
}

static void test_failed_steps_open_the_worker_of_them(void **state)
{
    (void)state;
    struct breakers breakers;
    set_up(&breakers);
    for (uint64_t at_us = S; at_us <= 3 * S; at_us += S) {
        struct request_life life = placed(&breakers, P1, D1, at_us);
        said(&breakers, &life, P1, 2, "step_failed", at_us); /* there is none */
        uint64_t changes = breakers.changes;
        said(&breakers, &life, P1, 1, "step_failed", at_us + 1);
        assert_int_equal(breakers.changes, changes + (at_us == 3 * S));
    }
    assert_int_equal(breakers_of(&breakers, P1)->state, BREAKER_OPEN);
    assert_int_equal(breakers_of(&breakers, D1)->failures, 0);
    struct request_life probe = placed(&breakers, P1, D1, 5 * S);
    assert_int_equal(breakers_of(&breakers, P1)->state, BREAKER_HALF_OPEN);
    token(&breakers, &probe, P1, 1, 5 * S + 1);
    assert_int_equal(breakers_of(&breakers, P1)->state, BREAKER_CLOSED);
    breakers_deinit(&breakers);
}

/* The handoff's token says nothing of the decode worker's own steps. */
static void test_each_token_is_credited_to_its_maker(void **state)
{
    (void)state;
    struct breakers breakers;
    struct life_actions out;
    set_up(&breakers);
    open_worker(&breakers, D1, 1 * S);
    for (uint64_t i = 0; i < limits.failures; i++) {
        struct request_life life = placed(&breakers, P1, D2, (2 + i) * S);
        request_life_on_opened(&life, P1, 1, (struct handle_ref){1, 1, 1}, &out);
        said(&breakers, &life, D2, 1, "read", (2 + i) * S);
    }
    assert_int_equal(breakers_of_pair(&breakers, P1, D2)->state, BREAKER_OPEN);
    assert_null(breakers_of_pair(&breakers, P1, D1));
    assert_int_equal(breakers_of(&breakers, P1)->failures + breakers_of(&breakers, D2)->failures,
                     0);
    struct request_life life = placed(&breakers, P1, D1, 10 * S);
    request_life_on_opened(&life, P1, 1, (struct handle_ref){1, 1, 1}, &out);
    token(&breakers, &life, P1, 1, 10 * S);
    token(&breakers, &life, D1, 1, 10 * S);
    assert_int_equal(breakers_of(&breakers, D1)->state, BREAKER_HALF_OPEN);
    token(&breakers, &life, D1, 2, 10 * S);
    assert_int_equal(breakers_of(&breakers, D1)->state, BREAKER_CLOSED);
    life = placed(&breakers, P1, D2, 20 * S);
    request_life_on_opened(&life, P1, 1, (struct handle_ref){1, 1, 2}, &out);
    assert_int_equal(breakers_of_pair(&breakers, P1, D2)->state, BREAKER_HALF_OPEN);
    token(&breakers, &life, D2, 1, 20 * S);
    assert_int_equal(breakers_of_pair(&breakers, P1, D2)->state, BREAKER_CLOSED);
    open_worker(&breakers, D2, 30 * S);
    life = placed(&breakers, 0, D2, 40 * S); /* it computes the prompt itself */
    token(&breakers, &life, D2, 1, 40 * S);
    assert_int_equal(breakers_of(&breakers, D2)->state, BREAKER_CLOSED);
    breakers_deinit(&breakers);
}

/* Fails a read of the pair once. */
static void pair_fails(struct breakers *breakers, uint64_t prefill, uint64_t decode, uint64_t at_us)
{
    struct life_actions out;
    struct request_life life = placed(breakers, prefill, decode, at_us);
    request_life_on_opened(&life, prefill, 1, (struct handle_ref){1, 1, 1}, &out);
    said(breakers, &life, decode, 1, "read", at_us);
}

/* Each pool has its own half, whatever order the candidates come in. */
static void test_pairs_and_workers_are_kept_out_apart(void **state)
{
    (void)state;
    struct breakers breakers;
    struct breaker_candidate list[] = {{.pool = 2, .worker = P1, .reader = D1},
                                       {.pool = 0, .worker = P1},
                                       {.pool = 2, .worker = P2, .reader = D2},
                                       {.pool = 1, .worker = D1},
                                       {.pool = 2, .worker = P1, .reader = D2}};
    const size_t sizes[] = {2, 1, 4};
    set_up(&breakers);
    for (uint64_t i = 0; i < limits.failures; i++) {
        pair_fails(&breakers, P1, D1, (1 + i) * S);
        pair_fails(&breakers, P2, D2, (1 + i) * S + 1000);
        pair_fails(&breakers, P1, D2, (1 + i) * S + 2000);
    }
    open_worker(&breakers, P1, 3 * S);
    open_worker(&breakers, D1, 3 * S);
    assert_int_equal(breakers_keep_out(&breakers, list, 5, sizes, 3 * S + 5000), 4 * S);
    for (size_t i = 0; i < 5; i++) {
        uint64_t until_us = list[i].pool == 0                              ? 4 * S
                            : list[i].pool == 1                            ? 0 /* the only one */
                            : list[i].worker == P1 && list[i].reader == D1 ? 0
                            : list[i].worker == P2                         ? 4 * S + 1000
                                                                           : 4 * S + 2000;
        assert_int_equal(list[i].until_us, until_us);
    }
    /* A probe is out: no other goes there. */
    placed(&breakers, P1, D2, 5 * S);
    breakers_keep_out(&breakers, list, 5, sizes, 5 * S);
    size_t out = 0;
    for (size_t i = 0; i < 5; i++)
        out += list[i].until_us != 0;
    assert_int_equal(out, 2); /* the pair, and P1, which it probes as well */
    breakers_deinit(&breakers);
}

/* The caller sees each worker that may have to be let in again, until it says that it has. */
static void test_workers_are_noted_until_they_are_tidied(void **state)
{
    (void)state;
    struct breakers breakers;
    set_up(&breakers);
    breakers_left(&breakers, P1, S);
    assert_int_equal(breakers.noted_count, 0);
    open_worker(&breakers, D1, 3 * S);
    open_worker(&breakers, P2, 4 * S);
    breakers_left(&breakers, P2, 5 * S);
    assert_int_equal(breakers.noted_count, 2);
    breakers_tidy(&breakers);
    assert_int_equal(breakers.noted_count, 2);
    struct request_life probe = placed(&breakers, P2, D2, 6 * S);
    token(&breakers, &probe, P2, 1, 6 * S);
    assert_int_equal(breakers_of(&breakers, P2)->state, BREAKER_CLOSED);
    assert_int_equal(breakers.noted_count, 2);
    breakers_tidy(&breakers);
    assert_int_equal(breakers.noted_count, 1);
    assert_int_equal(breakers.noted[0], D1);
    open_worker(&breakers, P2, 20 * S);
    assert_int_equal(breakers.noted_count, 2);
    breakers_forget(&breakers, D1);
    assert_int_equal(breakers.noted_count, 1);
    assert_int_equal(breakers.noted[0], P2);
    breakers_deinit(&breakers);
}

static void test_pairs_are_bounded(void **state)
{
    (void)state;
    struct breakers breakers;
    set_up(&breakers);
    for (uint64_t i = 0; i <= BREAKER_MAX_PAIRS; i++) { /* one more than fit */
        struct request_life life = placed(&breakers, P1, 100 + i, S);
        struct life_actions out;
        request_life_on_opened(&life, P1, 1, (struct handle_ref){1, 1, 1}, &out);
        said(&breakers, &life, 100 + i, 1, "read", (i ^ 1) * S + S);
    }
    assert_int_equal(breakers.pair_count, BREAKER_MAX_PAIRS);
    assert_null(breakers_of_pair(&breakers, P1, 101)); /* it failed first */
    assert_non_null(breakers_of_pair(&breakers, P1, 100));
    breakers_forget(&breakers, 100);
    assert_null(breakers_of_pair(&breakers, P1, 100));
    breakers_forget(&breakers, P1);
    assert_int_equal(breakers.pair_count, 0);
    breakers_left(&breakers, P2, S);
    assert_int_equal(breakers_of(&breakers, P2)->failures, 1);
    assert_int_equal(breakers_of(&breakers, P2 + SLOTS)->failures, 0); /* a later life */
    breakers_deinit(&breakers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures_in_a_row_open_it),
        cmocka_unit_test(test_failures_that_come_together_are_one),
        cmocka_unit_test(test_a_worker_that_works_now_and_then_opens_it),
        cmocka_unit_test(test_the_window_forgets),
        cmocka_unit_test(test_one_probe_at_a_time),
        cmocka_unit_test(test_a_probe_that_fails_waits_twice_as_long),
        cmocka_unit_test(test_a_probe_without_an_outcome_is_replaced),
        cmocka_unit_test(test_while_open_nothing_counts),
        cmocka_unit_test(test_no_limit_no_breaker),
        cmocka_unit_test(test_never_more_than_half_are_kept_out),
        cmocka_unit_test(test_the_side_that_failed),
        cmocka_unit_test(test_failed_steps_open_the_worker_of_them),
        cmocka_unit_test(test_each_token_is_credited_to_its_maker),
        cmocka_unit_test(test_pairs_and_workers_are_kept_out_apart),
        cmocka_unit_test(test_workers_are_noted_until_they_are_tidied),
        cmocka_unit_test(test_pairs_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
