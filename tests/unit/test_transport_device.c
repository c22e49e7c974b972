/* The transport with pools on a device: bytes that pass buffers in host memory. */
#include "transport_device.h"

/* Small runs share a buffer, a large one takes several. */
static void test_bytes_arrive(void **state)
{
    (void)state;
    for (int ends = 1; ends <= 3; ends++) {
        struct devices d;
        devices_open(&d, ends & 1, ends & 2, NULL);
        struct kv_read_run runs[201];
        uint64_t at = 77;
        for (size_t i = 0; i < 200; i++) {
            runs[i] = (struct kv_read_run){at + 4096, POOL_BYTES / 2 + at, 1 + i * 37, 0};
            at += runs[i].bytes + 3;
        }
        runs[200] = (struct kv_read_run){POOL_BYTES / 2 + 1, 5, 3 * KV_STAGE_BYTES + 11, 0};
        struct kv_event event = read_all(&d, runs, 201);
        assert_int_equal(event.status, STATUS_OK);
        expect_bytes(&d, runs, 201);
        for (size_t i = 0; i < 200; i++) /* the gaps between runs */
            assert_int_equal(d.to[runs[i].local_offset + runs[i].bytes], FILL);
        assert_int_equal(d.to[4], FILL);
        devices_close(&d);
    }
}

/* Readers that ask and take nothing, more of them than there are buffers. */
static void test_stalled_readers_hold_up_nobody(void **state)
{
    (void)state;
    struct devices d;
    int fds[2 * KV_STAGES];
    devices_open(&d, true, true, NULL);
    for (int i = 0; i < 2 * KV_STAGES; i++) {
        admit_to(&d.w);
        fds[i] = dial(&d.w);
        struct kv_frame hello = {.kind = KV_FRAME_HELLO, .hello.admission = d.w.address.admission};
        memcpy(hello.hello.secret, d.w.address.secret, KV_SECRET_BYTES);
        say_frame(fds[i], &hello);
        say_frame(fds[i], &(struct kv_frame){.kind = KV_FRAME_ASK, .ask = {1, 0, POOL_BYTES, 0}});
    }
    const struct kv_read_run run = {12345, 678, 4 * KV_STAGE_BYTES, 0};
    assert_int_equal(read_all(&d, &run, 1).status, STATUS_OK);
    expect_bytes(&d, &run, 1);
    for (int i = 0; i < 2 * KV_STAGES; i++)
        close(fds[i]);
    devices_close(&d);
}

static bool granted;

static bool serve_granted(void *owner, const struct kv_claim *claim)
{
    (void)owner, (void)claim;
    return granted;
}

/* The grant ends while the bytes lie in a buffer: they don't leave. */
static void test_a_grant_that_ends_in_a_buffer(void **state)
{
    (void)state;
    struct devices d;
    devices_open(&d, true, false, NULL);
    d.owner.held = true;
    granted = true;
    kv_transport_serve(d.w.owner, serve_granted, NULL);
    const struct kv_read_run run = {4096, 0, 70000, 0};
    assert_int_equal(
        kv_transport_read(d.w.reader, d.w.peer, &run, 1, clock_now_us() + PATIENCE_US, 1),
        STATUS_OK);
    struct kv_event event;
    for (uint64_t start_us = clock_now_us(); d.owner.queued == 0;) {
        assert_true(clock_now_us() - start_us < PATIENCE_US);
        poll_owner(&d.w);
        assert_int_equal(kv_transport_poll(d.w.reader, clock_now_us(), &event, 1), 0);
    }
    granted = false;
    d.owner.held = false;
    memset(d.from, 0x77, POOL_BYTES); /* another request's bytes */
    event = reader_event(&d.w);
    assert_int_equal(event.status, STATUS_OK); /* the head had said yes: checksums find it */
    for (size_t i = 0; i < run.bytes; i++)
        assert_int_equal(d.to[i], 0);
    devices_close(&d);
}

/* The device fails: the reads of that end fail, and the transport stays. */
static void test_a_device_that_fails(void **state)
{
    (void)state;
    for (int end = 0; end < 2; end++) {
        struct devices d;
        devices_open(&d, true, true, NULL);
        struct device *device = end ? &d.owner : &d.reader;
        device->fails = true;
        const struct kv_read_run run = {4096, 0, 70000, 0};
        assert_int_equal(read_all(&d, &run, 1).status, STATUS_UNAVAILABLE);
        assert_int_equal(reader_event(&d.w).kind, KV_EVENT_PEER_CLOSED);
        struct kv_block_sum sum = {.crc32c = 42};
        const uint32_t first = 0;
        assert_int_equal(kv_transport_block_sums(end ? d.w.owner : d.w.reader, &first, 1, &sum),
                         STATUS_INTERNAL);
        assert_int_equal(sum.crc32c, 42);
        struct kv_transport *transport = end ? d.w.owner : d.w.reader;
        assert_in_range(kv_transport_failed_copies(transport), 2, 10);
        assert_int_equal(kv_transport_failed_copies(end ? d.w.reader : d.w.owner), 0);
        device->fails = false;
        assert_int_equal(kv_transport_block_sums(transport, &first, 1, &sum), STATUS_OK);
        assert_int_equal(kv_transport_failed_copies(transport), 0);
        d.w.peer = pair_with(d.w.reader, d.w.owner);
        assert_int_equal(read_all(&d, &run, 1).status, STATUS_OK);
        expect_bytes(&d, &run, 1);
        devices_close(&d);
    }
}

/* No byte lands after the forced close, though a copy was under way. */
static void test_a_close_ends_copies(void **state)
{
    (void)state;
    struct devices d;
    devices_open(&d, false, true, NULL);
    d.reader.held = true;
    const struct kv_read_run run = {4096, 0, 3 * KV_STAGE_BYTES, 0};
    assert_int_equal(
        kv_transport_read(d.w.reader, d.w.peer, &run, 1, clock_now_us() + PATIENCE_US, 1),
        STATUS_OK);
    struct kv_event event;
    for (uint64_t start_us = clock_now_us(); d.reader.queued == d.reader.done;) {
        assert_true(clock_now_us() - start_us < PATIENCE_US);
        poll_owner(&d.w);
        assert_int_equal(kv_transport_poll(d.w.reader, clock_now_us(), &event, 1), 0);
    }
    kv_transport_unpair(d.w.reader, d.w.peer);
    assert_int_equal(d.reader.done, d.reader.queued);
    assert_int_equal(reader_event(&d.w).status, STATUS_CANCELLED);
    devices_close(&d);
}

static void test_sums_and_faults(void **state)
{
    (void)state;
    struct devices d;
    struct kv_block_sum here, there;
    const uint32_t third = 2;
    const uint64_t bytes = kv_layout_block_bytes(&layout), at = 2 * bytes;
    devices_open(&d, true, true, "corrupt=1,limit=1");
    assert_int_equal(kv_transport_block_sums(d.w.owner, &third, 1, &there), STATUS_OK);
    assert_int_equal(there.crc32c, kv_checksum(d.from + at, bytes));
    struct kv_summing summing;
    kv_summing_init(&summing, &layout);
    assert_true(there.runs == kv_block_sum(&summing, d.from + at).runs);
    const struct kv_read_run run = {at, at, bytes, 0};
    for (int reads = 0; reads < 2; reads++) {
        assert_int_equal(read_all(&d, &run, 1).status, STATUS_OK);
        assert_int_equal(kv_transport_block_sums(d.w.reader, &third, 1, &here), STATUS_OK);
        assert_true((here.runs == there.runs) == (reads == 1)); /* the fault is in the first one */
    }
    kv_transport_flip(d.w.reader, at + bytes - 1, 0x10);
    assert_int_equal(d.to[at + bytes - 1], d.from[at + bytes - 1] ^ 0x10);
    devices_close(&d);
}

static void test_lanes_that_map_are_refused(void **state)
{
    (void)state;
    struct device device;
    device_open(&device);
    struct kv_transport_config bad[3] = {{.kind = KV_TRANSPORT_LOCAL},
                                         {.kind = KV_TRANSPORT_REMOTE, .lane = KV_LANE_SHM},
                                         {.kind = KV_TRANSPORT_REMOTE, .lane = KV_LANE_TCP}};
    for (int i = 0; i < 3; i++) {
        struct kv_transport *transport;
        struct error err;
        bad[i].pool_bytes = POOL_BYTES;
        bad[i].max_reads = 1;
        bad[i].copier = &device.copier;
        bad[i].layout = &layout;
        if (i == 2)
            device.copier.host_bytes = KV_STAGES * (20 * 2 * 16 * sizeof(uint32_t) - 1);
        assert_int_equal(kv_transport_open(&bad[i], &transport, &err),
                         i == 2 ? STATUS_INVALID : STATUS_UNSUPPORTED);
        assert_non_null(strstr(err.text, i == 2 ? "staging buffers" : "take cuda, tcp or auto"));
    }
    device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_arrive),
        cmocka_unit_test(test_stalled_readers_hold_up_nobody),
        cmocka_unit_test(test_a_grant_that_ends_in_a_buffer),
        cmocka_unit_test(test_a_device_that_fails),
        cmocka_unit_test(test_a_close_ends_copies),
        cmocka_unit_test(test_sums_and_faults),
        cmocka_unit_test(test_lanes_that_map_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
