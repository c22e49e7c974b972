/* http: the listener of figures that every program has, through our own client and through raw
 * bytes. */
#include "tests/unit/http_fixture.h"

#include <sys/resource.h>

static atomic_int calls;

static void count_call(void)
{
    atomic_fetch_add(&calls, 1);
}

static void on_metrics(void *context, struct http_exchange *exchange)
{
    (void)context;
    count_call();
    http_exchange_reply_text(exchange, 200, "up 1\n");
}

static void on_big(void *context, struct http_exchange *exchange)
{
    (void)context;
    static char mebibyte[1 << 20];
    struct http_reply reply;
    count_call();
    memset(mebibyte, 'x', sizeof mebibyte);
    http_reply_init(&reply, HTTP_MAX_REPLY_BYTES);
    reply.status = 200;
    for (int i = 0; i < 5; i++)
        str_append(&reply.body, mebibyte, sizeof mebibyte);
    assert_int_equal(http_exchange_reply(exchange, &reply), STATUS_INVALID);
    http_reply_deinit(&reply);
}

static void on_wait(void *context, struct http_exchange *exchange)
{
    (void)context;
    count_call();
    http_exchange_reply_text(exchange, 503, "");
}

static const struct http_route routes[] = {
    {"/metrics", HTTP_GET, on_metrics},
    {"/big", HTTP_GET, on_big},
    {"/wait", HTTP_GET, on_wait},
};

struct fixture {
    struct http_server *server;
};

static int start_fixture(void **state, uint64_t silence_us)
{
    static struct fixture fixture;
    fixture = (struct fixture){0};
    atomic_store(&calls, 0);
    struct http_server_config config = {.listen = "127.0.0.1:0",
                                        .routes = routes,
                                        .route_count = sizeof routes / sizeof *routes,
                                        .head_us = silence_us};
    struct error err;
    *state = &fixture;
    return http_server_start(&config, &fixture.server, &err) == STATUS_OK ? 0 : -1;
}

static int set_up(void **state)
{
    return start_fixture(state, 0);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    http_server_stop(fixture->server);
    return 0;
}

static void test_get(void **state)
{
    struct fixture *fixture = *state;
    const char *address = http_server_address(fixture->server);
    assert_int_equal(strncmp(address, "127.0.0.1:", 10), 0);
    struct str body;
    struct error err;
    str_init(&body, 4096);
    assert_int_equal(
        http_get(&(struct http_remote){.url = address}, "/metrics?name=x", SECOND_US, &body, &err),
        STATUS_OK);
    assert_string_equal(body.data, "up 1\n");
    str_clear(&body);
    assert_int_equal(
        http_get(&(struct http_remote){.url = address}, "/%6detrics", SECOND_US, &body, &err),
        STATUS_OK);
    str_clear(&body);
    assert_int_equal(
        http_get(&(struct http_remote){.url = address}, "/none", SECOND_US, &body, &err),
        STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "404"));
    assert_int_equal(
        http_get(&(struct http_remote){.url = address}, "/wait", SECOND_US, &body, &err),
        STATUS_INVALID);
    assert_non_null(strstr(err.text, "503"));
    assert_int_equal(
        http_get(&(struct http_remote){.url = address}, "/big", SECOND_US, &body, &err),
        STATUS_INVALID);
    assert_non_null(strstr(err.text, "500"));
    assert_int_equal(atomic_load(&calls), 4);
    str_deinit(&body);
}

static void test_what_is_refused(void **state)
{
    struct fixture *fixture = *state;
    const char *address = http_server_address(fixture->server);
    assert_non_null(strstr(
        exchange_raw(address, "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        "up 1"));
    const char *head =
        exchange_raw(address, "HEAD /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(head, " 200 "));
    assert_null(strstr(head, "up 1"));
    int before = atomic_load(&calls);
    static const char *const other_methods[] = {
        "DELETE /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
        "OPTIONS /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof other_methods / sizeof *other_methods; i++) {
        const char *answer = exchange_raw(address, other_methods[i]);
        if (!strstr(answer, " 405 ") || !strstr(answer, "Allow: GET, HEAD"))
            fail_msg("%s\n%s", other_methods[i], answer);
    }
    assert_null(strstr(
        exchange_raw(address, "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n"),
        " 200 "));
    char long_request[20000];
    memset(long_request, 'a', sizeof long_request);
    snprintf(long_request, 40, "GET /metrics HTTP/1.1\r\nHost: a\r\nX: ");
    long_request[strlen(long_request)] = 'b';
    strcpy(long_request + sizeof long_request - 5, "\r\n\r\n");
    assert_null(strstr(exchange_raw(address, long_request), " 200 "));
    assert_null(strstr(exchange_raw(address, "nonsense\r\n\r\n"), " 200 "));
    assert_int_equal(atomic_load(&calls), before);
}

static void test_addresses_that_are_wrong(void **state)
{
    struct fixture *fixture = *state;
    static const char *const bad[] = {"", "9090", "example.org:0", "127.0.0.1:99999",
                                      "256.0.0.1:1"};
    struct error err;
    struct http_server *server;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct http_server_config config = {.listen = bad[i], .routes = routes};
        assert_int_equal(http_server_start(&config, &server, &err), STATUS_INVALID);
    }
    struct http_server_config taken = {.listen = http_server_address(fixture->server),
                                       .routes = routes};
    assert_int_equal(http_server_start(&taken, &server, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "in use"));
    struct str body;
    str_init(&body, 64);
    assert_int_equal(
        http_get(&(struct http_remote){.url = "127.0.0.1:1"}, "/", SECOND_US, &body, &err),
        STATUS_UNAVAILABLE);
    assert_int_equal(
        http_get(&(struct http_remote){.url = "nonsense"}, "/", SECOND_US, &body, &err),
        STATUS_INVALID);
    str_deinit(&body);
}

#define ADDRESS_BYTES 32

/* A listener without an accept so far. */
static int listen_anywhere(char address[ADDRESS_BYTES])
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    snprintf(address, ADDRESS_BYTES, "127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

static void test_client_gives_up_in_time_and_at_its_limit(void **state)
{
    struct fixture *fixture = *state;
    char address[ADDRESS_BYTES];
    int fd = listen_anywhere(address);
    struct str body;
    struct error err;
    str_init(&body, 4);
    assert_int_equal(http_get(&(struct http_remote){.url = address}, "/", 20000, &body, &err),
                     STATUS_TIMEOUT);
    assert_int_equal(http_get(&(struct http_remote){.url = http_server_address(fixture->server)},
                              "/metrics", SECOND_US, &body, &err),
                     STATUS_LIMIT);
    str_deinit(&body);
    close(fd);
}

/* Answers one connection of the listener `context` with a header that takes no end. */
static void *answer_at_length(void *context)
{
    static char head[60000];
    memset(head, 'a', sizeof head);
    memcpy(head, "HTTP/1.1 200 OK\r\nX: ", 20);
    int fd = accept(*(int *)context, NULL, NULL);
    for (ssize_t sent; (sent = send(fd, head, sizeof head, MSG_NOSIGNAL)) > 0;)
        ;
    close(fd);
    return NULL;
}

static void test_a_head_of_any_length_is_given_up(void **state)
{
    (void)state;
    char address[ADDRESS_BYTES];
    int fd = listen_anywhere(address);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, answer_at_length, &fd), 0);
    struct str body;
    struct error err;
    str_init(&body, 4);
    assert_int_equal(
        http_get(&(struct http_remote){.url = address}, "/", SECOND_US * 20, &body, &err),
        STATUS_LIMIT);
    assert_non_null(strstr(err.text, "a head that is too large"));
    assert_int_equal(pthread_join(thread, NULL), 0);
    str_deinit(&body);
    close(fd);
}

/* A client that comes while no descriptor is left waits outside until there is one. */
static void test_out_of_descriptors(void **state)
{
    struct fixture *fixture = *state;
    enum { DESCRIPTORS = 200 };
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){DESCRIPTORS, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int visitor = socket(AF_INET, SOCK_STREAM, 0), fds[DESCRIPTORS], count = 0;
    while ((fds[count] = dup(visitor)) >= 0)
        count++;
    const char *address = http_server_address(fixture->server);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    assert_int_equal(connect(visitor, (struct sockaddr *)&to, sizeof to), 0);
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert_int_equal(send(visitor, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    struct pollfd answered = {.fd = visitor, .events = POLLIN};
    assert_int_equal(poll(&answered, 1, 300), 0);
    while (count > 0)
        close(fds[--count]);
    assert_int_equal(poll(&answered, 1, 20000), 1);
    char answer[4096] = "";
    assert_true(recv(visitor, answer, sizeof answer - 1, 0) > 0);
    assert_non_null(strstr(answer, " 200 "));
    close(visitor);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* Connections beyond the limit wait outside, those inside are served, and when they go the next
 * come in. */
static void test_connections_are_limited(void **state)
{
    struct fixture *fixture = *state;
    enum { SURPLUS = 10 };
    const char *address = http_server_address(fixture->server);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    int fds[HTTP_MAX_CONNECTIONS + SURPLUS];
    for (int i = 0; i < HTTP_MAX_CONNECTIONS + SURPLUS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fds[i], (struct sockaddr *)&to, sizeof to), 0);
    }
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    struct str body;
    struct error err;
    str_init(&body, 4096);
    assert_int_equal(
        http_get(&(struct http_remote){.url = address}, "/metrics", 200000, &body, &err),
        STATUS_TIMEOUT);
    char answer[4096];
    assert_int_equal(send(fds[0], request, strlen(request), MSG_NOSIGNAL), strlen(request));
    assert_true(recv(fds[0], answer, sizeof answer, 0) > 0);
    for (int i = 0; i < HTTP_MAX_CONNECTIONS + SURPLUS; i++)
        close(fds[i]);
    str_clear(&body);
    assert_int_equal(
        http_get(&(struct http_remote){.url = address}, "/metrics", SECOND_US * 5, &body, &err),
        STATUS_OK);
    str_deinit(&body);
}

static int connected_and_said(const char *address, const char *said)
{
    int fd = connected(address);
    say(fd, said);
    return fd;
}

static int set_up_impatient(void **state)
{
    return start_fixture(state, SECOND_US);
}

/* A client that sends nothing, or half a request, is disconnected. */
static void test_silence_is_limited(void **state)
{
    struct fixture *fixture = *state;
    const char *address = http_server_address(fixture->server);
    uint64_t begin_us = clock_now_us();
    struct pollfd silent[] = {
        {.fd = connected_and_said(address, ""), .events = POLLIN},
        {.fd = connected_and_said(address, "GET /metrics HTTP/1.1\r\nHo"), .events = POLLIN},
    };
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        char bytes[4096];
        do
            assert_int_equal(poll(&silent[i], 1, 9000), 1); /* shorter than the default */
        while (recv(silent[i].fd, bytes, sizeof bytes, 0) > 0);
        assert_true(clock_now_us() - begin_us >= 9 * SECOND_US / 10);
        close(silent[i].fd);
    }
    assert_int_equal(atomic_load(&calls), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_get, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_addresses_that_are_wrong, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_connections_are_limited, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_silence_is_limited, set_up_impatient, tear_down),
        cmocka_unit_test_setup_teardown(test_out_of_descriptors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_client_gives_up_in_time_and_at_its_limit, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_head_of_any_length_is_given_up, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
