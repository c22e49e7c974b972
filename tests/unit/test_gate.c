/* The frame gate before a real server: calls pass with their clients' addresses, floods end their
 * own connection, and silence has limits. */
#include "gate_fixture.h"

#include "common/base/peer_places.h"
#include "common/net/rpc/grpc/gate_loop.h"

#include <dirent.h>
#include <dlfcn.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- another kernel: these come before the C library's functions --- */

static atomic_bool no_room; /* for another descriptor that a thread of the gate watches */
static atomic_bool no_rest; /* threads of the gate always have as many events as they ask for */

static bool is_of_gate(void)
{
    char name[16];
    return !pthread_getname_np(pthread_self(), name, sizeof name) && !strcmp(name, "gate");
}

int epoll_ctl(int epoll_fd, int how, int fd, struct epoll_event *event)
{
    if (atomic_load(&no_room) && how == EPOLL_CTL_ADD && is_of_gate()) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_epoll_ctl, epoll_fd, how, fd, event);
}

int epoll_wait(int epoll_fd, struct epoll_event *events, int room, int wait_ms)
{
    bool more = atomic_load(&no_rest) && is_of_gate();
    int count =
        (int)syscall(SYS_epoll_pwait, epoll_fd, events, room, more ? 0 : wait_ms, NULL, (size_t)8);
    for (; more && count >= 0 && count < room; count++)
        events[count] = (struct epoll_event){.events = EPOLLIN}; /* the gate is woken */
    return count;
}

/* Holds calls up on their way to the server, between core and the question for their peer. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held;
    int waiting;
} held_up = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

char *grpc_call_get_peer(void *call);
char *grpc_call_get_peer(void *call)
{
    char *(*core)(void *);
    *(void **)&core = dlsym(RTLD_NEXT, "grpc_call_get_peer");
    char *peer = core(call);
    pthread_mutex_lock(&held_up.lock);
    held_up.waiting++;
    pthread_cond_broadcast(&held_up.changed);
    while (held_up.held)
        pthread_cond_wait(&held_up.changed, &held_up.lock);
    held_up.waiting--;
    pthread_mutex_unlock(&held_up.lock);
    return peer;
}

static void hold_calls(bool held)
{
    pthread_mutex_lock(&held_up.lock);
    held_up.held = held;
    pthread_cond_broadcast(&held_up.changed);
    pthread_mutex_unlock(&held_up.lock);
}

/* --- HTTP/2 by hand --- */

/* The kernel keeps little for it. */
static int connect_narrow(const struct world *w)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), bytes = 4096, segment = 536;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment), 0);
    return connect_socket(w, fd);
}

static int let_go_and_tear_down(void **state)
{
    hold_calls(false);
    return tear_down_world(state);
}

/* --- tests --- */

static void test_calls_pass_with_their_addresses(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){0});
    struct rpc_channel *channel = dial(w);
    for (int i = 0; i < 20; i++)
        echo(channel);
    pthread_mutex_lock(&server_probe.lock);
    char peer[80];
    snprintf(peer, sizeof peer, "%s", rpc_call_peer(server_probe.call));
    pthread_mutex_unlock(&server_probe.lock);
    assert_true(!strncmp(peer, "127.0.0.1:", 10) && atoi(peer + 10) > 0);
    assert_string_not_equal(peer, rpc_server_address(w->server));
    rpc_channel_destroy(channel);
}

/* More than the gate and the sockets hold, to a client that reads it only at the end. */
static void test_answers_wait_for_a_slow_reader(void **state)
{
    struct world *w = *state;
    enum { COUNT = 12000 };
    serve(w, (struct rpc_gate){0});
    struct rpc_channel *channel = dial(w);
    struct probe client;
    probe_init(&client);
    struct rpc_call *call = start_counting(channel, &client, "/test.Test/Count");
    uint32_t count = COUNT;
    assert_int_equal(rpc_call_send(call, &count, sizeof count), STATUS_OK);
    rpc_call_half_close(call);
    probe_wait(&client, &client.closed, 1);
    assert_int_equal(client.end.code, RPC_OK);
    assert_int_equal(client.messages, COUNT);
    rpc_call_unref(call);
    probe_deinit(&client);
    rpc_channel_destroy(channel);
}

/* Each flood ends its own connection, with a GOAWAY, while another client is served. */
static void test_floods(void **state)
{
    struct world *w = *state;
    static const struct {
        uint8_t first, first_flags, type, flags;
        size_t length;
        enum frame_gate_end end;
    } rows[] = {
        {SETTINGS, ACK, SETTINGS, 0, 6, FRAME_GATE_SETTINGS},
        {HEADERS, 0, CONTINUATION, 0, 4096, FRAME_GATE_HEADER_BLOCK},
        {HEADERS, 0, CONTINUATION, 0, 0, FRAME_GATE_EMPTY_FRAMES},
        {SETTINGS, ACK, WINDOW_UPDATE, 0, 4, FRAME_GATE_SMALL_FRAMES},
    };
    static const uint8_t payload[4096] = {[3] = 1, [5] = 1};
    serve(w, (struct rpc_gate){0});
    struct rpc_channel *channel = dial(w);
    echo(channel);
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        int fd = greet(w);
        bool block = rows[row].first == HEADERS;
        assert_true(say_frame(fd, rows[row].first, rows[row].first_flags, block, "", block));
        for (int i = 0; i < 5000; i++)
            if (!say_frame(fd, rows[row].type, rows[row].flags, block, payload, rows[row].length))
                break;
        wait_ends(w, rows[row].end, 1);
        int error = read_to_end(fd); /* -1: a reset has overtaken the GOAWAY */
        assert_true(error == ENHANCE_YOUR_CALM || error == -1);
        echo(channel);
    }
    rpc_channel_destroy(channel);
}

/* A client that stops in time reads why. */
static void test_a_goaway_is_read(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){0});
    int fd = greet(w);
    for (int i = 0; i < 101; i++)
        assert_true(say_frame(fd, SETTINGS, 0, 0, NULL, 0));
    assert_int_equal(read_to_end(fd), ENHANCE_YOUR_CALM);
    wait_ends(w, FRAME_GATE_SETTINGS, 1);
}

static void test_silence_has_limits(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){.handshake_us = SHORT_US, .first_call_us = 2 * SHORT_US});
    int silent = connect_raw(w), half = connect_raw(w), late = greet(w), block = greet(w);
    assert_true(say(half, frame_gate_preface, 10));
    assert_true(say_frame(block, HEADERS, 0, 1, "", 1));
    assert_int_equal(read_to_end(silent), -1);
    assert_int_equal(read_to_end(half), -1);
    assert_int_equal(read_to_end(block), ENHANCE_YOUR_CALM);
    assert_int_equal(read_to_end(late), 0);
    assert_int_equal(atomic_load(&w->ends[FRAME_GATE_HANDSHAKE_TIMEOUT]), 2);
    assert_int_equal(atomic_load(&w->ends[FRAME_GATE_HEADER_TIMEOUT]), 1);
    assert_int_equal(atomic_load(&w->ends[FRAME_GATE_NO_CALL]), 1);
}

/* Events without end don't stop the time. */
static void test_silence_among_many_events(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){.handshake_us = SHORT_US});
    atomic_store(&no_rest, true);
    int silent = connect_raw(w);
    wait_ends(w, FRAME_GATE_HANDSHAKE_TIMEOUT, 1);
    atomic_store(&no_rest, false);
    close(silent);
}

/* "POST /test.Test/Echo", literally. */
static const uint8_t echo_headers[] =
    "\0\7:method\4POST\0\7:scheme\4http\0\5:path\17/test.Test/Echo\0\12:authority\1a"
    "\0\2te\10trailers\0\14content-type\20application/grpc";

/* An idle connection ends in order; one with an open call stays. */
static void test_an_idle_connection_ends(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){.idle_us = SHORT_US});
    struct rpc_channel *channel = dial(w);
    struct probe held;
    probe_init(&held);
    struct rpc_call *call = probe_start(&held, channel, "/test.Test/Hold", 0);
    assert_int_equal(rpc_call_send(call, "x", 1), STATUS_OK);
    probe_wait(&server_probe, &server_probe.messages, 1);
    int fd = greet(w);
    assert_true(say_frame(fd, HEADERS, END_HEADERS, 1, echo_headers, sizeof echo_headers - 1));
    assert_true(say_frame(fd, DATA, END_STREAM, 1, "\0\0\0\0\1a", 6));
    assert_int_equal(read_to_end(fd), 0);
    assert_int_equal(held.closed, 0);
    rpc_call_cancel(call);
    probe_wait(&held, &held.closed, 1);
    rpc_call_unref(call);
    probe_deinit(&held);
    rpc_channel_destroy(channel);
}

/* An idle client that acknowledges nothing either: the end of its call is all that happens. */
static void test_a_silent_idle_connection_ends(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){.handshake_us = SHORT_US, .idle_us = SHORT_US});
    int fd = greet(w);
    assert_true(say_frame(fd, HEADERS, END_HEADERS, 1, hold_headers, sizeof hold_headers - 1));
    assert_true(say_frame(fd, DATA, END_STREAM, 1, "\0\0\0\0\1a", 6));
    probe_wait(&server_probe, &server_probe.messages, 1);
    poll(NULL, 0, 2 * SHORT_US / 1000); /* the limits before are over, and looked at */
    pthread_mutex_lock(&server_probe.lock);
    struct rpc_call *serving = server_probe.call;
    rpc_call_ref(serving);
    pthread_mutex_unlock(&server_probe.lock);
    rpc_call_finish(serving, RPC_OK, NULL, NULL);
    rpc_call_unref(serving);
    wait_ends(w, FRAME_GATE_IDLE, 1);
    close(fd);
}

static bool is_let_in(const struct world *w, int *fd)
{
    uint8_t byte;
    *fd = connect_raw(w);
    return say(*fd, frame_gate_preface, FRAME_GATE_PREFACE_BYTES) &&
           say_frame(*fd, SETTINGS, 0, 0, NULL, 0) && take(*fd, &byte, 1);
}

/* 127.0.0.1 holds its share: one more is closed at once, until one leaves. */
static void test_one_connection_more_than_the_share(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){.address_connections = 2});
    int first, second, third;
    assert_true(is_let_in(w, &first) && is_let_in(w, &second));
    third = connect_raw(w);
    assert_int_equal(read_to_end(third), -1);
    wait_ends(w, FRAME_GATE_ADDRESS_SHARE, 1);
    close(first);
    bool let_in = false;
    for (int i = 0; i < 2000 && !let_in; i++) { /* the server sees it a moment later */
        let_in = is_let_in(w, &third);
        if (!let_in)
            close(third);
    }
    assert_true(let_in);
    close(second);
    close(third);
}

/* The first flood leaves the address one of its two places; without end of the penalty. */
static void test_a_flood_costs_places(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){.address_connections = 2, .penalty_us = UINT64_MAX / 2});
    int flood = greet(w), first, second;
    while (say_frame(flood, SETTINGS, ACK, 0, NULL, 0))
        ;
    close(flood);
    wait_ends(w, FRAME_GATE_SETTINGS, 1);
    for (int i = 0; i < 2000 && !is_let_in(w, &first); i++) /* the flood's own place */
        close(first);
    unsigned refused = atomic_load(&w->ends[FRAME_GATE_ADDRESS_SHARE]);
    second = connect_raw(w);
    assert_int_equal(read_to_end(second), -1);
    wait_ends(w, FRAME_GATE_ADDRESS_SHARE, refused + 1);
    close(first);
}

/* The address holds all its places, and its flood's own is the one that it misses. */
static void test_a_flood_costs_the_last_place(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){.address_connections = 2, .penalty_us = UINT64_MAX / 2});
    int first, flood;
    assert_true(is_let_in(w, &first) && is_let_in(w, &flood));
    while (say_frame(flood, SETTINGS, ACK, 0, NULL, 0))
        ;
    close(flood);
    wait_ends(w, FRAME_GATE_SETTINGS, 1);
    assert_int_equal(read_to_end(connect_raw(w)), -1);
    wait_ends(w, FRAME_GATE_ADDRESS_SHARE, 1);
    close(first);
}

/* A penalty that costs no place isn't kept: of an address that isn't counted, or has no place. */
static void test_no_empty_penalty_is_kept(void **state)
{
    (void)state;
    struct peer_ranges uncounted;
    struct error err;
    assert_int_equal(peer_ranges_parse("127.0.0.0/8", &uncounted, &err), STATUS_OK);
    struct gate_config config = {.threads = 1, .penalty_places = 2, .penalty_us = UINT64_MAX / 2};
    assert_int_equal(peer_places_create(10, 3, 0, &uncounted, &config.places), STATUS_OK);
    struct gate *gate;
    assert_int_equal(gate_open(&config, &gate, &err), STATUS_OK);
    static const struct {
        const char *address;
        bool placed;
        size_t kept, held; /* penalties of all, places of this address */
    } rows[] = {
        {"127.0.0.1", true, 0, 0},
        {"192.0.2.1", false, 1, 2},
        {"192.0.2.1", false, 2, 3},
        {"192.0.2.1", false, 2, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gate_connection flood = {.placed = rows[i].placed};
        struct sockaddr_in *from = (struct sockaddr_in *)&flood.address;
        size_t kept = 0;
        *from = (struct sockaddr_in){.sin_family = AF_INET};
        assert_int_equal(inet_pton(AF_INET, rows[i].address, &from->sin_addr), 1);
        gate_report(gate, &flood, FRAME_GATE_SETTINGS);
        const struct gate_penalty *one;
        STAILQ_FOREACH(one, &gate->penalties, link) kept++;
        assert_int_equal(kept, rows[i].kept);
        assert_int_equal(peer_places_held(config.places, (struct sockaddr *)from), rows[i].held);
    }
    gate_close(gate, 0);
}

static void test_a_penalty_ends(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){.address_connections = 2, .penalty_us = 1});
    int flood = greet(w), first, second;
    while (say_frame(flood, SETTINGS, ACK, 0, NULL, 0))
        ;
    close(flood);
    wait_ends(w, FRAME_GATE_SETTINGS, 1);
    for (int i = 0; i < 2000 && !is_let_in(w, &first); i++)
        close(first);
    bool let_in = false;
    for (int i = 0; i < 2000 && !let_in; i++) {
        let_in = is_let_in(w, &second);
        if (!let_in)
            close(second);
    }
    assert_true(let_in);
    close(first);
    close(second);
}

/* A connection that can't be watched ends, before it has begun or after; others live on. */
static void test_a_kernel_without_room(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){0});
    struct rpc_channel *channel = dial(w);
    echo(channel);
    int half = connect_raw(w);
    assert_true(say(half, frame_gate_preface, 10));
    poll(NULL, 0, 20); /* the gate sees it, most likely */
    atomic_store(&no_room, true);
    assert_int_equal(read_to_end(connect_raw(w)), -1);
    assert_true(say(half, frame_gate_preface + 10, FRAME_GATE_PREFACE_BYTES - 10));
    assert_int_equal(read_to_end(half), -1);
    echo(channel);
    atomic_store(&no_room, false);
    int fd;
    assert_true(is_let_in(w, &fd));
    close(fd);
    rpc_channel_destroy(channel);
}

static void test_addresses_without_a_share(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){.address_connections = 1, .uncounted = "127.0.0.0/8"});
    int first, second;
    assert_true(is_let_in(w, &first) && is_let_in(w, &second));
    close(first);
    close(second);
}

static void test_memory_goes_back_seldom(void **state)
{
    (void)state;
    enum { EVERY = GATE_TRIM_EVERY_US };
    static const uint64_t rows[][4] = {
        {UINT64_MAX, 0, 0, UINT64_MAX},
        {UINT64_MAX, 7, 7, UINT64_MAX},
        {9, 9, 0, 9},
        {9, 9, 9, UINT64_MAX},
        {9, 9, 10, UINT64_MAX},
        {9, 9, 8, 8 + EVERY},
        {9, 11, 0, 9},          /* a later crowd doesn't put it off, */
        {11, 11, 9, 9 + EVERY}, /* and its memory goes back behind that */
        {8 + EVERY, 8 + EVERY, 8, 8 + EVERY},
        {9 + EVERY, 9 + EVERY, 8, 9 + EVERY},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(gate_trim_at(rows[i][0], rows[i][1], rows[i][2]), rows[i][3]);
}

static size_t open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    size_t count = 0;
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* A call is taken when its connection is over, and the next connection has come. Core keeps the
 * number by which it names a connection until then. */
static void test_a_late_call_has_its_own_peer(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){0});
    size_t before = open_descriptors();
    hold_calls(true);
    int first = greet(w), other;
    struct sockaddr_in own;
    socklen_t size = sizeof own;
    assert_int_equal(getsockname(first, (struct sockaddr *)&own, &size), 0);
    open_call(first, 1);
    pthread_mutex_lock(&held_up.lock);
    while (!held_up.waiting)
        pthread_cond_wait(&held_up.changed, &held_up.lock);
    pthread_mutex_unlock(&held_up.lock);
    close(first);
    uint64_t limit_us = clock_now_us() + LIMIT_MS * 1000u;
    while (open_descriptors() > before + 1) { /* all are closed, or all but core's */
        assert_true(clock_now_us() < limit_us);
        poll(NULL, 0, 1);
    }
    assert_true(is_let_in(w, &other));
    hold_calls(false);
    probe_wait(&server_probe, &server_probe.opened, 1);
    char peer[80];
    snprintf(peer, sizeof peer, "127.0.0.1:%u", ntohs(own.sin_port));
    pthread_mutex_lock(&server_probe.lock);
    assert_string_equal(rpc_call_peer(server_probe.call), peer);
    pthread_mutex_unlock(&server_probe.lock);
    probe_wait(&server_probe, &server_probe.closed, 1);
    close(other);
}

/* Answers wait for a client that reads none of them: its connection ends. */
static void test_a_client_that_never_reads_ends(void **state)
{
    struct world *w = *state;
    static const char big[MESSAGE_LIMIT - 100];
    serve(w, (struct rpc_gate){.stall_us = SHORT_US});
    int fd = connect_narrow(w);
    assert_true(say(fd, frame_gate_preface, FRAME_GATE_PREFACE_BYTES));
    assert_true(say_frame(fd, SETTINGS, 0, 0, "\0\4\x7f\xff\xff\xff", 6)); /* a stream's window */
    assert_true(say_frame(fd, WINDOW_UPDATE, 0, 0, "\x7f\0\0\0", 4));
    open_call(fd, 1);
    probe_wait(&server_probe, &server_probe.opened, 1);
    pthread_mutex_lock(&server_probe.lock);
    struct rpc_call *serving = server_probe.call;
    rpc_call_ref(serving);
    pthread_mutex_unlock(&server_probe.lock);
    /* More than the kernel takes: with a reordering of 300, the most that it remembers of this
     * machine's connections, some 800 KB. */
    for (int i = 0; i < 24; i++)
        assert_int_equal(rpc_call_send(serving, big, sizeof big), STATUS_OK);
    rpc_call_unref(serving);
    wait_ends(w, FRAME_GATE_STALLED, 1);
    probe_wait(&server_probe, &server_probe.closed, 1);
    close(fd);
}

/* A call's end reaches its client although the server stops at once. */
static void test_a_stop_sends_what_is_left(void **state)
{
    struct world *w = *state;
    serve(w, (struct rpc_gate){0});
    struct rpc_channel *channel = dial(w);
    struct probe held;
    probe_init(&held);
    struct rpc_call *call = probe_start(&held, channel, "/test.Test/Hold", 0);
    assert_int_equal(rpc_call_send(call, "x", 1), STATUS_OK);
    probe_wait(&server_probe, &server_probe.messages, 1);
    int silent = connect_raw(w), idle;
    assert_true(is_let_in(w, &idle));
    uint8_t rest[8]; /* the head of the server's first frame, without its first byte */
    assert_true(take(idle, rest, sizeof rest) && say_frame(idle, SETTINGS, ACK, 0, NULL, 0));
    size_t settings_bytes = (size_t)rest[0] << 8 | rest[1];
    uint8_t settings[256];
    assert_true(settings_bytes <= sizeof settings && take(idle, settings, settings_bytes));
    pthread_mutex_lock(&server_probe.lock);
    struct rpc_call *serving = server_probe.call;
    rpc_call_ref(serving);
    pthread_mutex_unlock(&server_probe.lock);
    static const char big[MESSAGE_LIMIT - 100];
    for (int i = 0; i < 8; i++)
        assert_int_equal(rpc_call_send(serving, big, sizeof big), STATUS_OK);
    rpc_call_finish(serving, RPC_OK, NULL, NULL);
    rpc_call_unref(serving);
    rpc_server_stop(w->server, LIMIT_MS * 1000u);
    w->server = NULL;
    probe_wait(&held, &held.closed, 1);
    assert_int_equal(held.end.code, RPC_OK);
    assert_int_equal(held.messages, 8);
    assert_int_equal(read_to_end(silent), -1);
    assert_int_equal(read_to_end(idle), 0);
    rpc_call_unref(call);
    probe_deinit(&held);
    rpc_channel_destroy(channel);
}

int main(void)
{
    log_init("test", LOG_ERROR);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_world, let_go_and_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_calls_pass_with_their_addresses),
        CASE(test_answers_wait_for_a_slow_reader),
        CASE(test_floods),
        CASE(test_a_goaway_is_read),
        CASE(test_silence_has_limits),
        CASE(test_silence_among_many_events),
        CASE(test_an_idle_connection_ends),
        CASE(test_a_silent_idle_connection_ends),
        CASE(test_one_connection_more_than_the_share),
        CASE(test_a_flood_costs_places),
        CASE(test_a_flood_costs_the_last_place),
        CASE(test_no_empty_penalty_is_kept),
        CASE(test_a_penalty_ends),
        CASE(test_a_kernel_without_room),
        CASE(test_addresses_without_a_share),
        CASE(test_a_late_call_has_its_own_peer),
        CASE(test_memory_goes_back_seldom),
        CASE(test_a_client_that_never_reads_ends),
        CASE(test_a_stop_sends_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
