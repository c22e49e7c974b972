/* cluster: children that get ready, end early, ignore SIGTERM, die; shell scripts stand in for the
 * programs. */
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
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND_US  1000000u
#define UNDER_FIRE 20 /* children */
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
    assert_int_equal(cluster_down(&cluster), 0);
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

/* The worker gets ready after the report of its slow start, which has the last whole line of its
 * log. */
static void test_a_start_that_takes_long_is_told_of(void **state)
{
    (void)state;
    char log_path[] = "/tmp/test_cluster.XXXXXX", said_path[] = "/tmp/test_cluster.XXXXXX";
    char script[512], said[512] = "";
    struct error err;
    int log = mkstemp(log_path), out = mkstemp(said_path), before = dup(STDERR_FILENO);
    assert_true(log >= 0 && out >= 0 && dup2(out, STDERR_FILENO) >= 0);
    snprintf(script, sizeof script,
             "echo 'ts=1 mod=weights msg=\"loading weights\" percent=44 left_s=4' >&2; "
             "printf 'ts=2 msg=\"hal' >&2; "
             "until grep -q percent=44 %s; do sleep 0.01; done; " READY "exec sleep 30",
             said_path);
    cluster.start_tell_us = 10000;
    start("worker", script, log_path);
    enum status status = cluster_wait_ready(&cluster, in_seconds(20), &err);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    assert_int_equal(status, STATUS_OK);
    assert_true(pread(out, said, sizeof said - 1, 0) > 0);
    assert_non_null(strstr(said, "waiting_for=worker log=/tmp/test_cluster."));
    assert_non_null(strstr(said, " msg=\"loading weights\" percent=44 left_s=4\n"));
    assert_null(strstr(said, "hal"));
    close(log);
    close(out);
    close(before);
    unlink(log_path);
    unlink(said_path);
}

static void test_a_ready_line_that_is_nonsense(void **state)
{
    (void)state;
    struct error err;
    start("router", "echo nonsense >&3; exec sleep 30", NULL);
    assert_int_equal(cluster_wait_ready(&cluster, in_seconds(20), &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "signal 15"));
    start("worker", "head -c 600 /dev/zero >&3; exec sleep 30", NULL);
    while (cluster_running(&cluster))
        cluster_turn(&cluster, 20 * (uint64_t)SECOND_US);
}

static void test_a_child_that_dies_is_reaped_and_counted(void **state)
{
    (void)state;
    start("router", READY "exec sleep 30", NULL);
    start("worker", READY "kill -9 $$", NULL);
    while (cluster_running(&cluster) == 2)
        cluster_turn(&cluster, 20 * (uint64_t)SECOND_US);
    assert_int_equal(cluster_down(&cluster), 1);
    char cause[128];
    process_describe_end(&cluster.processes[1], cause, sizeof cause);
    assert_string_equal(cause, "was killed by signal 9 (Killed)");
    assert_int_equal(kill(cluster.processes[1].member.pid, 0), -1);
}

/* Starts a stand-in that listens on an address ($0) and writes it to a file ($1). */
static void start_listener(const char *name, const char *script, bool must_keep)
{
    struct process_plan plan = {.role = "x",
                                .argv = {"/bin/sh", "-c", script, "any", "any"},
                                .argc = 5,
                                .listen_at = 3,
                                .metrics_at = 4,
                                .must_keep_address = must_keep,
                                .environment = {"BATON_FAILPOINTS=x"},
                                .environment_count = 1};
    struct error err;
    str_copy(plan.name, sizeof plan.name, name);
    assert_int_equal(cluster_start(&cluster, &plan, NULL, &err), STATUS_OK);
}

/* The child's arguments show its life: $0 has the address, the environment the failpoints. */
#define LISTENER                                                                                   \
    "a=$0; m=$1; test $a != any || a=a:$$; test $m != any || m=m:$$; "                             \
    "echo '{\"address\": \"'$a'\", \"metrics\": \"'$m$BATON_FAILPOINTS'\"}' >&3; exec sleep 30"

static void turn_until_back(size_t index, uint32_t restarts)
{
    uint64_t deadline_us = in_seconds(20);
    while (cluster.processes[index].state != PROCESS_READY ||
           cluster.care[index].restart.count != restarts) {
        assert_true(clock_now_us() < deadline_us);
        cluster_turn(&cluster, SECOND_US);
    }
}

static void test_what_died_is_back_at_its_address_without_failpoints(void **state)
{
    (void)state;
    struct error err;
    start_listener("router", LISTENER, true);
    assert_int_equal(cluster_wait_ready(&cluster, in_seconds(20), &err), STATUS_OK);
    cluster_keep(&cluster, 50000, 20 * (uint64_t)SECOND_US);
    cluster.changed = false;
    struct cluster_member first = cluster.processes[0].member;
    assert_non_null(strstr(first.metrics, "x")); /* its failpoints */
    kill(first.pid, SIGKILL);
    turn_until_back(0, 1);
    const struct cluster_member *again = &cluster.processes[0].member;
    assert_true(cluster.changed);
    assert_int_equal(cluster_down(&cluster), 0);
    assert_int_equal(again->restarts, 1);
    assert_int_not_equal(again->pid, first.pid);
    assert_string_equal(again->address, first.address);
    assert_string_equal(again->metrics, first.metrics); /* its own argument: nothing was appended */
    assert_true(cluster_drain(&cluster, 20 * (uint64_t)SECOND_US));
}

/* The second life can't have the first one's address: a worker takes any, the router insists. */
static void test_an_address_that_is_taken(void **state)
{
    (void)state;
    struct error err;
    static const char script[] = "test $1 = any || exit 1; " LISTENER;
    start_listener("router", script, true);
    start_listener("worker", script, false);
    assert_int_equal(cluster_wait_ready(&cluster, in_seconds(20), &err), STATUS_OK);
    cluster_keep(&cluster, 50000, 20 * (uint64_t)SECOND_US);
    struct cluster_member router = cluster.processes[0].member,
                          worker = cluster.processes[1].member;
    kill(router.pid, SIGKILL);
    kill(worker.pid, SIGKILL);
    turn_until_back(0, 2);
    turn_until_back(1, 2);
    assert_string_equal(cluster.processes[0].member.address, router.address);
    assert_string_not_equal(cluster.processes[0].member.metrics, router.metrics);
    assert_string_not_equal(cluster.processes[1].member.address, worker.address);
}

static void test_what_never_gets_ready_again_is_ended_and_tried_again(void **state)
{
    (void)state;
    struct error err;
    start_listener("router", "test $1 = any || exec sleep 30; " LISTENER, true);
    assert_int_equal(cluster_wait_ready(&cluster, in_seconds(20), &err), STATUS_OK);
    cluster_keep(&cluster, 10000, 50000);
    kill(cluster.processes[0].member.pid, SIGKILL);
    turn_until_back(0, 2);
}

static void test_what_is_down_at_the_end_is_told(void **state)
{
    (void)state;
    struct error err;
    start("router", READY "exec sleep 30", NULL);
    start("worker", READY "exec sleep 30", NULL);
    assert_int_equal(cluster_wait_ready(&cluster, in_seconds(20), &err), STATUS_OK);
    cluster_keep(&cluster, 60 * (uint64_t)SECOND_US, 60 * (uint64_t)SECOND_US);
    cluster.care[1].restart = (struct restart){.in_a_row = 9, .wait_us = 30 * SECOND_US};
    kill(cluster.processes[1].member.pid, SIGKILL);
    while (cluster_running(&cluster) == 2)
        cluster_turn(&cluster, 20 * (uint64_t)SECOND_US);
    assert_int_equal(cluster_down(&cluster), 1);
    assert_true(cluster_drain(&cluster, 20 * (uint64_t)SECOND_US));
    assert_int_equal(cluster_down(&cluster), 1);
}

static void test_one_that_crashes_in_the_drain_is_told(void **state)
{
    (void)state;
    struct error err;
    start("router", "trap 'kill -9 $$' TERM; " READY "while :; do sleep 0.01; done", NULL);
    assert_int_equal(cluster_wait_ready(&cluster, in_seconds(20), &err), STATUS_OK);
    assert_true(cluster_drain(&cluster, 20 * (uint64_t)SECOND_US));
    assert_int_equal(cluster_down(&cluster), 1);
}

/* A starting process has nothing to drain: it isn't waited for, however long its start would take,
 * but it may end by itself. */
static void test_one_that_is_still_starting_is_ended_at_once(void **state)
{
    (void)state;
    char path[] = "/tmp/test_cluster.XXXXXX", log[16] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    start("router", "trap '' TERM; exec sleep 30", NULL);
    start("worker", "trap 'echo swept; exit' TERM; echo up; while :; do sleep 0.01; done", path);
    while (pread(fd, log, 3, 0) < 3) /* its trap is set */
        cluster_turn(&cluster, 1000);
    uint64_t begin_us = clock_now_us();
    assert_true(cluster_drain(&cluster, 60 * (uint64_t)SECOND_US));
    assert_true(clock_now_us() - begin_us < 20 * (uint64_t)SECOND_US);
    assert_int_equal(cluster_down(&cluster), 0);
    assert_true(pread(fd, log, sizeof log - 1, 0) > 0);
    assert_string_equal(log, "up\nswept\n");
    assert_int_equal(cluster.processes[1].wait_status, 0);
    close(fd);
    unlink(path);
}

/* Starts a process group, as at a terminal. The whole group gets SIGINT all the time. */
static int start_under_fire(void)
{
    setpgid(0, 0);
    struct error err;
    static struct cluster inner;
    if (cluster_open(&inner, &err) != STATUS_OK)
        return 1;
    stop_signals_close(&inner.stop); /* they stay blocked here: the fire is for the children */
    pid_t parent = getpid(), gunner = fork();
    if (gunner == 0) {
        signal(SIGINT, SIG_IGN);
        while (getppid() == parent)
            kill(0, SIGINT);
        _exit(0);
    }
    bool whole = true;
    for (int i = 0; i < UNDER_FIRE; i++) {
        struct process_plan plan = {.name = "router",
                                    .role = "x",
                                    .argv = {"/bin/sh", "-c", READY "exec sleep 30"},
                                    .argc = 3};
        whole = whole && cluster_start(&inner, &plan, NULL, &err) == STATUS_OK;
    }
    whole = whole && cluster_wait_ready(&inner, in_seconds(20), &err) == STATUS_OK;
    kill(gunner, SIGKILL);
    for (size_t i = 0; i < inner.count; i++)
        if (inner.processes[i].state != PROCESS_ENDED)
            kill(inner.processes[i].member.pid, SIGKILL);
    return whole ? 0 : 1;
}

/* Ctrl-C is the parent's to deal with, also between a child's first moment and its own process
 * group. */
static void test_ctrl_c_never_hits_a_child(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(start_under_fire());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
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

static void ask_again(int number)
{
    (void)number;
    kill(getpid(), SIGTERM);
}

/* Ends at the second signal that it takes. */
#define STUBBORN "n=0; trap 'n=$((n+1))' TERM; " READY "while test $n -lt 2; do sleep 0.01; done"
#define DEAF     "trap '' TERM; " READY "exec sleep 30"

/* Sends the second signal to stop. It is passed on, and processes that end by it end in order.
 * `deaf`: one of the two doesn't end. */
static void ask_twice(const char *router, const char *worker, bool deaf)
{
    struct error err;
    start("router", router, NULL);
    start("worker", worker, NULL);
    if (deaf)
        cluster.end_grace_us = 2 * CLUSTER_TELL_AGAIN_US;
    assert_int_equal(cluster_wait_ready(&cluster, in_seconds(20), &err), STATUS_OK);
    signal(SIGALRM, ask_again);
    const struct timeval soon = {.tv_usec = 100000};
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value = soon}, NULL);
    assert_int_equal(cluster_drain(&cluster, 60 * (uint64_t)SECOND_US), !deaf);
    assert_int_equal(cluster.forced, deaf);
    assert_int_equal(cluster_down(&cluster), 0); /* it got the signal */
}

static void test_a_second_signal_is_passed_on(void **state)
{
    (void)state;
    ask_twice(STUBBORN, READY "exec sleep 30", false);
    assert_int_equal(cluster.processes[0].wait_status, 0);
    assert_int_equal(WTERMSIG(cluster.processes[1].wait_status), SIGTERM);
}

/* Workers that had got no signal before, and would drain at the first one. */
static void test_a_second_signal_is_passed_on_to_the_workers(void **state)
{
    (void)state;
    ask_twice(STUBBORN, STUBBORN, false);
    assert_int_equal(cluster.processes[0].wait_status, 0);
    assert_int_equal(cluster.processes[1].wait_status, 0);
}

static void test_a_worker_that_ignores_a_second_signal_is_killed(void **state)
{
    (void)state;
    ask_twice(STUBBORN, DEAF, true);
    assert_int_equal(cluster.processes[0].wait_status, 0);
    assert_int_equal(WTERMSIG(cluster.processes[1].wait_status), SIGKILL);
}

static void test_what_ignores_a_second_signal_is_killed(void **state)
{
    (void)state;
    ask_twice(DEAF, READY "exec sleep 30", true);
    assert_int_equal(WTERMSIG(cluster.processes[0].wait_status), SIGKILL);
    assert_int_equal(WTERMSIG(cluster.processes[1].wait_status), SIGTERM); /* it was asked */
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
        TEST(test_a_start_that_takes_long_is_told_of),
        TEST(test_a_ready_line_that_is_nonsense),
        TEST(test_a_child_that_dies_is_reaped_and_counted),
        TEST(test_what_died_is_back_at_its_address_without_failpoints),
        TEST(test_an_address_that_is_taken),
        TEST(test_what_never_gets_ready_again_is_ended_and_tried_again),
        TEST(test_what_is_down_at_the_end_is_told),
        TEST(test_one_that_crashes_in_the_drain_is_told),
        TEST(test_one_that_is_still_starting_is_ended_at_once),
        TEST(test_ctrl_c_never_hits_a_child),
        TEST(test_a_signal_to_stop_ends_the_waiting),
        TEST(test_what_ignores_sigterm_is_killed),
        TEST(test_a_second_signal_is_passed_on),
        TEST(test_a_second_signal_is_passed_on_to_the_workers),
        TEST(test_a_worker_that_ignores_a_second_signal_is_killed),
        TEST(test_what_ignores_a_second_signal_is_killed),
        TEST(test_the_log_file_and_its_tail),
        TEST(test_a_program_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
