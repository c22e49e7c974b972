/* Shared by the tests of the KV lane's two ends: an owner and a reader of one process over tcp,
 * paired, and the bytes of a stranger at the owner's port. */
#ifndef BATON_TESTS_TRANSPORT_WORLD_H
#define BATON_TESTS_TRANSPORT_WORLD_H

#include "common/kv/transport/kv_address.h"
#include "common/kv/transport/kv_frame.h"

#include "transport_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

struct world {
    struct kv_transport *owner, *reader;
    struct kv_peer *peer;
    struct kv_address address; /* the owner's, with an admission of its own */
    uint8_t bytes[KV_TRANSPORT_MAX_ADDRESS_BYTES];
};

static inline struct kv_transport *open_at(const char *listen, uint32_t max_connections)
{
    struct kv_transport_config config = {
        .kind = KV_TRANSPORT_REMOTE,
        .lane = KV_LANE_TCP,
        .pool_bytes = POOL_BYTES,
        .max_reads = MAX_READS,
        .bind_interface = listen,
        .max_connections = max_connections,
    };
    struct kv_transport *transport;
    struct error err;
    if (kv_transport_open(&config, &transport, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    kv_transport_serve(transport, serve_all, NULL);
    return transport;
}

/* Returns another address of the owner, valid for one more reader. */
static inline void admit_to(struct world *w)
{
    struct kv_admission admission = admit(w->owner);
    struct error err;
    memcpy(w->bytes, admission.address, admission.bytes);
    assert_int_equal(
        kv_address_decode(w->bytes, admission.bytes, KV_TRANSPORT_REMOTE, &w->address, &err),
        STATUS_OK);
}

static inline struct kv_peer *pair_with(struct kv_transport *reader, struct kv_transport *owner)
{
    struct kv_admission admission = admit(owner);
    struct kv_peer *peer;
    struct error err;
    if (kv_transport_pair(reader, admission.address, admission.bytes, &peer, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return peer;
}

static inline void world_open(struct world *w, uint32_t max_connections)
{
    w->owner = open_at("127.0.0.1", max_connections);
    w->reader = open_at("lo", 0);
    fill_pattern(kv_transport_pool(w->owner), POOL_BYTES);
    w->peer = pair_with(w->reader, w->owner);
    admit_to(w);
}

static inline void world_close(struct world *w)
{
    kv_transport_close(w->reader);
    kv_transport_close(w->owner);
}

static inline uint64_t refused(const struct world *w, enum kv_refusal why)
{
    return kv_transport_counters(w->owner).refused[why];
}

static inline void poll_owner(struct world *w)
{
    struct kv_event event;
    assert_int_equal(kv_transport_poll(w->owner, clock_now_us(), &event, 1), 0);
}

/* Polls both until the reader has an event. */
static inline struct kv_event reader_event(struct world *w)
{
    struct kv_event event;
    for (uint64_t start_us = clock_now_us(); clock_now_us() - start_us < PATIENCE_US;) {
        poll_owner(w);
        if (kv_transport_poll(w->reader, clock_now_us(), &event, 1) == 1)
            return event;
        struct pollfd fds[2] = {{kv_transport_fd(w->owner), POLLIN, 0},
                                {kv_transport_fd(w->reader), POLLIN, 0}};
        uint64_t now_us = clock_now_us(), end_us = now_us + 1000000;
        uint64_t dues_us[] = {kv_transport_next_deadline_us(w->owner),
                              kv_transport_next_deadline_us(w->reader)};
        for (int i = 0; i < 2; i++)
            end_us = dues_us[i] < end_us ? dues_us[i] : end_us;
        if (end_us > now_us && kv_transport_arm(w->owner) && kv_transport_arm(w->reader))
            poll(fds, 2, (int)((end_us - now_us + 999) / 1000));
    }
    fail_msg("no event came");
    return (struct kv_event){0};
}

static inline void expect_reading(struct world *w)
{
    struct kv_read_run run = {123456, 4096, 700001, 0};
    uint8_t *pool = kv_transport_pool(w->reader);
    memset(pool, FILL, 1u << 20);
    assert_int_equal(
        kv_transport_read(w->reader, w->peer, &run, 1, clock_now_us() + PATIENCE_US, 7), STATUS_OK);
    struct kv_event event = reader_event(w);
    assert_int_equal(event.kind, KV_EVENT_READ_DONE);
    if (event.status != STATUS_OK)
        fail_msg("%s", event.reason);
    for (uint64_t i = 0; i < run.bytes; i++)
        if (pool[run.local_offset + i] != pattern(run.remote_offset + i))
            fail_msg("byte %lu differs", (unsigned long)i);
}

/* -- strangers -- */

static inline int dial(const struct world *w)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(w->address.port)};
    memcpy(&to.sin_addr, w->address.ip, sizeof to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    int got = connect(fd, (const struct sockaddr *)&to, sizeof to);
    assert_true(got == 0 || errno == EINPROGRESS);
    return fd;
}

static inline void say(int fd, const void *bytes, size_t count)
{
    struct pollfd writable = {fd, POLLOUT, 0};
    assert_int_equal(poll(&writable, 1, 5000), 1);
    assert_int_equal(send(fd, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

static inline void say_frame(int fd, const struct kv_frame *frame)
{
    uint8_t bytes[KV_FRAME_BYTES];
    kv_frame_encode(frame, bytes);
    say(fd, bytes, sizeof bytes);
}

#endif
