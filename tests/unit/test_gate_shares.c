/* The frame gate's shares: calls, and messages that aren't whole, of one address. */
#include "gate_fixture.h"

/* From an address with its share of calls further ones are refused, on whichever connection. */
static void test_calls_of_an_address(void **state)
{
    struct world *w = *state;
    enum { SHARE = 4 };
    serve(w, (struct rpc_gate){.address_calls = SHARE});
    int first = greet(w);
    for (uint32_t i = 0; i < SHARE; i++)
        open_call(first, 2 * i + 1);
    probe_wait(&server_probe, &server_probe.opened, SHARE);
    struct rpc_channel *channel = dial(w);
    struct probe refused;
    probe_init(&refused);
    probe_unary(&refused, channel, "/test.Test/Echo", "a", 1);
    assert_int_equal(refused.end.code, RPC_RESOURCE_EXHAUSTED);
    assert_string_equal(refused.reason, "too_many_calls");
    assert_int_equal(server_probe.opened, SHARE);
    close(first); /* its calls end with it */
    probe_wait(&server_probe, &server_probe.closed, SHARE);
    for (int i = 0; i < 2000 && refused.end.code != RPC_OK; i++) { /* the gate sees it, too */
        probe_deinit(&refused);
        probe_init(&refused);
        probe_unary(&refused, channel, "/test.Test/Echo", "a", 1);
    }
    assert_int_equal(refused.end.code, RPC_OK);
    probe_deinit(&refused);
    rpc_channel_destroy(channel);
}

/* Opens a call with the first 48 KiB of a message. */
static void begin_upload(int fd, uint32_t stream)
{
    static const uint8_t bytes[49152] = {0, 0, 0, 0xF0, 0};
    (void)say_frame(fd, HEADERS, END_HEADERS, stream, hold_headers, sizeof hold_headers - 1);
    for (size_t at = 0; at < sizeof bytes; at += 16384)
        (void)say_frame(fd, DATA, 0, stream, bytes + at, 16384);
}

/* Returns whether a PING behind all that was said is answered: the connection lives. */
static bool lives(int fd)
{
    static uint8_t payload[1 << 16];
    uint8_t head[9] = {0};
    (void)say_frame(fd, PING, 0, 0, "12345678", 8);
    while (head[3] != PING || !(head[4] & ACK)) {
        if (!take(fd, head, sizeof head))
            return false;
        size_t length = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        assert_true(length <= sizeof payload);
        if (!take(fd, payload, length))
            return false;
    }
    return true;
}

/* An address may hold as much of messages that aren't whole as it leaves free. */
static void test_uploads_of_an_address(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){.upload_bytes = 10 * 16384});
    struct sockaddr_in other = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    int first = greet(w), second = greet(w);
    begin_upload(first, 1);
    assert_true(lives(first));
    begin_upload(second, 1); /* six tenths of all */
    wait_ends(w, FRAME_GATE_UPLOADS, 1);
    assert_int_equal(read_to_end(second), 0);
    int third = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(third, (struct sockaddr *)&other, sizeof other), 0);
    (void)connect_socket(w, third);
    assert_true(say(third, frame_gate_preface, FRAME_GATE_PREFACE_BYTES));
    assert_true(say_frame(third, SETTINGS, 0, 0, NULL, 0));
    begin_upload(third, 1);
    assert_true(lives(third));
    struct rpc_channel *channel = dial(w);
    echo(channel); /* small messages of the first address pass */
    rpc_channel_destroy(channel);
    assert_int_equal(atomic_load(&w->ends[FRAME_GATE_UPLOADS]), 1);
    close(first);
    bool again = false;
    for (int i = 0; i < 2000 && !again; i++) { /* it is free when the gate sees that */
        second = greet(w);
        begin_upload(second, 1);
        again = lives(second);
        close(second);
    }
    assert_true(again);
    close(third);
}

int main(void)
{
    log_init("test", LOG_ERROR);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_world, tear_down_world)
    const struct CMUnitTest tests[] = {
        CASE(test_calls_of_an_address),
        CASE(test_uploads_of_an_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
