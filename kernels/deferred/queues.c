#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "kernels/deferred/deferred.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#define MODULE "deferred"

static bool may_run(const struct stream *stream)
{
    return stream->done < stream->queued &&
           (!stream->owner->late || stream->owner->closing || stream->done < stream->wanted ||
            stream->passed < stream->wanted_event);
}

/* Lets a late stream run. Under the mutex. */
static void want(struct stream *stream, uint64_t item, kernels_event event)
{
    if (item > stream->wanted)
        stream->wanted = item;
    if (event > stream->wanted_event)
        stream->wanted_event = event;
    pthread_cond_signal(&stream->wake);
}

static void await_event(struct deferred *self, struct stream *stream, kernels_event event)
{
    want(stream, 0, event);
    while (stream->passed < event)
        pthread_cond_wait(&self->progress, &self->mutex);
}

static void await_item(struct deferred *self, struct stream *stream, uint64_t item)
{
    want(stream, item, 0);
    while (stream->done < item)
        pthread_cond_wait(&self->progress, &self->mutex);
}

/* Under the mutex, which is free while the item runs. */
static void take_item(struct deferred *self, struct stream *stream)
{
    struct item *item = &stream->items[stream->done % QUEUE_ITEMS];
    enum status status = STATUS_OK;
    if (item->kind == MARK) {
        stream->passed = item->event;
        stream->passed_us[item->event % KERNELS_TIMED_EVENTS] = clock_now_us();
        if (stream->signal)
            eventfd_write(stream->signal - 1, 1);
    } else if (item->kind == ORDER) {
        await_event(self, &self->streams[item->before], item->event);
    } else if (stream->failed == STATUS_OK || item->kind == CALL) {
        pthread_mutex_unlock(&self->mutex);
        bool operates = item->kind == OPERATION;
        bool moves = item->kind == TRANSFER && stream == &self->streams[KERNELS_MOVES];
        if (operates && FAILPOINT_FAILS("device.lost"))
            status = STATUS_UNAVAILABLE;
        else if ((operates && FAILPOINT_FAILS("device.fails")) ||
                 (moves && FAILPOINT_FAILS("device.move_fails")))
            status = STATUS_INTERNAL;
        else if (stream == &self->streams[KERNELS_TRANSFERS] &&
                 FAILPOINT_FAILS("device.copy_fails"))
            status = STATUS_INTERNAL;
        else
            status = item->run(self->inner, item);
        pthread_mutex_lock(&self->mutex);
    }
    if (status != STATUS_OK && stream->failed == STATUS_OK) {
        log_error(MODULE, "msg=\"queued work failed\" stream=%td item=%" PRIu64 " status=%s",
                  stream - self->streams, stream->done, status_name(status));
        stream->failed = STATUS_INTERNAL;
    }
    for (int i = 0; status == STATUS_UNAVAILABLE && i < KERNELS_STREAMS; i++)
        self->streams[i].failed = status;
    stream->done++;
    pthread_cond_broadcast(&self->progress);
}

static void *run_stream(void *context)
{
    struct stream *stream = context;
    struct deferred *self = stream->owner;
    /* The sync lets its compute threads sleep. */
    bool computes = stream == &self->streams[KERNELS_STEPS];
    pthread_mutex_lock(&self->mutex);
    for (;;) {
        while (may_run(stream))
            take_item(self, stream);
        if (self->closing)
            break;
        if (computes && self->inner->backend->sync(self->inner) != STATUS_OK)
            stream->failed = STATUS_INTERNAL;
        if (!may_run(stream))
            pthread_cond_wait(&stream->wake, &self->mutex);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

/* Queues an item; waits for room. Returns the number of items that are done once it is. */
static uint64_t push(struct deferred *self, enum kernels_stream name, const struct item *item)
{
    struct stream *stream = &self->streams[name];
    pthread_mutex_lock(&self->mutex);
    if (stream->queued - stream->done == QUEUE_ITEMS)
        await_item(self, stream, stream->done + QUEUE_ITEMS / 2);
    stream->items[stream->queued % QUEUE_ITEMS] = *item;
    uint64_t number = ++stream->queued;
    if (!self->late)
        pthread_cond_signal(&stream->wake);
    pthread_mutex_unlock(&self->mutex);
    return number;
}

enum status deferred_push(struct kernels *kernels, enum kernels_stream name,
                          const struct item *item)
{
    (void)push(kernels->state, name, item);
    return STATUS_OK;
}

void deferred_call(struct kernels *kernels, const struct item *item)
{
    struct deferred *self = kernels->state;
    uint64_t number = push(self, KERNELS_STEPS, item);
    pthread_mutex_lock(&self->mutex);
    await_item(self, &self->streams[KERNELS_STEPS], number);
    pthread_mutex_unlock(&self->mutex);
}

/* --- events --- */

static enum status deferred_record(struct kernels *kernels, enum kernels_stream stream,
                                   kernels_event event)
{
    struct deferred *self = kernels->state;
    (void)push(self, stream, &(struct item){.kind = MARK, .event = event});
    if (self->late && stream == KERNELS_MOVES && event % 2 == 0) {
        pthread_mutex_lock(&self->mutex);
        await_event(self, &self->streams[stream], event);
        pthread_mutex_unlock(&self->mutex);
    }
    return STATUS_OK;
}

static void deferred_signal(struct kernels *kernels, enum kernels_stream stream, int fd)
{
    struct deferred *self = kernels->state;
    pthread_mutex_lock(&self->mutex);
    self->streams[stream].signal = fd + 1;
    pthread_mutex_unlock(&self->mutex);
}

static bool deferred_passed(struct kernels *kernels, enum kernels_stream stream,
                            kernels_event event)
{
    struct deferred *self = kernels->state;
    pthread_mutex_lock(&self->mutex);
    want(&self->streams[stream], 0, event);
    bool passed = self->streams[stream].passed >= event;
    pthread_mutex_unlock(&self->mutex);
    return passed;
}

static enum status deferred_wait(struct kernels *kernels, enum kernels_stream stream,
                                 kernels_event event)
{
    struct deferred *self = kernels->state;
    pthread_mutex_lock(&self->mutex);
    await_event(self, &self->streams[stream], event);
    enum status status = self->streams[stream].failed;
    pthread_mutex_unlock(&self->mutex);
    return status;
}

static enum status deferred_order(struct kernels *kernels, enum kernels_stream behind,
                                  enum kernels_stream before, kernels_event event)
{
    return deferred_push(kernels, behind,
                         &(struct item){.kind = ORDER, .before = before, .event = event});
}

static uint64_t deferred_event_us(struct kernels *kernels, enum kernels_stream name,
                                  kernels_event begin, kernels_event end)
{
    struct deferred *self = kernels->state;
    struct stream *stream = &self->streams[name];
    pthread_mutex_lock(&self->mutex);
    ASSERT(end <= stream->passed);
    uint64_t us = stream->passed_us[end % KERNELS_TIMED_EVENTS] -
                  stream->passed_us[begin % KERNELS_TIMED_EVENTS];
    pthread_mutex_unlock(&self->mutex);
    return us;
}

enum status deferred_sync(struct kernels *kernels)
{
    struct deferred *self = kernels->state;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&self->mutex);
    for (int i = 0; i < KERNELS_TRANSFERS; i++)
        await_item(self, &self->streams[i], self->streams[i].queued);
    for (int i = 0; i < KERNELS_TRANSFERS; i++) {
        status = status == STATUS_OK ? self->streams[i].failed : status;
        if (self->streams[i].failed != STATUS_UNAVAILABLE)
            self->streams[i].failed = STATUS_OK;
    }
    pthread_mutex_unlock(&self->mutex);
    return status;
}

const struct kernels_queues deferred_queues = {
    .record = deferred_record,
    .signal = deferred_signal,
    .passed = deferred_passed,
    .wait = deferred_wait,
    .order = deferred_order,
    .event_us = deferred_event_us,
};

/* --- start and stop --- */

bool deferred_start(struct deferred *self)
{
    bool whole = true;
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->progress, NULL);
    for (int i = 0; i < KERNELS_STREAMS; i++) {
        struct stream *stream = &self->streams[i];
        stream->owner = self;
        pthread_cond_init(&stream->wake, NULL);
        stream->items = calloc(QUEUE_ITEMS, sizeof *stream->items);
        stream->started =
            stream->items && pthread_create(&stream->thread, NULL, run_stream, stream) == 0;
        whole &= stream->started;
    }
    return whole;
}

void deferred_stop(struct deferred *self)
{
    pthread_mutex_lock(&self->mutex);
    self->closing = true;
    for (int i = 0; i < KERNELS_STREAMS; i++)
        pthread_cond_signal(&self->streams[i].wake);
    pthread_mutex_unlock(&self->mutex);
    for (int i = 0; i < KERNELS_STREAMS; i++) {
        struct stream *stream = &self->streams[i];
        if (stream->started)
            pthread_join(stream->thread, NULL);
        pthread_cond_destroy(&stream->wake);
        free(stream->items);
    }
    pthread_cond_destroy(&self->progress);
    pthread_mutex_destroy(&self->mutex);
}
