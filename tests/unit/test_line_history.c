/* line_history: which typed lines are there at the next start. */
#include "common/cli/line_editor.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static const char *path; /* path of the file */

static int begin(void **state)
{
    (void)state;
    static char file[128];
    strcpy(folder, "/tmp/baton-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/baton/chat_history", folder);
    setenv("XDG_STATE_HOME", folder, 1);
    line_editor_locale();
    path = file;
    return 0;
}

static int end(void **state)
{
    (void)state;
    char inner[96];
    snprintf(inner, sizeof inner, "%s/baton", folder);
    unlink(path);
    rmdir(inner);
    return rmdir(folder);
}

static struct line_history typed;

static void close_it(void)
{
    struct error err;
    assert_int_equal(line_history_close(&typed, &err), STATUS_OK);
}

static void test_lines_of_the_start_before(void **state)
{
    (void)state;
    struct stat info;
    line_history_open(&typed, true);
    line_history_add(&typed, "héllo wörld 日本");
    line_history_add(&typed, "two\n\tlines \\ and a backslash");
    line_history_add(&typed, "");
    line_history_add(&typed, "again");
    line_history_add(&typed, "again");
    close_it();
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    line_history_open(&typed, true);
    assert_string_equal(line_history_back(&typed, 1), "again");
    assert_string_equal(line_history_back(&typed, 2), "two\n\tlines \\ and a backslash");
    assert_string_equal(line_history_back(&typed, 3), "héllo wörld 日本");
    assert_null(line_history_back(&typed, 4));
    assert_int_equal(unlink(path), 0);
    close_it();
    assert_int_equal(stat(path, &info), -1); /* nothing came */
    line_history_open(&typed, false);
    line_history_add(&typed, "not for others");
    assert_string_equal(line_history_back(&typed, 1), "not for others");
    close_it();
    assert_int_equal(stat(path, &info), -1);
}

static void test_more_and_longer_lines_than_are_kept(void **state)
{
    (void)state;
    static char line[LINE_HISTORY_MAX_LINE_BYTES + 2];
    struct stat info;
    memset(line, '\n', LINE_HISTORY_MAX_LINE_BYTES); /* four bytes each in the file */
    line_history_open(&typed, true);
    for (int i = 0; i <= LINE_HISTORY_MAX_LINES; i++) {
        memcpy(line, (char[]){'a' + (char)(i / 26), 'a' + (char)(i % 26)}, 2);
        line_history_add(&typed, line);
    }
    line[LINE_HISTORY_MAX_LINE_BYTES] = 'x';
    line_history_add(&typed, line);
    assert_int_equal(strlen(line_history_back(&typed, 1)), LINE_HISTORY_MAX_LINE_BYTES);
    close_it();
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size <= (off_t)LINE_HISTORY_MAX_FILE_BYTES);
    line_history_open(&typed, true);
    assert_memory_equal(line_history_back(&typed, LINE_HISTORY_MAX_LINES), "ab\n", 3);
    assert_null(line_history_back(&typed, LINE_HISTORY_MAX_LINES + 1));
    close_it();
    assert_int_equal(truncate(path, (off_t)LINE_HISTORY_MAX_FILE_BYTES + 1), 0);
    line_history_open(&typed, true);
    assert_null(line_history_back(&typed, 1));
    close_it();
}

static void test_a_file_that_is_none_of_ours(void **state)
{
    (void)state;
    struct error err;
    line_history_open(&typed, true);
    line_history_add(&typed, "x");
    close_it();
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("no history\nof ours\n", file);
    fclose(file);
    line_history_open(&typed, true);
    assert_null(line_history_back(&typed, 1));
    line_history_add(&typed, "y");
    setenv("XDG_STATE_HOME", path, 1); /* a file where a folder should be */
    close_it();
    line_history_open(&typed, true);
    line_history_add(&typed, "z");
    assert_int_equal(line_history_close(&typed, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "Not a directory"));
    setenv("XDG_STATE_HOME", folder, 1);
    line_history_open(&typed, true);
    assert_string_equal(line_history_back(&typed, 1), "y");
    close_it();
}

/* Counts entries except the folder itself and its parent. */
static int count_entries(const char *of)
{
    DIR *entries = opendir(of);
    assert_non_null(entries);
    int count = 0;
    while (readdir(entries))
        count++;
    closedir(entries);
    return count - 2;
}

static void test_a_disk_that_is_full(void **state)
{
    (void)state;
    struct error err;
    struct rlimit before, few;
    char inner[96], line[1001] = {0};
    snprintf(inner, sizeof inner, "%s/baton", folder);
    line_history_open(&typed, true);
    line_history_add(&typed, "was there");
    close_it();
    line_history_open(&typed, true);
    for (char c = 'a'; c <= 'z'; c++)
        line_history_add(&typed, memset(line, c, sizeof line - 1));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    few = (struct rlimit){10000, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    enum status status = line_history_close(&typed, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, STATUS_IO);
    assert_non_null(strstr(err.text, "File too large"));
    assert_int_equal(count_entries(inner), 1);
    line_history_open(&typed, true);
    assert_string_equal(line_history_back(&typed, 1), "was there");
    close_it();
}

/* No program writes into the file of another one, living or killed. */
static void test_each_program_writes_a_file_of_its_own(void **state)
{
    (void)state;
    char taken[160];
    struct line_history other;
    struct error err;
    line_history_open(&typed, true);
    line_history_add(&typed, "x");
    close_it();
    snprintf(taken, sizeof taken, "%s.tmp", path);
    assert_int_equal(mkdir(taken, 0700), 0); /* the name that all had shared */
    line_history_open(&typed, true);
    line_history_open(&other, true);
    line_history_add(&typed, "y");
    line_history_add(&other, "z");
    close_it();
    assert_int_equal(line_history_close(&other, &err), STATUS_OK);
    assert_int_equal(rmdir(taken), 0);
    line_history_open(&typed, true);
    assert_string_equal(line_history_back(&typed, 1), "z");
    assert_string_equal(line_history_back(&typed, 2), "x");
    close_it();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lines_of_the_start_before, begin, end),
        cmocka_unit_test_setup_teardown(test_more_and_longer_lines_than_are_kept, begin, end),
        cmocka_unit_test_setup_teardown(test_a_file_that_is_none_of_ours, begin, end),
        cmocka_unit_test_setup_teardown(test_a_disk_that_is_full, begin, end),
        cmocka_unit_test_setup_teardown(test_each_program_writes_a_file_of_its_own, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
