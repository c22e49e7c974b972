#include "common/net/rpc/grpc/call.h"

#include "common/base/assert.h"
#include "common/base/clock.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/alloc.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- metadata --- */

static bool has_nul(grpc_slice slice)
{
    return memchr(GRPC_SLICE_START_PTR(slice), 0, GRPC_SLICE_LENGTH(slice)) != NULL;
}

void headers_read(struct headers *headers, const grpc_metadata_array *array)
{
    size_t size = 0;
    for (size_t i = 0; i < array->count; i++)
        size += GRPC_SLICE_LENGTH(array->metadata[i].key) +
                GRPC_SLICE_LENGTH(array->metadata[i].value) + 2;
    headers_deinit(headers);
    if (!size)
        return;
    headers->block = malloc(size);
    ASSERT(headers->block);
    for (size_t i = 0; i < array->count; i++) {
        const grpc_metadata *item = &array->metadata[i];
        if (grpc_is_binary_header(item->key) || has_nul(item->key) || has_nul(item->value))
            continue;
        const grpc_slice *parts[] = {&item->key, &item->value};
        for (size_t part = 0; part < 2; part++) {
            size_t length = GRPC_SLICE_LENGTH(*parts[part]);
            memcpy(headers->block + headers->size, GRPC_SLICE_START_PTR(*parts[part]), length);
            headers->size += length;
            headers->block[headers->size++] = 0;
        }
    }
}

void headers_deinit(struct headers *headers)
{
    free(headers->block);
    *headers = (struct headers){0};
}

/* Returns the value of the next entry of this key from *at on, and sets *at behind it; or NULL. */
static const char *next_value(const struct headers *headers, const char *key, size_t *at)
{
    while (*at < headers->size) {
        const char *name = headers->block + *at;
        const char *value = name + strlen(name) + 1;
        *at = (size_t)(value + strlen(value) + 1 - headers->block);
        if (!strcmp(name, key))
            return value;
    }
    return NULL;
}

const char *headers_get(const struct headers *headers, const char *key)
{
    size_t at = 0;
    const char *value = next_value(headers, key, &at);
    return value ? value : "";
}

size_t headers_count(const struct headers *headers, const char *key)
{
    size_t at = 0, count = 0;
    while (next_value(headers, key, &at))
        count++;
    return count;
}

enum status header_list_add(struct header_list *list, const char *key, const char *value)
{
    if (list->count == RPC_MAX_METADATA)
        return STATUS_LIMIT;
    grpc_slice key_slice = grpc_slice_from_copied_string(key);
    grpc_slice value_slice = grpc_slice_from_copied_string(value);
    if (!grpc_header_key_is_legal(key_slice) || grpc_is_binary_header(key_slice) ||
        !grpc_header_nonbin_value_is_legal(value_slice)) {
        grpc_slice_unref(key_slice);
        grpc_slice_unref(value_slice);
        return STATUS_INVALID;
    }
    if (!list->items)
        list->items = calloc(RPC_MAX_METADATA, sizeof *list->items);
    ASSERT(list->items);
    list->items[list->count++] = (grpc_metadata){.key = key_slice, .value = value_slice};
    return STATUS_OK;
}

void header_list_deinit(struct header_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        grpc_slice_unref(list->items[i].key);
        grpc_slice_unref(list->items[i].value);
    }
    free(list->items);
    *list = (struct header_list){0};
}

/* --- the set of live calls --- */

void call_set_init(struct call_set *set)
{
    *set = (struct call_set){0};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&set->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&set->lock, NULL);
}

void call_set_deinit(struct call_set *set)
{
    ASSERT(!set->count);
    pthread_cond_destroy(&set->changed);
    pthread_mutex_destroy(&set->lock);
}

size_t call_set_add(struct call_set *set, struct rpc_call *call)
{
    pthread_mutex_lock(&set->lock);
    size_t count = 0;
    if (!set->closed) {
        call->link = (struct call_link){NULL, set->first};
        if (set->first)
            set->first->link.previous = call;
        set->first = call;
        count = ++set->count;
    }
    pthread_mutex_unlock(&set->lock);
    return count;
}

void call_set_remove(struct call_set *set, struct rpc_call *call)
{
    pthread_mutex_lock(&set->lock);
    if (call->link.previous)
        call->link.previous->link.next = call->link.next;
    else
        set->first = call->link.next;
    if (call->link.next)
        call->link.next->link.previous = call->link.previous;
    if (!--set->count)
        pthread_cond_broadcast(&set->changed);
    pthread_mutex_unlock(&set->lock);
}

void call_set_close(struct call_set *set)
{
    pthread_mutex_lock(&set->lock);
    set->closed = true;
    pthread_mutex_unlock(&set->lock);
}

void call_set_each(struct call_set *set, void (*visit)(void *context, struct rpc_call *call),
                   void *context)
{
    pthread_mutex_lock(&set->lock);
    for (struct rpc_call *call = set->first; call; call = call->link.next)
        visit(context, call);
    pthread_mutex_unlock(&set->lock);
}

bool call_set_wait(struct call_set *set, uint64_t until_us)
{
    if (until_us == UINT64_MAX) {
        pthread_cond_wait(&set->changed, &set->lock);
        return true;
    }
    struct timespec until = {.tv_sec = (time_t)(until_us / 1000000u),
                             .tv_nsec = (long)(until_us % 1000000u) * 1000};
    return pthread_cond_timedwait(&set->changed, &set->lock, &until) != ETIMEDOUT;
}

/* --- life --- */

static void on_closed(struct tag *tag, bool ok);
static void on_received(struct tag *tag, bool ok);

struct rpc_call *call_create(grpc_call *core, grpc_completion_queue *queue, bool is_server)
{
    struct rpc_call *call = calloc(1, sizeof *call);
    ASSERT(call); /* gRPC core ends the process too when memory runs out */
    call->is_server = is_server;
    call->core = core;
    call->queue = queue;
    call->deadline_us = UINT64_MAX;
    call->closed_tag.run = on_closed;
    call->received_tag.run = on_received;
    call->sent_tag.run = call_on_sent;
    call->status_details = grpc_empty_slice();
    grpc_metadata_array_init(&call->initial_metadata);
    grpc_metadata_array_init(&call->trailing_metadata);
    atomic_init(&call->references, 1);
    pthread_mutex_init(&call->lock, NULL);
    return call;
}

/* Gives back all that belongs to gRPC core. The struct itself may live on. With call->lock held. */
static void release_core(struct rpc_call *call)
{
    call_drop_queue(call);
    header_list_deinit(&call->own_headers);
    header_list_deinit(&call->trailers);
    grpc_metadata_array_destroy(&call->initial_metadata);
    grpc_metadata_array_destroy(&call->trailing_metadata);
    grpc_slice_unref(call->status_details);
    gpr_free((void *)call->error_text);
    grpc_call_unref(call->core);
    call->core = NULL;
}

void call_abandon(struct rpc_call *call)
{
    pthread_mutex_lock(&call->lock);
    release_core(call);
    pthread_mutex_unlock(&call->lock);
    rpc_call_unref(call);
}

void rpc_call_ref(struct rpc_call *call)
{
    atomic_fetch_add_explicit(&call->references, 1, memory_order_relaxed);
}

void rpc_call_unref(struct rpc_call *call)
{
    if (atomic_fetch_sub_explicit(&call->references, 1, memory_order_acq_rel) != 1)
        return;
    ASSERT(!call->core);
    headers_deinit(&call->received_headers);
    pthread_mutex_destroy(&call->lock);
    free(call->end_message);
    free(call);
}

void rpc_call_set_context(struct rpc_call *call, void *context)
{
    atomic_store_explicit(&call->context, context, memory_order_release);
}

void *rpc_call_context(const struct rpc_call *call)
{
    return atomic_load_explicit(&call->context, memory_order_acquire);
}

uint64_t rpc_call_deadline_left_us(const struct rpc_call *call)
{
    if (call->deadline_us == UINT64_MAX)
        return UINT64_MAX;
    uint64_t now_us = clock_now_us();
    return now_us < call->deadline_us ? call->deadline_us - now_us : 0;
}

const char *rpc_call_peer(const struct rpc_call *call)
{
    return call->peer;
}

const char *rpc_call_metadata(const struct rpc_call *call, const char *key)
{
    return headers_get(&call->received_headers, key);
}

size_t rpc_call_metadata_count(const struct rpc_call *call, const char *key)
{
    return headers_count(&call->received_headers, key);
}

void call_start_batch(struct rpc_call *call, const grpc_op *ops, size_t count, struct tag *tag)
{
    call->pending++;
    tag_publish(tag);
    /* Core refuses only violations of its contract (two sends at once, illegal headers), which are
     * checked before. */
    grpc_call_error failure = grpc_call_start_batch(call->core, ops, count, tag, NULL);
    ASSERT(failure == GRPC_CALL_OK);
}

static void start_receive(struct rpc_call *call)
{
    grpc_op ops[2] = {{.op = GRPC_OP_RECV_MESSAGE}};
    size_t count = 1;
    ops[0].data.recv_message.recv_message = &call->received;
    if (!call->is_server && !call->received_count) {
        /* The headers come with the first message, so that they are there when it is handled. */
        ops[count].op = GRPC_OP_RECV_INITIAL_METADATA;
        ops[count++].data.recv_initial_metadata.recv_initial_metadata = &call->initial_metadata;
    }
    call_start_batch(call, ops, count, &call->received_tag);
}

void call_resume_reading(struct rpc_call *call)
{
    bool full = call->aside_bytes >= RPC_READ_AHEAD_BYTES && !call->silenced;
    if (!call->reading_paused || full || call->terminal)
        return;
    call->reading_paused = false;
    start_receive(call);
}

void rpc_call_put_aside(struct rpc_call *call, size_t size)
{
    pthread_mutex_lock(&call->lock);
    call->aside_bytes += size + CALL_MESSAGE_COST_BYTES;
    pthread_mutex_unlock(&call->lock);
}

void rpc_call_worked_off(struct rpc_call *call, size_t size)
{
    pthread_mutex_lock(&call->lock);
    ASSERT(call->aside_bytes >= size + CALL_MESSAGE_COST_BYTES);
    call->aside_bytes -= size + CALL_MESSAGE_COST_BYTES;
    call_resume_reading(call);
    pthread_mutex_unlock(&call->lock);
}

void call_begin_server(struct rpc_call *call, void *service)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op.data.recv_close_on_server.cancelled = &call->cancelled;
    pthread_mutex_lock(&call->lock);
    call_start_batch(call, &op, 1, &call->closed_tag);
    pthread_mutex_unlock(&call->lock);
    if (call->handlers.open)
        call->handlers.open(call, service);
    atomic_store(&call->silent_since_us, clock_now_us());
    pthread_mutex_lock(&call->lock);
    start_receive(call);
    pthread_mutex_unlock(&call->lock);
}

bool call_is_silent(struct rpc_call *call, uint64_t now_us, uint64_t limit_us)
{
    uint64_t since_us = atomic_load(&call->silent_since_us);
    if (!since_us || now_us < since_us + limit_us)
        return false;
    pthread_mutex_lock(&call->lock);
    bool ended = call->silenced || call->terminal;
    pthread_mutex_unlock(&call->lock);
    return !ended;
}

void call_end_silent(struct rpc_call *call, uint64_t limit_us)
{
    char sentence[80];
    snprintf(sentence, sizeof sentence, "no message came within %llu ms",
             (unsigned long long)(limit_us / 1000));
    rpc_call_finish(call, RPC_DEADLINE_EXCEEDED, "late_message", sentence);
}

void call_begin_client(struct rpc_call *call, bool wait_for_ready)
{
    grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    status.data.recv_status_on_client.trailing_metadata = &call->trailing_metadata;
    status.data.recv_status_on_client.status = &call->status;
    status.data.recv_status_on_client.status_details = &call->status_details;
    status.data.recv_status_on_client.error_string = &call->error_text;
    grpc_op headers = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    headers.data.send_initial_metadata.count = call->own_headers.count;
    headers.data.send_initial_metadata.metadata = call->own_headers.items;
    if (wait_for_ready)
        headers.flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY |
                        GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET;
    pthread_mutex_lock(&call->lock);
    call_start_batch(call, &status, 1, &call->closed_tag);
    call->headers_sent = true;
    call->sending = true;
    call_start_batch(call, &headers, 1, &call->sent_tag);
    start_receive(call);
    pthread_mutex_unlock(&call->lock);
}

/* --- events --- */

static void deliver_message(struct rpc_call *call, grpc_byte_buffer *buffer)
{
    pthread_mutex_lock(&call->lock);
    bool silenced = call->silenced;
    pthread_mutex_unlock(&call->lock);
    if (silenced)
        return;
    if (call->is_server && !call->client_streams && call->received_count > 1) {
        rpc_call_finish(call, RPC_INVALID_ARGUMENT, "surplus_message",
                        "this method takes exactly one request message, a second one came");
        return;
    }
    size_t size = grpc_byte_buffer_length(buffer);
    if (call->is_server && size > call->max_message_bytes) {
        char sentence[120];
        snprintf(sentence, sizeof sentence, "the message has %zu bytes, but the limit is %zu", size,
                 call->max_message_bytes);
        rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "message_too_large", sentence);
        return;
    }
    if (!call->handlers.message)
        return;
    grpc_byte_buffer_reader reader;
    grpc_slice *only;
    bool readable = grpc_byte_buffer_reader_init(&reader, buffer);
    ASSERT(readable); /* fails only on compressed messages, which are off */
    if (!size) {
        call->handlers.message(call, (struct rpc_bytes){"", 0});
    } else if (grpc_byte_buffer_reader_peek(&reader, &only) && GRPC_SLICE_LENGTH(*only) == size) {
        call->handlers.message(call, (struct rpc_bytes){GRPC_SLICE_START_PTR(*only), size});
    } else {
        grpc_byte_buffer_reader_destroy(&reader);
        readable = grpc_byte_buffer_reader_init(&reader, buffer);
        ASSERT(readable);
        grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
        call->handlers.message(call, (struct rpc_bytes){GRPC_SLICE_START_PTR(all), size});
        grpc_slice_unref(all);
    }
    grpc_byte_buffer_reader_destroy(&reader);
}

/* The client sends no more. On a cancelled call that isn't a half-close but the end, and `closed`
 * comes. (On a client the end of the messages is the end of the call.) */
static void deliver_half_close(struct rpc_call *call)
{
    if (!call->is_server || grpc_call_failed_before_recv_message(call->core))
        return;
    if (!call->client_streams && !call->received_count) {
        rpc_call_finish(call, RPC_INVALID_ARGUMENT, "missing_message",
                        "this method takes exactly one request message, none came");
        return;
    }
    pthread_mutex_lock(&call->lock);
    bool silenced = call->silenced;
    pthread_mutex_unlock(&call->lock);
    if (!silenced && call->handlers.half_close)
        call->handlers.half_close(call);
}

static void on_received(struct tag *tag, bool ok)
{
    (void)ok; /* a NULL buffer means that there is no message, for any reason */
    struct rpc_call *call = CONTAINER_OF(tag, struct rpc_call, received_tag);
    grpc_byte_buffer *buffer = call->received;
    call->received = NULL;
    atomic_store(&call->silent_since_us, 0);
    if (!call->is_server && !call->received_count)
        headers_read(&call->received_headers, &call->initial_metadata);
    if (buffer) {
        call->received_count++;
        deliver_message(call, buffer);
        grpc_byte_buffer_destroy(buffer);
    } else {
        deliver_half_close(call);
    }
    pthread_mutex_lock(&call->lock);
    call->pending--;
    /* Read to the end even when silenced: only then does core finish the call. */
    call->reading_paused = buffer != NULL;
    call_resume_reading(call);
    pthread_mutex_unlock(&call->lock);
    call_end_if_done(call);
}

static void on_closed(struct tag *tag, bool ok)
{
    (void)ok;
    struct rpc_call *call = CONTAINER_OF(tag, struct rpc_call, closed_tag);
    pthread_mutex_lock(&call->lock);
    call->pending--;
    call->terminal = true;
    pthread_mutex_unlock(&call->lock);
    call_end_if_done(call);
}

/* --- the end --- */

static void report_closed_server(struct rpc_call *call)
{
    struct rpc_end end = {RPC_CANCELLED, "", "the client cancelled or was lost", false};
    /* The client's timer runs out a moment before ours (and grpc-timeout is rounded up), so its
     * cancel comes first. Near the deadline a cancel is the deadline. */
    uint64_t near_us = 20000 + call->allowed_us / 64;
    if (!call->cancelled && call->status_accepted)
        end = (struct rpc_end){call->end_code, call->end_reason, call->end_message, false};
    else if (call->deadline_us != UINT64_MAX && rpc_call_deadline_left_us(call) <= near_us)
        end = (struct rpc_end){RPC_DEADLINE_EXCEEDED, "", "the client's deadline passed", false};
    call->handlers.closed(call, &end);
}

static void report_closed_client(struct rpc_call *call)
{
    struct headers trailers = {0};
    headers_read(&trailers, &call->trailing_metadata);
    char *message = grpc_slice_to_c_string(call->status_details);
    /* gRPC reports a refused connection in words only. A peer, or a proxy, may put the same words
     * in its status, but then the error's words name the peer. A refusal that isn't recognized
     * costs time and nothing else. */
    bool refused = call->status == GRPC_STATUS_UNAVAILABLE &&
                   strstr(message, strerror(ECONNREFUSED)) && call->error_text &&
                   !strstr(call->error_text, "Error received from peer");
    struct rpc_end end = {(enum rpc_code)call->status, headers_get(&trailers, "baton-reason"),
                          message, refused};
    call->handlers.closed(call, &end);
    gpr_free(message);
    headers_deinit(&trailers);
}

void call_end_if_done(struct rpc_call *call)
{
    pthread_mutex_lock(&call->lock);
    bool done = call->terminal && !call->pending;
    pthread_mutex_unlock(&call->lock);
    if (!done)
        return;
    /* From here on nothing can start a batch, so this was the last event. */
    if (call->handlers.closed && call->is_server)
        report_closed_server(call);
    else if (call->handlers.closed)
        report_closed_client(call);
    pthread_mutex_lock(&call->lock);
    release_core(call);
    pthread_mutex_unlock(&call->lock);
    call_set_remove(call->set, call);
    rpc_call_unref(call);
}
