#include "common/net/rpc/grpc/runtime.h"

#include "common/base/assert.h"
#include "common/base/log.h"

#include <grpc/compression.h>
#include <grpc/support/log.h>

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_THREADS         64
#define KEEPALIVE_ANSWER_MS 2000
#define CORE_ENDS_MS        2000

#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define TSAN_ACQUIRE(address) __tsan_acquire(address)
#define TSAN_RELEASE(address) __tsan_release(address)
#else
#define TSAN_ACQUIRE(address) ((void)(address))
#define TSAN_RELEASE(address) ((void)(address))
#endif

struct rpc_thread {
    grpc_completion_queue *queue;
    pthread_t thread;
};

struct rpc_runtime {
    atomic_uint next;
    uint32_t count;
    struct rpc_thread threads[];
};

static atomic_uint runtimes; /* now, each with a grpc_init */
static _Thread_local bool on_rpc_thread;

void tag_publish(struct tag *tag)
{
    TSAN_RELEASE(tag);
}

void tag_catch_begin(grpc_completion_queue *queue)
{
    grpc_completion_queue_thread_local_cache_init(queue);
}

struct tag *tag_catch_end(grpc_completion_queue *queue, bool *ok)
{
    void *tag;
    int success;
    if (!grpc_completion_queue_thread_local_cache_flush(queue, &tag, &success))
        return NULL;
    TSAN_ACQUIRE(tag);
    *ok = success;
    return tag;
}

void tag_put_back(struct tag *tag, bool ok, grpc_call *call)
{
    tag->failed = !ok;
    tag_publish(tag);
    grpc_call_error failure = grpc_call_start_batch(call, NULL, 0, tag, NULL);
    ASSERT(failure == GRPC_CALL_OK);
}

/* Logs gRPC core's lines as ours. GRPC_VERBOSITY still chooses which of them (default: errors). */
static void log_core(gpr_log_func_args *args)
{
    char quoted[1024];
    log_quote(args->message, quoted, sizeof quoted);
    const char *file = strrchr(args->file, '/');
    log_limited(args->severity == GPR_LOG_SEVERITY_ERROR ? LOG_WARN : LOG_DEBUG, "grpc_core",
                "msg=%s at=%s:%d", quoted, file ? file + 1 : args->file, args->line);
}

static void *run_thread(void *argument)
{
    struct rpc_thread *thread = argument;
    on_rpc_thread = true;
    gpr_timespec forever = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    for (;;) {
        grpc_event event = grpc_completion_queue_next(thread->queue, forever, NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        if (event.type != GRPC_OP_COMPLETE)
            continue;
        struct tag *tag = event.tag;
        TSAN_ACQUIRE(tag);
        bool ok = event.success && !tag->failed;
        tag->failed = false;
        tag->run(tag, ok);
    }
}

/* A channel or server of core counts as a use of core, and a thread of core's may be the last to
 * let go of it, after grpc_shutdown_blocking. Core then ends its threads on yet another thread, and
 * tells no caller. grpc_is_initialized takes the lock that core holds until it has joined them. */
static void wait_for_core(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int waited_ms = 0; grpc_is_initialized(); waited_ms++) {
        if (waited_ms == CORE_ENDS_MS) {
            log_warn("grpc_core", "msg=\"gRPC core is still in use: its threads aren't joined\"");
            return;
        }
        nanosleep(&pause, NULL);
    }
}

/* Ends the first `count` threads. Each of them has a queue. */
static void stop_threads(struct rpc_runtime *runtime, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        grpc_completion_queue_shutdown(runtime->threads[i].queue);
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(runtime->threads[i].thread, NULL);
        grpc_completion_queue_destroy(runtime->threads[i].queue);
    }
    /* grpc_shutdown returns while core's own threads still run: no clean exit. */
    grpc_shutdown_blocking();
    if (atomic_fetch_sub(&runtimes, 1) == 1)
        wait_for_core();
    free(runtime);
}

enum status rpc_runtime_create(uint32_t threads, struct rpc_runtime **runtime, struct error *err)
{
    if (threads < 1 || threads > MAX_THREADS)
        return error_set(err, STATUS_INVALID, "rpc threads: %u is not in 1..%u", threads,
                         MAX_THREADS);
    struct rpc_runtime *made = calloc(1, sizeof *made + threads * sizeof *made->threads);
    ASSERT(made);
    gpr_set_log_function(log_core);
    atomic_fetch_add(&runtimes, 1);
    grpc_init();
    for (; made->count < threads; made->count++) {
        struct rpc_thread *thread = &made->threads[made->count];
        thread->queue = grpc_completion_queue_create_for_next(NULL);
        int failure = pthread_create(&thread->thread, NULL, run_thread, thread);
        if (failure) {
            grpc_completion_queue_shutdown(thread->queue);
            grpc_completion_queue_destroy(thread->queue);
            enum status status = error_set(err, STATUS_IO, "rpc thread %u can't start: %s",
                                           made->count, strerror(failure));
            stop_threads(made, made->count);
            return status;
        }
        char name[16];
        snprintf(name, sizeof name, "rpc-%u", made->count);
        pthread_setname_np(thread->thread, name);
    }
    *runtime = made;
    return STATUS_OK;
}

void rpc_runtime_destroy(struct rpc_runtime *runtime)
{
    ASSERT(!on_rpc_thread);
    stop_threads(runtime, runtime->count);
}

uint32_t rpc_runtime_queue_count(const struct rpc_runtime *runtime)
{
    return runtime->count;
}

grpc_completion_queue *rpc_runtime_queue(struct rpc_runtime *runtime, uint32_t index)
{
    ASSERT(index < runtime->count);
    return runtime->threads[index].queue;
}

grpc_completion_queue *rpc_runtime_next_queue(struct rpc_runtime *runtime)
{
    return runtime->threads[atomic_fetch_add(&runtime->next, 1) % runtime->count].queue;
}

bool rpc_runtime_on_thread(void)
{
    return on_rpc_thread;
}

/* --- settings of core --- */

static void add(struct channel_args *args, grpc_arg arg)
{
    ASSERT(args->count < sizeof args->items / sizeof *args->items);
    args->items[args->count++] = arg;
}

void channel_args_add(struct channel_args *args, const char *key, int value)
{
    add(args, (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value});
}

void channel_args_add_string(struct channel_args *args, const char *key, const char *value)
{
    add(args,
        (grpc_arg){.type = GRPC_ARG_STRING, .key = (char *)key, .value.string = (char *)value});
}

void channel_args_add_pointer(struct channel_args *args, const char *key, void *pointer,
                              const grpc_arg_pointer_vtable *vtable)
{
    add(args, (grpc_arg){.type = GRPC_ARG_POINTER,
                         .key = (char *)key,
                         .value.pointer = {.p = pointer, .vtable = vtable}});
}

void channel_args_add_common(struct channel_args *args, size_t max_message_bytes,
                             uint64_t keepalive_us)
{
    size_t limit = max_message_bytes ? max_message_bytes : RPC_DEFAULT_BYTES;
    channel_args_add(args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                     limit < INT_MAX ? (int)limit : INT_MAX);
    if (keepalive_us) {
        uint64_t ms = keepalive_us / 1000 ? keepalive_us / 1000 : 1;
        channel_args_add(args, GRPC_ARG_KEEPALIVE_TIME_MS, ms < INT_MAX ? (int)ms : INT_MAX);
        channel_args_add(args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_ANSWER_MS);
    }
    channel_args_add(args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    channel_args_add(args, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    /* A compressed message may unpack to any size, and compression costs six times the CPU of a
     * token message. */
    channel_args_add(args, GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
                     1 << GRPC_COMPRESS_NONE);
    channel_args_add(args, GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    channel_args_add(args, GRPC_ARG_ENABLE_CHANNELZ, 0);
}
