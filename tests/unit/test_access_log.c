/* access_log: lines reach the file, also after it was moved away, and lines that can't be written
 * are counted. */
#include "router/ops/access_log.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 20000 /* for lines that must come */

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

/* Its folder is gone: the log goes on with the open file. */
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

/* Expects exactly so many lines, each complete and of this request. */
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

/* A fifo with a reader that doesn't read: its writer blocks, the queue fills, and no caller
 * waits. */
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
    assert_false(has_more(reader)); /* a close has written all lines */
    close(reader);
    assert_int_equal(unlink(path), 0);
}

/* A fifo with a reader that reads nothing at all: the log still ends, and lost lines are
 * counted. */
static void test_an_end_that_does_not_wait_for_a_reader(void **state)
{
    (void)state;
    char path[256];
    struct access_log *log;
    struct error err;
    path_of("fifo", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(access_log_open(path, lost, &log, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "no process reads it"));
    FILE *reader = fopen(path, "r+");
    assert_non_null(reader);
    assert_int_equal(access_log_open(path, lost, &log, &err), STATUS_OK);
    uint64_t before = counter_value(lost);
    for (int i = 0; i < ACCESS_LOG_MAX_LINES; i++)
        say(log, "a-request-of-a-name-that-fills-the-fifo-a-little-sooner-than-others-do");
    access_log_close(log);
    assert_true(counter_value(lost) > before);
    fclose(reader);
    assert_int_equal(unlink(path), 0);
}

/* One line, which must come; without its end. */
static void read_line(int reader, char *line, size_t size)
{
    size_t length = 0;
    for (char last = 0; last != '\n'; length++) {
        struct pollfd ready = {.fd = reader, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
        assert_int_equal(read(reader, &last, 1), 1);
        assert_true(length < size);
        line[length] = last == '\n' ? 0 : last;
    }
}

static void on_signal(int number)
{
    (void)number;
}

/* A signal that comes while the writing thread waits costs no line. */
static void test_a_signal_in_the_middle_of_a_line(void **state)
{
    (void)state;
    enum { LINES = 1000 };
    char path[256], line[4096];
    struct access_log *log;
    struct error err;
    struct sigaction action = {.sa_handler = on_signal}; /* calls are not taken up again */
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    path_of("fifo", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDWR);
    assert_true(reader >= 0);
    assert_int_equal(access_log_open(path, lost, &log, &err), STATUS_OK);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &signals, NULL),
                     0); /* its thread alone gets them */
    uint64_t before = counter_value(lost);
    for (int i = 0; i < LINES; i++) {
        say(log, "r1");
        assert_int_equal(kill(getpid(), SIGUSR1), 0);
    }
    for (int i = 0; i < LINES; i++) {
        assert_int_equal(kill(getpid(), SIGUSR1), 0);
        read_line(reader, line, sizeof line);
        assert_memory_equal(line, "ts=", 3);
    }
    access_log_close(log);
    assert_int_equal(counter_value(lost), before);
    assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &signals, NULL), 0);
    close(reader);
    assert_int_equal(unlink(path), 0);
}

/* A disk that is full in the middle of a line: this line is lost, and the next one is separate. */
static void test_a_line_that_is_cut(void **state)
{
    (void)state;
    char path[256], line[4096];
    struct access_log *log;
    struct error err;
    struct rlimit whole, cut;
    path_of("a.log", path);
    uint64_t before = counter_value(lost);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    cut = (struct rlimit){30, whole.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &cut), 0);
    assert_int_equal(access_log_open(path, lost, &log, &err), STATUS_OK);
    say(log, "r1");
    uint64_t end_us = clock_now_us() + WAIT_MS * 1000u;
    while (counter_value(lost) == before) {
        assert_true(clock_now_us() < end_us);
        poll(NULL, 0, 1);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    say(log, "r2");
    access_log_close(log);
    assert_int_equal(counter_value(lost), before + 1);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_int_equal(strlen(line), 31);
    assert_non_null(fgets(line, sizeof line, file));
    assert_memory_equal(line, "ts=", 3);
    assert_non_null(strstr(line, " req=r2 "));
    assert_null(fgets(line, sizeof line, file));
    fclose(file);
    assert_int_equal(unlink(path), 0);
}

static void tell_stranger(struct access_log *log)
{
    access_log_brief(log, &(struct access_line_brief){
                              .status = "invalid_api_key", .peer = "10.9.8.7:6", .stranger = true});
}

/* Strangers write no more lines than their bucket has. Each of the others is counted, and lines of
 * requests that have a key go on. */
static void test_lines_of_strangers_are_bounded(void **state)
{
    (void)state;
    enum { CALLS = 3 * ACCESS_LOG_STRANGERS, KNOWN = 50 };
    char path[256], line[4096];
    struct access_log *log;
    struct error err;
    size_t told = 0, known = 0, left_out = 0, summaries = 0;
    path_of("a.log", path);
    uint64_t begin_us = clock_now_us();
    assert_int_equal(access_log_open(path, lost, &log, &err), STATUS_OK);
    for (int i = 0; i < CALLS; i++) {
        tell_stranger(log);
        if (i % (CALLS / KNOWN) == 0)
            say(log, "known");
    }
    access_log_close(log);
    uint64_t seconds = (clock_now_us() - begin_us) / 1000000 + 1;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        const char *lines = strstr(line, " status=left_out lines=");
        told += strstr(line, " peer=10.9.8.7:6 status=invalid_api_key\n") != NULL;
        known += strstr(line, " req=known ") != NULL;
        summaries += lines != NULL;
        if (lines) {
            left_out += strtoul(lines + strlen(" status=left_out lines="), NULL, 10);
            assert_non_null(strstr(lines, " more lines left out"));
        }
    }
    fclose(file);
    assert_int_equal(known, KNOWN);
    assert_int_equal(told + left_out, CALLS);
    assert_true(told >= ACCESS_LOG_STRANGERS);
    assert_true(told <= ACCESS_LOG_STRANGERS + seconds * ACCESS_LOG_STRANGERS / 60 + 1);
    assert_in_range(summaries, 1, seconds + 1);
    assert_int_equal(unlink(path), 0);
}

/* Returns how many lines of strangers the log accounts for: its own and those left out. */
static size_t strangers_told(const char *path)
{
    static const char left_out[] = " status=left_out lines=";
    char line[4096];
    size_t count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        const char *lines = strstr(line, left_out);
        count += lines ? strtoul(lines + strlen(left_out), NULL, 10)
                       : strstr(line, " status=invalid_api_key\n") != NULL;
    }
    fclose(file);
    return count;
}

static void test_lines_left_out_are_told_without_a_further_line(void **state)
{
    (void)state;
    enum { CALLS = ACCESS_LOG_STRANGERS + 100 };
    char path[256];
    struct access_log *log;
    struct error err;
    path_of("a.log", path);
    assert_int_equal(access_log_open(path, lost, &log, &err), STATUS_OK);
    for (int i = 0; i < CALLS; i++)
        tell_stranger(log);
    uint64_t end_us = clock_now_us() + 20000000;
    while (strangers_told(path) < CALLS && clock_now_us() < end_us)
        poll(NULL, 0, 20);
    assert_int_equal(strangers_told(path), CALLS);
    access_log_close(log);
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
        cmocka_unit_test(test_an_end_that_does_not_wait_for_a_reader),
        cmocka_unit_test(test_a_signal_in_the_middle_of_a_line),
        cmocka_unit_test(test_a_line_that_is_cut),
        cmocka_unit_test(test_lines_of_strangers_are_bounded),
        cmocka_unit_test(test_lines_left_out_are_told_without_a_further_line),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
