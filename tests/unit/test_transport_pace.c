/* The paced transport: a read ends no earlier than its pace, reads share the link, and a fault or a
 * deadline still ends it. Time is handed in. */
#include "transport_fixture.h"

#define MIB      ((uint64_t)1 << 20)
#define START_US 1000000

static int paced_setup(void **state, const char *faults)
{
    struct fixture *f = calloc(1, sizeof *f);
    const struct kv_transport_config config = {
        .kind = KV_TRANSPORT_LOCAL,
        .pool_bytes = POOL_BYTES,
        .max_reads = MAX_READS,
        .faults = faults,
        .pace = {.bytes_per_second = 1e9, .scale = 4, .latency_us = 100}};
    struct error err;
    f->variant = &local;
    if (kv_transport_open(&config, &f->reader, &err) != STATUS_OK)
        return -1;
    start_owner(f);
    pair(f);
    *state = f;
    return 0;
}

static int setup(void **state)
{
    return paced_setup(state, NULL);
}

static int setup_delayed(void **state)
{
    return paced_setup(state, "delay=1:1ms");
}

static void ask(struct fixture *f, uint64_t cookie, uint64_t bytes, uint64_t deadline_us)
{
    const struct kv_read_run run = {0, cookie * MIB, bytes, 0};
    assert_int_equal(kv_transport_read(f->reader, f->peer, &run, 1, deadline_us, cookie),
                     STATUS_OK);
}

/* Polls as a worker does until an event comes. Returns when, from START_US on. */
static uint64_t next_at(struct fixture *f, uint64_t *now_us, struct kv_event *event)
{
    for (int i = 0; i < 10000; i++) {
        if (kv_transport_poll(f->reader, *now_us, event, 1) == 1)
            return *now_us - START_US;
        if (!kv_transport_arm(f->reader))
            continue;
        uint64_t next_us = kv_transport_next_deadline_us(f->reader);
        assert_true(next_us != UINT64_MAX && next_us > *now_us);
        *now_us = next_us;
    }
    fail_msg("no event came");
    return 0;
}

static void test_a_read_takes_its_bytes_over_the_link(void **state)
{
    struct fixture *f = *state;
    struct kv_event event;
    uint64_t now_us = START_US;
    ask(f, 1, 250000, UINT64_MAX);
    /* 250,000 bytes stand for 1 MB: 1000 us at 1 GB/s, behind the latency */
    assert_int_equal(next_at(f, &now_us, &event), 1100);
    assert_int_equal(event.status, STATUS_OK);
    assert_int_equal(event.bytes, 250000);
    const uint8_t *pool = kv_transport_pool(f->reader);
    for (uint64_t i = 0; i < 250000; i += 997)
        assert_int_equal(pool[MIB + i], pattern(i));
}

static void test_reads_in_flight_share_the_link(void **state)
{
    struct fixture *f = *state;
    struct kv_event event;
    uint64_t now_us = START_US;
    ask(f, 1, 250000, UINT64_MAX);
    ask(f, 2, 500000, UINT64_MAX);
    ask(f, 3, 250000, UINT64_MAX);
    uint64_t first_us = next_at(f, &now_us, &event), first = event.cookie;
    uint64_t second_us = next_at(f, &now_us, &event);
    assert_int_equal(first + event.cookie, 1 + 3);
    assert_in_range(first_us, 3100, 3101);
    assert_in_range(second_us, 3100, 3101);
    assert_in_range(next_at(f, &now_us, &event), 4100, 4101);
    assert_int_equal(event.cookie, 2);
}

static void test_a_read_that_is_too_slow_ends_by_its_deadline(void **state)
{
    struct fixture *f = *state;
    struct kv_event event;
    uint64_t now_us = START_US;
    ask(f, 1, 500000, START_US + 1000);
    assert_int_equal(next_at(f, &now_us, &event), 1000);
    assert_int_equal(event.status, STATUS_TIMEOUT);
    assert_int_equal(next_at(f, &now_us, &event), 1000);
    assert_int_equal(event.kind, KV_EVENT_PEER_CLOSED);
    now_us += 1;
    assert_int_equal(kv_transport_poll(f->reader, now_us, &event, 1), 0);
    assert_true(kv_transport_next_deadline_us(f->reader) == UINT64_MAX);
    pair(f); /* the link is free again */
    ask(f, 2, 250000, UINT64_MAX);
    assert_int_equal(next_at(f, &now_us, &event), 1001 + 1100);
}

static void test_a_delay_shorter_than_the_pace_is_part_of_it(void **state)
{
    struct fixture *f = *state;
    struct kv_event event;
    uint64_t now_us = START_US;
    ask(f, 1, 500000, UINT64_MAX);
    assert_int_equal(next_at(f, &now_us, &event), 2100);
    ask(f, 2, 1000, UINT64_MAX); /* and a longer one holds it back */
    assert_int_equal(next_at(f, &now_us, &event), 2100 + 1000);
}

#define PACED(function, with) cmocka_unit_test_setup_teardown(function, with, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PACED(test_a_read_takes_its_bytes_over_the_link, setup),
        PACED(test_reads_in_flight_share_the_link, setup),
        PACED(test_a_read_that_is_too_slow_ends_by_its_deadline, setup),
        PACED(test_a_delay_shorter_than_the_pace_is_part_of_it, setup_delayed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
