/* failpoint: armed points, refused specifications, recorded hits, and a file that changes while the
 * program runs. */
#include "common/base/failpoint.h"

#include "common/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/baton-failpoint-XXXXXX";
static char log_path[128], spec_path[128];

static int setup(void **state)
{
    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    snprintf(spec_path, sizeof spec_path, "%s/spec", folder);
    setenv("BATON_FAILPOINT_LOG", log_path, 1);
    setenv("BATON_FAILPOINTS_ALLOW", "1", 1); /* this test is built for release, too */
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(log_path);
    unlink(spec_path);
    return rmdir(folder);
}

static void arm(const char *spec)
{
    struct error err;
    setenv("BATON_FAILPOINTS", spec, 1);
    if (failpoint_init("decode-0", &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void write_spec(const char *text)
{
    char other[160];
    snprintf(other, sizeof other, "%s.new", spec_path);
    FILE *file = fopen(other, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(other, spec_path), 0);
}

static void expect_log(const char *text)
{
    char seen[512] = "";
    FILE *file = fopen(log_path, "r");
    if (file) {
        seen[fread(seen, 1, sizeof seen - 1, file)] = 0;
        fclose(file);
    }
    char pid[16];
    snprintf(pid, sizeof pid, "%d ", (int)getpid());
    for (char *at; (at = strstr(seen, pid));)
        memmove(at, at + strlen(pid), strlen(at + strlen(pid)) + 1);
    assert_string_equal(seen, text);
}

static void test_nothing_is_armed_by_default(void **state)
{
    (void)state;
    arm("");
    assert_false(failpoint_armed);
    assert_false(FAILPOINT_FAILS("decode.flip"));
    expect_log("");
}

static void test_the_nth_hit_and_every_hit(void **state)
{
    (void)state;
    arm("decode.flip=fail@2,decode-0:decode.reading=log@*,prefill-0:prefill.taken=log");
    assert_true(failpoint_armed);
    assert_false(FAILPOINT_FAILS("decode.flip"));
    assert_true(FAILPOINT_FAILS("decode.flip"));
    assert_false(FAILPOINT_FAILS("decode.flip"));
    FAILPOINT("decode.reading");
    FAILPOINT("decode.reading");
    FAILPOINT("prefill.taken"); /* another process's */
    expect_log("decode.flip fail 2 decode-0\ndecode.reading log 1 decode-0\n"
               "decode.reading log 2 decode-0\n");
}

static void test_only_hits_about_the_subject_count(void **state)
{
    (void)state;
    arm("decode.taken/bad/one=log@2");
    FAILPOINT_OF("decode.taken", "bad/one");
    FAILPOINT_OF("decode.taken", "good");
    FAILPOINT_OF("decode.taken", "");
    expect_log("");
    FAILPOINT_OF("decode.taken", "bad/one");
    expect_log("decode.taken log 2 decode-0\n");
}

/* The client chooses a request id: the separators of the other parts have no meaning in it. */
static void test_a_subject_is_any_text(void **state)
{
    (void)state;
    arm("decode.taken/a:b=log");
    FAILPOINT_OF("decode.taken", "a:b");
    arm("decode-0:decode.taken/x/a:b=c@2=log@2");
    FAILPOINT_OF("decode.taken", "x/a:b=c@2");
    FAILPOINT_OF("decode.taken", "b");
    FAILPOINT_OF("decode.taken", "x/a:b=c@2");
    arm("prefill-0:decode.taken/decode-0:b=log");
    FAILPOINT_OF("decode.taken", "decode-0:b");
    char id[130] = "", spec[160];
    memset(id, 'i', 128);
    snprintf(spec, sizeof spec, "decode.taken/%s=log@*", id);
    arm(spec);
    FAILPOINT_OF("decode.taken", id);
    expect_log("decode.taken log 1 decode-0\ndecode.taken log 2 decode-0\n"
               "decode.taken log 1 decode-0\n");
    snprintf(spec, sizeof spec, "decode.taken/%si=log", id);
    struct error err;
    setenv("BATON_FAILPOINTS", spec, 1);
    assert_int_equal(failpoint_init("decode-0", &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "the subject of 'decode.taken' is empty or longer than 128"));
}

static void test_bad_specifications_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *sentence;
    } rows[] = {
        {"decode.flop=fail", "there is no failpoint 'decode.flop'"},
        {"prefill-0:prefill.after_chnk=kill@3", "there is no failpoint 'prefill.after_chnk'"},
        {"decode.flip", "'decode.flip' is not [PROCESS:]NAME[/SUBJECT]=ACTION[@N]"},
        {"decode.flip=explode", "unknown action 'explode'"},
        {"decode.flip=fail@0", "'0' is not a count"},
        {"decode.flip=fail@x", "'x' is not a count"},
        {"x=log:decode.flip", "there is no failpoint 'x'"},
        {"decode.flip=log:decode.flip", "unknown action 'log:decode.flip'"},
        {"decode.taken/=log", "the subject of 'decode.taken' is empty"},
        {"decode.taken/a:b", "'decode.taken/a:b' is not [PROCESS:]NAME[/SUBJECT]=ACTION[@N]"},
        {"decode.taken/a:b,c=log", "'decode.taken/a:b' is not [PROCESS:]NAME"},
        {"decode.taken=log/a:b", "unknown action 'log/a:b'"},
        {"decode.reading=fail", "nothing fails at 'decode.reading'"},
        {"@/nowhere/at/all", "can't read /nowhere/at/all"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err;
        setenv("BATON_FAILPOINTS", rows[i].spec, 1);
        assert_int_equal(failpoint_init("decode-0", &err), STATUS_INVALID);
        if (!strstr(err.text, rows[i].sentence))
            fail_msg("%s: %s", rows[i].spec, err.text);
        assert_false(failpoint_armed);
    }
}

static void test_one_more_than_the_limit(void **state)
{
    (void)state;
    char spec[2048] = "";
    struct error err;
    for (int i = 0; i < 32; i++)
        strcat(spec, "decode.flip=log,");
    arm(spec);
    strcat(spec, "decode.flip=log");
    setenv("BATON_FAILPOINTS", spec, 1);
    assert_int_equal(failpoint_init("decode-0", &err), STATUS_INVALID);
    char *longer = calloc(1, 5000);
    memset(longer, 'x', 4999);
    setenv("BATON_FAILPOINTS", longer, 1);
    assert_int_equal(failpoint_init("decode-0", &err), STATUS_INVALID);
    free(longer);
}

static void test_a_file_is_read_again_when_it_changes(void **state)
{
    (void)state;
    char spec[140];
    write_spec("");
    snprintf(spec, sizeof spec, "@%s", spec_path);
    arm(spec);
    assert_true(failpoint_armed);
    assert_false(FAILPOINT_FAILS("decode.flip"));
    write_spec("decode.flip=fail@2\n");
    assert_false(FAILPOINT_FAILS("decode.flip"));
    assert_true(FAILPOINT_FAILS("decode.flip"));
    write_spec("decode.flip=fail@1\ndecode.reading=log");
    assert_true(FAILPOINT_FAILS("decode.flip"));
    FAILPOINT("decode.reading");
    write_spec("decode.flop=fail"); /* an invalid specification arms nothing */
    assert_false(FAILPOINT_FAILS("decode.flip"));
    expect_log("decode.flip fail 2 decode-0\ndecode.flip fail 1 decode-0\n"
               "decode.reading log 1 decode-0\n");
}

static void test_kill_stop_and_pause(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        arm("decode.taken=stop,decode.reading=pause,decode.held=kill");
        FAILPOINT("decode.taken");
        FAILPOINT("decode.reading");
        FAILPOINT("decode.held");
        _exit(3);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    char go[160];
    snprintf(go, sizeof go, "%s.decode.reading.go", log_path);
    kill(pid, SIGCONT);
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0); /* it pauses */
    fclose(fopen(go, "w"));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    unlink(go);
}

static void *hang(void *done)
{
    FAILPOINT("step.computing");
    atomic_store((atomic_bool *)done, true);
    return NULL;
}

/* One thread hangs until it is released, and the process goes on. The log is a pipe here, so that a
 * reader learns of the hit. */
static void test_a_hang_holds_up_one_thread(void **state)
{
    (void)state;
    char go[160], line[256];
    atomic_bool done = false;
    pthread_t thread;
    assert_int_equal(mkfifo(log_path, 0600), 0);
    int log = open(log_path, O_RDWR);
    assert_true(log >= 0);
    arm("step.computing=hang,decode.reading=log");
    assert_int_equal(pthread_create(&thread, NULL, hang, &done), 0);
    assert_true(read(log, line, sizeof line) > 0); /* it has come by */
    assert_memory_equal(line, "step.computing hang 1 ", 22);
    FAILPOINT("decode.reading");
    assert_true(read(log, line, sizeof line) > 0);
    assert_memory_equal(line, "decode.reading log 1 ", 21);
    assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY);
    assert_false(atomic_load(&done));
    snprintf(go, sizeof go, "%s.step.computing.go", log_path);
    fclose(fopen(go, "w"));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&done));
    unlink(go);
    close(log);
}

/* The first lines of the log say that the process fails on purpose. */
static void test_what_is_armed_is_told(void **state)
{
    (void)state;
    char path[160], text[512] = "";
    snprintf(path, sizeof path, "%s/stderr", folder);
    int kept = dup(STDERR_FILENO), fd = open(path, O_RDWR | O_CREAT | O_APPEND, 0600);
    assert_true(kept >= 0 && fd >= 0);
    dup2(fd, STDERR_FILENO);
    arm("prefill-0:prefill.taken=kill"); /* for another process: nothing to report */
    arm("decode-0:decode.taken=kill@3");
    dup2(kept, STDERR_FILENO);
    assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
    assert_null(strstr(text, "prefill.taken"));
    assert_non_null(strstr(text, "level=warn"));
    assert_non_null(strstr(text, "spec=\"decode-0:decode.taken=kill@3\""));
    close(kept);
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_nothing_is_armed_by_default),          T(test_the_nth_hit_and_every_hit),
        T(test_only_hits_about_the_subject_count),    T(test_a_subject_is_any_text),
        T(test_bad_specifications_are_refused),       T(test_one_more_than_the_limit),
        T(test_a_file_is_read_again_when_it_changes), T(test_kill_stop_and_pause),
        T(test_a_hang_holds_up_one_thread),           T(test_what_is_armed_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
