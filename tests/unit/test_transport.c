/* The contract of kv_transport.h, the same cases for every transport. test_transport_death.c tests
 * the death of a process. */
#include "transport_fixture.h"

#include "common/base/failpoint.h"
#include "common/kv/transport/kv_life.h"

#include <time.h>

#define DEADLINE_US (clock_now_us() + PATIENCE_US)

static uint8_t *pool(const struct fixture *f)
{
    return kv_transport_pool(f->reader);
}

static void expect_read(struct kv_event event, uint64_t cookie, enum status status)
{
    assert_int_equal(event.kind, KV_EVENT_READ_DONE);
    assert_int_equal(event.cookie, cookie);
    if (event.status != status)
        fail_msg("status %s (%s), not %s", status_name(event.status),
                 event.reason ? event.reason : "", status_name(status));
    assert_true(status == STATUS_OK ? !event.reason : event.reason && *event.reason);
}

static void read_run(struct fixture *f, struct kv_read_run run, uint64_t cookie)
{
    assert_int_equal(kv_transport_read(f->reader, f->peer, &run, 1, DEADLINE_US, cookie),
                     STATUS_OK);
}

static void expect_pattern(const struct fixture *f, struct kv_read_run run)
{
    const uint8_t *bytes = pool(f) + run.local_offset;
    for (uint64_t i = 0; i < run.bytes; i++)
        if (bytes[i] != pattern(run.remote_offset + i))
            fail_msg("byte %lu of the run at %lu differs", (unsigned long)i,
                     (unsigned long)run.local_offset);
}

static void expect_untouched(const struct fixture *f)
{
    const uint8_t *bytes = pool(f);
    /* At once: the owner drops a reader that lets it wait for 3 s. */
    if (bytes[0] == FILL && !memcmp(bytes, bytes + 1, POOL_BYTES - 1))
        return;
    for (size_t i = 0; i < POOL_BYTES; i++)
        if (bytes[i] != FILL)
            fail_msg("byte %zu was written though no run covers it", i);
}

static void test_lane_is_named(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(kv_peer_lane(f->peer), f->variant->name);
}

/* No byte of a shared pool is on the page of its signs of life, nor is anything behind them. */
static void test_signs_have_a_page_of_their_own(void **state)
{
    struct fixture *f = *state;
    const uint8_t *signs = pool(f) + kv_life_offset(POOL_BYTES);
    assert_int_equal((uintptr_t)signs % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
    assert_int_equal((uintptr_t)pool(f) % 64, 0);
}

/* Slots of 64 KiB in random places and of odd sizes: the requested bytes arrive, and not a byte
 * beside them changes. */
static void test_scattered_runs_are_exact(void **state)
{
    struct fixture *f = *state;
    enum { SLOT = 65536, SLOTS = POOL_BYTES / SLOT, RUNS = SLOTS / 2 };
    struct rng rng = rng_seeded(3);
    uint32_t from[SLOTS], to[SLOTS];
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t j = (uint32_t)rng_below(&rng, i + 1), k = (uint32_t)rng_below(&rng, i + 1);
        from[i] = from[j];
        from[j] = i;
        to[i] = to[k];
        to[k] = i;
    }
    struct kv_read_run runs[RUNS];
    uint64_t bytes[2] = {0};
    for (size_t i = 0; i < RUNS; i++) {
        uint64_t size = i % 4 == 0 ? SLOT : 1 + rng_below(&rng, SLOT - 64);
        uint64_t shift = size == SLOT ? 0 : rng_below(&rng, 63);
        runs[i] = (struct kv_read_run){(uint64_t)from[i] * SLOT + shift,
                                       (uint64_t)to[i] * SLOT + shift / 2, size, 0};
        bytes[i >= RUNS / 3] += size;
    }
    assert_int_equal(kv_transport_read(f->reader, f->peer, runs, RUNS / 3, DEADLINE_US, 0),
                     STATUS_OK);
    assert_int_equal(
        kv_transport_read(f->reader, f->peer, runs + RUNS / 3, RUNS - RUNS / 3, DEADLINE_US, 1),
        STATUS_OK);
    for (int i = 0; i < 2; i++) {
        struct kv_event event = next_event(f->reader);
        expect_read(event, event.cookie, STATUS_OK);
        assert_ptr_equal(event.peer, f->peer);
        assert_int_equal(event.bytes, bytes[event.cookie]);
    }
    size_t filled = 0;
    for (size_t i = 0; i < RUNS; i++) {
        expect_pattern(f, runs[i]);
        memset(pool(f) + runs[i].local_offset, FILL, runs[i].bytes);
        filled += runs[i].bytes;
    }
    expect_untouched(f);
    struct kv_transport_counters counters = kv_transport_counters(f->reader);
    assert_int_equal(counters.reads, 2);
    for (int i = 0; i < KV_FAILURES; i++)
        assert_int_equal(counters.reads_failed[i], 0);
    assert_int_equal(counters.bytes_read, filled);
}

static void test_nothing_moves_outside_poll_and_one_poll_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct kv_read_run run = {0, 0, POOL_BYTES, 0};
    read_run(f, run, 9);
    expect_untouched(f);
    struct kv_event event;
    assert_int_equal(kv_transport_poll(f->reader, clock_now_us(), &event, 1), 0);
    expect_read(next_event(f->reader), 9, STATUS_OK);
    expect_pattern(f, run);
}

static void test_runs_outside_a_pool_are_refused(void **state)
{
    struct fixture *f = *state;
    static const struct kv_read_run bad[] = {
        {POOL_BYTES - 4, 0, 5, 0},
        {0, POOL_BYTES - 4, 5, 0},
        {POOL_BYTES, 0, 1, 0},
        {0, POOL_BYTES, 1, 0},
        {0, 0, POOL_BYTES + 1, 0},
        {0, 0, UINT64_MAX, 0},
        {UINT64_MAX, 0, 2, 0},
        {0, UINT64_MAX, 2, 0},
        {UINT64_MAX - 1, 0, 64, 0},
        {8, 8, UINT64_MAX - 8, 0},
        {0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kv_read_run runs[2] = {{0, 0, 16, 0}, bad[i]};
        assert_int_equal(kv_transport_read(f->reader, f->peer, runs, 2, DEADLINE_US, i),
                         STATUS_INVALID);
    }
    static struct kv_read_run many[KV_TRANSPORT_MAX_RUNS + 1];
    for (size_t i = 0; i < KV_TRANSPORT_MAX_RUNS + 1; i++)
        many[i] = (struct kv_read_run){i, i, 1, 0};
    assert_int_equal(kv_transport_read(f->reader, f->peer, many, 0, DEADLINE_US, 0),
                     STATUS_INVALID);
    assert_int_equal(
        kv_transport_read(f->reader, f->peer, many, KV_TRANSPORT_MAX_RUNS + 1, DEADLINE_US, 0),
        STATUS_INVALID);
    struct kv_event event;
    assert_int_equal(kv_transport_poll(f->reader, clock_now_us(), &event, 1), 0);
    assert_int_equal(kv_transport_counters(f->reader).reads, 0);
    expect_untouched(f);
    /* The last byte is inside, and so are as many runs as may be. */
    read_run(f, (struct kv_read_run){POOL_BYTES - 1, POOL_BYTES - 1, 1, 0}, 5);
    expect_read(next_event(f->reader), 5, STATUS_OK);
    assert_int_equal(pool(f)[POOL_BYTES - 1], pattern(POOL_BYTES - 1));
    assert_int_equal(
        kv_transport_read(f->reader, f->peer, many, KV_TRANSPORT_MAX_RUNS, DEADLINE_US, 6),
        STATUS_OK);
    expect_read(next_event(f->reader), 6, STATUS_OK);
    expect_pattern(f, (struct kv_read_run){0, 0, KV_TRANSPORT_MAX_RUNS, 0});
}

static void test_reads_in_flight_are_limited(void **state)
{
    struct fixture *f = *state;
    struct kv_read_run run = {64, 128, 4096, 0};
    for (uint64_t i = 0; i < MAX_READS; i++)
        read_run(f, run, i);
    assert_int_equal(kv_transport_read(f->reader, f->peer, &run, 1, DEADLINE_US, 99), STATUS_LIMIT);
    struct kv_event event = next_event(f->reader);
    expect_read(event, event.cookie, STATUS_OK);
    read_run(f, run, 99);
    assert_int_equal(kv_transport_read(f->reader, f->peer, &run, 1, DEADLINE_US, 100),
                     STATUS_LIMIT);
    uint64_t seen = 1u << event.cookie;
    for (int i = 0; i < MAX_READS; i++) {
        event = next_event(f->reader);
        expect_read(event, event.cookie, STATUS_OK);
        seen |= 1u << (event.cookie == 99 ? MAX_READS : event.cookie);
    }
    assert_int_equal(seen, (2u << MAX_READS) - 1);
}

static void test_unpair_ends_every_read_once_and_pairing_again_works(void **state)
{
    struct fixture *f = *state;
    struct kv_read_run run = {0, 0, POOL_BYTES, 0};
    struct kv_event event;
    for (uint64_t i = 0; i < 3; i++)
        read_run(f, run, i);
    assert_int_equal(kv_transport_poll(f->reader, clock_now_us(), &event, 1),
                     0); /* now they move */
    kv_transport_unpair(f->reader, f->peer);
    kv_transport_unpair(f->reader, f->peer);
    assert_int_equal(kv_transport_read(f->reader, f->peer, &run, 1, DEADLINE_US, 9),
                     STATUS_UNAVAILABLE);
    uint64_t seen = 0;
    for (int i = 0; i < 3; i++) {
        event = next_event(f->reader);
        expect_read(event, event.cookie, STATUS_CANCELLED);
        assert_string_equal(event.reason, "closed by us");
        seen |= 1u << event.cookie;
    }
    assert_int_equal(seen, 7);
    event = next_event(f->reader);
    assert_int_equal(event.kind, KV_EVENT_PEER_CLOSED);
    assert_ptr_equal(event.peer, f->peer);
    assert_int_equal(event.status, STATUS_CANCELLED);
    assert_int_equal(kv_transport_poll(f->reader, clock_now_us(), &event, 1), 0);
    /* The landing blocks are ours again: nothing arrives late. */
    memset(pool(f), FILL, POOL_BYTES);
    pair(f);
    run = (struct kv_read_run){4096, 8192, 100000, 0};
    read_run(f, run, 77);
    expect_read(next_event(f->reader), 77, STATUS_OK);
    expect_pattern(f, run);
    memset(pool(f) + run.local_offset, FILL, run.bytes);
    expect_untouched(f);
    assert_int_equal(kv_transport_counters(f->reader).peers_closed, 1);
    assert_int_equal(kv_transport_counters(f->reader).reads_failed[KV_FAILURE_CLOSED], 3);
}

static void test_a_deadline_ends_all_reads_of_the_peer(void **state)
{
    struct fixture *f = *state;
    struct kv_read_run run = {0, 0, POOL_BYTES, 0};
    uint64_t now_us = clock_now_us();
    assert_int_equal(kv_transport_read(f->reader, f->peer, &run, 1, now_us + 5000000, 1),
                     STATUS_OK);
    assert_int_equal(kv_transport_read(f->reader, f->peer, &run, 1, now_us + 3000000, 2),
                     STATUS_OK);
    assert_int_equal(kv_transport_next_deadline_us(f->reader), now_us + 3000000);
    struct kv_event event;
    assert_int_equal(kv_transport_poll(f->reader, now_us + 2999999, &event, 1), 0);
    /* The clock of the transport is the argument, so the deadline needs no waiting. */
    bool timed_out = false, ended = false;
    for (int i = 0; i < 2; i++) {
        while (kv_transport_poll(f->reader, now_us + 3000000, &event, 1) == 0)
            assert_true(sleep_until_work(f->reader, -1));
        expect_read(event, event.cookie, event.cookie == 2 ? STATUS_TIMEOUT : STATUS_UNAVAILABLE);
        timed_out = timed_out || event.cookie == 2;
        ended = ended || event.cookie == 1;
    }
    assert_true(timed_out && ended);
    event = next_event(f->reader);
    assert_int_equal(event.kind, KV_EVENT_PEER_CLOSED);
    assert_int_equal(event.status, STATUS_TIMEOUT);
    assert_string_equal(event.reason, "deadline");
    assert_int_equal(kv_transport_next_deadline_us(f->reader), UINT64_MAX);
}

/* Refused before the library behind it sees any byte: it trusts the bytes that it unpacks. */
static void test_damaged_addresses_are_refused(void **state)
{
    struct fixture *f = *state;
    struct kv_peer *peer;
    struct error err;
    for (size_t bytes = 0; bytes < f->address_bytes; bytes++) {
        uint8_t *exact = malloc(bytes + 1); /* its own block, so that ASan sees a byte too far */
        memcpy(exact, f->address, bytes);
        assert_int_not_equal(kv_transport_pair(f->reader, exact, bytes, &peer, &err), STATUS_OK);
        free(exact);
    }
    uint8_t bytes[KV_TRANSPORT_MAX_ADDRESS_BYTES + 1] = {0};
    assert_int_equal(kv_transport_pair(f->reader, bytes, sizeof bytes, &peer, &err),
                     STATUS_INVALID);
    struct rng rng = rng_seeded(11);
    for (size_t i = 0; i < 8 * f->address_bytes; i++) {
        memcpy(bytes, f->address, f->address_bytes);
        bytes[i / 8] ^= (uint8_t)(1u << i % 8);
        assert_int_not_equal(kv_transport_pair(f->reader, bytes, f->address_bytes, &peer, &err),
                             STATUS_OK);
        for (size_t flips = 1 + rng_below(&rng, 40); flips > 0; flips--)
            bytes[rng_below(&rng, f->address_bytes)] = (uint8_t)rng_next(&rng);
        assert_int_not_equal(kv_transport_pair(f->reader, bytes, f->address_bytes, &peer, &err),
                             STATUS_OK);
        assert_true(strlen(err.text) > 10);
    }
    memcpy(bytes, f->address, f->address_bytes);
    assert_int_not_equal(kv_transport_pair(f->reader, bytes, f->address_bytes + 1, &peer, &err),
                         STATUS_OK);
    read_run(f, (struct kv_read_run){0, 0, 4096, 0}, 1); /* and nothing was hurt by it */
    expect_read(next_event(f->reader), 1, STATUS_OK);
}

static void test_reads_its_own_pool(void **state)
{
    struct fixture *f = *state;
    fill_pattern(pool(f), POOL_BYTES / 2);
    take_address(f, f->reader);
    struct kv_peer *owner = f->peer;
    pair(f);
    assert_ptr_not_equal(owner, f->peer);
    assert_string_equal(kv_peer_lane(f->peer), f->variant->name);
    struct kv_read_run run = {4096, POOL_BYTES / 2, 1u << 20, 0};
    read_run(f, run, 4);
    expect_read(next_event(f->reader), 4, STATUS_OK);
    expect_pattern(f, run);
}

static double cpu_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Paired and idle for a second, until a byte comes on a pipe (from a process that counts the
 * second): hardly any CPU time. */
static void test_waiting_is_sleeping(void **state)
{
    struct fixture *f = *state;
    read_run(f, (struct kv_read_run){0, 0, 4096, 0}, 1);
    expect_read(next_event(f->reader), 1, STATUS_OK);
    FILE *second = popen("exec sleep 1", "r"); /* end of file is its byte */
    assert_non_null(second);
    double before = cpu_seconds();
    struct pollfd end = {fileno(second), POLLIN, 0};
    while (poll(&end, 1, 0) == 0) {
        struct kv_event event;
        assert_int_equal(kv_transport_poll(f->reader, clock_now_us(), &event, 1), 0);
        assert_true(sleep_until_work(f->reader, end.fd));
    }
    assert_true(cpu_seconds() - before < 0.1);
    assert_int_equal(pclose(second), 0);
}

static void test_a_closed_local_owner_ends_the_pairing(void **state)
{
    struct fixture *f = *state;
    read_run(f, (struct kv_read_run){0, 0, POOL_BYTES, 0}, 1);
    kv_transport_close(f->owner);
    f->owner = NULL;
    expect_read(next_event(f->reader), 1, STATUS_UNAVAILABLE);
    struct kv_event event = next_event(f->reader);
    assert_int_equal(event.kind, KV_EVENT_PEER_CLOSED);
    assert_int_equal(event.status, STATUS_UNAVAILABLE);
    struct error err;
    assert_int_equal(kv_transport_pair(f->reader, f->address, f->address_bytes, &f->peer, &err),
                     STATUS_UNAVAILABLE);
}

static void test_peers_are_limited_and_take_turns(void **state)
{
    struct fixture *f = *state;
    struct kv_peer *peers[KV_TRANSPORT_MAX_PEERS] = {f->peer};
    struct error err;
    for (size_t i = 1; i < KV_TRANSPORT_MAX_PEERS; i++)
        assert_int_equal(
            kv_transport_pair(f->reader, f->address, f->address_bytes, &peers[i], &err), STATUS_OK);
    struct kv_peer *none;
    assert_int_equal(kv_transport_pair(f->reader, f->address, f->address_bytes, &none, &err),
                     STATUS_LIMIT);
    /* A large read of one doesn't hold up a small one of another. */
    read_run(f, (struct kv_read_run){0, 0, POOL_BYTES, 0}, 1);
    f->peer = peers[700];
    read_run(f, (struct kv_read_run){0, 0, 4096, 0}, 2);
    expect_read(next_event(f->reader), 2, STATUS_OK);
    expect_read(next_event(f->reader), 1, STATUS_OK);
}

static void test_a_lane_that_cannot_be_had_is_refused_with_a_sentence(void **state)
{
    (void)state;
    static const struct {
        enum kv_lane asked;
        const struct variant *owner;
        const char *lane; /* NULL: refused */
    } cases[] = {
        {KV_LANE_SHM, &tcp, NULL},
        {KV_LANE_TCP, &shm, NULL},
        {KV_LANE_AUTO, &shm, "shm"},
        {KV_LANE_AUTO, &tcp, "tcp"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f = {.variant = cases[i].owner};
        f.reader = open_transport(KV_TRANSPORT_REMOTE, cases[i].asked);
        start_owner(&f);
        struct error err = {""};
        enum status status = kv_transport_pair(f.reader, f.address, f.address_bytes, &f.peer, &err);
        if (cases[i].lane) {
            assert_int_equal(status, STATUS_OK);
            assert_string_equal(kv_peer_lane(f.peer), cases[i].lane);
            read_run(&f, (struct kv_read_run){1, 2, 300000, 0}, 1);
            expect_read(next_event(f.reader), 1, STATUS_OK);
            expect_pattern(&f, (struct kv_read_run){1, 2, 300000, 0});
        } else {
            assert_int_equal(status, STATUS_UNAVAILABLE);
            assert_non_null(strstr(err.text, "lane"));
        }
        kv_transport_close(f.reader);
        stop_child(&f.child);
    }
    struct kv_transport *local_reader = open_transport(KV_TRANSPORT_LOCAL, KV_LANE_AUTO);
    struct kv_transport *other = open_transport(KV_TRANSPORT_REMOTE, KV_LANE_SHM);
    struct kv_admission admission = admit(other);
    struct kv_peer *peer;
    struct error err;
    assert_int_equal(
        kv_transport_pair(local_reader, admission.address, admission.bytes, &peer, &err),
        STATUS_INVALID);
    kv_transport_close(other);
    kv_transport_close(local_reader);
}

/* If no shared memory holds the pool (the test forces this), auto goes on without the lane shm, and
 * shm does not. */
static void test_without_shared_memory(void **state)
{
    (void)state;
    struct error err;
    setenv("BATON_FAILPOINTS", "transport.shared_memory=fail@*", 1);
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
    struct kv_transport_config config = {
        .kind = KV_TRANSPORT_REMOTE, .lane = KV_LANE_SHM, .pool_bytes = POOL_BYTES, .max_reads = 4};
    struct kv_transport *transport;
    assert_int_equal(kv_transport_open(&config, &transport, &err), STATUS_LIMIT);
    char needed[96]; /* and a piece for the sign of life */
    snprintf(needed, sizeof needed, "the KV pool needs %zu MiB of shared memory",
             (size_t)(POOL_BYTES >> 20) + 1);
    const char *const told[] = {needed,          "/dev/shm has ",       " MiB free",
                                "kernel.shmmax", "docker --shm-size=",  "remount,size=",
                                "--kv-tokens",   "take --transport tcp"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (!strstr(err.text, told[i]))
            fail_msg("no '%s' in: %s", told[i], err.text);
    struct fixture f = {.variant = &shm}; /* a peer with shared memory does not help */
    f.reader = open_transport(KV_TRANSPORT_REMOTE, KV_LANE_AUTO);
    unsetenv("BATON_FAILPOINTS");
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
    f.owner = open_transport(KV_TRANSPORT_REMOTE, KV_LANE_AUTO);
    take_address(&f, f.reader);
    struct kv_transport *reader = f.reader;
    f.reader = f.owner;
    pair(&f); /* nor one to it */
    assert_string_equal(kv_peer_lane(f.peer), "tcp");
    f.reader = reader;
    take_address(&f, f.owner);
    pair(&f);
    assert_string_equal(kv_peer_lane(f.peer), "tcp");
    kv_transport_close(f.reader);
    kv_transport_close(f.owner);
}

/* Other users, also of the same group, can't map the pool of the lane shm. */
static void test_shared_memory_is_of_one_user(void **state)
{
    (void)state;
    struct kv_transport *transport = open_transport(KV_TRANSPORT_REMOTE, KV_LANE_SHM);
    FILE *segments = fopen("/proc/sysvipc/shm", "re");
    char line[512];
    int own = 0, creator;
    unsigned mode;
    assert_non_null(segments);
    while (fgets(line, sizeof line, segments))
        if (sscanf(line, "%*s %*s %o %*s %d", &mode, &creator) == 2 && creator == getpid()) {
            own++;
            assert_int_equal(mode & 0777, 0600);
        }
    fclose(segments);
    assert_true(own >= 1);
    kv_transport_close(transport);
}

static void test_bad_configurations_are_refused(void **state)
{
    (void)state;
    const struct kv_transport_config good = {
        .kind = KV_TRANSPORT_REMOTE, .lane = KV_LANE_TCP, .pool_bytes = 1 << 20, .max_reads = 1};
    struct kv_transport_config bad[4] = {good, good, good, good};
    bad[0].pool_bytes = 0;
    bad[1].pool_bytes = SIZE_MAX;
    bad[2].max_reads = 0;
    bad[3].bind_interface = "none0";
    for (size_t i = 0; i < 4; i++) {
        struct kv_transport *transport;
        struct error err = {""};
        assert_int_not_equal(kv_transport_open(&bad[i], &transport, &err), STATUS_OK);
        assert_true(strlen(err.text) > 10);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--owner"))
        return owner_main(argv[2]);
#define EVERY(function) CASE(function, local), CASE(function, shm), CASE(function, tcp)
    const struct CMUnitTest tests[] = {
        EVERY(test_lane_is_named),
        CASE(test_signs_have_a_page_of_their_own, shm),
        EVERY(test_scattered_runs_are_exact),
        EVERY(test_nothing_moves_outside_poll_and_one_poll_is_bounded),
        EVERY(test_runs_outside_a_pool_are_refused),
        EVERY(test_reads_in_flight_are_limited),
        EVERY(test_unpair_ends_every_read_once_and_pairing_again_works),
        EVERY(test_a_deadline_ends_all_reads_of_the_peer),
        EVERY(test_damaged_addresses_are_refused),
        EVERY(test_reads_its_own_pool),
        EVERY(test_waiting_is_sleeping),
        CASE(test_a_closed_local_owner_ends_the_pairing, local),
        CASE(test_peers_are_limited_and_take_turns, local),
        cmocka_unit_test(test_a_lane_that_cannot_be_had_is_refused_with_a_sentence),
        cmocka_unit_test(test_without_shared_memory),
        cmocka_unit_test(test_shared_memory_is_of_one_user),
        cmocka_unit_test(test_bad_configurations_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
