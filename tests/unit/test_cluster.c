/* cluster: children that get ready, end early, ignore SIGTERM, die; shell scripts stand in for the programs. */
#include "common/cli/cluster.h"

#include "common/base/clock.h"
#include "common/base/str.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND_US 1000000u
#define READY                                                                                      \
    "echo '{\"role\": \"x\", \"pid\": 1, \"address\": \"a:1\", \"metrics\": \"a:2\"}' >&3; "

static struct cluster cluster;

static void start(const char *name, const char *script, const char *log_path)
{
    struct process_plan plan = {.role = "x",
                                .argv = {"/bin/sh", "-c", script},
                                .argc = 3,
                                .log_path = log_path,
                                .environment = {"TEST_CLUSTER=yes"},
                                .environment_count = 1};
    struct error err;
    str_copy(plan.name, sizeof plan.name, name);
    assert_int_equal(cluster_start(&cluster, &plan, NULL, &err), STATUS_OK);
}

static uint64_t in_seconds(unsigned seconds)
{
    return clock_now_us() + seconds * (uint64_t)SECOND_US;
}

static int set_up(void **state)
{
    (void)state;
    struct error err;
    return cluster_open(&cluster, &err) == STATUS_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    cluster_drain(&cluster, 0);
    cluster_close(&cluster);
    return 0;
}

static void test_ready_and_drain(void **state)
{
    (void)state;
    struct error err;
    start("router", READY "exec sleep 30", NULL);
    start("worker", "test \"$TEST_CLUSTER\" = yes || exit 9; " READY "exec sleep 30", NULL);
    assert_int_equal(cluster_wait_ready(&cluster, in_seconds(20), &err), STATUS_OK);
    assert_string_equal(cluster.processes[1].member.address, "a:1");
    assert_string_equal(cluster.processes[1].member.metrics, "a:2");
    assert_int_equal(cluster_running(&cluster), 2);
    assert_true(cluster_drain(&cluster, 20 * (uint64_t)SECOND_US));
    assert_int_equal(cluster_running(&cluster), 0);
    assert_int_equal(cluster.unexpected, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie, no child */
}

static void test_one_that_ends_before_it_is_ready(void **state)
{
    (void)state;
    struct error err;
    start("router", "exit 3", NULL);
    assert_int_equal(cluster_wait_ready(&cluster, in_seconds(20), &err), STATUS_UNAVAILABLE);
    assert_string_equal(err.text, "router ended with exit code 3 before it was ready");
}

static void test_one_that_never_gets_ready(void **state)
{
    (void)state;
    struct error err;
    start("router", "exec sleep 30", NULL);
    assert_int_equal(cluster_wait_ready(&cluster, clock_now_us() + 20000, &err), STATUS_TIMEOUT);
}

static void test_a_ready_line_that_is_nonsense(void **state)
{
    (void)state;
    struct error err;
    start("router", "echo nonsense >&3; exec sleep 30", NULL);
    assert_int_equal(cluster_wait_ready(&cluster, in_seconds(20), &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "signal 9"));
    start("worker", "head -c 600 /dev/zero >&3; exec sleep 30", NULL);
    while (cluster_running(&cluster))
        cluster_turn(&cluster, 20 * (uint64_t)SECOND_US);
}

static void test_a_child_that_dies_is_reaped_and_counted(void **state)
{
    (void)state;
    struct error err;
    start("router", READY "exec sleep 30", NULL);
    start("worker", READY "kill -9 $$", NULL);
    while (cluster_running(&cluster) == 2)
        cluster_turn(&cluster, 20 * (uint64_t)SECOND_US);
    assert_int_equal(cluster.unexpected, 1);
    char cause[128];
    process_describe_end(&cluster.processes[1], cause, sizeof cause);
    assert_string_equal(cause, "was killed by signal 9 (Killed)");
    assert_int_equal(kill(cluster.processes[1].member.pid, 0), -1);
    (void)err;
}

static void test_a_signal_to_stop_ends_the_waiting(void **state)
{
    (void)state;
    struct error err;
    start("router", "exec sleep 30", NULL);
    kill(getpid(), SIGTERM);
    assert_int_equal(cluster_wait_ready(&cluster, in_seconds(20), &err), STATUS_CANCELLED);
}

static void test_what_ignores_sigterm_is_killed(void **state)
{
    (void)state;
    struct error err;
    start("router", "trap '' TERM; " READY "exec sleep 30", NULL);
    assert_int_equal(cluster_wait_ready(&cluster, in_seconds(20), &err), STATUS_OK);
    assert_false(cluster_drain(&cluster, 50000));
    assert_int_equal(cluster_running(&cluster), 0);
}

static void test_the_log_file_and_its_tail(void **state)
{
    (void)state;
    char path[] = "/tmp/test_cluster.XXXXXX", tail[40];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    start("router", "for i in 1 2 3 4 5 6; do echo line number $i; done; echo error >&2; exit 1",
          path);
    while (cluster_running(&cluster))
        cluster_turn(&cluster, 20 * (uint64_t)SECOND_US);
    process_log_tail(&cluster.processes[0], tail, sizeof tail);
    assert_string_equal(tail, "line number 5\nline number 6\nerror\n");
    unlink(path);
}

static void test_a_program_that_is_not_there(void **state)
{
    (void)state;
    struct error err;
    struct process_plan plan = {
        .name = "router", .role = "x", .argv = {"/nowhere/baton-router"}, .argc = 1};
    assert_int_equal(cluster_start(&cluster, &plan, NULL, &err), STATUS_NOT_FOUND);
    assert_string_equal(err.text,
                        "cannot start router: /nowhere/baton-router: No such file or directory");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_ready_and_drain),
        TEST(test_one_that_ends_before_it_is_ready),
        TEST(test_one_that_never_gets_ready),
        TEST(test_a_ready_line_that_is_nonsense),
        TEST(test_a_child_that_dies_is_reaped_and_counted),
        TEST(test_a_signal_to_stop_ends_the_waiting),
        TEST(test_what_ignores_sigterm_is_killed),
        TEST(test_the_log_file_and_its_tail),
        TEST(test_a_program_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
