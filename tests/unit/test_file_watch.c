/* file_watch: which changes are reported when files are replaced, written, removed and swapped
 * behind a link. */
#include "common/base/file_watch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define PATH_BYTES 256

static char folder[] = "/tmp/file_watch_XXXXXX";

static const char *path_of(const char *name, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    char path[PATH_BYTES];
    FILE *file = fopen(path_of(name, path), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Looks until nothing is fresh any more, so that later reports are about later changes. */
static void settle(struct file_watch *watch)
{
    for (bool fresh = true; fresh;) {
        (void)file_watch_changed(watch, watch->next_us);
        fresh = false;
        for (size_t i = 0; i < watch->count; i++)
            fresh |= watch->marks[i].fresh;
    }
}

static int set_up(void **state)
{
    char path[PATH_BYTES];
    struct file_watch *watch = malloc(sizeof *watch);
    strcpy(folder, "/tmp/file_watch_XXXXXX");
    if (!watch || !mkdtemp(folder))
        return -1;
    put("one", "1");
    put("two", "2");
    file_watch_init(watch, 0);
    struct error err;
    assert_int_equal(file_watch_add(watch, path_of("one", path), &err), STATUS_OK);
    assert_int_equal(file_watch_add(watch, path_of("two", path), &err), STATUS_OK);
    settle(watch);
    *state = watch;
    return 0;
}

static int tear_down(void **state)
{
    char command[PATH_BYTES];
    snprintf(command, sizeof command, "rm -r %s", folder);
    free(*state);
    return system(command);
}

static void test_what_is_written_and_replaced_is_told_once(void **state)
{
    struct file_watch *watch = *state;
    char from[PATH_BYTES], to[PATH_BYTES];
    assert_false(file_watch_changed(watch, 1));
    put("two", "22");
    assert_true(file_watch_changed(watch, 2));
    settle(watch);
    assert_false(file_watch_changed(watch, 3));
    put("new", "1");
    assert_int_equal(rename(path_of("new", from), path_of("one", to)), 0);
    assert_true(file_watch_changed(watch, 4));
    settle(watch);
    assert_false(file_watch_changed(watch, 5));
}

static void test_what_goes_and_comes_is_told(void **state)
{
    struct file_watch *watch = *state;
    char path[PATH_BYTES];
    assert_int_equal(unlink(path_of("one", path)), 0);
    assert_true(file_watch_changed(watch, 1));
    assert_false(file_watch_changed(watch, 2));
    put("one", "1");
    assert_true(file_watch_changed(watch, 3));
    struct error err;
    assert_int_equal(file_watch_add(watch, path_of("not yet", path), &err), STATUS_OK);
    settle(watch);
    put("not yet", "");
    assert_true(file_watch_changed(watch, 4));
}

/* As Kubernetes replaces the files of a secret: all at once, by a link. */
static void test_a_folder_swapped_behind_a_link_is_seen(void **state)
{
    struct file_watch *watch = *state;
    char path[PATH_BYTES], other[PATH_BYTES];
    assert_int_equal(mkdir(path_of("v1", path), 0700), 0);
    assert_int_equal(mkdir(path_of("v2", path), 0700), 0);
    put("v1/key", "a");
    put("v2/key", "a");
    assert_int_equal(symlink("v1", path_of("data", path)), 0);
    struct error err;
    assert_int_equal(file_watch_add(watch, path_of("data/key", path), &err), STATUS_OK);
    settle(watch);
    assert_int_equal(symlink("v2", path_of("data_new", path)), 0);
    assert_int_equal(rename(path_of("data_new", path), path_of("data", other)), 0);
    assert_true(file_watch_changed(watch, 1));
}

/* Two writes within one tick of the file system's clock look alike: a change that was reported
 * while it was fresh is reported again. */
static void test_a_fresh_file_is_told_again(void **state)
{
    struct file_watch *watch = *state;
    put("one", "3");
    assert_true(file_watch_changed(watch, 1));
    assert_true(watch->marks[0].fresh);
    bool again = false;
    while (watch->marks[0].fresh)
        again = file_watch_changed(watch, 2);
    assert_true(again);
    assert_false(file_watch_changed(watch, 3));
}

static void test_it_looks_once_an_interval(void **state)
{
    struct file_watch *watch = *state;
    watch->interval_us = 1000;
    assert_false(file_watch_changed(watch, 5000));
    put("one", "4");
    assert_false(file_watch_changed(watch, 5999));
    assert_true(file_watch_changed(watch, 6000));
}

static void test_files_and_paths_are_limited(void **state)
{
    struct file_watch *watch = *state;
    struct error err;
    char path[FILE_WATCH_MAX_PATH_BYTES + 1];
    memset(path, 'p', sizeof path);
    path[FILE_WATCH_MAX_PATH_BYTES] = 0;
    assert_int_equal(file_watch_add(watch, path, &err), STATUS_LIMIT);
    path[FILE_WATCH_MAX_PATH_BYTES - 1] = 0;
    while (watch->count < FILE_WATCH_MAX_FILES)
        assert_int_equal(file_watch_add(watch, path, &err), STATUS_OK);
    assert_int_equal(file_watch_add(watch, "more", &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "'more'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_written_and_replaced_is_told_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_goes_and_comes_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_folder_swapped_behind_a_link_is_seen, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_fresh_file_is_told_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_looks_once_an_interval, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_files_and_paths_are_limited, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
