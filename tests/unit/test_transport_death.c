/* The transport between processes when the process at the other end is killed, stopped, or gone
 * half-way. Every read ends once, with a reason, and no other peer is harmed. */
#include "common/base/failpoint.h"
#include "common/kv/transport/kv_address.h"

#include "transport_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* A few milliseconds on a quiet machine may be a hundred times as long on a busy one. */
#define LOADED_US 1000000

static const struct kv_read_run whole_pool = {0, 0, POOL_BYTES, 0};

static uint8_t *pool(const struct fixture *f)
{
    return kv_transport_pool(f->reader);
}

static enum status start_read(struct fixture *f, struct kv_read_run run, uint64_t limit_us,
                              uint64_t cookie)
{
    return kv_transport_read(f->reader, f->peer, &run, 1, clock_now_us() + limit_us, cookie);
}

static void expect_good_read(struct fixture *f)
{
    struct kv_read_run run = {65536, 4096, 1u << 20, 0};
    assert_int_equal(start_read(f, run, PATIENCE_US, 42), STATUS_OK);
    struct kv_event event = next_event(f->reader);
    assert_int_equal(event.kind, KV_EVENT_READ_DONE);
    assert_int_equal(event.cookie, 42);
    if (event.status != STATUS_OK)
        fail_msg("%s: %s", status_name(event.status), event.reason);
    for (uint64_t i = 0; i < run.bytes; i++)
        if (pool(f)[run.local_offset + i] != pattern(run.remote_offset + i))
            fail_msg("byte %lu differs", (unsigned long)i);
}

static struct kv_event expect_closed(struct fixture *f, enum status status)
{
    struct kv_event event = next_event(f->reader);
    assert_int_equal(event.kind, KV_EVENT_PEER_CLOSED);
    assert_ptr_equal(event.peer, f->peer);
    assert_int_equal(event.status, status);
    assert_true(event.reason && *event.reason);
    return event;
}

/* `count` reads of the whole pool, of which at least one byte has moved. */
static void start_moving(struct fixture *f, uint64_t count)
{
    memset(pool(f), FILL, POOL_BYTES);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(start_read(f, whole_pool, PATIENCE_US, i), STATUS_OK);
    struct kv_event event;
    for (uint64_t start_us = clock_now_us(); pool(f)[0] == FILL;) {
        assert_int_equal(kv_transport_poll(f->reader, clock_now_us(), &event, 1), 0);
        assert_true(clock_now_us() - start_us < PATIENCE_US);
        if (pool(f)[0] == FILL)
            assert_true(sleep_until_work(f->reader, -1));
    }
}

static void test_kill_ends_reads_at_once(void **state)
{
    struct fixture *f = *state;
    start_moving(f, 3);
    uint64_t start_us = clock_now_us(), seen = 0;
    kill_child(&f->child);
    for (int i = 0; i < 3; i++) {
        struct kv_event event = next_event(f->reader);
        assert_int_equal(event.kind, KV_EVENT_READ_DONE);
        /* The first may have been complete already. */
        assert_true(event.status == STATUS_UNAVAILABLE || (event.status == STATUS_OK && i == 0));
        assert_true(event.status == STATUS_OK || *event.reason);
        seen |= 1u << event.cookie;
    }
    assert_int_equal(seen, 7);
    expect_closed(f, STATUS_UNAVAILABLE);
    assert_true(clock_now_us() - start_us < LOADED_US);
    start_owner(f); /* a new one: pairing again is all it takes */
    pair(f);
    expect_good_read(f);
}

/* Also while it waits and asks for nothing: by the kernel's word, not by asking now and then. */
static void test_kill_is_known_while_nothing_is_read(void **state)
{
    struct fixture *f = *state;
    expect_good_read(f);
    uint64_t start_us = clock_now_us();
    kill_child(&f->child);
    struct kv_event event = expect_closed(f, STATUS_UNAVAILABLE);
    assert_int_equal(event.failure, KV_FAILURE_PEER_GONE);
    assert_true(event.welcomed);
    assert_true(clock_now_us() - start_us < LOADED_US);
    start_owner(f);
    pair(f);
    expect_good_read(f);
}

/* By the sign of life alone: the connection stays open. */
static void test_kill_is_known_while_a_child_holds_the_sockets(void **state)
{
    struct fixture *f = *state;
    char byte = 'h';
    assert_int_equal(write(f->child.to, &byte, 1), 1);
    assert_int_equal(read(f->child.from, &byte, 1), 1);
    expect_good_read(f);
    uint64_t start_us = clock_now_us();
    assert_int_equal(kill(f->child.pid, SIGKILL), 0);
    struct kv_event event = expect_closed(f, STATUS_UNAVAILABLE);
    assert_true(clock_now_us() - start_us < LOADED_US);
    assert_int_equal(event.failure, KV_FAILURE_PEER_GONE);
    assert_string_equal(event.reason, "the peer's process ended");
    assert_true(event.welcomed);
    assert_int_equal(waitpid(f->child.pid, NULL, 0), f->child.pid);
    close(f->child.to);
    assert_int_equal(read(f->child.from, &byte, 1), 0); /* the child has ended, too */
    close(f->child.from);
    start_owner(f);
    pair(f);
    expect_good_read(f);
}

static void arm(const char *failpoints)
{
    struct error err;
    if (failpoints)
        setenv("BATON_FAILPOINTS", failpoints, 1);
    else
        unsetenv("BATON_FAILPOINTS");
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
}

/* If one side has no sign of life, pairings work as well, and the socket reports the death. */
static void test_without_signs_of_life_the_socket_tells(void **state)
{
    (void)state;
    for (int reader_has = 0; reader_has < 2; reader_has++) {
        struct fixture f = {.variant = &shm};
        arm(reader_has ? NULL : "transport.sign_of_life=fail");
        f.reader = open_transport(KV_TRANSPORT_REMOTE, KV_LANE_SHM);
        arm(reader_has ? "transport.sign_of_life=fail" : NULL);
        start_owner(&f);
        arm(NULL);
        pair(&f);
        assert_string_equal(kv_peer_lane(f.peer), "shm");
        expect_good_read(&f);
        kill_child(&f.child);
        struct kv_event event = expect_closed(&f, STATUS_UNAVAILABLE);
        assert_int_equal(event.failure, KV_FAILURE_PEER_GONE);
        assert_string_not_equal(event.reason, "the peer's process ended");
        kv_transport_close(f.reader);
    }
}

/* The reader sleeps until the deadline, which ends the reads once. Bytes that arrive when the peer
 * goes on land nowhere. */
static void test_a_stopped_peer_ends_by_the_deadline(void **state)
{
    struct fixture *f = *state;
    start_moving(f, 2);
    assert_int_equal(kill(f->child.pid, SIGSTOP), 0);
    assert_int_equal(start_read(f, whole_pool, 300000, 2), STATUS_OK);
    uint64_t start_us = clock_now_us(), seen = 0;
    for (int i = 0; i < 3; i++) {
        struct kv_event event = next_event(f->reader);
        assert_int_equal(event.kind, KV_EVENT_READ_DONE);
        if (event.cookie == 2)
            assert_int_equal(event.status, STATUS_TIMEOUT);
        else
            assert_true(event.status == STATUS_UNAVAILABLE || event.status == STATUS_OK);
        seen |= 1u << event.cookie;
    }
    assert_int_equal(seen, 7);
    expect_closed(f, STATUS_TIMEOUT);
    assert_in_range(clock_now_us() - start_us, 250000, 5000000);
    memset(pool(f), FILL, POOL_BYTES);
    assert_int_equal(kill(f->child.pid, SIGCONT), 0);
    pair(f);
    expect_good_read(f);
    memset(pool(f) + 4096, FILL, 1u << 20);
    for (size_t i = 0; i < POOL_BYTES; i++)
        if (pool(f)[i] != FILL)
            fail_msg("byte %zu arrived late", i);
}

/* Stopped before the first byte of the pairing: when it goes on, it finds a half-made connection
 * without its dialer. */
static void test_a_peer_stopped_before_the_first_read_goes_on(void **state)
{
    struct fixture *f = *state;
    for (int round = 0; round < 5; round++) {
        assert_int_equal(kill(f->child.pid, SIGSTOP), 0);
        assert_int_equal(start_read(f, whole_pool, 20000, 1), STATUS_OK);
        struct kv_event event = next_event(f->reader);
        assert_int_equal(event.status, STATUS_TIMEOUT);
        expect_closed(f, STATUS_TIMEOUT);
        assert_int_equal(kill(f->child.pid, SIGCONT), 0);
        pair(f);
        expect_good_read(f);
        kv_transport_unpair(f->reader, f->peer);
        expect_closed(f, STATUS_CANCELLED);
        pair(f);
    }
}

/* Runs `test_x --reader LANE`: takes a pool's address from standard input and reads the pool for
 * ever. Writes a byte after each read. */
static int reader_main(const char *lane)
{
    struct fixture f = {.reader = open_transport(KV_TRANSPORT_REMOTE, lane_by_name(lane))};
    if (!read_fully(0, &f.address_bytes, sizeof f.address_bytes) ||
        f.address_bytes > sizeof f.address || !read_fully(0, f.address, f.address_bytes))
        return 1;
    struct error err;
    if (kv_transport_pair(f.reader, f.address, f.address_bytes, &f.peer, &err) != STATUS_OK)
        return 2;
    for (;;) {
        struct kv_event event;
        if (start_read(&f, whole_pool, PATIENCE_US, 0) != STATUS_OK)
            return 3;
        while (kv_transport_poll(f.reader, clock_now_us(), &event, 1) == 0)
            sleep_until_work(f.reader, -1);
        if (event.status != STATUS_OK || write(1, "r", 1) != 1)
            return 4;
    }
}

/* Serves until the child has written `count` bytes. */
static void serve(struct kv_transport *owner, struct child *child, size_t count)
{
    for (uint64_t start_us = clock_now_us(); count > 0;) {
        struct kv_event event;
        assert_int_equal(kv_transport_poll(owner, clock_now_us(), &event, 1), 0);
        struct pollfd output = {child->from, POLLIN, 0};
        char byte;
        if (poll(&output, 1, 0) > 0) {
            assert_int_equal(read(child->from, &byte, 1), 1);
            count--;
        }
        assert_true(clock_now_us() - start_us < PATIENCE_US);
        sleep_until_work(owner, child->from);
    }
}

/* Readers that are killed in all moments of a pairing, from before its first byte on, don't take
 * their owner with them. */
static void test_an_owner_survives_its_readers(void **state)
{
    const struct variant *variant = *state;
    struct kv_transport *owner = open_transport(variant->kind, variant->lane);
    fill_pattern(kv_transport_pool(owner), POOL_BYTES);
    struct kv_admission admission = admit(owner);
    size_t bytes = admission.bytes;
    const void *address = admission.address;
    for (int round = 0; round < 12; round++) {
        struct child child = start_child("--reader", variant->name);
        assert_int_equal(write(child.to, &bytes, sizeof bytes), sizeof bytes);
        assert_int_equal(write(child.to, address, bytes), bytes);
        for (int turn = 0; turn < round; turn++) {
            struct kv_event event;
            assert_int_equal(kv_transport_poll(owner, clock_now_us(), &event, 1), 0);
            sleep_until_work(owner, -1);
        }
        serve(owner, &child, round % 3);
        kill_child(&child);
    }
    struct child child = start_child("--reader", variant->name);
    assert_int_equal(write(child.to, &bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(write(child.to, address, bytes), bytes);
    serve(owner, &child, 3);
    kill_child(&child);
    kv_transport_close(owner);
}

/* Ends on request while it serves. */
static void test_an_owner_that_ends_ends_the_pairing(void **state)
{
    struct fixture *f = *state;
    start_moving(f, 2);
    stop_child(&f->child);
    for (int i = 0; i < 2; i++) {
        struct kv_event event = next_event(f->reader);
        assert_int_equal(event.kind, KV_EVENT_READ_DONE);
        assert_true(event.status == STATUS_OK || event.failure == KV_FAILURE_PEER_GONE);
    }
    expect_closed(f, STATUS_UNAVAILABLE);
}

static int connect_to(const struct kv_address *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(address->port)};
    memcpy(&to.sin_addr, address->ip, sizeof to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* A probe of the port, which connects and goes, or stays and is silent, does no harm to the
 * readers. test_transport_strangers.c has peers that send bytes. */
static void test_probes_of_the_port_are_no_harm(void **state)
{
    struct fixture *f = *state;
    struct kv_address address;
    struct error err;
    assert_int_equal(
        kv_address_decode(f->address, f->address_bytes, KV_TRANSPORT_REMOTE, &address, &err),
        STATUS_OK);
    assert_int_equal(address.ip_version, 4);
    int silent = connect_to(&address);
    for (int i = 0; i < 20; i++) {
        int fd = connect_to(&address);
        if (i % 2)
            assert_int_equal(send(fd, "hello", 5, MSG_NOSIGNAL), 5);
        close(fd);
        expect_good_read(f);
    }
    kv_transport_unpair(f->reader, f->peer);
    expect_closed(f, STATUS_CANCELLED);
    pair(f);
    expect_good_read(f);
    close(silent);
}

int main(int argc, char **argv)
{
    arm(getenv("BATON_FAILPOINTS")); /* a child has them from the test */
    if (argc == 3 && !strcmp(argv[1], "--owner"))
        return owner_main(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "--reader"))
        return reader_main(argv[2]);
    const struct CMUnitTest tests[] = {
        CASE(test_kill_ends_reads_at_once, tcp),
        CASE(test_kill_ends_reads_at_once, shm),
        CASE(test_kill_is_known_while_nothing_is_read, tcp),
        CASE(test_kill_is_known_while_nothing_is_read, shm),
        CASE(test_kill_is_known_while_a_child_holds_the_sockets, shm),
        cmocka_unit_test(test_without_signs_of_life_the_socket_tells),
        CASE(test_an_owner_that_ends_ends_the_pairing, tcp),
        CASE(test_an_owner_that_ends_ends_the_pairing, shm),
        CASE(test_probes_of_the_port_are_no_harm, tcp),
        CASE(test_a_stopped_peer_ends_by_the_deadline, tcp),
        CASE(test_a_peer_stopped_before_the_first_read_goes_on, tcp),
        CASE(test_a_peer_stopped_before_the_first_read_goes_on, shm),
        {"test_an_owner_survives_its_readers tcp", test_an_owner_survives_its_readers, NULL, NULL,
         (void *)&tcp},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
