/* The faulty transport: the effect of each fault on every lane, the same faults for a seed, their
 * counts, and the check of the text that asks for them. */
#include "transport_fixture.h"

#include "common/base/failpoint.h"

static uint8_t *pool(const struct fixture *f)
{
    return kv_transport_pool(f->reader);
}

/* The fixture's reader again, with faults. */
static void inject(struct fixture *f, const char *faults)
{
    kv_transport_close(f->reader);
    struct kv_transport_config config = {
        .kind = f->variant->kind,
        .lane = f->variant->lane,
        .pool_bytes = POOL_BYTES,
        .max_reads = MAX_READS,
        .faults = faults,
    };
    struct error err;
    if (kv_transport_open(&config, &f->reader, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    memset(pool(f), FILL, POOL_BYTES);
    pair(f);
}

static uint64_t faults(const struct fixture *f, enum kv_fault_kind kind)
{
    return kv_transport_counters(f->reader).faults[kind];
}

static void start(struct fixture *f, struct kv_read_run run, uint64_t limit_us, uint64_t cookie)
{
    assert_int_equal(
        kv_transport_read(f->reader, f->peer, &run, 1, clock_now_us() + limit_us, cookie),
        STATUS_OK);
}

static uint64_t wrong_bytes(const struct fixture *f, struct kv_read_run run)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < run.bytes; i++)
        wrong += pool(f)[run.local_offset + i] != pattern(run.remote_offset + i);
    return wrong;
}

static const struct kv_read_run one_run = {65536, 131072, 300000, 0};

static void test_a_dropped_read_ends_by_its_deadline(void **state)
{
    struct fixture *f = *state;
    inject(f, "drop=1,limit=1");
    start(f, one_run, 150000, 1);
    uint64_t start_us = clock_now_us();
    struct kv_event event = next_event(f->reader);
    assert_int_equal(event.cookie, 1);
    assert_int_equal(event.status, STATUS_TIMEOUT);
    assert_string_equal(event.reason, "deadline");
    assert_in_range(clock_now_us() - start_us, 140000, 5000000);
    assert_int_equal(next_event(f->reader).kind, KV_EVENT_PEER_CLOSED);
    assert_int_equal(faults(f, KV_FAULT_DROP), 1);
    pair(f); /* the limit is reached: the next one comes */
    start(f, one_run, PATIENCE_US, 2);
    assert_int_equal(next_event(f->reader).status, STATUS_OK);
    assert_int_equal(wrong_bytes(f, one_run), 0);
}

static void test_a_delayed_read_comes_later_and_whole(void **state)
{
    struct fixture *f = *state;
    inject(f, "delay=1:120ms");
    start(f, one_run, PATIENCE_US, 1);
    uint64_t start_us = clock_now_us();
    struct kv_event event = next_event(f->reader);
    assert_int_equal(event.status, STATUS_OK);
    assert_in_range(clock_now_us() - start_us, 120000, 5000000);
    assert_int_equal(wrong_bytes(f, one_run), 0);
    /* A deadline that comes first wins. */
    start(f, one_run, 40000, 2);
    assert_int_equal(next_event(f->reader).status, STATUS_TIMEOUT);
    assert_int_equal(next_event(f->reader).kind, KV_EVENT_PEER_CLOSED);
    assert_int_equal(faults(f, KV_FAULT_DELAY), 2);
}

static void test_a_duplicated_read_is_whole_and_ends_once(void **state)
{
    struct fixture *f = *state;
    inject(f, "duplicate=1");
    start(f, one_run, PATIENCE_US, 1);
    start(f, (struct kv_read_run){0, POOL_BYTES / 2, 1u << 20, 0}, PATIENCE_US, 2);
    uint64_t seen = 0;
    for (int i = 0; i < 2; i++) {
        struct kv_event event = next_event(f->reader);
        assert_int_equal(event.status, STATUS_OK);
        seen |= 1u << event.cookie;
    }
    assert_int_equal(seen, 6);
    assert_int_equal(wrong_bytes(f, one_run), 0);
    assert_int_equal(faults(f, KV_FAULT_DUPLICATE), 2);
    struct kv_event event;
    assert_int_equal(kv_transport_poll(f->reader, clock_now_us(), &event, 1), 0);
}

static void test_a_corrupted_read_has_a_few_wrong_bytes_inside_its_runs(void **state)
{
    struct fixture *f = *state;
    inject(f, "seed=5,corrupt=1,limit=1");
    start(f, one_run, PATIENCE_US, 1);
    assert_int_equal(next_event(f->reader).status, STATUS_OK);
    assert_in_range(wrong_bytes(f, one_run), 1, 4);
    for (size_t i = 0; i < POOL_BYTES; i++)
        if (i - one_run.local_offset >= one_run.bytes)
            assert_int_equal(pool(f)[i], FILL);
    start(f, one_run, PATIENCE_US, 2); /* reading again heals it */
    assert_int_equal(next_event(f->reader).status, STATUS_OK);
    assert_int_equal(wrong_bytes(f, one_run), 0);
}

static void test_a_reordered_read_comes_after_a_later_one(void **state)
{
    struct fixture *f = *state;
    inject(f, "reorder=1:10s,limit=1");
    struct kv_read_run other = {0, POOL_BYTES / 2, 4u << 20, 0};
    start(f, one_run, PATIENCE_US, 1);
    start(f, other, PATIENCE_US, 2);
    struct kv_event event = next_event(f->reader);
    assert_int_equal(event.cookie, 2);
    assert_int_equal(event.status, STATUS_OK);
    event = next_event(f->reader);
    assert_int_equal(event.cookie, 1);
    assert_int_equal(event.status, STATUS_OK);
    assert_int_equal(wrong_bytes(f, one_run) + wrong_bytes(f, other), 0);
}

static void test_a_lost_lane_ends_all_reads_and_the_pairing(void **state)
{
    struct fixture *f = *state;
    inject(f, "lost=1,limit=1");
    start(f, one_run, PATIENCE_US, 1);
    start(f, (struct kv_read_run){0, 0, POOL_BYTES, 0}, PATIENCE_US, 2);
    for (int i = 0; i < 2; i++) {
        struct kv_event event = next_event(f->reader);
        assert_int_equal(event.kind, KV_EVENT_READ_DONE);
        assert_int_equal(event.status, STATUS_UNAVAILABLE);
        assert_non_null(strstr(event.reason, "injected"));
    }
    assert_int_equal(next_event(f->reader).kind, KV_EVENT_PEER_CLOSED);
    pair(f);
    start(f, one_run, PATIENCE_US, 3);
    assert_int_equal(next_event(f->reader).status, STATUS_OK);
}

/* 60 reads, one after another; their fates as a string of letters, with the number of wrong
 * bytes. */
static void fates(struct fixture *f, const char *specification, char text[61], uint64_t *wrong)
{
    inject(f, specification);
    *wrong = 0;
    for (int i = 0; i < 60; i++) {
        struct kv_transport_counters before = kv_transport_counters(f->reader);
        start(f, one_run, 20000000, (uint64_t)i);
        struct kv_event event = next_event(f->reader);
        if (event.status != STATUS_OK) {
            assert_int_equal(next_event(f->reader).kind, KV_EVENT_PEER_CLOSED);
            pair(f);
        }
        *wrong = *wrong * 31 + wrong_bytes(f, one_run);
        struct kv_transport_counters after = kv_transport_counters(f->reader);
        text[i] = '.';
        for (int kind = 0; kind < KV_FAULT_KINDS; kind++)
            if (after.faults[kind] > before.faults[kind])
                text[i] = kv_fault_name((enum kv_fault_kind)kind)[2];
    }
    text[60] = 0;
}

static void test_a_seed_gives_the_same_faults(void **state)
{
    struct fixture *f = *state;
    const char *specification = "seed=9,first=5,corrupt=0.2,delay=0.2:1ms,duplicate=0.2,lost=0.1";
    char first[61], second[61], other[61];
    uint64_t wrong[3];
    fates(f, specification, first, &wrong[0]);
    fates(f, specification, second, &wrong[1]);
    fates(f, "seed=10,first=5,corrupt=0.2,delay=0.2:1ms,duplicate=0.2,lost=0.1", other, &wrong[2]);
    assert_string_equal(first, second);
    assert_int_equal(wrong[0], wrong[1]);
    assert_string_not_equal(first, other);
    assert_memory_equal(first, ".....", 5);
    for (const char *letter = ".rlps"; *letter; letter++) /* coRrupt, deLay, duPlicate, loSt */
        assert_non_null(strchr(first, *letter));
}

static void test_what_happens_is_noted_in_the_failpoint_log(void **state)
{
    struct fixture *f = *state;
    char path[] = "/tmp/baton-kv-faults-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    setenv("BATON_FAILPOINT_LOG", path, 1);
    struct error err;
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
    inject(f, "corrupt=1,first=1,limit=1");
    for (uint64_t i = 0; i < 3; i++) {
        start(f, one_run, PATIENCE_US, i);
        assert_int_equal(next_event(f->reader).status, STATUS_OK);
    }
    char text[128] = "", expected[64];
    assert_true(read(fd, text, sizeof text - 1) > 0);
    snprintf(expected, sizeof expected, "kv.corrupt fault 1 %d test\n", (int)getpid());
    assert_string_equal(text, expected);
    unsetenv("BATON_FAILPOINT_LOG");
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
    close(fd);
    unlink(path);
}

static void test_a_text_that_asks_for_something_else_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "drop",        "drop=",          "drop=2",        "drop=-0.1",         "drop=nan",
        "burn=0.1",    "delay=0.1:20",   "delay=0.1:",    "delay=0.1:2h",      "drop=0.1:20ms",
        "seed=",       "seed=x",         "limit=-1",      "drop=0.6,lost=0.6", "=1",
        "delay=:20ms", "delay=0.1:601s", "seed=1 drop=1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kv_transport_config config = {
            .kind = KV_TRANSPORT_LOCAL, .pool_bytes = 4096, .max_reads = 1, .faults = bad[i]};
        struct kv_transport *transport;
        struct error err = {""};
        if (kv_transport_open(&config, &transport, &err) != STATUS_INVALID)
            fail_msg("'%s' was taken", bad[i]);
        assert_non_null(strstr(err.text, "KV faults"));
    }
    char longer[600];
    memset(longer, ',', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    struct kv_transport_config config = {
        .kind = KV_TRANSPORT_LOCAL, .pool_bytes = 4096, .max_reads = 1, .faults = longer};
    struct kv_transport *transport;
    struct error err;
    assert_int_equal(kv_transport_open(&config, &transport, &err), STATUS_INVALID);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--owner"))
        return owner_main(argv[2]);
#define EVERY(function) CASE(function, local), CASE(function, shm), CASE(function, tcp)
    const struct CMUnitTest tests[] = {
        EVERY(test_a_dropped_read_ends_by_its_deadline),
        EVERY(test_a_delayed_read_comes_later_and_whole),
        EVERY(test_a_duplicated_read_is_whole_and_ends_once),
        EVERY(test_a_corrupted_read_has_a_few_wrong_bytes_inside_its_runs),
        EVERY(test_a_reordered_read_comes_after_a_later_one),
        EVERY(test_a_lost_lane_ends_all_reads_and_the_pairing),
        EVERY(test_a_seed_gives_the_same_faults),
        CASE(test_what_happens_is_noted_in_the_failpoint_log, local),
        cmocka_unit_test(test_a_text_that_asks_for_something_else_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
