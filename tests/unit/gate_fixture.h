/* A server with a frame gate, and clients that speak HTTP/2 by hand. */
#ifndef BATON_TESTS_UNIT_GATE_FIXTURE_H
#define BATON_TESTS_UNIT_GATE_FIXTURE_H

#include "rpc_service.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DATA, HEADERS, RST_STREAM = 3, SETTINGS, PING = 6, GOAWAY, WINDOW_UPDATE, CONTINUATION };
enum { ACK = 1, END_STREAM = 1, END_HEADERS = 4 };
#define ENHANCE_YOUR_CALM 11
#define SHORT_US          300000u
#define LIMIT_MS          20000

struct world {
    struct rpc_runtime *server_runtime, *client_runtime;
    struct rpc_server *server;
    atomic_uint ends[FRAME_GATE_ENDS];
};

static inline void on_ended(void *context, enum frame_gate_end end)
{
    struct world *w = context;
    atomic_fetch_add(&w->ends[end], 1);
}

static inline int set_up_world(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct error err;
    assert_non_null(w);
    assert_int_equal(rpc_runtime_create(2, &w->server_runtime, &err), STATUS_OK);
    assert_int_equal(rpc_runtime_create(1, &w->client_runtime, &err), STATUS_OK);
    probe_init(&server_probe);
    *state = w;
    return 0;
}

static inline int tear_down_world(void **state)
{
    struct world *w = *state;
    if (w->server)
        rpc_server_stop(w->server, 0);
    assert_int_equal(server_probe.opened, server_probe.closed);
    rpc_runtime_destroy(w->client_runtime);
    rpc_runtime_destroy(w->server_runtime);
    probe_deinit(&server_probe);
    free(w);
    return 0;
}

static inline void serve(struct world *w, struct rpc_gate gate)
{
    methods[CHAT].client_streams = true;
    gate.on = true;
    gate.ended = on_ended;
    gate.context = w;
    const struct rpc_server_config config = {.listen = "127.0.0.1:0",
                                             .gate = gate,
                                             .max_message_bytes = MESSAGE_LIMIT,
                                             .max_queued_bytes = QUEUE_LIMIT,
                                             .max_calls = 64,
                                             .methods = methods,
                                             .method_count = METHOD_COUNT};
    struct error err;
    if (rpc_server_start(w->server_runtime, &config, &w->server, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static inline struct rpc_channel *dial(struct world *w)
{
    const struct rpc_channel_config config = {.target = rpc_server_address(w->server),
                                              .max_message_bytes = MESSAGE_LIMIT,
                                              .max_queued_bytes = QUEUE_LIMIT};
    struct rpc_channel *channel;
    struct error err;
    assert_int_equal(rpc_channel_create(w->client_runtime, &config, &channel, &err), STATUS_OK);
    return channel;
}

static inline void echo(struct rpc_channel *channel)
{
    struct probe client;
    probe_init(&client);
    probe_unary(&client, channel, "/test.Test/Echo", "hello", 5);
    assert_int_equal(client.end.code, RPC_OK);
    assert_string_equal(client.last, "hello");
    probe_deinit(&client);
}

/* --- HTTP/2 by hand --- */

static inline int connect_socket(const struct world *w, int fd)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)atoi(strrchr(rpc_server_address(w->server), ':') + 1)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static inline int connect_raw(const struct world *w)
{
    return connect_socket(w, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

/* False: the server has closed. */
static inline bool say(int fd, const void *bytes, size_t size)
{
    for (const char *at = bytes; size;) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
            return false;
        assert_true(sent > 0);
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

static inline bool say_frame(int fd, uint8_t type, uint8_t flags, uint32_t stream,
                             const void *payload, size_t length)
{
    const uint8_t head[9] = {
        (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length, type, flags, 0, 0,
        (uint8_t)(stream >> 8),  (uint8_t)stream};
    return say(fd, head, sizeof head) && (!length || say(fd, payload, length));
}

static inline int greet(const struct world *w)
{
    int fd = connect_raw(w);
    assert_true(say(fd, frame_gate_preface, FRAME_GATE_PREFACE_BYTES));
    assert_true(say_frame(fd, SETTINGS, 0, 0, NULL, 0));
    return fd;
}

/* False: the connection is over. */
static inline bool take(int fd, uint8_t *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, LIMIT_MS), 1);
        ssize_t got = recv(fd, bytes + at, size - at, 0);
        if (got <= 0)
            return false;
        at += (size_t)got;
    }
    return true;
}

/* Reads to the connection's end, acknowledging pings. Returns the error code of the first GOAWAY;
 * -1: there was none. */
static inline int read_to_end(int fd)
{
    static uint8_t payload[1 << 16];
    uint8_t head[9];
    int error = -1;
    while (take(fd, head, sizeof head)) {
        size_t length = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        assert_true(length <= sizeof payload);
        if (!take(fd, payload, length))
            break;
        if (head[3] == PING && !(head[4] & ACK))
            (void)say_frame(fd, PING, ACK, 0, payload, length);
        if (head[3] == GOAWAY && error < 0)
            error = payload[7];
    }
    close(fd);
    return error;
}

static inline void wait_ends(struct world *w, enum frame_gate_end end, unsigned count)
{
    uint64_t limit_us = clock_now_us() + LIMIT_MS * 1000u;
    while (atomic_load(&w->ends[end]) < count) {
        assert_true(clock_now_us() < limit_us);
        poll(NULL, 0, 1);
    }
    assert_int_equal(atomic_load(&w->ends[end]), count);
}

/* "POST /test.Test/Hold", literally. */
static const uint8_t hold_headers[] =
    "\0\7:method\4POST\0\7:scheme\4http\0\5:path\17/test.Test/Hold\0\12:authority\1a"
    "\0\2te\10trailers\0\14content-type\20application/grpc";

static inline void open_call(int fd, uint32_t stream)
{
    (void)say_frame(fd, HEADERS, END_HEADERS, stream, hold_headers, sizeof hold_headers - 1);
    (void)say_frame(fd, DATA, END_STREAM, stream, "\0\0\0\0\1a", 6);
}

#endif
