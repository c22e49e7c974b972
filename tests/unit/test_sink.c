/* sink: each rule of the decode side of the handoff, as events and the actions they cause. */
#include "tests/unit/sink_fixture.h"

static void test_the_whole_life(void **state)
{
    struct fixture *f = *state;
    confirm_one(f);
    plain(f, 1, PEER_HELD);
    expect(f, "admit 1.1 id 42; pulled 1.1 48 early 32");
    assert_int_equal(sink_table_count(f->table), 1);
    assert_int_equal(sink_table_next_us(f->table), UINT64_MAX);
    sink_on_finished(f->table, f->now_us, 1, 1, &f->out);
    expect(f, "");
    assert_int_equal(sink_table_count(f->table), 0);
    struct sink_counters counters = sink_table_counters(f->table);
    assert_int_equal(counters.admitted, 1);
    assert_int_equal(counters.pulled_bytes, 48);
    assert_int_equal(counters.early_bytes, 32);
    assert_int_equal(counters.dropped, 0);
}

static void test_without_a_handle_the_prompt_is_computed_here(void **state)
{
    struct fixture *f = *state;
    struct sink_decode command = {.request = 1, .attempt = 1, .reserve_tokens = 12};
    sink_on_decode(f->table, f->now_us, &command, &f->out);
    expect(f, "reserve 1.1 12");
    assert_int_equal(sink_table_next_us(f->table), UINT64_MAX);
    reserved(f, 1, 1);
    expect(f, "admit 1.1 compute");
    sink_on_release(f->table, f->now_us, 1, 1, &f->out);
    expect(f, "unreserve 1.1");
    assert_int_equal(sink_table_counters(f->table).admitted_local, 1);
}

/* Reads go on in pieces of max_read_blocks, one at a time, whatever messages come meanwhile. */
static void test_reading_in_pieces(void **state)
{
    struct fixture *f = *state;
    decode(f, 1, 1, 16);
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    reserved(f, 1, 1);
    ready(f, 1, 4);
    expect(f, ""); /* not paired yet */
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    expect(f, "read 1.1 10>30");
    ready(f, 1, 16); /* the last block is whole, so it is ready before Complete */
    expect(f, "");
    ready(f, 1, 8);
    expect(f, ""); /* never less than before */
    assert_int_equal(sink_table_landing_blocks(f->table), 1);
    read_done(f, STATUS_OK);
    expect(f, "read 1.1 11>31 15>32");
    assert_int_equal(sink_table_landing_blocks(f->table), 2);
    read_done(f, STATUS_OK);
    expect(f, "read 1.1 16>40");
    read_done(f, STATUS_OK);
    expect(f, "");
    complete(f, 1, 4);
    expect(f, "verify 1.1 30=50 31=60 32=70 40=80");
}

/* They are shared: nothing is read into them, the first time or again, and only read blocks are
 * compared. */
static void test_blocks_that_are_here_are_not_read(void **state)
{
    struct fixture *f = *state;
    decode(f, 1, 1, 16);
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    reserved_with(f, 1, 1, 2);
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    expect(f, "");
    ready(f, 1, 4);
    expect(f, ""); /* less than is here */
    ready(f, 1, 12);
    expect(f, "read 1.1 15>32");
    read_done(f, STATUS_OK);
    expect(f, "");
    complete(f, 1, 4);
    expect(f, "verify 1.1 32=70; read 1.1 16>40");
    verified(f, false);
    read_done(f, STATUS_OK);
    expect(f, "read 1.1 15>32 16>40");
    read_done(f, STATUS_OK);
    expect(f, "verify 1.1 32=70 40=80");
    sink_on_verified(f->table, f->now_us, f->cookie, true, &f->out);
    expect(f, ">9 confirm 1.1 h0.1");
    assert_int_equal(sink_table_counters(f->table).pulled_bytes, 4 * BLOCK_BYTES);
}

static void test_the_lease_is_extended_from_decode_on(void **state)
{
    struct fixture *f = *state;
    decode(f, 1, 1, 10);
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    assert_int_equal(sink_table_next_us(f->table), 1000 + HEARTBEAT);
    tick(f, 1099);
    expect(f, "");
    tick(f, 1100); /* still queued */
    expect(f, ">9 extend 1.1 h0.1");
    reserved(f, 1, 1);
    tick(f, 1200);
    expect(f, ">9 subscribe 1.1 h0.1"); /* it extends, too, and gets the ready count again */
    sink_on_pair_up(f->table, f->now_us, PEER, &f->out);
    complete(f, 1, 3);
    expect(f, "read 1.1 10>30 11>31");
    read_done(f, STATUS_OK);
    read_done(f, STATUS_OK);
    verified(f, true);
    expect(f, "verify 1.1 32=70");
    tick(f, 1300);
    expect(f, ">9 extend 1.1 h0.1"); /* while it is checked */
    sink_on_verified(f->table, f->now_us, f->cookie, true, &f->out);
    tick(f, 1400);
    expect(f, ">9 confirm 1.1 h0.1"); /* then only Confirm is repeated */
    decode(f, 2, 1, 4);               /* the stream is up: at once */
    expect(f, "reserve 2.1 24; >9 extend 2.1 h0.1");
}

static void test_the_end_with_the_first_token(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    ready(f, 1, 4);
    expect(f, "read 1.1 10>30");
    answer(f, 1, 1,
           (struct peer_up){.kind = PEER_COMPLETE, .first_token = 42, .finish = FINISH_EOS});
    expect(f, "token 1.1 3 id 42 eos"); /* two were emitted before */
    read_done(f, STATUS_OK);            /* the blocks were landing */
    expect(f, "unreserve 1.1");
    assert_int_equal(sink_table_count(f->table), 0);
}

static void test_attempts(void **state)
{
    struct fixture *f = *state;
    decode(f, 1, 2, 10);
    decode(f, 1, 2, 10);
    expect(f, "");
    decode(f, 1, 1, 10);
    expect(f, "");
    sink_on_release(f->table, f->now_us, 1, 1, &f->out);
    expect(f, "");
    decode(f, 1, 3, 10);
    expect(f, "unreserve 1.2; reserve 1.3 30"); /* connecting already */
    reserved(f, 1, 2);
    expect(f, "");
    sink_on_finished(f->table, f->now_us, 1, 2, &f->out);
    expect(f, "");
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    plain(f, 2, PEER_GONE); /* an answer for the older attempt */
    expect(f, "");
    struct peer_up message = {.kind = PEER_GONE, .request = 1, .attempt = 3};
    sink_on_message(f->table, f->now_us, PEER + 1, &message, &f->out); /* from another peer */
    expect(f, "");
    assert_int_equal(sink_table_counters(f->table).dropped, 6);
    assert_int_equal(sink_table_count(f->table), 1);
}

/* One name is one piece of work: the step thread's late messages about an ended attempt never meet
 * another attempt of that name. */
static void test_a_repeated_decode(void **state)
{
    struct fixture *f = *state;
    decode(f, 1, 2, 6);
    decode(f, 1, 2, 6);
    expect(f, ""); /* its answer is on the way */
    sink_on_finished(f->table, f->now_us, 1, 2, &f->out);
    expect(f, ""); /* for an attempt that never ran: dropped */
    sink_on_release(f->table, f->now_us, 1, 2, &f->out);
    expect(f, "unreserve 1.2");
    decode(f, 1, 2, 6);
    expect(f, "lost 1.2 gone");
    decode(f, 1, 1, 6);
    expect(f, "lost 1.1 gone");
    reserved(f, 1, 2);
    expect(f, "");
    assert_int_equal(sink_table_count(f->table), 0);
    struct sink_decode local = {
        .request = 2, .attempt = 1, .emitted_count = 0, .reserve_tokens = 10};
    sink_on_decode(f->table, f->now_us, &local, &f->out);
    reserved(f, 2, 1);
    reserved(f, 2, 1);
    expect(f, ""); /* once only */
    sink_on_reserve_failed(f->table, f->now_us, 2, 1, true, &f->out);
    expect(f, "");
    sink_on_finished(f->table, f->now_us, 2, 1, &f->out);
    sink_on_decode(f->table, f->now_us, &local, &f->out);
    expect(f, "lost 2.1 gone");
}

/* A bounded number of the latest ended attempts is remembered. */
static void test_past_attempts_are_bounded(void **state)
{
    (void)state;
    static struct past_attempts past;
    for (uint64_t request = 0; request <= PAST_ATTEMPTS; request++)
        past_attempts_add(&past, request, 5);
    assert_false(past_attempts_has(&past, 0, 5));
    assert_true(past_attempts_has(&past, 1, 5));
    assert_true(past_attempts_has(&past, PAST_ATTEMPTS, 4));
    assert_false(past_attempts_has(&past, PAST_ATTEMPTS, 6));
}

static void test_messages_out_of_state_are_dropped(void **state)
{
    struct fixture *f = *state;
    decode(f, 1, 1, 10);
    sink_on_peer_up(f->table, f->now_us, PEER, 7, &f->out);
    ready(f, 1, 4); /* queued: it hasn't subscribed */
    complete(f, 1, 3);
    plain(f, 1, PEER_HELD);
    expect(f, "");
    reserved(f, 1, 1);
    plain(f, 1, PEER_HELD); /* it hasn't asked */
    expect(f, "");
    complete(f, 1, 3);
    complete(f, 1, 3);
    ready(f, 1, 4);
    expect(f, "");
    assert_int_equal(sink_table_counters(f->table).dropped, 6);
    plain(f, 1, PEER_EXTENDED);
    assert_int_equal(sink_table_counters(f->table).dropped, 6);
}

/* Sums that came with Ready: blocks are compared while others are read. */
static void test_blocks_are_compared_as_they_come(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    ready_with(f, 8, 0, 2);
    expect(f, "read 1.1 10>30 11>31");
    read_done(f, STATUS_OK);
    expect(f, "verify 1.1 30=50 31=60");
    complete(f, 1, 3);
    expect(f, "read 1.1 15>32");
    read_done(f, STATUS_OK);
    expect(f, ""); /* one comparison at a time */
    verified(f, true);
    expect(f, "verify 1.1 32=70");
    assert_true(sink_is_verifying(f->table, f->cookie));
    verified(f, true);
    expect(f, ">9 confirm 1.1 h0.1");
    verified(f, false);
    expect(f, ""); /* nothing was asked */
}

/* A comparison that fails while the next blocks land: all that isn't compared is read again. */
static void test_bad_blocks_beside_a_read(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    ready_with(f, 4, 0, 1);
    expect(f, "read 1.1 10>30");
    read_done(f, STATUS_OK);
    expect(f, "verify 1.1 30=50");
    verified(f, true);
    expect(f, "");
    ready_with(f, 8, 1, 1);
    expect(f, "read 1.1 11>31");
    read_done(f, STATUS_OK);
    expect(f, "verify 1.1 31=60");
    complete(f, 1, 3);
    expect(f, "read 1.1 15>32");
    verified(f, false);
    expect(f, ""); /* the read is landing */
    read_done(f, STATUS_OK);
    expect(f, "read 1.1 11>31 15>32");
    read_done(f, STATUS_OK);
    expect(f, "verify 1.1 31=60 32=70");
    assert_int_equal(sink_table_counters(f->table).rereads, 1);
    verified(f, true);
    expect(f, ">9 confirm 1.1 h0.1");
}

/* No single Ready has to arrive: Complete has all sums. */
static void test_sums_behind_a_lost_ready(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    ready_with(f, 8, 1, 1);
    expect(f, "read 1.1 10>30 11>31");
    read_done(f, STATUS_OK);
    expect(f, "");
    complete(f, 1, 3);
    expect(f, "verify 1.1 30=50 31=60; read 1.1 15>32");
}

/* A prefill worker of before protocol 7. */
static void test_checksums_of_an_older_peer(void **state)
{
    static const uint32_t checksums[] = {5, 6, 7};
    struct fixture *f = *state;
    subscribe_one(f);
    ready(f, 1, 8);
    expect(f, "read 1.1 10>30 11>31");
    read_done(f, STATUS_OK);
    struct peer_up message = {.kind = PEER_COMPLETE, .checksum_count = 3, .checksums = checksums};
    answer(f, 1, 1, message);
    expect(f, "verify 1.1 30=5 crc 31=6 crc; read 1.1 15>32");
    verified(f, true);
    read_done(f, STATUS_OK);
    expect(f, "verify 1.1 32=7 crc");
    answer(f, 1, 1, message); /* repeated on another stream */
    expect(f, "");
    verified(f, true);
    expect(f, ">9 confirm 1.1 h0.1");
}

static void test_sums_that_contradict(void **state)
{
    struct fixture *f = *state;
    static const uint64_t others[] = {50, 61, 70};
    static const uint32_t checksums[] = {50, 60, 70};
    const struct peer_up bad[] = {
        {.kind = PEER_COMPLETE, .sum_count = 3, .sums = others},
        {.kind = PEER_COMPLETE, .checksum_count = 3, .checksums = checksums},
        {.kind = PEER_COMPLETE},
        {.kind = PEER_COMPLETE, .sum_first = 2, .sum_count = 2, .sums = others},
        {.kind = PEER_COMPLETE, .sum_count = 2, .sums = sink_sums},
        {.kind = PEER_READY, .ready_tokens = 8, .sum_first = 4, .sum_count = 1, .sums = others},
        {.kind = PEER_READY, .ready_tokens = 8, .sum_count = UINT32_MAX, .sums = others},
    };
    subscribe_one(f);
    for (uint32_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (i > 0) {
            decode(f, 1, 1 + i, 10);
            reserved(f, 1, 1 + i);
        }
        answer(f, 1, 1 + i,
               (struct peer_up){
                   .kind = PEER_READY, .ready_tokens = 8, .sum_count = 2, .sums = sink_sums});
        char text[80];
        snprintf(text, sizeof text, "read 1.%u 10>30 11>31", 1 + i);
        expect(f, text);
        read_done(f, STATUS_OK);
        answer(f, 1, 1 + i, bad[i]);
        snprintf(text, sizeof text, ">9 release 1.%u h0.1; lost 1.%u protocol; unreserve 1.%u",
                 1 + i, 1 + i, 1 + i);
        expect(f, text);
    }
}

static void test_a_peer_that_contradicts_the_handle_is_lost(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    ready(f, 1, 11);
    expect(f, ">9 release 1.1 h0.1; lost 1.1 protocol; unreserve 1.1");
    decode(f, 1, 2, 10);
    reserved(f, 1, 2);
    complete(f, 2, 2);
    expect(f, ">9 release 1.2 h0.1; lost 1.2 protocol; unreserve 1.2");
    /* A token that the model doesn't have would end the step of every sequence; an end that isn't
     * one, the session. */
    decode(f, 1, 3, 10);
    reserved(f, 1, 3);
    answer(f, 1, 3, (struct peer_up){.kind = PEER_COMPLETE, .first_token = VOCAB});
    expect(f, ">9 release 1.3 h0.1; lost 1.3 protocol; unreserve 1.3");
    decode(f, 1, 4, 10);
    reserved(f, 1, 4);
    answer(f, 1, 4, (struct peer_up){.kind = PEER_COMPLETE, .finish = FINISH_COMPLETE + 1});
    expect(f, ">9 release 1.4 h0.1; lost 1.4 protocol; unreserve 1.4");
    decode(f, 1, 5, 10);
    reserved(f, 1, 5);
    complete(f, 5, 0); /* bytes through host memory are never taken without checksums */
    expect(f, ">9 release 1.5 h0.1; lost 1.5 protocol; unreserve 1.5");
    decode(f, 1, 6, 10);
    reserved(f, 1, 6);
    answer(f, 1, 6,
           (struct peer_up){.kind = PEER_COMPLETE,
                            .logprobs = {.given = true, .top_count = 1, .top_ids = {VOCAB}}});
    expect(f, ">9 release 1.6 h0.1; lost 1.6 protocol; unreserve 1.6");
}

static void test_handles_are_checked(void **state)
{
    struct fixture *f = *state;
    static const struct {
        size_t offset;
        uint64_t value;
        bool wide;
        const char *expected;
    } rows[] = {
        {offsetof(struct sink_decode, handle.model_hash), 9, true, "layout_mismatch retry"},
        {offsetof(struct sink_decode, handle.layout_hash), 9, true, "layout_mismatch retry"},
        {offsetof(struct sink_decode, handle.numerics_id), 9, true, "numerics_mismatch retry"},
        {offsetof(struct sink_decode, handle.token_count), 0, false, "invalid"},
        {offsetof(struct sink_decode, handle.token_count), 17, false, "invalid"},
        {offsetof(struct sink_decode, handle.token_count), UINT32_MAX, false, "invalid"},
        {offsetof(struct sink_decode, handle.block_count), 2, false, "invalid"},
        {offsetof(struct sink_decode, handle.block_count), 4, false, "invalid"},
        {offsetof(struct sink_decode, reserve_tokens), 9, false, "invalid"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sink_decode command = decode_of(i, 1, 10);
        uint32_t narrow = (uint32_t)rows[i].value;
        memcpy((char *)&command + rows[i].offset,
               rows[i].wide ? (const void *)&rows[i].value : &narrow, rows[i].wide ? 8 : 4);
        sink_on_decode(f->table, f->now_us, &command, &f->out);
        char expected[64];
        snprintf(expected, sizeof expected, "refused %zu.1 %s", i, rows[i].expected);
        expect(f, expected);
    }
    assert_int_equal(sink_table_count(f->table), 0);
}

static int setup_mixed(void **state)
{
    return setup_with(state, true);
}

/* A setting allows prompts that another arithmetic has computed; nothing else may differ. */
static void test_mixed_numerics_are_allowed_by_a_setting(void **state)
{
    struct fixture *f = *state;
    struct sink_decode command = decode_of(1, 1, 10);
    command.handle.numerics_id = 9;
    sink_on_decode(f->table, f->now_us, &command, &f->out);
    expect(f, "reserve 1.1 30; connect 9");
    command = decode_of(2, 1, 10);
    command.handle.layout_hash = 9;
    sink_on_decode(f->table, f->now_us, &command, &f->out);
    expect(f, "refused 2.1 layout_mismatch retry");
}

static void test_limits(void **state)
{
    struct fixture *f = *state; /* 3 sinks, 2 peers */
    decode(f, 1, 1, 4);
    struct sink_decode command = decode_of(2, 1, 4);
    command.peer = PEER + 1;
    sink_on_decode(f->table, f->now_us, &command, &f->out);
    expect(f, "reserve 2.1 24; connect 10");
    command = decode_of(3, 1, 4);
    command.peer = PEER + 2;
    sink_on_decode(f->table, f->now_us, &command, &f->out);
    expect(f, "refused 3.1 limit retry"); /* both peers are in use */
    sink_on_release(f->table, f->now_us, 2, 1, &f->out);
    command.attempt = 2;
    sink_on_decode(f->table, f->now_us, &command, &f->out);
    expect(f, "close 10; reserve 3.2 24; connect 11");
    decode(f, 4, 1, 4);
    decode(f, 5, 1, 4);
    expect(f, "refused 5.1 limit retry");
    sink_on_reserve_failed(f->table, f->now_us, 1, 1, false, &f->out);
    expect(f, "refused 1.1 invalid; unreserve 1.1");
    sink_on_reserve_failed(f->table, f->now_us, 4, 1, true, &f->out);
    expect(f, "refused 4.1 limit retry; unreserve 4.1");
    /* The longest list: all give up, and a peer is due. */
    sink_on_peer_lost(f->table, f->now_us, PEER + 2, false, &f->out);
    tick(f, f->now_us + PEER_DOWN);
    expect(f, "lost 3.2 peer_down; unreserve 3.2");
}

static void test_a_table_full_of_orphans_refuses(void **state)
{
    struct fixture *f = *state;
    subscribe_one(f);
    ready(f, 1, 4);
    expect(f, "read 1.1 10>30");
    uint64_t cookie = f->cookie;
    sink_on_release(f->table, f->now_us, 1, 1, &f->out);
    decode(f, 2, 1, 4);
    decode(f, 3, 1, 4);
    decode(f, 4, 1, 4);
    expect(f, "refused 4.1 limit retry");
    sink_on_read_done(f->table, f->now_us, cookie, STATUS_OK, &f->out);
    expect(f, "unreserve 1.1");
    decode(f, 4, 1, 4);
    expect(f, "lost 4.1 gone"); /* a refused attempt has ended */
    decode(f, 4, 2, 4);
    expect(f, "reserve 4.2 24; >9 extend 4.2 h0.1");
}

static void test_a_late_verdict_is_dropped(void **state)
{
    struct fixture *f = *state;
    read_one(f);
    uint64_t old = f->cookie;
    sink_on_release(f->table, f->now_us, 1, 1, &f->out);
    expect(f, "unreserve 1.1");
    decode(f, 2, 1, 4); /* in the same slot */
    sink_on_verified(f->table, f->now_us, old, true, &f->out);
    expect(f, "");
}

static void test_block_runs_merge_neighbours_on_both_sides(void **state)
{
    (void)state;
    static const uint32_t remote[] = {10, 11, 12, 14, 15, 9, 10};
    static const uint32_t local[] = {30, 31, 33, 34, 35, 36, 37};
    struct block_run runs[7];
    assert_int_equal(block_runs(remote, local, 7, runs), 4);
    static const struct block_run expected[] = {{10, 30, 2}, {12, 33, 1}, {14, 34, 2}, {9, 36, 2}};
    assert_memory_equal(runs, expected, sizeof expected);
    assert_int_equal(block_runs(remote, local, 0, runs), 0);
}

static void test_a_configuration_without_sizes_is_refused(void **state)
{
    (void)state;
    struct sink_table *table = NULL;
    struct error err;
    struct sink_config config = {.block_tokens = 4, .max_sinks = 1, .max_blocks = 1};
    assert_int_equal(sink_table_create(&config, &table, &err), STATUS_INVALID);
    config.block_bytes = config.max_peers = config.max_read_blocks = 1;
    assert_int_equal(sink_table_create(&config, &table, &err), STATUS_INVALID);
    assert_null(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_the_whole_life),
        T(test_without_a_handle_the_prompt_is_computed_here),
        T(test_reading_in_pieces),
        T(test_blocks_that_are_here_are_not_read),
        T(test_the_lease_is_extended_from_decode_on),
        T(test_the_end_with_the_first_token),
        T(test_attempts),
        T(test_a_repeated_decode),
        cmocka_unit_test(test_past_attempts_are_bounded),
        T(test_messages_out_of_state_are_dropped),
        T(test_a_peer_that_contradicts_the_handle_is_lost),
        T(test_blocks_are_compared_as_they_come),
        T(test_bad_blocks_beside_a_read),
        T(test_sums_behind_a_lost_ready),
        T(test_checksums_of_an_older_peer),
        T(test_sums_that_contradict),
        T(test_handles_are_checked),
        cmocka_unit_test_setup_teardown(test_mixed_numerics_are_allowed_by_a_setting, setup_mixed,
                                        teardown),
        T(test_limits),
        T(test_a_table_full_of_orphans_refuses),
        T(test_a_late_verdict_is_dropped),
        cmocka_unit_test(test_block_runs_merge_neighbours_on_both_sides),
        cmocka_unit_test(test_a_configuration_without_sizes_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
