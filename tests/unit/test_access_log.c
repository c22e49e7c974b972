/* access_log: lines reach the file, also after it was moved away, and what can't be written is counted. */
#include "router/access_log.h"

#include "common/base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 20000 /* for what must come */

static struct metrics *metrics;
static struct counter *lost;
static char folder[] = "/tmp/baton-access-XXXXXX";

static void path_of(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", folder, name);
}

static size_t lines_of(const char *path)
{
    size_t lines = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int c; (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

static void say(struct access_log *log, const char *name)
{
    struct request_trace trace;
    request_trace_begin(&trace, &(struct trace_arrival){.name = name});
    request_trace_end(&trace, "ok", "eos", 1, 10);
    access_log_ended(log, &trace);
}

static void test_a_file_that_is_moved_away(void **state)
{
    (void)state;
    char path[256], moved[256];
    struct access_log *log;
    struct error err;
    path_of("a.log", path);
    path_of("a.log.1", moved);
    assert_int_equal(access_log_open(path, lost, &log, &err), STATUS_OK);
    say(log, "r1");
    access_log_brief(log, &(struct access_line_brief){.status = "malformed", .peer = "peer"});
    access_log_close(log);
    assert_int_equal(lines_of(path), 2);

    assert_int_equal(access_log_open(path, lost, &log, &err), STATUS_OK); /* goes on in it */
    assert_int_equal(rename(path, moved), 0);
    access_log_reopen(log);
    say(log, "r2");
    access_log_close(log);
    assert_int_equal(lines_of(moved), 2);
    assert_int_equal(lines_of(path), 1);
    assert_int_equal(unlink(path) || unlink(moved), 0);
}

/* Its folder is gone: the file that is open goes on. */
static void test_a_file_that_can_not_be_opened_again(void **state)
{
    (void)state;
    char inside[256], path[256], moved[256];
    struct access_log *log;
    struct error err;
    path_of("inside", inside);
    path_of("inside/a.log", path);
    path_of("a.log", moved);
    assert_int_equal(mkdir(inside, 0700), 0);
    assert_int_equal(access_log_open(path, lost, &log, &err), STATUS_OK);
    assert_int_equal(rename(path, moved) || rmdir(inside), 0);
    access_log_reopen(log);
    say(log, "r1");
    access_log_close(log);
    assert_int_equal(lines_of(moved), 1);
    assert_int_equal(unlink(moved), 0);
}

static void test_a_path_that_can_not_be_written(void **state)
{
    (void)state;
    struct access_log *log;
    struct error err;
    assert_int_equal(access_log_open(folder, lost, &log, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "access-log: cannot write to"));
    char longest[2000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(access_log_open(longest, lost, &log, &err), STATUS_INVALID);
}

static bool has_more(int reader)
{
    struct pollfd ready = {.fd = reader, .events = POLLIN};
    return poll(&ready, 1, 0) == 1;
}

/* So many lines come, each of them whole and of this request, and no more. */
static void expect_lines(int reader, const char *name, size_t count)
{
    char text[8192], *line;
    size_t length = 0;
    while (count > 0) {
        struct pollfd ready = {.fd = reader, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
        ssize_t got = read(reader, text + length, sizeof text - 1 - length);
        assert_true(got > 0);
        text[length += (size_t)got] = 0;
        line = text;
        for (char *end; count > 0 && (end = strchr(line, '\n')); line = end + 1, count--) {
            *end = 0;
            assert_int_equal(strncmp(line, "ts=", 3), 0);
            assert_non_null(strstr(line, name));
            assert_null(strstr(line + 3, "ts=20"));
        }
        length -= (size_t)(line - text);
        memmove(text, line, length + 1);
    }
    assert_int_equal(length, 0);
}

/* A fifo whose reader doesn't read: its writer stands still, the queue fills, and nobody waits. */
static void test_more_lines_than_may_wait(void **state)
{
    (void)state;
    char path[256];
    struct access_log *log;
    struct error err;
    path_of("fifo", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDWR);
    assert_true(reader >= 0);
    assert_int_equal(access_log_open(path, lost, &log, &err), STATUS_OK);
    char name[129];
    memset(name, 'r', sizeof name - 1);
    name[sizeof name - 1] = 0;
    for (int i = 0; i < 2 * ACCESS_LOG_MAX_LINES; i++)
        say(log, name);
    assert_true(counter_value(lost) > 0);
    size_t kept = 2 * ACCESS_LOG_MAX_LINES - counter_value(lost);
    assert_true(kept >= ACCESS_LOG_MAX_LINES);
    expect_lines(reader, name, kept);
    access_log_close(log);
    assert_false(has_more(reader)); /* who closes has written them all */
    close(reader);
    assert_int_equal(unlink(path), 0);
}

static int begin(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    log_init("test", LOG_ERROR);
    metrics = metrics_create();
    lost = metrics_counter(metrics, "lost", "Lost", NULL);
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    metrics_destroy(metrics);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_that_is_moved_away),
        cmocka_unit_test(test_a_file_that_can_not_be_opened_again),
        cmocka_unit_test(test_a_path_that_can_not_be_written),
        cmocka_unit_test(test_more_lines_than_may_wait),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
