/* For rpc tests: a small service of bytes, and a fixture with a server and a channel to it. */
#ifndef BATON_TESTS_RPC_SERVICE_H
#define BATON_TESTS_RPC_SERVICE_H

#include "tests/unit/rpc_probe.h"

#define MESSAGE_LIMIT (64u << 10)
#define QUEUE_LIMIT   (2u << 20)

/* --- the test service --- */

static struct probe server_probe; /* counts all server calls of one test */

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

/* Answers like a proxy that can't reach its server, with or without headers before. */
static void on_proxy(struct rpc_call *call, struct rpc_bytes bytes)
{
    if (bytes.size == 1)
        assert_int_equal(rpc_call_send(call, "", 0), STATUS_OK);
    rpc_call_finish(call, RPC_UNAVAILABLE, NULL, "upstream: Connection refused");
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
    METHOD("Proxy", .message = on_proxy),
};
enum { METHOD_COUNT = sizeof methods / sizeof *methods, CHAT = 2 };

static inline struct rpc_server *start_server(struct rpc_runtime *runtime, const char *listen)
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

static inline struct rpc_channel *open_channel(struct fixture *f, const char *target,
                                               uint64_t keepalive_us)
{
    const struct rpc_channel_config config = {.target = target,
                                              .max_message_bytes = MESSAGE_LIMIT,
                                              .max_queued_bytes = QUEUE_LIMIT,
                                              .keepalive_us = keepalive_us};
    struct error err;
    struct rpc_channel *channel;
    assert_int_equal(rpc_channel_create(f->client_runtime, &config, &channel, &err), STATUS_OK);
    return channel;
}

static inline int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    struct error err;
    assert_int_equal(rpc_runtime_create(2, &f->server_runtime, &err), STATUS_OK);
    assert_int_equal(rpc_runtime_create(2, &f->client_runtime, &err), STATUS_OK);
    probe_init(&server_probe);
    probe_init(&f->client);
    f->server = start_server(f->server_runtime, "127.0.0.1:0");
    f->channel = open_channel(f, rpc_server_address(f->server), 0);
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
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

static inline void stop_server(struct fixture *f, uint64_t grace_us)
{
    rpc_server_stop(f->server, grace_us);
    f->server = NULL;
}

static inline void expect_next_number(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct probe *probe = rpc_call_context(call);
    uint32_t number;
    assert_int_equal(bytes.size, sizeof number);
    memcpy(&number, bytes.data, sizeof number);
    assert_int_equal(number, probe->messages);
    probe_message(probe, bytes);
}

static inline struct rpc_call *start_counting(struct rpc_channel *channel, struct probe *probe,
                                              const char *path)
{
    struct rpc_handlers handlers = probe_handlers;
    handlers.message = expect_next_number;
    struct rpc_call *call;
    assert_int_equal(rpc_call_start(channel, path, &handlers, probe, 0, false, &call), STATUS_OK);
    return call;
}

#endif
