/* An owner that answers wrongly, or lies about its pool, loses its pairing, and no byte outside the
 * runs changes. */
#include "transport_world.h"

#include <sys/mman.h>

enum lie {
    LIE_NOISE,
    LIE_HALF_WELCOME,
    LIE_OTHER_POOL,
    LIE_OTHER_SIZE,
    LIE_OTHER_VERSION,
    LIE_NUMBER,
    LIE_BYTES,
    LIE_NO_ANSWER,
    LIE_HALF_ANSWER,
    LIE_MORE_THAN_ASKED,
    LIES
};

static void tell(int fd, enum lie lie, const struct kv_address *address, const struct kv_frame *ask)
{
    uint8_t bytes[KV_FRAME_BYTES + 4096];
    memset(bytes, 0x77, sizeof bytes);
    struct kv_frame welcome = {.kind = KV_FRAME_WELCOME,
                               .welcome = {KV_ADMITTED, address->id, address->pool_bytes}};
    if (!ask) {
        welcome.welcome.pool_id += lie == LIE_OTHER_POOL;
        welcome.welcome.pool_bytes += lie == LIE_OTHER_SIZE;
        kv_frame_encode(&welcome, bytes);
        bytes[4] += lie == LIE_OTHER_VERSION;
        if (lie == LIE_NOISE)
            memset(bytes, 0x77, KV_FRAME_BYTES);
        say(fd, bytes, lie == LIE_HALF_WELCOME ? 10 : KV_FRAME_BYTES);
        return;
    }
    struct kv_frame answer = {.kind = KV_FRAME_ANSWER, .answer = {ask->ask.number, ask->ask.bytes}};
    answer.answer.number += lie == LIE_NUMBER;
    answer.answer.bytes -= lie == LIE_BYTES;
    kv_frame_encode(&answer, bytes);
    if (lie == LIE_NO_ANSWER)
        kv_frame_encode(&welcome, bytes);
    say(fd, bytes,
        lie == LIE_HALF_ANSWER       ? KV_FRAME_BYTES + 100
        : lie == LIE_MORE_THAN_ASKED ? KV_FRAME_BYTES + ask->ask.bytes + 1
                                     : KV_FRAME_BYTES + ask->ask.bytes);
}

/* A reader that pairs with `address` from now on connects to the test itself. The socket buffers
 * hardly a byte before the test reads. */
static int listen_instead(struct kv_address *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int least = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &least, sizeof least), 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 4), 0);
    getsockname(listener, (struct sockaddr *)&at, &length);
    address->port = ntohs(at.sin_port);
    return listener;
}

/* An owner that answers requests before it can have read them: the reader's unsent bytes stay
 * bounded. */
static void test_an_owner_that_answers_without_reading(void **state)
{
    (void)state;
    enum { READS = 40, AT_ONCE = 32 /* as the reader takes with one call */ };
    struct world w;
    world_open(&w, 0);
    struct kv_address address = w.address;
    int listener = listen_instead(&address);
    uint8_t bytes[KV_TRANSPORT_MAX_ADDRESS_BYTES], frame_bytes[KV_FRAME_BYTES];
    size_t count;
    struct error err;
    assert_int_equal(kv_address_encode(&address, bytes, &count, &err), STATUS_OK);
    struct kv_peer *peer;
    assert_int_equal(kv_transport_pair(w.reader, bytes, count, &peer, &err), STATUS_OK);
    int fd = accept(listener, NULL, NULL);
    struct kv_event event;
    assert_int_equal(kv_transport_poll(w.reader, clock_now_us(), &event, 1), 0);
    assert_true(read_fully(fd, frame_bytes, sizeof frame_bytes)); /* HELLO */
    tell(fd, LIE_NUMBER, &address, NULL);                         /* a true WELCOME */
    static struct kv_read_run runs[KV_TRANSPORT_MAX_RUNS];
    for (size_t i = 0; i < KV_TRANSPORT_MAX_RUNS; i++)
        runs[i] = (struct kv_read_run){i, i, 1, 0};
    struct kv_frame answer = {.kind = KV_FRAME_ANSWER, .answer.bytes = 1};
    event.failure = KV_FAILURE_NONE;
    for (int read = 0; read < READS && !event.failure; read++) {
        assert_int_equal(kv_transport_read(w.reader, peer, runs, KV_TRANSPORT_MAX_RUNS,
                                           clock_now_us() + PATIENCE_US, 1),
                         STATUS_OK);
        size_t events = kv_transport_poll(w.reader, clock_now_us(), &event, 1);
        for (int told = 0; events == 0 && told < KV_TRANSPORT_MAX_RUNS; told += AT_ONCE) {
            uint8_t answers[AT_ONCE][KV_FRAME_BYTES + 1] = {0};
            for (size_t i = 0; i < AT_ONCE; i++, answer.answer.number++)
                kv_frame_encode(&answer, answers[i]);
            say(fd, answers, sizeof answers);
            events = kv_transport_poll(w.reader, clock_now_us(), &event, 1);
        }
        if (events == 0)
            event = next_event(w.reader);
    }
    /* answers to requests that were never sent */
    assert_int_equal(event.failure, KV_FAILURE_PROTOCOL);
    assert_int_equal(reader_event(&w).kind, KV_EVENT_PEER_CLOSED);
    close(fd);
    close(listener);
    expect_reading(&w);
    world_close(&w);
}

static void test_an_owner_that_lies_costs_its_pairing_alone(void **state)
{
    (void)state;
    static const enum kv_failure expected[LIES] = {
        [LIE_NOISE] = KV_FAILURE_PROTOCOL,        [LIE_HALF_WELCOME] = KV_FAILURE_PEER_GONE,
        [LIE_OTHER_POOL] = KV_FAILURE_REFUSED,    [LIE_OTHER_SIZE] = KV_FAILURE_REFUSED,
        [LIE_OTHER_VERSION] = KV_FAILURE_REFUSED, [LIE_NUMBER] = KV_FAILURE_PROTOCOL,
        [LIE_BYTES] = KV_FAILURE_PROTOCOL,        [LIE_NO_ANSWER] = KV_FAILURE_PROTOCOL,
        [LIE_HALF_ANSWER] = KV_FAILURE_PEER_GONE, [LIE_MORE_THAN_ASKED] = KV_FAILURE_PROTOCOL,
    };
    struct world w;
    world_open(&w, 0);
    struct kv_address address = w.address;
    int listener = listen_instead(&address);
    uint8_t bytes[KV_TRANSPORT_MAX_ADDRESS_BYTES], *pool = kv_transport_pool(w.reader);
    size_t count;
    struct error err;
    assert_int_equal(kv_address_encode(&address, bytes, &count, &err), STATUS_OK);
    for (enum lie lie = 0; lie < LIES; lie++) {
        struct kv_peer *peer;
        struct kv_read_run run = {4096, 8192, 2048, 0};
        memset(pool, FILL, 1u << 20);
        assert_int_equal(kv_transport_pair(w.reader, bytes, count, &peer, &err), STATUS_OK);
        assert_int_equal(
            kv_transport_read(w.reader, peer, &run, 1, clock_now_us() + PATIENCE_US, 1), STATUS_OK);
        int fd = accept(listener, NULL, NULL);
        struct kv_event event;
        assert_int_equal(kv_transport_poll(w.reader, clock_now_us(), &event, 1), 0);
        uint8_t frame_bytes[KV_FRAME_BYTES];
        struct kv_frame ask;
        assert_true(read_fully(fd, frame_bytes, sizeof frame_bytes)); /* HELLO */
        tell(fd, lie, &address, NULL);
        if (lie >= LIE_NUMBER) {
            for (int i = 0; i < 10; i++)
                assert_int_equal(kv_transport_poll(w.reader, clock_now_us(), &event, 1), 0);
            assert_true(read_fully(fd, frame_bytes, sizeof frame_bytes));
            assert_int_equal(kv_frame_decode(frame_bytes, &ask), KV_FRAME_GOOD);
            assert_true(ask.ask.offset == 4096 && ask.ask.bytes == 2048);
            tell(fd, lie, &address, &ask);
        }
        shutdown(fd, SHUT_WR);
        event = reader_event(&w);
        assert_int_equal(event.kind, KV_EVENT_READ_DONE);
        if (lie != LIE_MORE_THAN_ASKED) /* this read was right, until more bytes came */
            assert_int_equal(event.failure, expected[lie]);
        event = reader_event(&w);
        assert_int_equal(event.kind, KV_EVENT_PEER_CLOSED);
        assert_int_equal(event.failure, expected[lie]);
        close(fd);
        for (size_t i = 0; i < 1u << 20; i++)
            if (i - run.local_offset >= run.bytes)
                assert_int_equal(pool[i], FILL);
        expect_reading(&w);
    }
    close(listener);
    world_close(&w);
}

/* An owner on this machine with a pool shorter than it says is refused, and memory behind the
 * mapping stays unchanged. */
static void test_a_longer_pool_than_there_is_is_not_mapped(void **state)
{
    (void)state;
    enum { BEHIND = 1 << 20 };
    struct kv_transport *owner = open_transport(KV_TRANSPORT_REMOTE, KV_LANE_SHM);
    struct kv_transport *reader = open_transport(KV_TRANSPORT_REMOTE, KV_LANE_SHM);
    struct kv_admission admission = admit(owner);
    struct kv_address address;
    struct error err;
    uint8_t bytes[KV_TRANSPORT_MAX_ADDRESS_BYTES];
    size_t count;
    assert_int_equal(
        kv_address_decode(admission.address, admission.bytes, KV_TRANSPORT_REMOTE, &address, &err),
        STATUS_OK);
    address.pool_bytes += BEHIND / 2;
    assert_int_equal(kv_address_encode(&address, bytes, &count, &err), STATUS_OK);
    /* The kernel puts a new mapping right below the one before it. */
    uint8_t *behind =
        mmap(NULL, BEHIND, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(behind != MAP_FAILED);
    struct kv_peer *peer;
    assert_int_equal(kv_transport_pair(reader, bytes, count, &peer, &err), STATUS_UNAVAILABLE);
    memset(behind, FILL, BEHIND);
    munmap(behind, BEHIND);
    kv_transport_close(reader);
    kv_transport_close(owner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_owner_that_answers_without_reading),
        cmocka_unit_test(test_an_owner_that_lies_costs_its_pairing_alone),
        cmocka_unit_test(test_a_longer_pool_than_there_is_is_not_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
