/* The door of an rpc server: connections are limited, and a refused one is closed at once. */
#include "rpc_service.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/rpc/grpc/listener.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIMIT              4
#define MANY               "nine.addresses" /* a name for 127.0.0.1 to 127.0.0.9 */
#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* Like libc's, except for the name MANY. */
enum { MANY_COUNT = 9 };
static struct addrinfo many[MANY_COUNT];
static struct sockaddr_in many_addresses[MANY_COUNT];

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **found)
{
    if (!host || strcmp(host, MANY) != 0) {
        int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
            (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(
                RTLD_NEXT, "getaddrinfo");
        return real(host, port, hints, found);
    }
    for (int i = 0; i < MANY_COUNT; i++) {
        many_addresses[i] =
            (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)atoi(port)),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)i)};
        many[i] = (struct addrinfo){.ai_family = AF_INET,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_addrlen = sizeof many_addresses[i],
                                    .ai_addr = (struct sockaddr *)&many_addresses[i],
                                    .ai_next = i + 1 < MANY_COUNT ? &many[i + 1] : NULL};
    }
    *found = many;
    return 0;
}

void freeaddrinfo(struct addrinfo *found)
{
    if (found != many)
        ((void (*)(struct addrinfo *))dlsym(RTLD_NEXT, "freeaddrinfo"))(found);
}

/* Connects to 127.0.0.`last`; -1: no listener. */
static int try_connect(const char *address, uint32_t last)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + last)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    assert_int_equal(errno, ECONNREFUSED);
    close(fd);
    return -1;
}

static int connect_to(const char *address)
{
    int fd = try_connect(address, 1);
    assert_true(fd >= 0);
    return fd;
}

/* Returns whether the server sends bytes (HTTP/2 begins with its settings) or closes. */
static bool is_let_in(int fd)
{
    char byte;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 20000), 1);
    return recv(fd, &byte, 1, 0) == 1;
}

static void test_connections_are_limited(void **state)
{
    (void)state;
    struct rpc_runtime *runtime;
    struct rpc_server *server;
    struct error err;
    const struct rpc_server_config config = {.listen = "127.0.0.1:0", .max_connections = LIMIT};
    assert_int_equal(rpc_runtime_create(1, &runtime, &err), STATUS_OK);
    assert_int_equal(rpc_server_start(runtime, &config, &server, &err), STATUS_OK);
    int fds[LIMIT], surplus;
    for (int i = 0; i < LIMIT; i++) {
        fds[i] = connect_to(rpc_server_address(server));
        assert_true(is_let_in(fds[i]));
    }
    for (int i = 0; i < 100; i++) {
        surplus = connect_to(rpc_server_address(server));
        assert_false(is_let_in(surplus));
        close(surplus);
    }
    close(fds[0]); /* the server sees it a moment later */
    bool let_in = false;
    for (int i = 0; i < 1000 && !let_in; i++) {
        surplus = connect_to(rpc_server_address(server));
        let_in = is_let_in(surplus);
        close(surplus);
        poll(NULL, 0, let_in ? 0 : 10);
    }
    assert_true(let_in);
    for (int i = 1; i < LIMIT; i++)
        close(fds[i]);
    rpc_server_stop(server, 0);
    rpc_runtime_destroy(runtime);
}

enum { TICK_US = 50000, STOP_US = 1500000 };
static atomic_uint_fast64_t held_until_us, ticked_after_us;

/* Holds up the listener's thread, as SIGSTOP does. */
static void hold_up(void *context, int fd)
{
    (void)context;
    close(fd);
    poll(NULL, 0, STOP_US / 1000);
    atomic_store(&held_until_us, clock_now_us());
}

static void on_tick(void *context)
{
    (void)context;
    uint64_t until_us = atomic_load(&held_until_us), none = 0;
    if (until_us)
        atomic_compare_exchange_strong(&ticked_after_us, &none, clock_now_us() - until_us);
}

/* The tick that was due while the process was stopped is left out: other threads must be able to
 * read what came meanwhile, before calls are judged by their silence. */
static void test_no_tick_right_after_a_stop(void **state)
{
    (void)state;
    struct listener *listener;
    struct address address;
    struct error err;
    const struct listener_config config = {
        .max_connections = LIMIT, .accepted = hold_up, .tick = on_tick, .tick_us = TICK_US};
    assert_int_equal(address_parse("127.0.0.1:0", &address, &err), STATUS_OK);
    assert_int_equal(listener_open(&address, &config, &listener, &err), STATUS_OK);
    assert_int_equal(listener_start(listener, &err), STATUS_OK);
    char text[32];
    snprintf(text, sizeof text, "127.0.0.1:%u", listener_port(listener));
    int fd = connect_to(text);
    for (uint64_t end_us = clock_now_us() + 20000000u; !atomic_load(&ticked_after_us);) {
        assert_true(clock_now_us() < end_us);
        poll(NULL, 0, 10);
    }
    assert_true(atomic_load(&ticked_after_us) >= TICK_US * 9 / 10);
    close(fd);
    listener_close(listener);
}

/* Nothing is left of a server that could not listen, and the sentence is the system's. */
static void test_addresses_that_cannot_be_had(void **state)
{
    struct fixture *f = *state;
    struct rpc_server *server;
    struct error err;
    static const struct {
        const char *listen, *told;
    } rows[] = {
        {"192.0.2.1:1", "assign"},
        {NULL, "in use"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct rpc_server_config config = {
            .listen = rows[i].listen ? rows[i].listen : rpc_server_address(f->server)};
        assert_int_equal(rpc_server_start(f->server_runtime, &config, &server, &err), STATUS_IO);
        if (!strstr(err.text, rows[i].told))
            fail_msg("%s", err.text);
    }
    const struct rpc_server_config every = {.listen = "localhost:0"};
    assert_int_equal(rpc_server_start(f->server_runtime, &every, &server, &err), STATUS_OK);
    int fd = connect_to(rpc_server_address(server));
    assert_true(is_let_in(fd));
    close(fd);
    rpc_server_stop(server, 0);
}

/* A name that means more addresses than a server has sockets: the first ones are listened on. */
static void test_one_address_more_than_there_are_sockets(void **state)
{
    struct fixture *f = *state;
    enum { SOCKETS = MANY_COUNT - 1 };
    struct rpc_server *server;
    struct error err;
    const struct rpc_server_config config = {.listen = MANY ":0"};
    assert_int_equal(rpc_server_start(f->server_runtime, &config, &server, &err), STATUS_OK);
    for (uint32_t last = 1; last <= SOCKETS; last++) {
        int fd = try_connect(rpc_server_address(server), last);
        assert_true(fd >= 0 && is_let_in(fd));
        close(fd);
    }
    assert_int_equal(try_connect(rpc_server_address(server), SOCKETS + 1), -1);
    rpc_server_stop(server, 0);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connections_are_limited),
        cmocka_unit_test(test_no_tick_right_after_a_stop),
        WITH_FIXTURE(test_addresses_that_cannot_be_had),
        WITH_FIXTURE(test_one_address_more_than_there_are_sockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
