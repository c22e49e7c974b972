/* pairing_outcome: a peer that is gone, and a peer without a byte path. */
#include "decode_worker/kv_import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static enum pair_end end(struct pairing_outcome *ends, bool welcomed, enum kv_failure failure)
{
    struct kv_event event = {
        .kind = KV_EVENT_PEER_CLOSED, .failure = failure, .welcomed = welcomed};
    return pairing_outcome_note(ends, &event);
}

static void test_what_was_admitted(void **state)
{
    (void)state;
    static const enum pair_end want[KV_FAILURES] = {
        [KV_FAILURE_PEER_GONE] = PAIR_END_GONE, [KV_FAILURE_LANE] = PAIR_END_REFUSED};
    for (enum kv_failure failure = KV_FAILURE_DEADLINE; failure < KV_FAILURES; failure++) {
        struct pairing_outcome ends = {0};
        pairing_outcome_welcomed(&ends);
        assert_true(pairing_outcome_may_pair(&ends));
        assert_int_equal(end(&ends, true, failure), want[failure]);
        assert_true(pairing_outcome_may_pair(&ends));
    }
}

/* The result is the same whether the stream's end or the pairing's end comes first. */
static void test_one_that_ends_while_it_is_paired_with_is_gone(void **state)
{
    (void)state;
    static const enum kv_failure failures[] = {
        KV_FAILURE_PEER_GONE, KV_FAILURE_UNREACHABLE,
        KV_FAILURE_REFUSED}; /* its place is another reader's: the stream's end says so */
    for (int i = 0; i < 3; i++) {
        struct pairing_outcome ends = {0};
        pairing_outcome_welcomed(&ends);
        assert_true(pairing_outcome_may_pair(&ends));
        assert_int_equal(end(&ends, false, failures[i]), PAIR_END_GONE);
        pairing_outcome_welcomed(&ends); /* its successor, or it had lost the stream too */
        assert_true(pairing_outcome_may_pair(&ends));
        pairing_outcome_welcomed(
            &ends); /* before the end of the pairing with the one before is heard */
        assert_int_equal(end(&ends, false, failures[i]), PAIR_END_GONE);
        assert_true(pairing_outcome_may_pair(&ends));
    }
}

static void test_one_that_still_answers_is_not_paired_with_again(void **state)
{
    (void)state;
    struct pairing_outcome ends = {0};
    pairing_outcome_welcomed(&ends);
    for (int i = 0; i < 4; i++) {
        assert_true(pairing_outcome_may_pair(&ends));
        assert_int_equal(end(&ends, false, i % 2 ? KV_FAILURE_REFUSED : KV_FAILURE_PEER_GONE),
                         PAIR_END_GONE);
        assert_false(pairing_outcome_may_pair(&ends)); /* once: later it may be better */
    }
}

static void test_one_that_breaks_off_refuses(void **state)
{
    (void)state;
    struct pairing_outcome ends = {0};
    static const enum kv_failure failures[] = {KV_FAILURE_PROTOCOL, KV_FAILURE_DEADLINE,
                                               KV_FAILURE_INJECTED};
    pairing_outcome_welcomed(&ends);
    for (int i = 0; i < 3; i++) {
        assert_true(pairing_outcome_may_pair(&ends));
        assert_int_equal(end(&ends, false, failures[i]), PAIR_END_REFUSED);
    }
    assert_true(pairing_outcome_may_pair(&ends));
    assert_int_equal(end(&ends, false, KV_FAILURE_CLOSED), PAIR_END_PLAIN); /* by us */
    assert_true(pairing_outcome_may_pair(&ends));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_admitted),
        cmocka_unit_test(test_one_that_ends_while_it_is_paired_with_is_gone),
        cmocka_unit_test(test_one_that_still_answers_is_not_paired_with_again),
        cmocka_unit_test(test_one_that_breaks_off_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
