#include "common/base/assert.h"
#include "kernels/cuda/cuda.h"

#include <math.h>
#include <sys/eventfd.h>

/* Events of a stream pass in order. */
static void note_passed(struct cuda_stream *stream, kernels_event event)
{
    kernels_event known = atomic_load(&stream->passed);
    while (known < event && !atomic_compare_exchange_weak(&stream->passed, &known, event))
        ;
}

/* An event has passed if a later one has taken its place: `record` sees to that. */
static bool surely_passed(struct kernels *kernels, enum kernels_stream name, kernels_event event)
{
    struct cuda *self = kernels->state;
    return event <= atomic_load(&self->streams[name].passed);
}

static struct cuda_event *event_at(struct cuda *self, enum kernels_stream name, kernels_event event)
{
    return self->streams[name].events[event % KERNELS_TIMED_EVENTS];
}

static enum status cuda_wait(struct kernels *kernels, enum kernels_stream name, kernels_event event)
{
    struct cuda *self = kernels->state;
    TRY(cuda_enter(self));
    if (surely_passed(kernels, name, event))
        return STATUS_OK;
    TRY(cuda_check(self, self->driver.event_sync(event_at(self, name, event)),
                   "cuEventSynchronize"));
    note_passed(&self->streams[name], event);
    return STATUS_OK;
}

/* On a thread of the driver. */
static void write_signal(void *stream)
{
    eventfd_write(((struct cuda_stream *)stream)->signal - 1, 1);
}

static void cuda_signal(struct kernels *kernels, enum kernels_stream name, int fd)
{
    ((struct cuda *)kernels->state)->streams[name].signal = fd + 1;
}

static enum status mark(struct kernels *kernels, enum kernels_stream name, kernels_event event)
{
    struct cuda *self = kernels->state;
    struct cuda_stream *stream = &self->streams[name];
    if (event > KERNELS_TIMED_EVENTS)
        TRY(cuda_wait(kernels, name, event - KERNELS_TIMED_EVENTS));
    TRY(cuda_check(self, self->driver.event_record(event_at(self, name, event), stream->handle),
                   "cuEventRecord"));
    if (!stream->signal)
        return STATUS_OK;
    return cuda_check(self, self->driver.stream_call(stream->handle, write_signal, stream),
                      "cuLaunchHostFunc");
}

/* Waits after a failure: no event says when queued copies no longer use the host's memory. */
static enum status cuda_record(struct kernels *kernels, enum kernels_stream name,
                               kernels_event event)
{
    struct cuda *self = kernels->state;
    TRY(cuda_enter(self));
    enum status status = mark(kernels, name, event);
    if (status != STATUS_OK)
        (void)self->driver.stream_sync(self->streams[name].handle);
    return status;
}

static bool cuda_passed(struct kernels *kernels, enum kernels_stream name, kernels_event event)
{
    struct cuda *self = kernels->state;
    if (surely_passed(kernels, name, event) || cuda_enter(self) != STATUS_OK)
        return true;
    int result = self->driver.event_query(event_at(self, name, event));
    if (result == CUDA_NOT_READY)
        return false;
    if (cuda_check(self, result, "cuEventQuery") == STATUS_OK)
        note_passed(&self->streams[name], event);
    return true;
}

static enum status cuda_order(struct kernels *kernels, enum kernels_stream behind,
                              enum kernels_stream before, kernels_event event)
{
    struct cuda *self = kernels->state;
    TRY(cuda_enter(self));
    if (surely_passed(kernels, before, event))
        return STATUS_OK;
    return cuda_check(
        self,
        self->driver.stream_wait(self->streams[behind].handle, event_at(self, before, event), 0),
        "cuStreamWaitEvent");
}

static uint64_t cuda_event_us(struct kernels *kernels, enum kernels_stream name,
                              kernels_event begin, kernels_event end)
{
    struct cuda *self = kernels->state;
    float milliseconds = 0;
    if (cuda_enter(self) != STATUS_OK)
        return 0;
    int result = self->driver.event_elapsed(&milliseconds, event_at(self, name, begin),
                                            event_at(self, name, end));
    ASSERT(result != CUDA_NOT_READY);
    return cuda_check(self, result, "cuEventElapsedTime") == STATUS_OK
               ? (uint64_t)llround(1e3 * (double)milliseconds)
               : 0;
}

enum status cuda_sync(struct kernels *kernels)
{
    struct cuda *self = kernels->state;
    TRY(cuda_enter(self));
    for (int i = 0; i < KERNELS_TRANSFERS; i++)
        TRY(cuda_check(self, self->driver.stream_sync(self->streams[i].handle),
                       "cuStreamSynchronize"));
    return STATUS_OK;
}

const struct kernels_queues cuda_queues = {
    .record = cuda_record,
    .signal = cuda_signal,
    .passed = cuda_passed,
    .wait = cuda_wait,
    .order = cuda_order,
    .event_us = cuda_event_us,
};

enum status cuda_queues_init(struct cuda *self, bool sleeps)
{
    const struct cuda_driver *driver = &self->driver;
    int least = 0, greatest = 0;
    TRY(cuda_check(self, driver->priorities(&least, &greatest), "cuCtxGetStreamPriorityRange"));
    for (int i = 0; i < KERNELS_STREAMS; i++) {
        struct cuda_stream *stream = &self->streams[i];
        TRY(cuda_check(self,
                       driver->stream_create(&stream->handle, CUDA_STREAM_NON_BLOCKING,
                                             i == KERNELS_STEPS ? greatest : least),
                       "cuStreamCreateWithPriority"));
        for (int e = 0; e < KERNELS_TIMED_EVENTS; e++)
            TRY(cuda_check(self,
                           driver->event_create(&stream->events[e], sleeps ? CUDA_EVENT_SLEEPS : 0),
                           "cuEventCreate"));
    }
    return STATUS_OK;
}

void cuda_queues_deinit(struct cuda *self)
{
    for (int i = 0; i < KERNELS_STREAMS; i++) {
        struct cuda_stream *stream = &self->streams[i];
        for (int e = 0; e < KERNELS_TIMED_EVENTS; e++)
            if (stream->events[e])
                (void)self->driver.event_destroy(stream->events[e]);
        if (stream->handle)
            (void)self->driver.stream_destroy(stream->handle);
    }
}
