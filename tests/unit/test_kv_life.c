/* The sign of life, without a transport around it: owners are processes that are killed, stopped,
 * or end; readers are in the test and see their words through a mapping that can only be read. */
#include "common/kv/transport/kv_life.h"

#include "common/base/clock.h"
#include "common/base/failpoint.h"

#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 20000
#define QUIET_MS    100 /* without an event for so long, none comes */
#define READERS     4

struct owner {
    pid_t pid;
    int to;
    uint32_t sign;
    int memory;
    struct kv_life_word *words;         /* as the owner has them */
    const struct kv_life_word *visible; /* as a reader has them */
};

static struct kv_life_word *map_words(int memory, int rights)
{
    void *words = mmap(NULL, KV_LIFE_BYTES, rights, MAP_SHARED, memory, 0);
    assert_ptr_not_equal(words, MAP_FAILED);
    return words;
}

static int memory_create(void)
{
    int memory = memfd_create("words", MFD_CLOEXEC);
    assert_true(memory >= 0);
    assert_int_equal(ftruncate(memory, KV_LIFE_BYTES), 0);
    return memory;
}

/* Lives until its input ends. */
static void owner_main(struct kv_life_word *words, int from, int to)
{
    struct kv_life *life;
    struct error err;
    if (kv_life_start(words, &life, &err) != STATUS_OK)
        _exit(1);
    uint32_t sign = kv_life_sign(life);
    if (write(to, &sign, sizeof sign) != sizeof sign)
        _exit(2);
    char byte;
    while (read(from, &byte, 1) > 0)
        ;
    kv_life_stop(life);
    _exit(0);
}

/* Before the test has threads. */
static struct owner owner_start(void)
{
    struct owner owner = {.memory = memory_create()};
    owner.words = map_words(owner.memory, PROT_READ | PROT_WRITE);
    owner.visible = map_words(owner.memory, PROT_READ);
    int in[2], out[2];
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    owner.pid = fork();
    assert_true(owner.pid >= 0);
    if (owner.pid == 0) {
        close(in[1]);
        owner_main(owner.words, in[0], out[1]);
    }
    close(in[0]);
    close(out[1]);
    owner.to = in[1];
    assert_int_equal(read(out[0], &owner.sign, sizeof owner.sign), sizeof owner.sign);
    close(out[0]);
    return owner;
}

static void owner_end(struct owner *owner, int signal)
{
    int status;
    if (signal)
        assert_int_equal(kill(owner->pid, signal), 0);
    close(owner->to);
    assert_int_equal(waitpid(owner->pid, &status, 0), owner->pid);
    assert_true(signal ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Call when no reader watches it any more. */
static void owner_unmap(struct owner *owner)
{
    munmap(owner->words, KV_LIFE_BYTES);
    if (owner->visible)
        munmap((void *)owner->visible, KV_LIFE_BYTES);
    close(owner->memory);
}

struct reader {
    struct kv_life *life;
    struct kv_life_word *words; /* its own */
};

static struct reader reader_start(void)
{
    int memory = memory_create();
    struct reader reader = {.words = map_words(memory, PROT_READ | PROT_WRITE)};
    close(memory);
    struct error err;
    if (kv_life_start(reader.words, &reader.life, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return reader;
}

static void reader_stop(struct reader *reader)
{
    kv_life_stop(reader->life);
    assert_true(reader->words[0].sign & FUTEX_OWNER_DIED);
    munmap(reader->words, KV_LIFE_BYTES);
}

static bool tells(const struct reader *reader, int wait_ms)
{
    struct pollfd fd = {kv_life_fd(reader->life), POLLIN, 0};
    return poll(&fd, 1, wait_ms) == 1;
}

static void expect_death(const struct reader *reader, const void *who)
{
    void *dead;
    while (!(dead = kv_life_next_death(reader->life)))
        assert_true(tells(reader, PATIENCE_MS));
    assert_ptr_equal(dead, who);
}

static void expect_no_death(const struct reader *reader, int wait_ms)
{
    if (tells(reader, wait_ms))
        assert_null(kv_life_next_death(reader->life));
    assert_false(tells(reader, 0));
}

static void watch(const struct reader *reader, const struct owner *owner, uint64_t admission,
                  void *who)
{
    assert_true(kv_life_watch(reader->life, owner->visible, admission, owner->sign, who));
}

static void test_every_reader_learns_of_a_death_once(void **state)
{
    (void)state;
    struct owner owner = owner_start(), other = owner_start();
    struct reader readers[READERS];
    for (int i = 0; i < READERS; i++) { /* they share a word, of which the kernel wakes one */
        readers[i] = reader_start();
        watch(&readers[i], &owner, 7 + (uint64_t)i * KV_LIFE_WORDS, &owner);
        watch(&readers[i], &other, 7, &other);
        expect_no_death(&readers[i], 0);
    }
    poll(NULL, 0, QUIET_MS); /* all of them wait */
    owner_end(&owner, SIGKILL);
    for (int i = 0; i < READERS; i++) {
        expect_death(&readers[i], &owner);
        expect_no_death(&readers[i], QUIET_MS / READERS);
    }
    owner_end(&other, 0); /* one that ends by itself is gone, too */
    for (int i = 0; i < READERS; i++) {
        expect_death(&readers[i], &other);
        reader_stop(&readers[i]);
    }
    owner_unmap(&owner);
    owner_unmap(&other);
}

static void test_an_owner_that_died_before_is_dead(void **state)
{
    (void)state;
    struct owner owner = owner_start();
    struct owner copy = owner;
    copy.visible = map_words(owner.memory, PROT_READ);
    owner_end(&owner, SIGKILL);
    struct reader reader = reader_start();
    watch(&reader, &copy, 1, &copy);
    expect_death(&reader, &copy);
    kv_life_unwatch(reader.life, &copy);
    munmap((void *)copy.visible, KV_LIFE_BYTES);
    reader_stop(&reader);
    owner_unmap(&owner);
}

static void test_an_owner_that_is_stopped_lives(void **state)
{
    (void)state;
    struct owner owner = owner_start();
    struct reader reader = reader_start();
    watch(&reader, &owner, 1, &owner);
    int status;
    assert_int_equal(kill(owner.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(owner.pid, &status, WUNTRACED), owner.pid);
    assert_true(WIFSTOPPED(status));
    expect_no_death(&reader, QUIET_MS);
    assert_int_equal(kill(owner.pid, SIGCONT), 0);
    expect_no_death(&reader, QUIET_MS);
    owner_end(&owner, SIGKILL);
    expect_death(&reader, &owner);
    reader_stop(&reader);
    owner_unmap(&owner);
}

/* Also after its memory is gone, while the thread still waits on its address. */
static void test_what_is_unwatched_is_not_looked_at(void **state)
{
    (void)state;
    struct owner owner = owner_start(), other = owner_start();
    struct reader reader = reader_start();
    watch(&reader, &other, 1, &other);
    for (int i = 0; i < 100; i++) {
        watch(&reader, &owner, (uint64_t)i, &owner);
        kv_life_unwatch(reader.life, &owner);
        assert_int_equal(munmap((void *)owner.visible, KV_LIFE_BYTES), 0);
        owner.visible = map_words(owner.memory, PROT_READ);
    }
    kv_life_unwatch(reader.life, &owner); /* a second time: nothing */
    munmap((void *)owner.visible, KV_LIFE_BYTES);
    owner.visible = NULL;
    owner_end(&owner, SIGKILL);
    expect_no_death(&reader, QUIET_MS);
    owner_end(&other, SIGKILL);
    expect_death(&reader, &other);
    reader_stop(&reader);
    owner_unmap(&owner);
    owner_unmap(&other);
}

/* An owner that wakes the reader for nothing succeeds only now and then. An owner that writes
 * anything into its word counts as dead. */
static void test_owners_that_lie(void **state)
{
    (void)state;
    struct owner noisy = owner_start(), cut = owner_start(), honest = owner_start();
    struct reader reader = reader_start();
    watch(&reader, &noisy, 0, &noisy);
    /* Without the pause, all wakings would come at once. After each, the thread waits for PAUSE_MS,
     * 10, before it can be woken again. */
    const long wakings = 2 * QUIET_MS / 10;
    uint64_t start_us = clock_now_us(), took_us = 0;
    for (long woken = 0; woken < wakings && took_us < PATIENCE_MS * 1000u;
         took_us = clock_now_us() - start_us)
        woken += syscall(SYS_futex, noisy.words, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    assert_in_range(took_us, (wakings - 2) * 10000, PATIENCE_MS * 1000 - 1);
    expect_no_death(&reader, 0);
    noisy.words[0].sign = noisy.sign + 1;
    syscall(SYS_futex, noisy.words, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    expect_death(&reader, &noisy);
    watch(&reader, &cut, 0, &cut);
    assert_int_equal(ftruncate(cut.memory, 0), 0); /* the page is no more */
    watch(&reader, &honest, 0, &honest);           /* and is looked at */
    expect_death(&reader, &cut);
    owner_end(&noisy, SIGKILL);
    owner_end(&cut, SIGKILL);
    expect_no_death(&reader, QUIET_MS);
    owner_end(&honest, SIGKILL);
    expect_death(&reader, &honest);
    reader_stop(&reader);
    owner_unmap(&noisy);
    owner_unmap(&cut);
    owner_unmap(&honest);
}

static void test_as_many_as_the_kernel_lets_us_watch(void **state)
{
    (void)state;
    static char who[KV_LIFE_MAX_WATCHED + 1];
    struct owner owner = owner_start();
    struct reader reader = reader_start();
    for (int i = 0; i < KV_LIFE_MAX_WATCHED; i++)
        watch(&reader, &owner, (uint64_t)i, &who[i]);
    assert_false(kv_life_watch(reader.life, owner.visible, 0, owner.sign, "one too many"));
    kv_life_unwatch(reader.life, &who[5]);
    watch(&reader, &owner, 5, &who[5]);
    owner_end(&owner, SIGKILL);
    for (size_t count = 0; count < KV_LIFE_MAX_WATCHED;) {
        char *dead = kv_life_next_death(reader.life);
        assert_true(dead || tells(&reader, PATIENCE_MS));
        if (dead)
            assert_int_equal(++*dead, 1);
        count += dead != NULL;
    }
    expect_no_death(&reader, 0);
    reader_stop(&reader);
    owner_unmap(&owner);
}

/* As a container does it: for all threads of this process, for good. */
static bool forbid_comparing(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_CMP_REQUEUE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

/* Runs in a process of its own. Returns 0, or the step that failed. */
static int look_where_it_is_forbidden(const struct owner *owner)
{
    static struct kv_life_word words[KV_LIFE_WORDS];
    struct reader reader = reader_start();
    struct kv_life *other;
    struct error err;
    if (!forbid_comparing())
        return 1;
    if (!kv_life_watch(reader.life, owner->visible, 0, owner->sign, &reader))
        return 2;
    if (tells(&reader, QUIET_MS))
        return 3;
    if (kv_life_start(words, &other, &err) != STATUS_UNSUPPORTED)
        return 4;
    return strstr(err.text, "FUTEX_CMP_REQUEUE") ? 0 : 5;
}

static void test_a_kernel_that_forbids_to_look_is_no_death(void **state)
{
    (void)state;
    struct owner owner = owner_start();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(look_where_it_is_forbidden(&owner));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    owner_end(&owner, SIGKILL);
    owner_unmap(&owner);
}

static void test_where_it_is_not_to_be_had(void **state)
{
    (void)state;
    static struct kv_life_word words[KV_LIFE_WORDS];
    struct kv_life *life = NULL;
    struct error err;
    setenv("BATON_FAILPOINTS", "transport.sign_of_life=fail", 1);
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
    assert_int_equal(kv_life_start(words, &life, &err), STATUS_UNSUPPORTED);
    assert_null(life);
    assert_non_null(strstr(err.text, "futex_waitv"));
    assert_int_equal(words[0].sign, 0);
    unsetenv("BATON_FAILPOINTS");
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
    kv_life_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_reader_learns_of_a_death_once),
        cmocka_unit_test(test_an_owner_that_died_before_is_dead),
        cmocka_unit_test(test_an_owner_that_is_stopped_lives),
        cmocka_unit_test(test_what_is_unwatched_is_not_looked_at),
        cmocka_unit_test(test_owners_that_lie),
        cmocka_unit_test(test_as_many_as_the_kernel_lets_us_watch),
        cmocka_unit_test(test_a_kernel_that_forbids_to_look_is_no_death),
        cmocka_unit_test(test_where_it_is_not_to_be_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
