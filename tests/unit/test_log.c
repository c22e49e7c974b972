/* log: lines are bounded. Whatever happens to standard error, logging neither waits nor ends the
 * process; lost lines are counted. */
#include "common/base/log.h"

#include "common/base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int real_stderr;

/* From here on `fd` is standard error; back with restore(). */
static void become(int fd)
{
    assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    log_init("test", LOG_INFO);
}

static void restore(void)
{
    assert_int_equal(dup2(real_stderr, STDERR_FILENO), STDERR_FILENO);
    log_init("test", LOG_INFO);
}

static size_t read_all(int fd, char *text, size_t size)
{
    size_t used = 0;
    for (ssize_t count; (count = read(fd, text + used, size - 1 - used)) > 0;)
        used += (size_t)count;
    text[used] = 0;
    return used;
}

static void test_a_long_line_is_cut(void **state)
{
    (void)state;
    int fds[2];
    char text[8192], longest[3000];
    assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    become(fds[1]);
    log_info("test", "msg=\"%s\"", longest);
    log_info("test", "msg=\"next\"");
    restore();
    read_all(fds[0], text, sizeof text);
    char *end = strchr(text, '\n');
    assert_non_null(end);
    assert_int_equal(end + 1 - text, LOG_MAX_LINE_BYTES);
    assert_non_null(strstr(end, "msg=\"next\"\n"));
    close(fds[0]);
    close(fds[1]);
}

/* A reader that doesn't read: the pipe fills, the rest is lost and counted. When it reads again, a
 * line reports the count. */
static void test_a_pipe_that_nobody_reads(void **state)
{
    (void)state;
    enum { LINES = 5000 };
    int fds[2];
    static char text[1 << 20];
    assert_int_equal(pipe(fds), 0);
    uint64_t before = log_lost_lines();
    alarm(20); /* if it waits, it waits for ever */
    become(fds[1]);
    for (int i = 0; i < LINES; i++)
        log_info("test", "line=%d msg=\"a line that takes some room in the pipe\"", i);
    alarm(0);
    uint64_t lost = log_lost_lines() - before;
    assert_in_range(lost, 1, LINES - 1);
    /* flags that others share are unchanged */
    assert_int_equal(fcntl(fds[1], F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
    read_all(fds[0], text, sizeof text);
    size_t seen = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        seen++;
    assert_int_equal(seen, LINES - lost); /* whole lines only */
    log_info("test", "msg=\"after\"");
    read_all(fds[0], text, sizeof text);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "lost=%llu msg=", (unsigned long long)lost);
    assert_non_null(strstr(text, wanted));
    assert_non_null(strstr(text, "msg=\"after\""));
    restore();
    close(fds[0]);
    close(fds[1]);
}

static void expect_lost(int fd)
{
    uint64_t before = log_lost_lines();
    become(fd);
    for (int i = 0; i < 3; i++)
        log_error("test", "msg=\"into the void\"");
    restore();
    assert_int_equal(log_lost_lines() - before, 3);
    close(fd);
}

static void test_nobody_can_ever_read(void **state)
{
    (void)state;
    int fds[2];
    signal(SIGPIPE, SIG_IGN); /* as the programs do */
    assert_int_equal(pipe(fds), 0);
    close(fds[0]);
    expect_lost(fds[1]);
    int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    expect_lost(full);
    signal(SIGPIPE, SIG_DFL);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    close(fds[0]);
    expect_lost(fds[1]); /* as a journal that went away; by itself without a signal */
}

static void test_a_journal_that_nobody_reads(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    uint64_t before = log_lost_lines();
    alarm(20);
    become(fds[1]);
    for (int i = 0; i < 20000 && log_lost_lines() == before; i++)
        log_info("test", "line=%d msg=\"a line that takes some room\"", i);
    alarm(0);
    restore();
    assert_true(log_lost_lines() > before);
    close(fds[0]);
    close(fds[1]);
}

/* A file keeps other processes' lines before and after. */
static void test_a_file_is_shared(void **state)
{
    (void)state;
    char path[] = "/tmp/test_log.XXXXXX", text[2048];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    become(fd);
    assert_int_equal(write(STDERR_FILENO, "first\n", 6), 6);
    log_info("test", "msg=\"second\"");
    assert_int_equal(write(STDERR_FILENO, "third\n", 6), 6);
    restore();
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    read_all(fd, text, sizeof text);
    assert_int_equal(strncmp(text, "first\n", 6), 0);
    assert_non_null(strstr(text, "msg=\"second\"\nthird\n"));
    close(fd);
    unlink(path);
}

/* Lines that a peer can cause as often as it likes are limited: so many at a time, and the next
 * line counts the missing ones. */
/* A disk that is full amid a line: that line is lost and counted, and each later one starts where a
 * line starts, also one of the process's next life. */
static void test_a_full_disk_tears_one_line(void **state)
{
    (void)state;
    enum { FIRST_BYTES = 40 };
    char path[] = "/tmp/test_log.XXXXXX", text[4096];
    int fd = mkostemp(path, O_APPEND);
    assert_true(fd >= 0);
    struct rlimit whole, cut;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    cut = (struct rlimit){FIRST_BYTES, whole.rlim_max};
    uint64_t before = log_lost_lines();
    become(fd);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &cut), 0);
    log_info("test", "msg=\"torn\"");
    log_info("test", "msg=\"no byte of it\"");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    log_info("test", "msg=\"whole\"");
    assert_int_equal(log_lost_lines() - before, 2);
    cut.rlim_cur = (rlim_t)lseek(fd, 0, SEEK_END) + FIRST_BYTES;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &cut), 0);
    log_info("test", "msg=\"torn again\"");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    log_init("test", LOG_INFO); /* as after a restart */
    log_info("test", "msg=\"the next life\"");
    restore();
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    read_all(fd, text, sizeof text);
    static const char *const parts[] = {NULL, " lost=2 ", " msg=\"whole\"",
                                        NULL, " lost=1 ", " msg=\"the next life\""};
    char *save = NULL, *line = strtok_r(text, "\n", &save);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_non_null(line);
        assert_memory_equal(line, "ts=", 3);
        if (!parts[i])
            assert_int_equal(strlen(line), FIRST_BYTES);
        else if (!strstr(line, parts[i]))
            fail_msg("%s", line);
        line = strtok_r(NULL, "\n", &save);
    }
    assert_null(line);
    close(fd);
    unlink(path);
}

static void test_a_place_has_a_budget_of_lines(void **state)
{
    (void)state;
    struct log_limit limit = LOG_LIMIT(LOG_LIMIT_LINES);
    uint64_t left_out = 1, now_us = 5;
    for (int i = 0; i < LOG_LIMIT_LINES; i++) {
        assert_true(log_limit_take(&limit, now_us, &left_out));
        assert_int_equal(left_out, 0);
    }
    assert_false(log_limit_take(&limit, now_us, &left_out));
    assert_false(log_limit_take(&limit, now_us + LOG_LIMIT_US - 1, &left_out));
    assert_true(log_limit_take(&limit, now_us + LOG_LIMIT_US, &left_out));
    assert_int_equal(left_out, 2);
    assert_true(log_limit_take(&limit, now_us + LOG_LIMIT_US, &left_out));
    assert_int_equal(left_out, 0);
}

/* How many lines of `what` are in the file. */
static size_t count_lines(int fd, const char *what)
{
    static char text[1 << 20];
    size_t seen = 0;
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    read_all(fd, text, sizeof text);
    for (const char *p = text; (p = strstr(p, what)); p++)
        seen++;
    return seen;
}

/* Many lines of one level of a place don't use up the budget of another level. */
static void test_each_level_of_a_place_has_its_budget(void **state)
{
    (void)state;
    char path[] = "/tmp/test_log.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    become(fd);
    for (int i = 0; i <= 10 * LOG_LIMIT_LINES; i++)
        log_limited(i == 10 * LOG_LIMIT_LINES ? LOG_WARN : LOG_INFO, "test", "line=%d", i);
    restore();
    assert_int_equal(count_lines(fd, "level=warn"), 1);
    close(fd);
    unlink(path);
}

/* Each of 256 workers that come at once gets its line, also in its next life. Still there is a
 * limit. */
static void test_all_of_a_cluster_that_starts_are_told(void **state)
{
    (void)state;
    enum { WORKERS = 256 };
    char path[] = "/tmp/test_log.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    become(fd);
    uint64_t begin_us = clock_now_us();
    for (int i = 0; i < 4 * WORKERS; i++)
        log_info_lifecycle("test", "worker=%d msg=\"joined\"", i);
    uint64_t windows = 1 + (clock_now_us() - begin_us) / LOG_LIMIT_US;
    restore();
    assert_in_range(count_lines(fd, "joined"), 2 * WORKERS, 2 * WORKERS * windows);
    close(fd);
    unlink(path);
}

static void test_a_word_is_one_printable_value(void **state)
{
    (void)state;
    char word[9];
    assert_string_equal(log_word("decode-0", word, sizeof word), "decode-0");
    assert_string_equal(log_word("decode-01", word, sizeof word), "decode-0");
    assert_string_equal(log_word("a b\n\"c\x7f", word, sizeof word), "a?b??c?");
    assert_string_equal(log_word("=\x80\xff~!", word, sizeof word), "=??~!");
    assert_string_equal(log_word("", word, sizeof word), "");
    assert_string_equal(log_word("x", word, 1), "");
}

static void test_what_was_left_out_stands_in_the_next_line(void **state)
{
    (void)state;
    char path[] = "/tmp/test_log.XXXXXX", text[1000];
    struct log_limit limit = LOG_LIMIT(LOG_LIMIT_LINES);
    uint64_t left_out;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (int i = 0; i < LOG_LIMIT_LINES + 7; i++)
        (void)log_limit_take(&limit, clock_now_us(), &left_out);
    limit.since_us -= LOG_LIMIT_US; /* it is long ago */
    become(fd);
    log_write_limited(&limit, LOG_WARN, "test", "msg=\"%s\"", "the next");
    log_write_limited(&limit, LOG_WARN, "test", "msg=\"%s\"", "another");
    restore();
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    read_all(fd, text, sizeof text);
    assert_non_null(strstr(text, " mod=test left_out=7 msg=\"the next\"\n"));
    assert_non_null(strstr(text, " mod=test msg=\"another\"\n"));
    close(fd);
    unlink(path);
}

static void test_a_clock_that_was_read_earlier_begins_no_window(void **state)
{
    (void)state;
    struct log_limit limit = {.most = 1, .busy = ATOMIC_FLAG_INIT};
    uint64_t left_out;
    assert_true(log_limit_take(&limit, 1000001, &left_out));
    assert_false(log_limit_take(&limit, 1000000, &left_out));
    assert_false(log_limit_take(&limit, 1000000 + LOG_LIMIT_US, &left_out));
    assert_true(log_limit_take(&limit, 1000001 + LOG_LIMIT_US, &left_out));
    assert_int_equal(left_out, 2);
}

static void *flood(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++)
        log_warn_limited("test", "line=%d msg=\"a line that somebody else causes\"", i);
    return NULL;
}

static void test_a_flood_is_a_few_lines(void **state)
{
    (void)state;
    char path[] = "/tmp/test_log.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    become(fd);
    pthread_t other;
    uint64_t begin_us = clock_now_us();
    assert_int_equal(pthread_create(&other, NULL, flood, NULL), 0);
    flood(NULL);
    pthread_join(other, NULL);
    uint64_t windows = 1 + (clock_now_us() - begin_us) / LOG_LIMIT_US;
    log_info_limited("test", "msg=\"another place\"");
    restore();
    assert_in_range(count_lines(fd, "somebody else causes"), LOG_LIMIT_LINES,
                    LOG_LIMIT_LINES * windows);
    assert_int_equal(count_lines(fd, "another place"), 1);
    close(fd);
    unlink(path);
}

int main(void)
{
    real_stderr = dup(STDERR_FILENO);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_long_line_is_cut),
        cmocka_unit_test(test_a_pipe_that_nobody_reads),
        cmocka_unit_test(test_nobody_can_ever_read),
        cmocka_unit_test(test_a_journal_that_nobody_reads),
        cmocka_unit_test(test_a_file_is_shared),
        cmocka_unit_test(test_a_full_disk_tears_one_line),
        cmocka_unit_test(test_a_place_has_a_budget_of_lines),
        cmocka_unit_test(test_each_level_of_a_place_has_its_budget),
        cmocka_unit_test(test_all_of_a_cluster_that_starts_are_told),
        cmocka_unit_test(test_a_word_is_one_printable_value),
        cmocka_unit_test(test_what_was_left_out_stands_in_the_next_line),
        cmocka_unit_test(test_a_clock_that_was_read_earlier_begins_no_window),
        cmocka_unit_test(test_a_flood_is_a_few_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
