/* rpc: calls of every shape between a server and a client in one process over loopback, their ends
 * and their limits. */
#include "common/base/clock.h"
#include "tests/unit/rpc_service.h"

/* --- shapes of calls --- */

static void test_unary_with_headers_both_ways(void **state)
{
    struct fixture *f = *state;
    const struct rpc_metadata headers[] = {{"x-ask", "why"}, {"x-more", "1"}};
    const struct rpc_call_options options = {.path = "/test.Test/Echo",
                                             .handlers = probe_handlers,
                                             .context = &f->client,
                                             .metadata = headers,
                                             .metadata_count = 2};
    struct rpc_call *call;
    assert_int_equal(rpc_call_start_with(f->channel, &options, &call), STATUS_OK);
    assert_int_equal(rpc_call_send(call, "hello", 5), STATUS_OK);
    rpc_call_half_close(call);
    assert_int_equal(rpc_call_send(call, "x", 1), STATUS_CANCELLED);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.messages, 1);
    assert_string_equal(f->client.last, "hello");
    assert_int_equal(f->client.end.code, RPC_OK);
    assert_string_equal(f->client.reason, "");
    assert_string_equal(rpc_call_metadata(call, "x-echo"), "why");
    assert_string_equal(rpc_call_metadata(call, "x-none"), "");
    assert_int_equal(rpc_call_queued_bytes(call), 0);
    rpc_call_unref(call);
    probe_wait(&server_probe, &server_probe.closed, 1);
    assert_int_equal(server_probe.end.code, RPC_OK);
    assert_string_equal(rpc_call_metadata(server_probe.call, "x-more"), "1");
    assert_memory_equal(rpc_call_peer(server_probe.call), "127.0.0.1:", 10);
}

static void test_headers_that_http2_cannot_carry(void **state)
{
    struct fixture *f = *state;
    static const struct rpc_metadata bad[] = {
        {"UPPER", "v"}, {"", "v"}, {"key", "line\nbreak"}, {"data-bin", "v"}, {"key", "\xc3\xbc"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct rpc_call_options options = {
            .path = "/test.Test/Echo", .metadata = &bad[i], .metadata_count = 1};
        struct rpc_call *call;
        assert_int_equal(rpc_call_start_with(f->channel, &options, &call), STATUS_INVALID);
    }
}

static void test_more_headers_than_a_call_has(void **state)
{
    struct fixture *f = *state;
    struct rpc_metadata headers[RPC_MAX_METADATA + 1];
    for (size_t i = 0; i <= RPC_MAX_METADATA; i++)
        headers[i] = (struct rpc_metadata){"x-test", "v"};
    struct rpc_call_options options = {.path = "/test.Test/Echo",
                                       .handlers = probe_handlers,
                                       .context = &f->client,
                                       .metadata = headers,
                                       .metadata_count = RPC_MAX_METADATA + 1};
    struct rpc_call *call;
    assert_int_equal(rpc_call_start_with(f->channel, &options, &call), STATUS_LIMIT);
    options.metadata_count--;
    assert_int_equal(rpc_call_start_with(f->channel, &options, &call), STATUS_OK);
    assert_int_equal(rpc_call_send(call, "a", 1), STATUS_OK);
    rpc_call_half_close(call);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.end.code, RPC_OK);
    rpc_call_unref(call);
}

static void test_empty_message(void **state)
{
    struct fixture *f = *state;
    probe_unary(&f->client, f->channel, "/test.Test/Echo", NULL, 0);
    assert_int_equal(f->client.end.code, RPC_OK);
    assert_int_equal(f->client.messages, 1);
    assert_int_equal(f->client.last_size, 0);
}

static void test_server_streaming(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call = start_counting(f->channel, &f->client, "/test.Test/Count");
    uint32_t count = 1000;
    assert_int_equal(rpc_call_send(call, &count, sizeof count), STATUS_OK);
    rpc_call_half_close(call);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.messages, count);
    assert_int_equal(f->client.end.code, RPC_OK);
    rpc_call_unref(call);
}

static void count_late(void *context)
{
    probe_count(context, &((struct probe *)context)->half_closed);
}

/* A client that opens a call and sends nothing would hold its place for ever. After its first
 * message it may be silent for any time. */
static void test_a_call_that_says_nothing_is_ended(void **state)
{
    struct fixture *f = *state;
    struct probe late, silent;
    probe_init(&late);
    struct rpc_server *server;
    struct error err;
    const struct rpc_server_config config = {.listen = "127.0.0.1:0",
                                             .methods = methods,
                                             .method_count = METHOD_COUNT,
                                             .first_message_us = 100000,
                                             .late = count_late,
                                             .late_context = &late};
    assert_int_equal(rpc_server_start(f->server_runtime, &config, &server, &err), STATUS_OK);
    struct rpc_channel *channel = open_channel(f, rpc_server_address(server), 0);
    struct rpc_call *talks = probe_start(&f->client, channel, "/test.Test/Chat", 0);
    uint32_t number = 0;
    assert_int_equal(rpc_call_send(talks, &number, sizeof number), STATUS_OK);
    probe_wait(&f->client, &f->client.messages, 1);
    static const char *const paths[] = {"/test.Test/Chat", "/test.Test/Echo",
                                        "/grpc.health.v1.Health/Check"};
    for (size_t i = 0; i < 3; i++) {
        probe_init(&silent);
        uint64_t begin_us = clock_now_us();
        struct rpc_call *call = probe_start(&silent, channel, paths[i], 20000000);
        probe_wait(&silent, &silent.closed, 1);
        assert_true(clock_now_us() - begin_us >= config.first_message_us);
        assert_int_equal(silent.end.code, RPC_DEADLINE_EXCEEDED);
        assert_string_equal(silent.reason, "late_message");
        assert_string_equal(silent.sentence, "no message came within 100 ms");
        rpc_call_unref(call);
        probe_deinit(&silent);
    }
    probe_wait(&late, &late.half_closed, 3);
    number = 1;
    assert_int_equal(rpc_call_send(talks, &number, sizeof number), STATUS_OK);
    probe_wait(&f->client, &f->client.messages, 2);
    rpc_call_half_close(talks);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.end.code, RPC_OK);
    rpc_call_unref(talks);
    rpc_channel_destroy(channel);
    rpc_server_stop(server, 0);
    assert_int_equal(late.half_closed, 3);
    probe_deinit(&late);
}

static void put_aside(struct rpc_call *call, struct rpc_bytes bytes)
{
    rpc_call_put_aside(call, bytes.size);
    probe_message(rpc_call_context(call), bytes);
}

enum { ASIDE = (RPC_READ_AHEAD_BYTES + 131) / 132 }; /* messages of 4 bytes */

/* A call with unread messages, once it has read as far ahead as it may. */
static struct rpc_call *start_reading_ahead(struct fixture *f, uint32_t count, struct probe *other)
{
    const struct rpc_call_options options = {
        .path = "/test.Test/Count",
        .handlers = {.message = put_aside, .closed = probe_on_closed},
        .context = &f->client};
    struct rpc_call *call;
    assert_int_equal(rpc_call_start_with(f->channel, &options, &call), STATUS_OK);
    assert_int_equal(rpc_call_send(call, &count, sizeof count), STATUS_OK);
    rpc_call_half_close(call);
    probe_wait(&f->client, &f->client.messages, ASIDE);
    probe_init(other);
    probe_unary(other, f->channel, "/test.Test/Echo", "x", 1); /* others are read meanwhile */
    assert_int_equal(f->client.messages, ASIDE);
    return call;
}

static void test_no_further_message_is_read_while_many_lie_aside(void **state)
{
    struct fixture *f = *state;
    struct probe other;
    enum { COUNT = 3 * ASIDE };
    struct rpc_call *call = start_reading_ahead(f, COUNT, &other);
    for (size_t i = 0; i < COUNT; i++) {
        probe_wait(&f->client, &f->client.messages, i + 1);
        rpc_call_worked_off(call, 4);
    }
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.messages, COUNT);
    assert_int_equal(f->client.end.code, RPC_OK);
    rpc_call_unref(call);
    probe_deinit(&other);
}

static void test_a_cancelled_call_ends_although_messages_lie_aside(void **state)
{
    struct fixture *f = *state;
    struct probe other;
    struct rpc_call *call = start_reading_ahead(f, 3 * ASIDE, &other);
    rpc_call_cancel(call);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.messages, ASIDE);
    for (size_t i = 0; i < ASIDE; i++)
        rpc_call_worked_off(call, 4);
    rpc_call_unref(call);
    probe_deinit(&other);
}

static void test_bidi_keeps_order_both_ways(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call = start_counting(f->channel, &f->client, "/test.Test/Chat");
    enum { COUNT = 10000 };
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(rpc_call_send(call, &i, sizeof i), STATUS_OK);
    rpc_call_half_close(call);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.messages, COUNT);
    assert_int_equal(f->client.end.code, RPC_OK);
    probe_wait(&server_probe, &server_probe.closed, 1);
    assert_int_equal(server_probe.messages, COUNT);
    assert_int_equal(server_probe.half_closed, 1);
    rpc_call_unref(call);
}

static void test_server_speaks_first_from_another_thread(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call = probe_start(&f->client, f->channel, "/test.Test/Chat", 0);
    probe_wait(&server_probe, &server_probe.opened, 1);
    assert_int_equal(rpc_call_send(server_probe.call, "first", 5), STATUS_OK);
    probe_wait(&f->client, &f->client.messages, 1);
    assert_string_equal(f->client.last, "first");
    rpc_call_finish(server_probe.call, RPC_OK, NULL, NULL);
    assert_int_equal(rpc_call_send(server_probe.call, "x", 1), STATUS_CANCELLED);
    probe_wait(&f->client, &f->client.closed, 1);
    probe_wait(&server_probe, &server_probe.closed, 1);
    assert_int_equal(server_probe.end.code, RPC_OK);
    /* Both calls are over, and both references still good: everything is refused without harm. */
    struct rpc_call *ended[] = {call, server_probe.call};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rpc_call_send(ended[i], "x", 1), STATUS_CANCELLED);
        rpc_call_cancel(ended[i]);
    }
    rpc_call_half_close(call);
    rpc_call_finish(server_probe.call, RPC_OK, NULL, NULL);
    rpc_call_unref(call);
}

static void test_many_calls_at_once(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 50 };
    struct rpc_call *calls[COUNT];
    for (int i = 0; i < COUNT; i++) {
        calls[i] = probe_start(&f->client, f->channel, "/test.Test/Echo", 0);
        assert_int_equal(rpc_call_send(calls[i], "hi", 2), STATUS_OK);
        rpc_call_half_close(calls[i]);
    }
    probe_wait(&f->client, &f->client.closed, COUNT);
    for (int i = 0; i < COUNT; i++)
        rpc_call_unref(calls[i]);
    assert_int_equal(f->client.messages, COUNT);
    assert_int_equal(f->client.closed, COUNT);
}

/* --- ends --- */

static void test_status_reason_and_sentence_arrive(void **state)
{
    struct fixture *f = *state;
    probe_unary(&f->client, f->channel, "/test.Test/Fail", "x", 1);
    assert_int_equal(f->client.end.code, RPC_FAILED_PRECONDITION);
    assert_string_equal(f->client.reason, "wrong_layout");
    assert_string_equal(f->client.sentence, "layouts differ: \xc3\xbc % \"");
    assert_int_equal(f->client.messages, 0);
    probe_wait(&server_probe, &server_probe.closed, 1);
    assert_int_equal(server_probe.end.code, RPC_FAILED_PRECONDITION);
    assert_string_equal(server_probe.reason, "wrong_layout");
}

static void test_a_long_sentence_is_cut_at_a_character(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call = probe_start(&f->client, f->channel, "/test.Test/Chat", 0);
    probe_wait(&server_probe, &server_probe.opened, 1);
    char sentence[1500];
    for (size_t i = 0; i + 2 < sizeof sentence; i += 2)
        memcpy(sentence + i, "\xc3\xbc", 3);
    rpc_call_finish(server_probe.call, RPC_ABORTED, "bad\nreason", sentence);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.end.code, RPC_ABORTED);
    assert_string_equal(f->client.reason, "");
    assert_int_equal(strlen(f->client.sentence), 1022);
    rpc_call_unref(call);
}

static void test_unknown_method(void **state)
{
    struct fixture *f = *state;
    probe_unary(&f->client, f->channel, "/test.Test/Nothing", "x", 1);
    assert_int_equal(f->client.end.code, RPC_UNIMPLEMENTED);
    assert_string_equal(f->client.reason, "unknown_method");
    assert_string_equal(f->client.sentence, "unknown method /test.Test/Nothing");
}

static void test_exactly_one_request_message(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call = probe_start(&f->client, f->channel, "/test.Test/Hold", 0);
    rpc_call_half_close(call);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.end.code, RPC_INVALID_ARGUMENT);
    assert_string_equal(f->client.reason, "missing_message");
    rpc_call_unref(call);

    call = probe_start(&f->client, f->channel, "/test.Test/Hold", 0);
    assert_int_equal(rpc_call_send(call, "a", 1), STATUS_OK);
    assert_int_equal(rpc_call_send(call, "b", 1), STATUS_OK);
    probe_wait(&f->client, &f->client.closed, 2);
    assert_int_equal(f->client.end.code, RPC_INVALID_ARGUMENT);
    assert_string_equal(f->client.reason, "surplus_message");
    probe_wait(&server_probe, &server_probe.closed, 2);
    assert_int_equal(server_probe.messages, 1);
    rpc_call_unref(call);
}

static void test_client_cancel_reaches_the_server(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call = probe_start(&f->client, f->channel, "/test.Test/Hold", 0);
    assert_int_equal(rpc_call_send(call, "x", 1), STATUS_OK);
    probe_wait(&server_probe, &server_probe.messages, 1);
    assert_true(rpc_call_deadline_left_us(server_probe.call) == UINT64_MAX);
    rpc_call_cancel(call);
    probe_wait(&server_probe, &server_probe.closed, 1);
    assert_int_equal(server_probe.end.code, RPC_CANCELLED);
    assert_int_equal(rpc_call_send(server_probe.call, "x", 1), STATUS_CANCELLED);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.end.code, RPC_CANCELLED);
    rpc_call_unref(call);
}

static void test_server_cancel_reaches_the_client(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call = probe_start(&f->client, f->channel, "/test.Test/Chat", 0);
    probe_wait(&server_probe, &server_probe.opened, 1);
    rpc_call_cancel(server_probe.call);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.end.code, RPC_CANCELLED);
    probe_wait(&server_probe, &server_probe.closed, 1);
    assert_int_equal(server_probe.end.code, RPC_CANCELLED);
    rpc_call_unref(call);
}

static void test_deadline_ends_both_sides(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call = probe_start(&f->client, f->channel, "/test.Test/Hold", 300000);
    assert_int_equal(rpc_call_send(call, "x", 1), STATUS_OK);
    probe_wait(&server_probe, &server_probe.messages, 1);
    uint64_t left_us = rpc_call_deadline_left_us(server_probe.call);
    assert_true(left_us <= 320000);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.end.code, RPC_DEADLINE_EXCEEDED);
    probe_wait(&server_probe, &server_probe.closed, 1);
    /* Its own deadline comes a moment later than the client's, which resets the stream. */
    assert_true(server_probe.end.code == RPC_DEADLINE_EXCEEDED ||
                server_probe.end.code == RPC_CANCELLED);
    rpc_call_unref(call);
}

/* --- limits --- */

static void test_a_message_over_the_limit_ends_the_call(void **state)
{
    struct fixture *f = *state;
    static const char big[MESSAGE_LIMIT + 1];
    probe_unary(&f->client, f->channel, "/test.Test/Echo", big, sizeof big - 1);
    assert_int_equal(f->client.end.code, RPC_OK); /* at the limit */
    assert_int_equal(f->client.last_size, MESSAGE_LIMIT);

    f->client.closed = 0;
    probe_unary(&f->client, f->channel, "/test.Test/Echo", big, sizeof big);
    assert_int_equal(f->client.end.code, RPC_RESOURCE_EXHAUSTED);
    assert_string_equal(f->client.reason, "message_too_large");
    probe_wait(&server_probe, &server_probe.closed, 2);
    assert_int_equal(server_probe.messages, 1);

    f->client.closed = 0;
    probe_unary(&f->client, f->channel, "/test.Test/Big", "x", 1);
    assert_int_equal(f->client.end.code, RPC_RESOURCE_EXHAUSTED);
}

/* A client handler that is stuck until the test opens the gate. */
static struct probe gate;
static void wait_at_gate(struct rpc_call *call, struct rpc_bytes bytes)
{
    probe_wait(&gate, &gate.opened, 1);
    expect_next_number(call, (struct rpc_bytes){bytes.data, sizeof(uint32_t)});
}

static void test_a_slow_reader_fills_the_queue(void **state)
{
    struct fixture *f = *state;
    probe_init(&gate);
    struct rpc_handlers handlers = probe_handlers;
    handlers.message = wait_at_gate;
    struct rpc_call *call;
    assert_int_equal(
        rpc_call_start(f->channel, "/test.Test/Chat", &handlers, &f->client, 0, false, &call),
        STATUS_OK);
    probe_wait(&server_probe, &server_probe.opened, 1);
    static uint32_t message[MESSAGE_LIMIT / sizeof(uint32_t)];
    enum status status = STATUS_OK;
    for (message[0] = 0; message[0] < 10000; message[0]++) {
        status = rpc_call_send(server_probe.call, message, sizeof message);
        if (status != STATUS_OK)
            break;
    }
    assert_int_equal(status, STATUS_LIMIT);
    assert_true(rpc_call_queued_bytes(server_probe.call) <= QUEUE_LIMIT);
    rpc_call_finish(server_probe.call, RPC_OK, NULL, NULL);
    probe_count(&gate, &gate.opened);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.end.code, RPC_OK); /* all that was accepted arrives */
    assert_int_equal(f->client.messages, message[0]);
    rpc_call_unref(call);
    probe_deinit(&gate);
}

static void test_a_message_larger_than_the_queue(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call = probe_start(&f->client, f->channel, "/test.Test/Chat", 0);
    static const char big[QUEUE_LIMIT];
    assert_int_equal(rpc_call_send(call, big, sizeof big), STATUS_LIMIT);
    assert_int_equal(rpc_call_queued_bytes(call), 0);
    rpc_call_unref(call);
}

static void test_calls_over_the_limit_are_refused(void **state)
{
    struct fixture *f = *state;
    enum { LIMIT = 64 };
    struct rpc_call *calls[LIMIT];
    for (int i = 0; i < LIMIT; i++)
        calls[i] = probe_start(&f->client, f->channel, "/test.Test/Hold", 0);
    probe_wait(&server_probe, &server_probe.opened, LIMIT);
    struct probe surplus;
    probe_init(&surplus);
    probe_unary(&surplus, f->channel, "/test.Test/Hold", "x", 1);
    assert_int_equal(surplus.end.code, RPC_RESOURCE_EXHAUSTED);
    assert_string_equal(surplus.reason, "too_many_calls");
    probe_deinit(&surplus);
    assert_int_equal(server_probe.opened, LIMIT);
    for (int i = 0; i < LIMIT; i++) {
        rpc_call_cancel(calls[i]);
        rpc_call_unref(calls[i]);
    }
    probe_wait(&f->client, &f->client.closed, LIMIT);
}

/* --- many threads at one call --- */

static void *send_until_refused(void *argument)
{
    struct rpc_call *call = argument;
    uint32_t number = 0;
    while (rpc_call_send(call, &number, sizeof number) != STATUS_CANCELLED)
        number++;
    return NULL;
}

static void test_threads_race_to_the_end_of_a_call(void **state)
{
    struct fixture *f = *state;
    enum { ROUNDS = 30, SENDERS = 2 };
    for (size_t round = 0; round < ROUNDS; round++) {
        struct rpc_call *call = probe_start(&f->client, f->channel, "/test.Test/Chat", 0);
        probe_wait(&server_probe, &server_probe.opened, round + 1);
        pthread_t senders[SENDERS];
        for (int i = 0; i < SENDERS; i++)
            assert_int_equal(
                pthread_create(&senders[i], NULL, send_until_refused, server_probe.call), 0);
        probe_wait(&f->client, &f->client.messages, 1);
        if (round % 3)
            rpc_call_cancel(call);
        if (round % 3 != 1)
            rpc_call_finish(server_probe.call, RPC_ABORTED, NULL, NULL);
        probe_wait(&f->client, &f->client.closed, round + 1);
        probe_wait(&server_probe, &server_probe.closed, round + 1);
        for (int i = 0; i < SENDERS; i++)
            pthread_join(senders[i], NULL);
        rpc_call_unref(call);
    }
    assert_int_equal(f->client.closed, ROUNDS);
    assert_int_equal(server_probe.closed, ROUNDS);
}

static void test_runtime_limits(void **state)
{
    (void)state;
    struct rpc_runtime *runtime;
    struct error err;
    assert_int_equal(rpc_runtime_create(0, &runtime, &err), STATUS_INVALID);
    assert_int_equal(rpc_runtime_create(65, &runtime, &err), STATUS_INVALID);
    assert_string_equal(rpc_code_name(RPC_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
    assert_string_equal(rpc_code_name((enum rpc_code)99), "UNKNOWN");
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(test_unary_with_headers_both_ways),
        WITH_FIXTURE(test_headers_that_http2_cannot_carry),
        WITH_FIXTURE(test_more_headers_than_a_call_has),
        WITH_FIXTURE(test_empty_message),
        WITH_FIXTURE(test_server_streaming),
        WITH_FIXTURE(test_a_call_that_says_nothing_is_ended),
        WITH_FIXTURE(test_no_further_message_is_read_while_many_lie_aside),
        WITH_FIXTURE(test_a_cancelled_call_ends_although_messages_lie_aside),
        WITH_FIXTURE(test_bidi_keeps_order_both_ways),
        WITH_FIXTURE(test_server_speaks_first_from_another_thread),
        WITH_FIXTURE(test_many_calls_at_once),
        WITH_FIXTURE(test_status_reason_and_sentence_arrive),
        WITH_FIXTURE(test_a_long_sentence_is_cut_at_a_character),
        WITH_FIXTURE(test_unknown_method),
        WITH_FIXTURE(test_exactly_one_request_message),
        WITH_FIXTURE(test_client_cancel_reaches_the_server),
        WITH_FIXTURE(test_server_cancel_reaches_the_client),
        WITH_FIXTURE(test_deadline_ends_both_sides),
        WITH_FIXTURE(test_a_message_over_the_limit_ends_the_call),
        WITH_FIXTURE(test_a_slow_reader_fills_the_queue),
        WITH_FIXTURE(test_a_message_larger_than_the_queue),
        WITH_FIXTURE(test_calls_over_the_limit_are_refused),
        WITH_FIXTURE(test_threads_race_to_the_end_of_a_call),
        cmocka_unit_test(test_runtime_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
