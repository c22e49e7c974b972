/* rpc: calls of every shape between a server and a client in one process over loopback, and to a process that is killed. */
#include "rpc_probe.h"

#include "common/base/clock.h"

#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGE_LIMIT (64u << 10)
#define QUEUE_LIMIT   (2u << 20)

/* --- the test service --- */

static struct probe server_probe; /* of all server calls of one test */

static void on_open(struct rpc_call *call, void *service)
{
    assert_ptr_equal(service, &server_probe);
    probe_open(&server_probe, call);
}

static void on_server_closed(struct rpc_call *call, const struct rpc_end *end)
{
    (void)call;
    probe_closed(&server_probe, end);
}

static void on_echo(struct rpc_call *call, struct rpc_bytes bytes)
{
    probe_message(&server_probe, bytes);
    assert_int_equal(rpc_call_add_metadata(call, "x-echo", rpc_call_metadata(call, "x-ask")),
                     STATUS_OK);
    assert_int_equal(rpc_call_send(call, bytes.data, bytes.size), STATUS_OK);
    assert_int_equal(rpc_call_add_metadata(call, "x-late", "1"), STATUS_CANCELLED);
    rpc_call_finish(call, RPC_OK, NULL, NULL);
    rpc_call_finish(call, RPC_INTERNAL, "second", "the first finish counts");
}

/* The request is a count; answers 0, 1, 2, ... */
static void on_count(struct rpc_call *call, struct rpc_bytes bytes)
{
    uint32_t count;
    assert_int_equal(bytes.size, sizeof count);
    memcpy(&count, bytes.data, sizeof count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(rpc_call_send(call, &i, sizeof i), STATUS_OK);
    rpc_call_finish(call, RPC_OK, NULL, NULL);
}

static void on_chat(struct rpc_call *call, struct rpc_bytes bytes)
{
    uint32_t number;
    assert_int_equal(bytes.size, sizeof number);
    memcpy(&number, bytes.data, sizeof number);
    assert_int_equal(number, server_probe.messages); /* in order */
    probe_message(&server_probe, bytes);
    assert_int_equal(rpc_call_send(call, bytes.data, bytes.size), STATUS_OK);
}

static void on_chat_half_close(struct rpc_call *call)
{
    probe_count(&server_probe, &server_probe.half_closed);
    rpc_call_finish(call, RPC_OK, NULL, NULL);
}

static void on_hold(struct rpc_call *call, struct rpc_bytes bytes)
{
    (void)call;
    probe_message(&server_probe, bytes);
}

static void on_fail(struct rpc_call *call, struct rpc_bytes bytes)
{
    (void)bytes;
    rpc_call_finish(call, RPC_FAILED_PRECONDITION, "wrong_layout", "layouts differ: \xc3\xbc % \"");
}

static void on_big(struct rpc_call *call, struct rpc_bytes bytes)
{
    (void)bytes;
    static const char big[MESSAGE_LIMIT + 1];
    assert_int_equal(rpc_call_send(call, big, sizeof big), STATUS_OK);
    rpc_call_finish(call, RPC_OK, NULL, NULL);
}

#define METHOD(name, ...)                                                                          \
    {                                                                                              \
        .path = "/test.Test/" name,                                                                \
        .handlers = {.open = on_open, .closed = on_server_closed, __VA_ARGS__},                    \
        .service = &server_probe                                                                   \
    }
static struct rpc_method methods[] = {
    METHOD("Echo", .message = on_echo),
    METHOD("Count", .message = on_count),
    METHOD("Chat", .message = on_chat, .half_close = on_chat_half_close),
    METHOD("Hold", .message = on_hold),
    METHOD("Fail", .message = on_fail),
    METHOD("Big", .message = on_big),
};
enum { METHOD_COUNT = sizeof methods / sizeof *methods, CHAT = 2 };

static struct rpc_server *start_server(struct rpc_runtime *runtime, const char *listen)
{
    methods[CHAT].client_streams = true;
    static const char *const services[] = {"test.Test"};
    const struct rpc_server_config config = {.listen = listen,
                                             .max_message_bytes = MESSAGE_LIMIT,
                                             .max_queued_bytes = QUEUE_LIMIT,
                                             .max_calls = 64,
                                             .methods = methods,
                                             .method_count = METHOD_COUNT,
                                             .services = services,
                                             .service_count = 1};
    struct error err;
    struct rpc_server *server;
    if (rpc_server_start(runtime, &config, &server, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return server;
}

/* --- fixture: runtimes of their own for both sides --- */

struct fixture {
    struct rpc_runtime *server_runtime, *client_runtime;
    struct rpc_server *server; /* NULL once a test stopped it */
    struct rpc_channel *channel;
    struct probe client;
};

static struct rpc_channel *open_channel(struct fixture *f, const char *target)
{
    const struct rpc_channel_config config = {
        .target = target, .max_message_bytes = MESSAGE_LIMIT, .max_queued_bytes = QUEUE_LIMIT};
    struct error err;
    struct rpc_channel *channel;
    assert_int_equal(rpc_channel_create(f->client_runtime, &config, &channel, &err), STATUS_OK);
    return channel;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    struct error err;
    assert_int_equal(rpc_runtime_create(2, &f->server_runtime, &err), STATUS_OK);
    assert_int_equal(rpc_runtime_create(2, &f->client_runtime, &err), STATUS_OK);
    probe_init(&server_probe);
    probe_init(&f->client);
    f->server = start_server(f->server_runtime, "127.0.0.1:0");
    f->channel = open_channel(f, rpc_server_address(f->server));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    if (f->channel)
        rpc_channel_destroy(f->channel);
    if (f->server)
        rpc_server_stop(f->server, 0);
    assert_int_equal(server_probe.opened, server_probe.closed); /* exactly once each */
    rpc_runtime_destroy(f->client_runtime);
    rpc_runtime_destroy(f->server_runtime);
    probe_deinit(&f->client);
    probe_deinit(&server_probe);
    free(f);
    return 0;
}

static void stop_server(struct fixture *f, uint64_t grace_us)
{
    rpc_server_stop(f->server, grace_us);
    f->server = NULL;
}

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
    assert_memory_equal(rpc_call_peer(server_probe.call), "ipv4:127.0.0.1:", 15);
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

static void test_empty_message(void **state)
{
    struct fixture *f = *state;
    probe_unary(&f->client, f->channel, "/test.Test/Echo", NULL, 0);
    assert_int_equal(f->client.end.code, RPC_OK);
    assert_int_equal(f->client.messages, 1);
    assert_int_equal(f->client.last_size, 0);
}

static void expect_next_number(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct probe *probe = rpc_call_context(call);
    uint32_t number;
    assert_int_equal(bytes.size, sizeof number);
    memcpy(&number, bytes.data, sizeof number);
    assert_int_equal(number, probe->messages);
    probe_message(probe, bytes);
}

static struct rpc_call *start_counting(struct fixture *f, const char *path)
{
    struct rpc_handlers handlers = probe_handlers;
    handlers.message = expect_next_number;
    struct rpc_call *call;
    assert_int_equal(rpc_call_start(f->channel, path, &handlers, &f->client, 0, false, &call),
                     STATUS_OK);
    return call;
}

static void test_server_streaming(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call = start_counting(f, "/test.Test/Count");
    uint32_t count = 1000;
    assert_int_equal(rpc_call_send(call, &count, sizeof count), STATUS_OK);
    rpc_call_half_close(call);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.messages, count);
    assert_int_equal(f->client.end.code, RPC_OK);
    rpc_call_unref(call);
}

static void test_bidi_keeps_order_both_ways(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call = start_counting(f, "/test.Test/Chat");
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
    assert_int_equal(server_probe.end.code, RPC_DEADLINE_EXCEEDED);
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

/* --- shutdown and lost peers --- */

static void start_held_calls(struct fixture *f, struct rpc_call *calls[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        calls[i] = probe_start(&f->client, f->channel, "/test.Test/Hold", 0);
        assert_int_equal(rpc_call_send(calls[i], "x", 1), STATUS_OK);
    }
    probe_wait(&server_probe, &server_probe.messages, count);
}

static void test_stopping_a_server_ends_live_calls(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 5 };
    struct rpc_call *calls[COUNT];
    start_held_calls(f, calls, COUNT);
    stop_server(f, 0);
    assert_int_equal(server_probe.closed, COUNT); /* before stop returned */
    probe_wait(&f->client, &f->client.closed, COUNT);
    assert_int_equal(f->client.end.code, RPC_UNAVAILABLE);
    for (int i = 0; i < COUNT; i++)
        rpc_call_unref(calls[i]);
    assert_int_equal(f->client.closed, COUNT);
}

static void *stop_with_grace(void *argument)
{
    stop_server(argument, 20000000);
    return NULL;
}

static void test_stopping_a_server_waits_for_calls(void **state)
{
    struct fixture *f = *state;
    struct rpc_call *call;
    start_held_calls(f, &call, 1);
    struct probe watch;
    probe_init(&watch);
    struct rpc_call *watching = probe_start(&watch, f->channel, "/grpc.health.v1.Health/Watch", 0);
    assert_int_equal(rpc_call_send(watching, "", 0), STATUS_OK);
    probe_wait(&watch, &watch.messages, 1);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_with_grace, f), 0);
    probe_wait(&watch, &watch.closed, 1); /* watches end at once */
    assert_int_equal(watch.end.code, RPC_UNAVAILABLE);
    assert_string_equal(watch.reason, "shutting_down");
    assert_int_equal(server_probe.closed, 0);
    assert_int_equal(rpc_call_send(server_probe.call, "late", 4), STATUS_OK);
    rpc_call_finish(server_probe.call, RPC_OK, NULL, NULL);
    probe_wait(&f->client, &f->client.closed, 1);
    assert_int_equal(f->client.end.code, RPC_OK);
    assert_string_equal(f->client.last, "late");
    pthread_join(thread, NULL);
    rpc_call_unref(watching);
    rpc_call_unref(call);
    probe_deinit(&watch);
}

static void test_destroying_a_channel_ends_its_calls(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 5 };
    struct rpc_call *calls[COUNT];
    start_held_calls(f, calls, COUNT);
    rpc_channel_destroy(f->channel);
    f->channel = NULL;
    assert_int_equal(f->client.closed, COUNT);
    assert_int_equal(f->client.end.code, RPC_CANCELLED);
    probe_wait(&server_probe, &server_probe.closed, COUNT);
    for (int i = 0; i < COUNT; i++)
        rpc_call_unref(calls[i]);
}

static void test_nobody_listens(void **state)
{
    struct fixture *f = *state;
    char address[64];
    snprintf(address, sizeof address, "%s", rpc_server_address(f->server));
    stop_server(f, 0);
    struct rpc_channel *channel = open_channel(f, address);
    probe_unary(&f->client, channel, "/test.Test/Echo", "x", 1);
    assert_int_equal(f->client.end.code, RPC_UNAVAILABLE);

    /* wait_for_ready waits until somebody does. */
    struct rpc_call *call;
    assert_int_equal(rpc_call_start(channel, "/test.Test/Echo", &probe_handlers, &f->client,
                                    20000000, true, &call),
                     STATUS_OK);
    assert_int_equal(rpc_call_send(call, "back", 4), STATUS_OK);
    rpc_call_half_close(call);
    f->server = start_server(f->server_runtime, address);
    probe_wait(&f->client, &f->client.closed, 2);
    assert_int_equal(f->client.end.code, RPC_OK);
    assert_string_equal(f->client.last, "back");
    rpc_call_unref(call);
    rpc_channel_destroy(channel);
}

static void test_a_second_server_on_the_port_fails(void **state)
{
    struct fixture *f = *state;
    struct rpc_server *second;
    struct error err;
    struct rpc_server_config config = {.listen = rpc_server_address(f->server)};
    assert_int_equal(rpc_server_start(f->server_runtime, &config, &second, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "Address already in use"));
    assert_non_null(strstr(err.text, rpc_server_address(f->server)));
    static const char *const bad[] = {"127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "::1:0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        config.listen = bad[i];
        assert_int_equal(rpc_server_start(f->server_runtime, &config, &second, &err),
                         STATUS_INVALID);
    }
    config.listen = "192.0.2.1:0"; /* nobody's (RFC 5737) */
    assert_int_equal(rpc_server_start(f->server_runtime, &config, &second, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "Cannot assign requested address"));
}

static const char *own_path;

/* This program again, as a server that tells its address and lives until it is killed. */
static int serve(void)
{
    struct rpc_runtime *runtime;
    struct error err;
    probe_init(&server_probe);
    if (rpc_runtime_create(1, &runtime, &err) != STATUS_OK)
        return 1;
    struct rpc_server *server = start_server(runtime, "127.0.0.1:0");
    dprintf(STDOUT_FILENO, "%s\n", rpc_server_address(server));
    for (;;)
        pause();
}

static pid_t spawn_server(char *address, size_t size)
{
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, pipe_fds[0]);
    char *const arguments[] = {(char *)own_path, "serve", NULL};
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, own_path, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fds[1]);
    FILE *output = fdopen(pipe_fds[0], "r");
    assert_non_null(fgets(address, (int)size, output));
    address[strcspn(address, "\n")] = 0;
    fclose(output);
    return pid;
}

static void test_a_killed_peer_is_seen_at_once(void **state)
{
    struct fixture *f = *state;
    char address[64];
    pid_t pid = spawn_server(address, sizeof address);
    struct rpc_channel *channel = open_channel(f, address);
    uint32_t one = 1;
    probe_unary(&f->client, channel, "/test.Test/Count", &one, sizeof one); /* connected */
    struct rpc_call *call = probe_start(&f->client, channel, "/test.Test/Hold", 0);
    assert_int_equal(rpc_call_send(call, "x", 1), STATUS_OK);
    uint64_t killed_us = clock_now_us();
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    probe_wait(&f->client, &f->client.closed, 2);
    assert_int_equal(f->client.end.code, RPC_UNAVAILABLE);
    assert_true(clock_now_us() - killed_us < 2000000);
    assert_int_equal(f->client.closed, 2);
    rpc_call_unref(call);
    rpc_channel_destroy(channel);
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

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 1 && !strcmp(argv[1], "serve"))
        return serve();
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(test_unary_with_headers_both_ways),
        WITH_FIXTURE(test_headers_that_http2_cannot_carry),
        WITH_FIXTURE(test_empty_message),
        WITH_FIXTURE(test_server_streaming),
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
        WITH_FIXTURE(test_stopping_a_server_ends_live_calls),
        WITH_FIXTURE(test_stopping_a_server_waits_for_calls),
        WITH_FIXTURE(test_destroying_a_channel_ends_its_calls),
        WITH_FIXTURE(test_nobody_listens),
        WITH_FIXTURE(test_a_second_server_on_the_port_fails),
        WITH_FIXTURE(test_a_killed_peer_is_seen_at_once),
        cmocka_unit_test(test_runtime_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
