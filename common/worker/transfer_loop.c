#include "common/worker/transfer_loop.h"

#include "common/base/assert.h"
#include "common/base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#define INBOX_CAPACITY 16384
#define INBOX_LIMIT    (INBOX_CAPACITY - 1024) /* the rest is kept for ends of streams */
#define BATCH          64 /* messages of one source in a row, so that no source starves another */

struct transfer_loop {
    struct transfer_loop_config config;
    struct ring *inbox;
    pthread_t thread;
    bool started, stopping; /* stopping: the transfer thread's own */
    struct transfer_message stop_message;
};

static bool take_inbox(struct transfer_loop *loop)
{
    for (int i = 0; i < BATCH; i++) {
        struct transfer_message *message = ring_pop(loop->inbox);
        if (!message)
            return false;
        if (message == &loop->stop_message)
            loop->stopping = true;
        else
            message->deliver(message);
    }
    return true;
}

static bool take_step_events(struct transfer_loop *loop)
{
    for (int i = 0; i < BATCH; i++) {
        struct step_event *event = ring_pop(step_loop_events(loop->config.steps));
        if (!event)
            return false;
        loop->config.handlers.step_event(loop->config.role, event);
        step_loop_recycle(loop->config.steps, event);
    }
    return true;
}

static void wait_for_work(struct transfer_loop *loop, uint64_t until_us)
{
    uint64_t now_us = clock_now_us();
    uint64_t deadline_us = kv_transport_next_deadline_us(loop->config.transport);
    if (deadline_us < until_us)
        until_us = deadline_us;
    if (until_us <= now_us || !kv_transport_arm(loop->config.transport))
        return;
    struct pollfd fds[] = {{.fd = ring_fd(loop->inbox), .events = POLLIN},
                           {.fd = ring_fd(step_loop_events(loop->config.steps)), .events = POLLIN},
                           {.fd = kv_transport_fd(loop->config.transport), .events = POLLIN}};
    poll(fds, sizeof fds / sizeof *fds, (int)((until_us - now_us + 999) / 1000));
}

static void *transfer_main(void *argument)
{
    struct transfer_loop *loop = argument;
    pthread_setname_np(pthread_self(), "baton-transfer");
    uint64_t next_tick_us = clock_now_us();
    while (!loop->stopping) {
        bool more = take_inbox(loop);
        more |= take_step_events(loop);
        struct kv_event events[BATCH];
        size_t count = kv_transport_poll(loop->config.transport, clock_now_us(), events, BATCH);
        for (size_t i = 0; i < count; i++)
            loop->config.handlers.kv_event(loop->config.role, &events[i]);
        more |= count > 0;
        more |= loop->config.handlers.work && loop->config.handlers.work(loop->config.role);
        uint64_t now_us = clock_now_us();
        if (now_us >= next_tick_us) {
            loop->config.handlers.tick(loop->config.role, now_us);
            next_tick_us = now_us + TRANSFER_TICK_US;
        }
        if (!more && !loop->stopping)
            wait_for_work(loop, next_tick_us);
    }
    return NULL;
}

enum status transfer_loop_create(struct transfer_loop **out)
{
    struct transfer_loop *loop = calloc(1, sizeof *loop);
    if (!loop || ring_create(INBOX_CAPACITY, &loop->inbox) != STATUS_OK) {
        free(loop);
        return STATUS_LIMIT;
    }
    *out = loop;
    return STATUS_OK;
}

enum status transfer_loop_start(struct transfer_loop *loop,
                                const struct transfer_loop_config *config)
{
    loop->config = *config;
    if (pthread_create(&loop->thread, NULL, transfer_main, loop))
        return STATUS_IO;
    loop->started = true;
    return STATUS_OK;
}

enum status transfer_loop_post(struct transfer_loop *loop, struct transfer_message *message)
{
    return ring_count(loop->inbox) < INBOX_LIMIT ? ring_push(loop->inbox, message) : STATUS_LIMIT;
}

void transfer_loop_post_end(struct transfer_loop *loop, struct transfer_message *message)
{
    enum status status = ring_push(loop->inbox, message);
    ASSERT(status == STATUS_OK ||
           status == STATUS_CANCELLED); /* there are fewer streams than kept places */
    if (status != STATUS_OK)
        message->drop(message);
}

void transfer_loop_stop(struct transfer_loop *loop)
{
    if (!loop->started)
        return;
    while (ring_push(loop->inbox, &loop->stop_message) == STATUS_LIMIT)
        poll(NULL, 0, 1); /* the inbox is full: the thread empties it */
    ring_close(loop->inbox);
    pthread_join(loop->thread, NULL);
    loop->started = false;
}

void transfer_loop_destroy(struct transfer_loop *loop)
{
    if (!loop)
        return;
    for (struct transfer_message *message; (message = ring_pop(loop->inbox));)
        message->drop(message);
    ring_destroy(loop->inbox);
    free(loop);
}
