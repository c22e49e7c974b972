/* sink: when a prefill worker is known to have ended, and when that takes its time. */
#include "tests/unit/sink_fixture.h"

/* The peer's end has closed the pairing and the stream, and a new connection is refused. This is
 * proof, in whatever order they come. */
static void test_a_peer_that_has_ended_is_lost_at_once(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    sink_on_pair_closed(f->table, f->now_us, PEER, true, &f->out);
    expect(f, ">9 extend 1.1 h0.1");
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    expect(f, "connect 9");
    sink_on_peer_lost(f->table, f->now_us, PEER, true, &f->out);
    expect(f, "lost 1.1 peer_down; unreserve 1.1");
    assert_int_equal(sink_table_next_us(f->table), UINT64_MAX);
}

static void test_a_peer_whose_pairing_ends_last_is_lost_then(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    sink_on_peer_lost(f->table, f->now_us, PEER, true, &f->out);
    expect(f, ""); /* the pairing stands: another process may have refused */
    sink_on_pair_closed(f->table, f->now_us, PEER, true, &f->out);
    expect(f, "lost 1.1 peer_down; unreserve 1.1");
}

/* The peer accepted a connection but never sent a Welcome. Now no process listens at the address
 * that it had when it opened the handle. */
static void test_a_peer_that_ended_before_it_was_known_is_lost_at_once(void **state)
{
    struct fixture *f = *state;
    decode(f, 1, 1, 10);
    expect(f, "reserve 1.1 30; connect 9");
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    tick(f, f->now_us + RECONNECT);
    expect(f, "connect 9");
    decode(f, 2, 1, 4);
    sink_on_peer_lost(f->table, f->now_us, PEER, true, &f->out);
    expect(f, "lost 1.1 peer_down; unreserve 1.1"); /* the second may be of one that listens now */
    tick(f, f->now_us + RECONNECT);
    sink_on_peer_lost(f->table, f->now_us, PEER, true, &f->out);
    expect(f, "");
}

/* A refusal may come late: it says nothing about the next life at that address. */
static void test_a_refusal_is_of_the_life_that_was_known(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    sink_on_pair_closed(f->table, f->now_us, PEER, true, &f->out);
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    f->now_us++;
    struct sink_decode command = decode_of(2, 1, 4);
    command.handle.ref.incarnation = 8;
    sink_on_decode(f->table, f->now_us, &command, &f->out);
    decode(f, 3, 1, 4); /* from the ended peer: its Decode was on the way */
    sink_on_peer_lost(f->table, f->now_us, PEER, true, &f->out);
    expect(f, "lost 1.1 peer_down; unreserve 1.1; lost 3.1 peer_down; unreserve 3.1");
    sink_on_peer_up(f->table, f->now_us, PEER, 8, &f->out);
    expect(f, "pair 9; >9 extend 2.1 h0.1");
}

/* Silence, a partition, a pairing that this side has closed: the peer may be there. */
static void test_what_is_not_certain_takes_its_time(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    sink_on_pair_closed(f->table, f->now_us, PEER, true, &f->out);
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    expect(f, "");
    tick(f, f->now_us + RECONNECT);
    expect(f, "connect 9");
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    expect(f, "pair 9; >9 subscribe 1.1 h0.1");
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    ready(f, 1, 8);
    expect(f, "read 1.1 10>30 11>31");
    read_done(f, STATUS_TIMEOUT);
    expect(f, "unpair 9");
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    sink_on_pair_closed(f->table, f->now_us, PEER, false, &f->out);
    sink_on_peer_lost(f->table, f->now_us, PEER, true, &f->out);
    expect(f, "");
    tick(f, f->now_us + PEER_DOWN);
    expect(f, "lost 1.1 peer_down; unreserve 1.1");
}

static void test_who_closes_the_pairing_is_paired_again_when_it_answers(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    sink_on_pair_closed(f->table, f->now_us, PEER, true, &f->out);
    expect(f, ">9 extend 1.1 h0.1");
    ready(f, 1, 4);
    expect(f, ""); /* said before its end, maybe */
    for (int i = 0; i < 2; i++) {
        plain(f, 1, PEER_EXTENDED);
        expect(f, ""); /* like the answers to earlier messages */
    }
    plain(f, 1, PEER_EXTENDED);
    expect(f, "pair 9");
    sink_on_pair_closed(f->table, f->now_us, PEER, true, &f->out);
    expect(f, ">9 extend 1.1 h0.1"); /* its answer is lost: */
    f->now_us += HEARTBEAT;
    ready(f, 1, 8);
    expect(f, "pair 9");
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    expect(f, "read 1.1 10>30 11>31");
}

/* Messages that it had sent before it died are still read from the stream; they are no sign of
 * life. */
static void test_an_answer_from_before_the_end_is_no_sign_of_life(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    plain(f, 1, PEER_EXTENDED);
    plain(f, 1, PEER_EXTENDED);
    tick(f, f->now_us + HEARTBEAT);
    expect(f, ">9 subscribe 1.1 h0.1");
    sink_on_pair_closed(f->table, f->now_us, PEER, true, &f->out);
    expect(f, ">9 extend 1.1 h0.1");
    plain(f, 1, PEER_EXTENDED); /* to the heartbeat */
    expect(f, "");
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    sink_on_peer_lost(f->table, f->now_us, PEER, true, &f->out);
    expect(f, "lost 1.1 peer_down; unreserve 1.1");
}

/* A connection that was never tried proves nothing, and an earlier refusal no longer counts. */
static void test_a_try_that_was_never_made_says_nothing(void **state)
{
    struct fixture *f = *state;
    decode(f, 1, 1, 10);
    sink_on_peer_lost(f->table, f->now_us, PEER, true, &f->out);
    expect(f, "");
    tick(f, f->now_us + RECONNECT);
    expect(f, "connect 9");
    sink_on_connect_failed(f->table, f->now_us, PEER, &f->out);
    expect(f, "");
    sink_on_connect_failed(f->table, f->now_us, 77, &f->out);
    expect(f, "");
    tick(f, f->now_us + RECONNECT);
    expect(f, "connect 9");
    sink_on_peer_lost(f->table, f->now_us, PEER, true, &f->out); /* reported late */
    expect(f, "");
    tick(f, f->now_us + RECONNECT);
    expect(f, "connect 9");
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    expect(f, "pair 9; >9 extend 1.1 h0.1");
}

/* A peer that refuses us as unfit listens, whatever was reported before. */
static void test_one_that_refuses_us_listens(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    sink_on_peer_lost(f->table, f->now_us, PEER, true, &f->out);
    tick(f, f->now_us + RECONNECT);
    expect(f, "connect 9");
    sink_on_peer_refused(f->table, f->now_us, PEER, SINK_REASON_LAYOUT_MISMATCH, &f->out);
    expect(f, "refused 1.1 layout_mismatch retry; unreserve 1.1");
    decode(f, 2, 1, 4);
    sink_on_pair_closed(f->table, f->now_us, PEER, true, &f->out);
    expect(f, ""); /* not lost */
}

static void test_why_an_orphan_ended_is_told_when_its_read_has(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    ready(f, 1, 8);
    expect(f, "read 1.1 10>30 11>31");
    plain(f, 1, PEER_GONE);
    expect(f, ">9 release 1.1 h0.1; lost 1.1 gone");
    read_done(f, STATUS_OK);
    expect(f, "unreserve 1.1");
    assert_int_equal(f->out.items[0].reason, SINK_REASON_GONE);
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_a_peer_that_has_ended_is_lost_at_once),
        T(test_a_peer_whose_pairing_ends_last_is_lost_then),
        T(test_a_peer_that_ended_before_it_was_known_is_lost_at_once),
        T(test_a_refusal_is_of_the_life_that_was_known),
        T(test_what_is_not_certain_takes_its_time),
        T(test_an_answer_from_before_the_end_is_no_sign_of_life),
        T(test_a_try_that_was_never_made_says_nothing),
        T(test_one_that_refuses_us_listens),
        T(test_why_an_orphan_ended_is_told_when_its_read_has),
        T(test_who_closes_the_pairing_is_paired_again_when_it_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
