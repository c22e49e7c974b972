/* sink: when a read, a pairing, a stream or the handle itself fails on the way. */
#include "tests/unit/sink_fixture.h"

static void test_gone_ends_a_sink_in_every_state(void **state)
{
    struct fixture *f = *state;
    decode(f, 1, 1, 10);
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    plain(f, 1, PEER_GONE); /* queued */
    expect(f, ">9 release 1.1 h0.1; lost 1.1 gone; unreserve 1.1");
    decode(f, 1, 2, 10);
    reserved(f, 1, 2);
    plain(f, 2, PEER_GONE); /* reading */
    expect(f, ">9 release 1.2 h0.1; lost 1.2 gone; unreserve 1.2");
    assert_int_equal(sink_table_count(f->table), 0);
    assert_int_equal(sink_table_counters(f->table).given_up[SINK_REASON_GONE], 2);
}

static void test_gone_after_confirm_never_runs(void **state)
{
    struct fixture *f = *state;
    confirm_one(f);
    plain(f, 1, PEER_GONE);
    expect(f, ">9 release 1.1 h0.1; lost 1.1 gone; unreserve 1.1");
    plain(f, 1, PEER_HELD);
    expect(f, "");
}

static void test_landing_blocks_outlive_their_sink(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    ready(f, 1, 4);
    expect(f, "read 1.1 10>30");
    uint64_t first = f->cookie;
    sink_on_release(f->table, f->now_us, 1, 1, &f->out);
    expect(f, "");
    assert_int_equal(sink_table_count(f->table), 1);
    assert_int_equal(sink_table_landing_blocks(f->table), 1);
    decode(f, 1, 2, 10); /* the same request again, beside its orphan */
    expect(f, "reserve 1.2 30; >9 extend 1.2 h0.1");
    sink_on_session_lost(f->table, f->now_us, &f->out);
    expect(f, "unreserve 1.2");
    sink_on_session_lost(f->table, f->now_us, &f->out);
    expect(f, "");
    f->cookie = first;
    read_done(f, STATUS_CANCELLED); /* failed reads end the pairing, and free as well */
    expect(f, "unpair 9; unreserve 1.1");
    assert_int_equal(sink_table_count(f->table), 0);
}

static void test_a_failed_read_is_repeated_once_on_a_new_pairing(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    ready(f, 1, 8);
    expect(f, "read 1.1 10>30 11>31");
    read_done(f, STATUS_TIMEOUT);
    expect(f, "unpair 9");
    ready(f, 1, 8);
    expect(f, "");
    sink_on_pair_closed(f->table, f->now_us, PEER, false, &f->out);
    expect(f, "pair 9");
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    expect(f, "read 1.1 10>30 11>31");
    read_done(f, STATUS_TIMEOUT);
    expect(f, "unpair 9; >9 release 1.1 h0.1; lost 1.1 read; unreserve 1.1");
    sink_on_pair_closed(f->table, f->now_us, PEER, false, &f->out);
    expect(f, ""); /* no request needs it */
    decode(f, 2, 1, 4);
    reserved(f, 2, 1);
    expect(f, "pair 9; >9 subscribe 2.1 h0.1");
}

/* The peer heard first that the request has ended, which is no reason to end others' reads. */
static void test_a_refused_read_ends_alone(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    ready(f, 1, 4);
    expect(f, "read 1.1 10>30");
    assert_true(f->out.items[0].grant == handle_grant((struct handle_ref){7, 0, 1}));
    uint64_t first = f->cookie;
    sink_on_release(f->table, f->now_us, 1, 1, &f->out);
    decode(f, 1, 2, 10);
    reserved(f, 1, 2);
    ready(f, 2, 8);
    expect(f, "read 1.2 10>30 11>31");
    uint64_t second = f->cookie;
    f->cookie = first;
    read_done(f, STATUS_NOT_FOUND);
    expect(f, "unreserve 1.1");
    f->cookie = second;
    read_done(f, STATUS_NOT_FOUND);
    expect(f, ">9 subscribe 1.2 h0.1"); /* it asks for the reason, and reads nothing meanwhile */
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    plain(f, 2, PEER_EXTENDED);
    expect(f, "");
    plain(f, 2, PEER_GONE);
    expect(f, ">9 release 1.2 h0.1; lost 1.2 gone; unreserve 1.2");
    assert_int_equal(sink_table_counters(f->table).rereads, 0);
}

/* The peer says that the sink is the reader, and refuses it all the same: the pairing is an older
 * stream's. */
static void test_a_reader_that_is_refused_twice_pairs_anew(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    complete(f, 1, 3);
    expect(f, "read 1.1 10>30 11>31");
    read_done(f, STATUS_NOT_FOUND);
    expect(f, ">9 subscribe 1.1 h0.1");
    tick(f, f->now_us + HEARTBEAT);
    expect(f, ">9 subscribe 1.1 h0.1"); /* until it is answered */
    complete(f, 1, 3);
    expect(f, "read 1.1 10>30 11>31");
    read_done(f, STATUS_NOT_FOUND);
    expect(f, "unpair 9");
    sink_on_pair_closed(f->table, f->now_us, PEER, false, &f->out);
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    expect(f, "read 1.1 10>30 11>31");
    read_done(f, STATUS_OK);
    expect(f, "verify 1.1 30=50 31=60; read 1.1 15>32");
    read_done(f, STATUS_NOT_FOUND);
    expect(f, "unpair 9; >9 release 1.1 h0.1; lost 1.1 read; unreserve 1.1");
}

/* A hello that names a process which has ended is answered by the one that listens there now. */
static void test_a_process_that_was_replaced(void **state)
{
    struct fixture *f = *state;
    decode(f, 1, 1, 10);
    expect(f, "reserve 1.1 30; connect 9");
    assert_int_equal(f->out.items[1].incarnation, 7);
    sink_on_peer_replaced(f->table, f->now_us, PEER, &f->out);
    expect(f, "lost 1.1 gone; unreserve 1.1");
    decode(f, 1, 2, 10);
    expect(f, "reserve 1.2 30; connect 9");
    struct sink_decode newer = decode_of(2, 1, 10);
    newer.handle.ref.incarnation = 8; /* comes while the process before is dialled */
    sink_on_decode(f->table, f->now_us, &newer, &f->out);
    expect(f, "reserve 2.1 30");
    sink_on_peer_replaced(f->table, f->now_us, PEER, &f->out);
    expect(f, "lost 1.2 gone; unreserve 1.2; connect 9");
    assert_int_equal(f->out.items[2].incarnation, 8);
    sink_on_peer_up(f->table, f->now_us, PEER, 8, &f->out);
    expect(f, "pair 9; >9 extend 2.1 h0.1");
    sink_on_peer_replaced(f->table, f->now_us, 4711, &f->out);
    expect(f, "");
}

/* A pairing that ends by itself may be the first sign of the peer's death: the stream's end comes
 * next, and nothing is refused. */
static void test_an_idle_pairing_that_closes_is_made_anew_when_more_is_ready(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    ready(f, 1, 4);
    expect(f, "read 1.1 10>30");
    read_done(f, STATUS_OK);
    sink_on_pair_closed(f->table, f->now_us, PEER, false, &f->out);
    expect(f, "");
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out); /* it had died, and is back */
    expect(f, "connect 9");
    sink_on_peer_up(f->table, f->now_us, PEER, 8, &f->out);
    expect(f, "pair 9; >9 subscribe 1.1 h0.1");
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    sink_on_pair_closed(f->table, f->now_us, PEER, false, &f->out);
    expect(f, "");
    plain(f, 1, PEER_EXTENDED);
    expect(f, "");
    ready(f, 1, 8); /* it lives */
    expect(f, "pair 9");
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    expect(f, "read 1.1 11>31");
    read_done(f, STATUS_OK);
    sink_on_pair_closed(f->table, f->now_us, PEER, false, &f->out);
    decode(f, 2, 1, 4);
    reserved(f, 2, 1);
    expect(f, "pair 9; >9 subscribe 2.1 h0.1"); /* another one is about to read */
}

static void test_wrong_bytes_are_read_once_more(void **state)
{
    struct fixture *f = *state;
    read_one(f);
    sink_on_verified(f->table, f->now_us, f->cookie, false, &f->out);
    expect(f, "read 1.1 15>32");
    read_done(f, STATUS_OK);
    expect(f, "verify 1.1 32=70");
    sink_on_verified(f->table, f->now_us, f->cookie, false, &f->out);
    expect(f, ">9 release 1.1 h0.1; lost 1.1 checksum; unreserve 1.1");
    assert_int_equal(sink_table_counters(f->table).rereads, 1);
}

static void test_after_a_lost_stream_subscribe_again_or_only_confirm(void **state)
{
    struct fixture *f = *state;
    read_one(f);
    uint64_t first = f->cookie;
    decode(f, 2, 1, 8);
    reserved(f, 2, 1);
    decode(f, 3, 1, 8);
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    expect(f, "connect 9");
    sink_on_verified(f->table, f->now_us, first, true, &f->out);
    expect(f, ""); /* asked when the stream is up */
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    expect(f, ">9 confirm 1.1 h0.1; >9 subscribe 2.1 h0.1; >9 extend 3.1 h0.1");
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    expect(f, ">9 confirm 1.1 h0.1; >9 subscribe 2.1 h0.1; >9 extend 3.1 h0.1");
    plain(f, 1, PEER_HELD);
    expect(f, "admit 1.1 id 42; pulled 1.1 48 early 32");
}

/* Only the stream of the last Subscribe may read, so a sink subscribes although it has all news. */
static void test_who_still_reads_subscribes_on_a_new_stream(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    complete(f, 1, 3);
    expect(f, "read 1.1 10>30 11>31");
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    expect(f, ">9 subscribe 1.1 h0.1");
    complete(f, 1, 3); /* again, and no news */
    expect(f, "");
    read_done(f, STATUS_OK);
    expect(f, "verify 1.1 30=50 31=60; read 1.1 15>32");
    read_done(f, STATUS_OK);
    verified(f, true);
    expect(f, "verify 1.1 32=70");
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    expect(f, ">9 subscribe 1.1 h0.1"); /* it may have to read again */
}

static void test_what_is_read_stays_read_over_a_lost_stream(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    ready(f, 1, 4);
    expect(f, "read 1.1 10>30");
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    read_done(f, STATUS_OK);
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    expect(f, ">9 subscribe 1.1 h0.1");
    complete(f, 1, 3);
    expect(f, "verify 1.1 30=50; read 1.1 11>31 15>32");
}

static void test_a_new_incarnation_is_paired_anew(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    sink_on_peer_up(f->table, f->now_us, PEER, 8, &f->out);
    expect(f, "unpair 9; >9 subscribe 1.1 h0.1"); /* which the new process answers: gone */
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    expect(f, "");
    sink_on_pair_closed(f->table, f->now_us, PEER, false, &f->out);
    expect(f, "pair 9");
}

static void test_an_unreachable_peer_is_lost_in_time(void **state)
{
    struct fixture *f = *state;
    decode(f, 1, 1, 10);
    expect(f, "reserve 1.1 30; connect 9");
    f->now_us = 1010;
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out); /* refused */
    expect(f, "");
    assert_int_equal(sink_table_next_us(f->table), 1010 + RECONNECT);
    decode(f, 2, 1, 4);
    expect(f, "reserve 2.1 24"); /* not before RECONNECT is over */
    tick(f, 1060);
    expect(f, "connect 9");
    assert_int_equal(sink_table_next_us(f->table), 1000 + PEER_DOWN);
    tick(f, 1400);
    expect(f, "lost 1.1 peer_down; unreserve 1.1");
    tick(f, 1410);
    expect(f, "lost 2.1 peer_down; unreserve 2.1");
    assert_int_equal(sink_table_next_us(f->table), UINT64_MAX);
}

/* A peer isn't silent while its stream is down, though it wasn't heard of for as long. */
static void test_a_peer_that_is_down_is_not_silent(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    uint64_t heard_us = f->now_us;
    f->now_us = heard_us + SILENCE - 1;
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    expect(f, "connect 9");
    tick(f, heard_us + SILENCE);
    expect(f, "lost 1.1 peer_down; unreserve 1.1");
}

/* The peer ends the stream while a Subscribe is on its way to it, and then has no place. */
static void test_a_peer_that_makes_room_is_not_down(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    sink_on_pair_closed(f->table, f->now_us, PEER, true, &f->out);
    expect(f, ">9 extend 1.1 h0.1");
    sink_on_peer_full(f->table, f->now_us, PEER, &f->out);
    expect(f, "connect 9");
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    expect(f, "pair 9; >9 subscribe 1.1 h0.1"); /* another one made room for it */
    sink_on_peer_full(f->table, f->now_us, PEER, &f->out);
    expect(f, "connect 9");
    sink_on_peer_full(f->table, f->now_us, PEER, &f->out);
    tick(f, f->now_us + PEER_DOWN - 1);
    expect(f, "connect 9");
    sink_on_peer_full(f->table, f->now_us, PEER, &f->out);
    tick(f, f->now_us + 1);
    expect(f, "lost 1.1 made_room; unreserve 1.1");
    decode(f, 1, 2, 10);
    sink_on_peer_full(f->table, f->now_us, PEER, &f->out);
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out); /* by then it is down */
    tick(f, f->now_us + PEER_DOWN);
    expect(f, "lost 1.2 peer_down; unreserve 1.2");
    sink_on_peer_full(f->table, f->now_us, PEER + 1, &f->out); /* forgotten here */
    expect(f, "");
}

static void test_a_silent_peer_is_lost_in_time(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    f->now_us = 1500;
    plain(f, 1, PEER_EXTENDED);
    tick(f, 2499);
    expect(f, ">9 subscribe 1.1 h0.1");
    tick(f, 2500);
    expect(f, ">9 release 1.1 h0.1; lost 1.1 silent; unreserve 1.1");
}

static void test_a_refused_peer(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    decode(f, 2, 1, 4);
    sink_on_peer_refused(f->table, f->now_us, PEER, SINK_REASON_PAIRING, &f->out);
    expect(f, "refused 1.1 pairing retry; unreserve 1.1; refused 2.1 pairing retry; unreserve 2.1");
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    decode(f, 1, 2, 4);
    expect(f, "reserve 1.2 24; connect 9");
    sink_on_peer_refused(f->table, f->now_us, PEER, SINK_REASON_LAYOUT_MISMATCH, &f->out);
    expect(f, "refused 1.2 layout_mismatch retry; unreserve 1.2");
    decode(f, 1, 3, 4);
    expect(f, "reserve 1.3 24");
}

static void test_a_refused_peer_and_sinks_that_have_all(void **state)
{
    struct fixture *f = *state;
    read_one(f);
    sink_on_pair_closed(f->table, f->now_us, PEER, false, &f->out);
    expect(f, ""); /* nothing is left to read */
    decode(f, 2, 1, 4);
    reserved(f, 2, 1);
    expect(f, "pair 9; >9 subscribe 2.1 h0.1");
    sink_on_peer_refused(f->table, f->now_us, PEER, SINK_REASON_PAIRING, &f->out);
    expect(f, "refused 2.1 pairing retry; unreserve 2.1"); /* the first needs no path */
    uint64_t cookie = f->cookie;
    sink_on_verified(f->table, f->now_us, cookie, false, &f->out);
    expect(f, "pair 9"); /* unless the bytes were wrong */
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    expect(f, "read 1.1 15>32");
    read_done(f, STATUS_OK);
    sink_on_verified(f->table, f->now_us, cookie, true, &f->out);
    sink_on_peer_refused(f->table, f->now_us, PEER, SINK_REASON_PAIRING, &f->out);
    expect(f, "");
    sink_on_peer_lost(f->table, f->now_us, PEER, false, &f->out);
    sink_on_peer_refused(f->table, f->now_us, PEER, SINK_REASON_LAYOUT_MISMATCH, &f->out);
    expect(f, "lost 1.1 layout_mismatch; unreserve 1.1"); /* it may have been held */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_gone_ends_a_sink_in_every_state),
        T(test_gone_after_confirm_never_runs),
        T(test_landing_blocks_outlive_their_sink),
        T(test_a_failed_read_is_repeated_once_on_a_new_pairing),
        T(test_a_refused_read_ends_alone),
        T(test_a_reader_that_is_refused_twice_pairs_anew),
        T(test_a_process_that_was_replaced),
        T(test_an_idle_pairing_that_closes_is_made_anew_when_more_is_ready),
        T(test_wrong_bytes_are_read_once_more),
        T(test_after_a_lost_stream_subscribe_again_or_only_confirm),
        T(test_who_still_reads_subscribes_on_a_new_stream),
        T(test_what_is_read_stays_read_over_a_lost_stream),
        T(test_a_new_incarnation_is_paired_anew),
        T(test_an_unreachable_peer_is_lost_in_time),
        T(test_a_peer_that_makes_room_is_not_down),
        T(test_a_peer_that_is_down_is_not_silent),
        T(test_a_silent_peer_is_lost_in_time),
        T(test_a_refused_peer),
        T(test_a_refused_peer_and_sinks_that_have_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
