/* http_server with thousands of silent or slow clients: the cost of each, and that others are
 * served. tests/bench/http_load does it with more. And many that come at once, after a stop. */
#include "common/base/descriptors.h"
#include "tests/unit/http_fixture.h"

#include <dirent.h>
#include <malloc.h>

enum { IDLE = 2000, SLOW = 500, MORE_DESCRIPTORS = 100, QUIET = 50 };

static void on_now(void *context, struct http_exchange *exchange)
{
    (void)context;
    http_exchange_reply_text(exchange, 200, "now\n");
}

static atomic_bool holding, held;

/* Holds up its loop, as SIGSTOP holds up the process. */
static void on_hold(void *context, struct http_exchange *exchange)
{
    (void)context;
    atomic_store(&held, true);
    while (atomic_load(&holding))
        poll(NULL, 0, 1);
    http_exchange_reply_text(exchange, 200, "held\n");
}

static const struct http_route routes[] = {{"/now", HTTP_GET | HTTP_POST, on_now},
                                           {"/hold", HTTP_GET, on_hold}};
#define ROUTES (sizeof routes / sizeof *routes)
#define ASK    "GET /now HTTP/1.1\r\nHost: a\r\n\r\n"

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

/* Prints the memory that each of `count` more connections has taken since `before`. */
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

/* A request on a connection of its own, answered within a second although all the others are
 * there. */
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
    if (descriptors_raise(0) < 2 * (IDLE + SLOW) + MORE_DESCRIPTORS) {
        fail_msg("this test needs %d open files: raise the hard limit (ulimit -Hn)",
                 2 * (IDLE + SLOW) + MORE_DESCRIPTORS);
    }
    struct http_server *server;
    struct error err;
    struct http_server_config config = {
        .listen = "127.0.0.1:0", .routes = routes, .route_count = ROUTES, .max_connections = 4096};
    assert_int_equal(http_server_start(&config, &server, &err), STATUS_OK);
    const char *address = http_server_address(server);
    struct str heard;
    str_init(&heard, 65536);
    struct memory before = memory_now();
    for (int i = 0; i < IDLE; i++) { /* half of them sent a request before */
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

/* Returns the text after `name` in a file of /proc (NULL: at its beginning); "": no such file, or
 * line. */
static const char *told(const char *path, const char *name)
{
    static char line[256];
    FILE *file = fopen(path, "r");
    const char *found = NULL;
    while (file && !found && fgets(line, sizeof line, file))
        if (!name || !strncmp(line, name, strlen(name)))
            found = line + (name ? strlen(name) : 0);
    if (file)
        fclose(file);
    return found ? found : "";
}

/* How often the server's threads have gone to sleep. */
static long sleeps(void)
{
    DIR *threads = opendir("/proc/self/task");
    assert_non_null(threads);
    long count = 0;
    for (struct dirent *one; (one = readdir(threads));) {
        char path[300];
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", one->d_name);
        if (strcmp(told(path, NULL), "http\n") != 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", one->d_name);
        count += atol(told(path, "voluntary_ctxt_switches:"));
    }
    closedir(threads);
    return count;
}

/* Their thread isn't woken up to look at them before it is time for one. */
static void test_who_waits_wakes_nobody(void **state)
{
    (void)state;
    struct http_server *server;
    struct error err;
    struct http_server_config config = {
        .listen = "127.0.0.1:0", .routes = routes, .route_count = ROUTES, .body_us = SECOND_US};
    assert_int_equal(http_server_start(&config, &server, &err), STATUS_OK);
    const char *address = http_server_address(server);
    int idle[QUIET];
    struct str heard;
    str_init(&heard, 65536);
    for (int i = 0; i < QUIET; i++) {
        idle[i] = connected(address);
        say(idle[i], ASK);
        str_clear(&heard);
        assert_true(hear(idle[i], &heard, "now\n"));
    }
    int late = connected(address);
    say(late, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n");
    wait_connections(server, QUIET + 1);
    long before = sleeps();
    assert_true(before > 0);
    str_clear(&heard);
    assert_false(hear(late, &heard, NULL));
    assert_non_null(strstr(heard.data, " 408 "));
    long more = sleeps() - before;
    print_message("the server's thread slept %ld times in the second\n", more);
    assert_true(more < 8);
    for (int i = 0; i < QUIET; i++)
        close(idle[i]);
    close(late);
    str_deinit(&heard);
    http_server_stop(server);
}

#define CLOSE_ "Host: a\r\nConnection: close\r\n"

/* A loop that stands still longer than a request may take finds many more requests than it reads in
 * one turn, and all timers due. Whatever has come is answered: heads, the rest of a head or body,
 * and the next request of a connection that was idle. Only the client that fell silent is
 * late. */
static void test_what_has_come_counts_before_the_time(void **state)
{
    (void)state;
    enum { MANY = 100, LIMIT_US = 1000000 };
    static const char get[] = "GET /now HTTP/1.1\r\n" CLOSE_ "\r\n";
    struct http_server *server;
    struct error err;
    const struct http_server_config config = {.listen = "127.0.0.1:0",
                                              .routes = routes,
                                              .route_count = ROUTES,
                                              .max_connections = MANY + 2,
                                              .head_us = LIMIT_US,
                                              .body_us = LIMIT_US,
                                              .idle_us = LIMIT_US};
    assert_int_equal(http_server_start(&config, &server, &err), STATUS_OK);
    const char *address = http_server_address(server);
    struct str heard;
    str_init(&heard, 65536);
    uint64_t begun_us = clock_now_us();
    int fds[MANY], holder = connected(address), silent = connected(address);
    for (int i = 0; i < MANY; i++)
        fds[i] = connected(address);
    wait_connections(server, MANY + 2);
    atomic_store(&holding, true);
    atomic_store(&held, false);
    say(silent, "GET /now HTT");
    for (int i = 0; i < MANY; i++)
        if (i % 4 == 1)
            say(fds[i], "GET /now HTTP/1.1\r\n");
        else if (i % 4 == 2)
            say(fds[i], "POST /now HTTP/1.1\r\nContent-Length: 2\r\n" CLOSE_ "\r\n1");
        else if (i % 4 == 3)
            say(fds[i], "GET /now HTTP/1.1\r\nHost: a\r\n\r\n");
    for (int i = 3; i < MANY; i += 4) {
        str_clear(&heard);
        assert_true(hear(fds[i], &heard, "\r\n\r\n"));
    }
    say(holder, "GET /hold HTTP/1.1\r\n" CLOSE_ "\r\n");
    while (!atomic_load(&held))
        poll(NULL, 0, 1);
    bool in_time = clock_now_us() - begun_us < LIMIT_US; /* not on a machine that is overloaded */
    for (int i = 0; i < MANY; i++)
        say(fds[i], i % 4 == 1 ? CLOSE_ "\r\n" : i % 4 == 2 ? "2" : get);
    while (clock_now_us() - begun_us < 3 * LIMIT_US / 2)
        poll(NULL, 0, 10);
    atomic_store(&holding, false);
    for (int i = 0; i < MANY && in_time; i++) {
        str_clear(&heard);
        assert_false(hear(fds[i], &heard, NULL));
        assert_non_null(strstr(heard.data, " 200 OK"));
    }
    str_clear(&heard);
    assert_false(hear(silent, &heard, NULL));
    assert_non_null(strstr(heard.data, " 408 "));
    assert_true(in_time);
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    close(holder);
    close(silent);
    str_deinit(&heard);
    http_server_stop(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_thousands_of_connections),
                                       cmocka_unit_test(test_who_waits_wakes_nobody),
                                       cmocka_unit_test(test_what_has_come_counts_before_the_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
