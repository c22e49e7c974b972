/* log_echo: which lines of a log are repeated, after which name, how many, and that missing ones
 * are counted. */
#include "common/cli/process.h"

#include "common/base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/test_log_echo.XXXXXX";
static int log_fd;
static struct log_echo_room room;
static struct log_echo echo;

static int set_up(void **state)
{
    (void)state;
    memcpy(path + strlen(path) - 6, "XXXXXX", 6);
    log_fd = mkstemp(path);
    room = (struct log_echo_room){0};
    log_echo_init(&echo, path);
    return log_fd < 0;
}

static int tear_down(void **state)
{
    (void)state;
    close(log_fd);
    return unlink(path);
}

static void logged(const char *text)
{
    assert_int_equal(write(log_fd, text, strlen(text)), strlen(text));
}

/* Returns the text printed at that time; valid until the next call. */
static const char *said(uint64_t now_us, bool last)
{
    static char text[65536];
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    assert_true(file && before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    log_echo_take(&echo, &room, "decode-0", path, now_us, last);
    dup2(before, STDERR_FILENO);
    close(before);
    ssize_t count = pread(fileno(file), text, sizeof text - 1, 0);
    fclose(file);
    assert_true(count >= 0);
    text[count] = 0;
    return text;
}

static void test_warnings_and_errors_are_repeated(void **state)
{
    (void)state;
    logged("ts=1 level=info proc=x mod=y msg=\"well\"\n"
           "ts=1 level=warn proc=x mod=y msg=\"hm\"\n"
           "ts=1 level=debug proc=x mod=y msg=\"said level=error then\"\n"
           "level=error of somebody else's\n\n"
           "ts=1 level=error proc=x mod=y msg=\"oh\"\n");
    assert_string_equal(said(1, false), "decode-0: ts=1 level=warn proc=x mod=y msg=\"hm\"\n"
                                        "decode-0: ts=1 level=error proc=x mod=y msg=\"oh\"\n");
    assert_string_equal(said(2, false), "");
}

static void test_half_a_line_waits_for_the_rest(void **state)
{
    (void)state;
    logged("ts=1 level=warn msg=\"ha");
    assert_string_equal(said(1, false), "");
    logged("lf\"\n");
    assert_string_equal(said(2, false), "decode-0: ts=1 level=warn msg=\"half\"\n");
}

static void test_what_an_earlier_process_logged_is_not_repeated(void **state)
{
    (void)state;
    logged("ts=1 level=warn msg=\"old\"\n");
    log_echo_init(&echo, path);
    logged("ts=2 level=warn msg=\"new\"\n");
    assert_string_equal(said(1, false), "decode-0: ts=2 level=warn msg=\"new\"\n");
}

static void test_a_log_that_was_cut_is_read_anew(void **state)
{
    (void)state;
    logged("ts=1 level=warn msg=\"a long one\"\n");
    said(1, false);
    assert_int_equal(ftruncate(log_fd, 0), 0);
    assert_int_equal(lseek(log_fd, 0, SEEK_SET), 0);
    logged("ts=2 level=warn msg=\"b\"\n");
    assert_string_equal(said(2, false), "decode-0: ts=2 level=warn msg=\"b\"\n");
}

static size_t lines_of(const char *text)
{
    size_t lines = 0;
    for (; (text = strchr(text, '\n')); text++)
        lines++;
    return lines;
}

static void test_no_more_than_the_limit_and_the_rest_is_told(void **state)
{
    (void)state;
    char told[128];
    for (int i = 0; i < LOG_ECHO_LINES + 1; i++)
        logged("ts=1 level=warn msg=\"x\"\n");
    snprintf(told, sizeof told, "decode-0: 1 more of level=warn or level=error in %s\n", path);
    assert_int_equal(lines_of(said(LOG_ECHO_WINDOW_US, false)), LOG_ECHO_LINES);
    assert_string_equal(said(2 * LOG_ECHO_WINDOW_US - 1, false), "");
    assert_string_equal(said(2 * LOG_ECHO_WINDOW_US, false), told);
    for (int i = 0; i < LOG_ECHO_LINES + 1; i++)
        logged("ts=1 level=warn msg=\"x\"\n");
    const char *text =
        said(2 * LOG_ECHO_WINDOW_US + 1, true); /* reported at once: nothing comes after it */
    assert_int_equal(lines_of(text), LOG_ECHO_LINES + 1);
    assert_non_null(strstr(text, told));
}

static void test_warnings_are_no_news_at_the_end(void **state)
{
    (void)state;
    room.errors_only = true;
    logged("ts=1 level=warn msg=\"x\"\nts=1 level=error msg=\"y\"\n");
    assert_string_equal(said(LOG_ECHO_WINDOW_US, false), "decode-0: ts=1 level=error msg=\"y\"\n");
    logged("ts=2 level=warn msg=\"x\"\n");
    assert_string_equal(said(2 * LOG_ECHO_WINDOW_US, true), "");
}

static void test_long_logs_are_read_piece_by_piece(void **state)
{
    (void)state;
    static char line[100000];
    memset(line, 'x', sizeof line - 2);
    line[sizeof line - 2] = '\n';
    logged(line); /* no line of ours: passed over */
    for (int i = 0; i < 3000; i++)
        logged("ts=1 level=info proc=x mod=y msg=\"one of many\"\n");
    logged("ts=1 level=warn msg=\"behind them\"\n");
    assert_string_equal(said(1, false), "decode-0: ts=1 level=warn msg=\"behind them\"\n");
}

/* Writes zeros, a line that isn't ours, and then lines until the file has `bytes` bytes. */
static void logged_up_to(off_t bytes, const char *text)
{
    off_t begin = bytes - (off_t)strlen(text);
    assert_int_equal(ftruncate(log_fd, begin), 0);
    assert_int_equal(lseek(log_fd, begin, SEEK_SET), begin);
    logged(text);
}

static void test_a_log_that_grows_too_fast_is_read_at_its_end(void **state)
{
    (void)state;
    static const char old[] = "ts=1 level=error msg=\"old\"\n",
                      at_the_cut[] = "ts=2 level=error msg=\"at the cut\"\n";
    char told[300];
    for (int more = 0; more < 2;
         more++) { /* the cut is before the line, or behind its first byte */
        uint64_t passed = strlen(old) - 1 + (uint64_t)more;
        logged(old);
        off_t cut = lseek(log_fd, 0, SEEK_CUR) - 1 + more;
        logged(at_the_cut);
        logged_up_to(cut + LOG_ECHO_BACKLOG_BYTES, "\nts=3 level=error msg=\"newest\"\n");
        snprintf(told, sizeof told,
                 "decode-0: %d bytes of %s were passed over: it grows faster than it is read\n"
                 "%sdecode-0: ts=3 level=error msg=\"newest\"\n",
                 (int)passed, path, more ? "" : "decode-0: ts=2 level=error msg=\"at the cut\"\n");
        assert_string_equal(said((1 + (uint64_t)more) * LOG_ECHO_WINDOW_US, false), told);
    }
    off_t bytes = lseek(log_fd, 0, SEEK_CUR) + 7 + LOG_ECHO_BACKLOG_BYTES;
    logged_up_to(bytes, "\n");
    assert_string_equal(said(3 * LOG_ECHO_WINDOW_US - 1, false), ""); /* it was reported just now */
    snprintf(told, sizeof told, "decode-0: 7 bytes of %s were passed over", path);
    assert_non_null(strstr(said(3 * LOG_ECHO_WINDOW_US - 1, true), told));
}

/* If no process reads standard error, or the terminal is stopped, the logging thread goes on. It
 * reports later how much is missing. */
static void test_standard_error_that_nobody_reads_holds_nobody_up(void **state)
{
    (void)state;
    int fds[2], before = dup(STDERR_FILENO);
    char line[LOG_MAX_LINE_BYTES];
    memset(line, 'x', sizeof line);
    memcpy(line, "ts=1 level=warn ", 16);
    memcpy(line + sizeof line - 2, "\n", 2);
    assert_true(before >= 0 && pipe(fds) == 0 && dup2(fds[1], STDERR_FILENO) >= 0);
    log_init("test", LOG_INFO);
    uint64_t lost = log_lost_lines();
    alarm(20); /* if it waits, it waits for ever */
    for (uint64_t i = 1; i <= 10; i++) {
        for (int k = 0; k < LOG_ECHO_LINES + 1; k++)
            logged(line);
        log_echo_take(&echo, &room, "decode-0", path, i * LOG_ECHO_WINDOW_US, i == 10);
    }
    alarm(0);
    lost = log_lost_lines() - lost;
    dup2(before, STDERR_FILENO);
    log_init("test", LOG_INFO);
    close(before);
    close(fds[0]);
    close(fds[1]);
    assert_in_range(lost, 1, 10 * (LOG_ECHO_LINES + 1));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_warnings_and_errors_are_repeated),
        TEST(test_half_a_line_waits_for_the_rest),
        TEST(test_what_an_earlier_process_logged_is_not_repeated),
        TEST(test_a_log_that_was_cut_is_read_anew),
        TEST(test_no_more_than_the_limit_and_the_rest_is_told),
        TEST(test_warnings_are_no_news_at_the_end),
        TEST(test_long_logs_are_read_piece_by_piece),
        TEST(test_a_log_that_grows_too_fast_is_read_at_its_end),
        TEST(test_standard_error_that_nobody_reads_holds_nobody_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
