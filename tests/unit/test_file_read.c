/* Reads a file as a whole, up to its limit. An error names the file and the reason. */
#include "common/base/file_read.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/baton_file_read_XXXXXX";

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_bytes(const char *bytes, size_t length)
{
    int fd = open(path, O_WRONLY | O_TRUNC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, length), (ssize_t)length);
    assert_int_equal(close(fd), 0);
}

static void expect_bytes(const char *expected, size_t expected_length, size_t limit)
{
    char *bytes;
    size_t length;
    struct error err;
    write_bytes(expected, expected_length);
    assert_int_equal(file_read(path, limit, &bytes, &length, &err), STATUS_OK);
    assert_int_equal(length, expected_length);
    assert_memory_equal(bytes, expected, length);
    assert_int_equal(bytes[length], 0);
    free(bytes);
}

static void test_all_bytes_come(void **state)
{
    (void)state;
    expect_bytes("", 0, 8);
    expect_bytes("", 0, 0);
    expect_bytes("a\0b\n", 4, 8);
}

static void test_a_limit(void **state)
{
    (void)state;
    char *bytes = NULL;
    size_t length = 7;
    struct error err;
    expect_bytes("12345678", 8, 8);
    write_bytes("123456789", 9);
    assert_int_equal(file_read(path, 8, &bytes, &length, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, " has over 8 bytes"));
    assert_null(bytes);
    assert_int_equal(length, 7);
}

static void test_what_cannot_be_read(void **state)
{
    (void)state;
    char *bytes = NULL;
    size_t length;
    struct error err;
    assert_int_equal(file_read("/nowhere/file", 8, &bytes, &length, &err), STATUS_IO);
    assert_string_equal(err.text, "cannot read /nowhere/file: No such file or directory");
    assert_int_equal(file_read("/tmp", 8, &bytes, &length, &err), STATUS_IO);
    assert_string_equal(err.text, "cannot read /tmp: Is a directory");
    assert_null(bytes);
}

static void test_what_git_lfs_left(void **state)
{
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:1\n";
    assert_true(file_is_lfs_pointer(pointer, sizeof pointer - 1));
    assert_true(file_is_lfs_pointer(pointer, 40));
    assert_false(file_is_lfs_pointer(pointer, 39));
    assert_false(file_is_lfs_pointer(pointer + 1, sizeof pointer - 2));
}

static void test_files_of_others(void **state)
{
    (void)state;
    static const struct {
        mode_t mode;
        bool open;
    } cases[] = {{0600, false}, {0400, false}, {0640, false}, {0440, false},
                 {0700, false}, {0644, true},  {0604, true},  {0602, true},
                 {0620, true},  {0660, true},  {0666, true}};
    char mode[8], text[8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(chmod(path, cases[i].mode), 0);
        assert_int_equal(file_is_open_to_others(path, mode), cases[i].open);
        snprintf(text, sizeof text, "%04o", (unsigned)cases[i].mode);
        assert_string_equal(mode, text);
    }
    assert_int_equal(chmod(path, 0600), 0);
    assert_false(file_is_open_to_others("/nowhere/file", mode));
    assert_string_equal(mode, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_bytes_come),      cmocka_unit_test(test_a_limit),
        cmocka_unit_test(test_what_cannot_be_read), cmocka_unit_test(test_what_git_lfs_left),
        cmocka_unit_test(test_files_of_others),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
