/* reload: a change is reported once it has settled, in whatever way files are changed. Without a
 * change nothing is reported. */
#include "common/base/reload.h"

#include "common/base/clock.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LOOK_US 4000u

struct world {
    char folder[64], one[128], two[128], link[128];
    atomic_int told;
    int seen;
    struct reload *watch;
};

static void on_changed(void *context)
{
    atomic_fetch_add(&((struct world *)context)->told, 1);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Longer than a change needs to settle. */
static void look_a_while(void)
{
    for (uint64_t end_us = clock_now_us() + 300000; clock_now_us() < end_us;)
        poll(NULL, 0, LOOK_US / 1000);
}

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    strcpy(world->folder, "/tmp/baton-watch-XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    snprintf(world->one, sizeof world->one, "%s/one", world->folder);
    snprintf(world->two, sizeof world->two, "%s/two", world->folder);
    snprintf(world->link, sizeof world->link, "%s/link", world->folder);
    write_text(world->one, "1");
    write_text(world->two, "2");
    assert_int_equal(symlink(world->one, world->link), 0);
    struct reload_config config = {.paths = {world->link, "", NULL, world->two},
                                   .interval_us = LOOK_US,
                                   .changed = on_changed,
                                   .context = world};
    struct error err;
    assert_int_equal(reload_start(&config, &world->watch, &err), STATUS_OK);
    *state = world;
    look_a_while(); /* a change just now may be reported */
    world->seen = atomic_load(&world->told);
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    reload_stop(world->watch);
    unlink(world->link);
    unlink(world->one);
    unlink(world->two);
    rmdir(world->folder);
    free(world);
    return 0;
}

/* Waits for one more report; after it, no report is left. */
static void wait_told(struct world *world)
{
    uint64_t end_us = clock_now_us() + 20000000;
    while (atomic_load(&world->told) == world->seen) {
        assert_true(clock_now_us() < end_us);
        poll(NULL, 0, 1);
    }
    look_a_while();
    world->seen = atomic_load(&world->told);
}

static void test_nothing_is_told_of_nothing(void **state)
{
    struct world *world = *state;
    look_a_while();
    assert_int_equal(atomic_load(&world->told), world->seen);
}

static void test_a_file_that_is_written_replaced_or_linked_anew(void **state)
{
    struct world *world = *state;
    write_text(world->two, "another");
    wait_told(world);
    char beside[160];
    snprintf(beside, sizeof beside, "%s/beside", world->folder);
    write_text(beside, "2");
    assert_int_equal(rename(beside, world->two), 0);
    wait_told(world);
    assert_int_equal(symlink(world->two, beside), 0);
    assert_int_equal(rename(beside, world->link), 0);
    wait_told(world);
}

/* The last state is reported, however many came before it. */
static void test_many_changes_at_once(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < 50; i++) {
        write_text(i % 2 ? world->one : world->two, i % 3 ? "odd" : "even");
        poll(NULL, 0, 1);
    }
    wait_told(world);
    assert_true(world->seen < 25);
    write_text(world->two, "last");
    wait_told(world);
}

static void test_a_file_that_is_gone_and_comes_back(void **state)
{
    struct world *world = *state;
    unlink(world->two);
    wait_told(world); /* the reader reports that it is gone */
    write_text(world->two, "2");
    wait_told(world);
}

static void test_a_path_that_is_too_long(void **state)
{
    (void)state;
    char path[FILE_WATCH_MAX_PATH_BYTES + 1];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = 0;
    struct reload *reload;
    struct error err;
    struct reload_config config = {.paths = {path}, .changed = on_changed};
    assert_int_equal(reload_start(&config, &reload, &err), STATUS_LIMIT);
    config.paths[0] = path + 1;
    assert_int_equal(reload_start(&config, &reload, &err), STATUS_OK);
    reload_stop(reload);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_nothing_is_told_of_nothing),
        CASE(test_a_file_that_is_written_replaced_or_linked_anew),
        CASE(test_many_changes_at_once),
        CASE(test_a_file_that_is_gone_and_comes_back),
        cmocka_unit_test(test_a_path_that_is_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
