/* http_server with thousands of clients that say nothing, or little: what each costs, and whether others are served. tests/bench/http_load does it with more. */
#include "common/base/descriptors.h"
#include "tests/unit/http_fixture.h"

#include <malloc.h>

enum { IDLE = 2000, SLOW = 500, MORE_DESCRIPTORS = 100 };

static void on_now(void *context, struct http_exchange *exchange)
{
    (void)context;
    http_exchange_reply_text(exchange, 200, "now\n");
}

static const struct http_route routes[] = {{"/now", HTTP_GET | HTTP_POST, on_now}};
#define ASK "GET /now HTTP/1.1\r\nHost: a\r\n\r\n"

static size_t resident_bytes(void)
{
    size_t pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu %zu", &pages, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

struct memory {
    size_t allocated, resident;
};

static struct memory memory_now(void)
{
    return (struct memory){mallinfo2().uordblks, resident_bytes()};
}

/* What `count` connections more have taken since, each; printed. */
static size_t tell(const char *what, struct memory before, int count)
{
    struct memory now = memory_now();
    size_t allocated = now.allocated > before.allocated ? now.allocated - before.allocated : 0;
    size_t resident = now.resident > before.resident ? now.resident - before.resident : 0;
    print_message("%d %s: %zu bytes allocated, %zu bytes resident each\n", count, what,
                  allocated / (size_t)count, resident / (size_t)count);
    return allocated / (size_t)count;
}

static void wait_connections(struct http_server *server, uint64_t count)
{
    struct http_figures figures;
    do
        http_server_figures(server, &figures);
    while (figures.connections != count);
}

/* A request on a connection of its own, answered within a second although all the others are there. */
static void ask(const char *address)
{
    struct str body;
    struct error err;
    str_init(&body, 64);
    assert_int_equal(
        http_get(&(struct http_remote){.url = address}, "/now", SECOND_US, &body, &err), STATUS_OK);
    str_deinit(&body);
}

static void test_thousands_of_connections(void **state)
{
    (void)state;
    static int idle[IDLE], slow[SLOW];
    if (descriptors_raise() < 2 * (IDLE + SLOW) + MORE_DESCRIPTORS) {
        fail_msg("this test needs %d open files: raise the hard limit (ulimit -Hn)",
                 2 * (IDLE + SLOW) + MORE_DESCRIPTORS);
    }
    struct http_server *server;
    struct error err;
    struct http_server_config config = {
        .listen = "127.0.0.1:0", .routes = routes, .route_count = 1, .max_connections = 4096};
    assert_int_equal(http_server_start(&config, &server, &err), STATUS_OK);
    const char *address = http_server_address(server);
    struct str heard;
    str_init(&heard, 65536);
    struct memory before = memory_now();
    for (int i = 0; i < IDLE; i++) { /* half of them were of use before */
        idle[i] = connected(address);
        str_clear(&heard);
        if (i % 2 == 0) {
            say(idle[i], ASK);
            assert_true(hear(idle[i], &heard, "now\n"));
        }
    }
    wait_connections(server, IDLE);
    assert_true(tell("idle connections", before, IDLE) < 2048);
    ask(address);
    wait_connections(server, IDLE);
    before = memory_now();
    for (int i = 0; i < SLOW; i++) {
        slow[i] = connected(address);
        say(slow[i], i % 2 ? "GET /now HTTP/1.1\r\nX: y"
                           : "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx");
    }
    wait_connections(server, IDLE + SLOW);
    ask(address);
    assert_true(tell("slow clients", before, SLOW) < 8192);
    for (int i = 0; i < IDLE; i++)
        close(idle[i]);
    for (int i = 0; i < SLOW; i++)
        close(slow[i]);
    wait_connections(server, 0);
    str_deinit(&heard);
    http_server_stop(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_thousands_of_connections)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
