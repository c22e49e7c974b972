/* Shared by the transport's tests: a reader in the test and an owner of a pool. The owner is a
 * second transport of the process (local) or a second process (remote). The second process is the
 * test's own program, started again as `test_x --owner LANE`; it serves its pool until its standard
 * input ends. The offset of a byte in an owner's pool decides its value, so that both sides know
 * it. */
#ifndef BATON_TESTS_TRANSPORT_FIXTURE_H
#define BATON_TESTS_TRANSPORT_FIXTURE_H

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/kv/transport/kv_transport.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define POOL_BYTES  (((size_t)24 << 20) + 1056) /* no whole pages, as pools of small models */
#define MAX_READS   16
#define FILL        0xee     /* each byte of the reader's pool before a read */
#define PATIENCE_US 20000000 /* a wait that takes longer has failed */

struct variant {
    const char *name;
    enum kv_transport_kind kind;
    enum kv_lane lane;
};

struct child {
    pid_t pid;
    int to, from; /* its standard input and output */
};

struct fixture {
    const struct variant *variant;
    struct kv_transport *reader;
    struct kv_transport *owner; /* local */
    struct child child;         /* ucx */
    uint8_t address[KV_TRANSPORT_MAX_ADDRESS_BYTES];
    size_t address_bytes;
    struct kv_peer *peer;
};

static inline uint64_t pattern_word(uint64_t index)
{
    return (index + 1) * 0x9e3779b97f4a7c15u;
}

static inline uint8_t pattern(uint64_t offset)
{
    return (uint8_t)(pattern_word(offset / 8) >> offset % 8 * 8);
}

static inline void fill_pattern(uint8_t *pool, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = pattern_word(i / 8);
        memcpy(pool + i, &word, 8);
    }
}

static inline bool serve_all(void *owner, const struct kv_claim *claim)
{
    (void)owner, (void)claim;
    return true;
}

static inline struct kv_transport *open_transport(enum kv_transport_kind kind, enum kv_lane lane)
{
    struct kv_transport_config config = {
        .kind = kind,
        .lane = lane,
        .pool_bytes = POOL_BYTES,
        .max_reads = MAX_READS,
    };
    struct kv_transport *transport;
    struct error err;
    if (kv_transport_open(&config, &transport, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    kv_transport_serve(transport, serve_all, NULL);
    return transport;
}

static inline struct kv_admission admit(struct kv_transport *transport)
{
    struct kv_admission admission;
    struct error err;
    if (kv_transport_admit(transport, &admission, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return admission;
}

/* From now on the fixture pairs with the pool of `owner`. */
static inline void take_address(struct fixture *f, struct kv_transport *owner)
{
    struct kv_admission admission = admit(owner);
    f->address_bytes = admission.bytes;
    memcpy(f->address, admission.address, sizeof f->address);
}

/* -- the transport's thread, as a worker runs it -- */

/* Sleeps until the transport has work, `other_fd` is readable (-1: none) or its next deadline;
 * false when patience is at an end. */
static inline bool sleep_until_work(struct kv_transport *transport, int other_fd)
{
    if (!kv_transport_arm(transport))
        return true;
    struct pollfd fds[2] = {{kv_transport_fd(transport), POLLIN, 0}, {other_fd, POLLIN, 0}};
    uint64_t now_us = clock_now_us(), until_us = kv_transport_next_deadline_us(transport);
    if (until_us > now_us + PATIENCE_US)
        until_us = now_us + PATIENCE_US;
    int wait_ms = until_us > now_us ? (int)((until_us - now_us + 999) / 1000) : 0;
    return poll(fds, 2, wait_ms) > 0 || wait_ms < PATIENCE_US / 1000;
}

static inline struct kv_event next_event(struct kv_transport *transport)
{
    struct kv_event event;
    for (uint64_t start_us = clock_now_us(); clock_now_us() - start_us < PATIENCE_US;) {
        if (kv_transport_poll(transport, clock_now_us(), &event, 1) == 1)
            return event;
        if (!sleep_until_work(transport, -1))
            break;
    }
    fail_msg("no event came");
    return (struct kv_event){0};
}

/* -- the other process -- */

static inline struct child start_child(const char *mode, const char *lane)
{
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl("/proc/self/exe", "test_transport", mode, lane, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    return (struct child){.pid = pid, .to = in[1], .from = out[0]};
}

/* Ends it by end of input. It must exit with 0, so the leak checker found nothing. */
static inline void stop_child(struct child *child)
{
    close(child->to);
    close(child->from);
    int status;
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    child->pid = 0;
}

static inline void kill_child(struct child *child)
{
    assert_int_equal(kill(child->pid, SIGKILL), 0);
    assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
    close(child->to);
    close(child->from);
    child->pid = 0;
}

static inline bool read_fully(int fd, void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t got = read(fd, (char *)bytes + done, count - done);
        if (got <= 0)
            return false;
        done += (size_t)got;
    }
    return true;
}

static inline enum kv_lane lane_by_name(const char *name)
{
    return !strcmp(name, "shm") ? KV_LANE_SHM : !strcmp(name, "tcp") ? KV_LANE_TCP : KV_LANE_AUTO;
}

/* A child that has all of the caller's descriptors, until their common input ends. */
static inline bool hold_descriptors(void)
{
    char byte;
    pid_t pid = fork();
    if (pid == 0) {
        while (read(0, &byte, 1) > 0)
            ;
        _exit(0);
    }
    return pid > 0;
}

/* Runs `test_x --owner LANE`. Writes the address's length and bytes, then serves. For a byte of
 * input it starts a child that holds its descriptors, and answers with a byte. */
static inline int owner_main(const char *lane)
{
    struct kv_transport *transport = open_transport(KV_TRANSPORT_REMOTE, lane_by_name(lane));
    fill_pattern(kv_transport_pool(transport), POOL_BYTES);
    struct kv_admission admission = admit(transport);
    if (write(1, &admission.bytes, sizeof admission.bytes) != sizeof admission.bytes ||
        write(1, admission.address, admission.bytes) != (ssize_t)admission.bytes)
        return 1;
    for (;;) {
        struct kv_event event;
        if (kv_transport_poll(transport, clock_now_us(), &event, 1) > 0)
            return 1; /* it reads nothing and pairs with no one */
        struct pollfd input = {0, POLLIN, 0};
        char byte;
        if (poll(&input, 1, 0) > 0 && read(0, &byte, 1) <= 0)
            break;
        if (input.revents && (!hold_descriptors() || write(1, &byte, 1) != 1))
            return 1;
        sleep_until_work(transport, 0);
    }
    kv_transport_close(transport);
    return 0;
}

/* -- fixtures -- */

static inline void start_owner(struct fixture *f)
{
    if (f->variant->kind == KV_TRANSPORT_LOCAL) {
        f->owner = open_transport(KV_TRANSPORT_LOCAL, KV_LANE_AUTO);
        fill_pattern(kv_transport_pool(f->owner), POOL_BYTES);
        take_address(f, f->owner);
        return;
    }
    f->child = start_child("--owner", f->variant->lane == KV_LANE_SHM   ? "shm"
                                      : f->variant->lane == KV_LANE_TCP ? "tcp"
                                                                        : "auto");
    assert_true(read_fully(f->child.from, &f->address_bytes, sizeof f->address_bytes));
    assert_in_range(f->address_bytes, 1, sizeof f->address);
    assert_true(read_fully(f->child.from, f->address, f->address_bytes));
}

static inline void pair(struct fixture *f)
{
    struct error err;
    enum status status = kv_transport_pair(f->reader, f->address, f->address_bytes, &f->peer, &err);
    if (status != STATUS_OK)
        fail_msg("%s", err.text);
}

static inline int fixture_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->variant = *state;
    f->reader = open_transport(f->variant->kind, f->variant->lane);
    memset(kv_transport_pool(f->reader), FILL, POOL_BYTES);
    start_owner(f);
    pair(f);
    *state = f;
    return 0;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *f = *state;
    kv_transport_close(f->reader);
    kv_transport_close(f->owner);
    if (f->child.pid)
        stop_child(&f->child);
    free(f);
    return 0;
}

/* One test for one variant. */
#define CASE(function, of_variant)                                                                 \
    {                                                                                              \
#function " " #of_variant, function, fixture_setup, fixture_teardown, (void *)&of_variant  \
    }

static const struct variant local = {"local", KV_TRANSPORT_LOCAL, KV_LANE_AUTO};
static const struct variant shm = {"shm", KV_TRANSPORT_REMOTE, KV_LANE_SHM};
static const struct variant tcp = {"tcp", KV_TRANSPORT_REMOTE, KV_LANE_TCP};

#endif
