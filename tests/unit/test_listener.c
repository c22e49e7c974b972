/* The door of an rpc server: connections are limited, and one that is refused is told at once. */
#include "rpc_service.h"

#include "common/base/log.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIMIT              4
#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static int connect_to(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* Whether the server speaks (HTTP/2 begins with its settings) or closes. */
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

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connections_are_limited),
        WITH_FIXTURE(test_addresses_that_cannot_be_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
