/* stream: a reader that doesn't read (Session to the router, Peer to a decode worker) is given up
 * when the queue is full; nothing waits for it, and nothing is kept for it. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/worker/stream.h"
#include "proto/worker.pb-c.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define QUEUE_BYTES (1u << 20)
#define DEADLINE_US 60000000
#define NOT_TAKEN   1000 /* messages of 64 KiB each */
#define PATH        "/baton.worker.v1.PrefillPeer/Peer"

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void wait_at_gate(struct rpc_call *call, struct rpc_bytes bytes)
{
    (void)call;
    (void)bytes;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

static void on_closed(struct rpc_call *call, const struct rpc_end *end)
{
    (void)call;
    (void)end;
}

static void test_a_reader_that_does_not_read(void **state)
{
    (void)state;
    struct rpc_runtime *near, *far;
    struct rpc_server *server;
    struct rpc_channel *channel;
    struct transfer_loop *loop;
    struct stream *stream;
    struct error err;
    assert_int_equal(rpc_runtime_create(1, &near, &err), STATUS_OK);
    assert_int_equal(rpc_runtime_create(1, &far, &err), STATUS_OK);
    const struct rpc_method method = {.path = PATH,
                                      .handlers = {.message = wait_at_gate, .closed = on_closed},
                                      .client_streams = true};
    const struct rpc_server_config listen = {
        .listen = "127.0.0.1:0", .methods = &method, .method_count = 1};
    assert_int_equal(rpc_server_start(far, &listen, &server, &err), STATUS_OK);
    const struct rpc_channel_config dial = {.target = rpc_server_address(server),
                                            .max_queued_bytes = QUEUE_BYTES};
    assert_int_equal(rpc_channel_create(near, &dial, &channel, &err), STATUS_OK);
    assert_int_equal(transfer_loop_create(&loop), STATUS_OK);
    static const struct stream_kind kind = {.name = "peer",
                                            .incoming = &baton__worker__v1__peer_up__descriptor};
    const struct stream_service service = {.loop = loop, .kind = &kind};
    assert_int_equal(stream_dial(&service, channel, PATH, NULL, &stream), STATUS_OK);

    uint32_t checksums[16384];
    for (size_t i = 0; i < sizeof checksums / sizeof *checksums; i++)
        checksums[i] = (uint32_t)i;
    Baton__Worker__V1__Complete complete = BATON__WORKER__V1__COMPLETE__INIT;
    complete.n_checksums = sizeof checksums / sizeof *checksums;
    complete.checksums = checksums;
    Baton__Worker__V1__PeerUp up = BATON__WORKER__V1__PEER_UP__INIT;
    up.message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_COMPLETE;
    up.complete = &complete;
    pthread_mutex_lock(&gate);
    /* Waits until the stream is given up and its queue is gone (the call's own thread drops it):
     * nothing more is taken in. A living stream would fill up its windows, and then the queue. */
    uint64_t deadline_us = clock_now_us() + DEADLINE_US;
    for (int not_taken = 0; not_taken < NOT_TAKEN;) {
        stream_send(stream, &up.base);
        not_taken = stream_flushed(stream) ? not_taken + 1 : 0;
        sched_yield();
        assert_true(clock_now_us() < deadline_us);
    }
    pthread_mutex_unlock(&gate);

    rpc_server_stop(server, 0);
    rpc_channel_destroy(channel); /* now its end is in the loop, which lets it go */
    transfer_loop_destroy(loop);
    rpc_runtime_destroy(near);
    rpc_runtime_destroy(far);
}

struct posted {
    struct transfer_message base;
    size_t *dropped;
};

static void count_dropped(struct transfer_message *base)
{
    ++*((struct posted *)base)->dropped;
}

/* A transfer thread that is too far behind (here: not started): messages are refused, ends of
 * streams still fit. */
static void test_an_inbox_that_is_full(void **state)
{
    (void)state;
    struct transfer_loop *loop;
    size_t dropped = 0, taken = 0;
    struct posted message = {{.drop = count_dropped}, &dropped};
    assert_int_equal(transfer_loop_create(&loop), STATUS_OK);
    while (taken < 1000000 && transfer_loop_post(loop, &message.base) == STATUS_OK)
        taken++;
    assert_in_range(taken, 1, 999999);
    enum { STREAMS = 512 + 256 }; /* as many as a worker's server has, and as it dials */
    for (int i = 0; i < STREAMS; i++)
        transfer_loop_post_end(loop, &message.base);
    assert_int_equal(transfer_loop_post(loop, &message.base), STATUS_LIMIT);
    transfer_loop_destroy(loop);
    assert_int_equal(dropped, taken + STREAMS);
}

static void told_closed(struct rpc_call *call, const struct rpc_end *end)
{
    (void)end;
    sem_post(rpc_call_context(call));
}

/* However many streams come while it is behind: it needs no end of a stream that it never saw. */
static void test_streams_that_come_to_a_full_inbox(void **state)
{
    (void)state;
    enum { CALLS = 1500, AT_ONCE = 50 };
    struct rpc_runtime *runtime;
    struct rpc_server *server;
    struct rpc_channel *channel;
    struct transfer_loop *loop;
    struct error err;
    size_t dropped = 0;
    sem_t closed;
    struct posted message = {{.drop = count_dropped}, &dropped};
    sem_init(&closed, 0, 0);
    assert_int_equal(transfer_loop_create(&loop), STATUS_OK);
    while (transfer_loop_post(loop, &message.base) == STATUS_OK)
        ;
    static const struct stream_kind kind = {.name = "peer",
                                            .incoming = &baton__worker__v1__peer_down__descriptor};
    struct stream_service service = {.loop = loop, .kind = &kind};
    const struct rpc_method method = {.path = PATH,
                                      .handlers = stream_server_handlers,
                                      .client_streams = true,
                                      .service = &service};
    const struct rpc_server_config listen = {
        .listen = "127.0.0.1:0", .methods = &method, .method_count = 1};
    static const struct rpc_handlers handlers = {.closed = told_closed};
    assert_int_equal(rpc_runtime_create(1, &runtime, &err), STATUS_OK);
    assert_int_equal(rpc_server_start(runtime, &listen, &server, &err), STATUS_OK);
    const struct rpc_channel_config dial = {.target = rpc_server_address(server)};
    assert_int_equal(rpc_channel_create(runtime, &dial, &channel, &err), STATUS_OK);
    char path[] = "/tmp/test_stream.XXXXXX", text[65536];
    int kept = dup(STDERR_FILENO), file = mkstemp(path);
    assert_true(file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    log_init("test", LOG_ERROR); /* it checks the kind of standard error */
    uint64_t begin_us = clock_now_us();
    for (int i = 0; i < CALLS; i++) {
        struct rpc_call *call;
        assert_int_equal(rpc_call_start(channel, PATH, &handlers, &closed, 0, false, &call),
                         STATUS_OK);
        rpc_call_unref(call);
        if (i >= AT_ONCE)
            sem_wait(&closed);
    }
    for (int i = 0; i < AT_ONCE; i++)
        sem_wait(&closed);
    dup2(kept, STDERR_FILENO);
    log_init("test", LOG_ERROR);
    uint64_t most = LOG_LIMIT_LINES * (1 + (clock_now_us() - begin_us) / LOG_LIMIT_US);
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    assert_true(length > 0);
    text[length] = 0;
    size_t lines = 0; /* a few for all that are turned away */
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    assert_in_range(lines, 1, most);
    close(kept);
    close(file);
    unlink(path);
    rpc_channel_destroy(channel);
    rpc_server_stop(server, 0);
    transfer_loop_destroy(loop);
    rpc_runtime_destroy(runtime);
    sem_destroy(&closed);
    assert_true(dropped > 0);
}

int main(void)
{
    log_init("test", LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_reader_that_does_not_read),
                                       cmocka_unit_test(test_an_inbox_that_is_full),
                                       cmocka_unit_test(test_streams_that_come_to_a_full_inbox)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
