#include "common/base/assert.h"
#include "common/net/rpc/grpc/call.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SENTENCE_BYTES 1024

static void take_cost(struct rpc_call *call, size_t cost_bytes)
{
    call->queued_bytes -= cost_bytes;
    if (call->budget)
        atomic_fetch_sub(&call->budget->used_bytes, cost_bytes);
}

/* The batch that was out has entered the connection. */
static void note_sent(struct rpc_call *call)
{
    call->pending--;
    call->sending = false;
    take_cost(call, call->in_flight_bytes);
    call->in_flight_bytes = 0;
}

/* Most often core has completed a batch when it has taken it. Returns whether it has and the call
 * goes on: then no other thread is woken for the event. */
static bool start_sending(struct rpc_call *call, const grpc_op *ops, size_t count)
{
    bool ok;
    call->sending = true;
    tag_catch_begin(call->queue);
    call_start_batch(call, ops, count, &call->sent_tag);
    struct tag *tag = tag_catch_end(call->queue, &ok);
    if (tag == &call->sent_tag && ok && !call->terminal)
        return true;
    if (tag)
        tag_put_back(tag, ok, call->core);
    return false;
}

struct send_batch {
    grpc_op ops[3];
    size_t count;
    grpc_byte_buffer *body; /* NULL: no message goes */
    grpc_slice sentence;    /* the status' message */
};

static void add_end(struct rpc_call *call, struct send_batch *batch)
{
    grpc_op *op = &batch->ops[batch->count++];
    call->end_sent = true;
    op->op = call->is_server ? GRPC_OP_SEND_STATUS_FROM_SERVER : GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    if (!call->is_server)
        return;
    batch->sentence = grpc_slice_from_copied_string(call->end_message);
    op->data.send_status_from_server.status = (grpc_status_code)call->end_code;
    op->data.send_status_from_server.status_details = &batch->sentence;
    op->data.send_status_from_server.trailing_metadata_count = call->trailers.count;
    op->data.send_status_from_server.trailing_metadata = call->trailers.items;
}

static void drop_first(struct rpc_call *call)
{
    struct outgoing *head = call->first;
    call->first = head->next;
    grpc_slice_unref(head->slice);
    free(head);
}

/* Sends all that may leave now in one batch: headers, one message (core allows no second), and
 * behind the last one the end. Returns whether it has left, and there may be more. */
static bool send_batch(struct rpc_call *call)
{
    struct send_batch batch = {.sentence = grpc_empty_slice()};
    bool ends = call->end_wanted && !call->end_sent && (!call->first || !call->first->next);
    if (call->sending || call->terminal || call->send_broken || (!call->first && !ends))
        return false;
    if (!call->headers_sent) {
        grpc_op *op = &batch.ops[batch.count++];
        op->op = GRPC_OP_SEND_INITIAL_METADATA;
        op->data.send_initial_metadata.count = call->own_headers.count;
        op->data.send_initial_metadata.metadata = call->own_headers.items;
        call->headers_sent = true;
    }
    if (call->first) {
        grpc_op *op = &batch.ops[batch.count++];
        batch.body = grpc_raw_byte_buffer_create(&call->first->slice, 1);
        op->op = GRPC_OP_SEND_MESSAGE;
        op->data.send_message.send_message = batch.body;
        call->in_flight_bytes = call->first->cost_bytes;
    }
    if (ends)
        add_end(call, &batch);
    bool sent = start_sending(call, batch.ops, batch.count);
    if (batch.body) {
        grpc_byte_buffer_destroy(batch.body); /* core took its slices */
        drop_first(call);
    }
    grpc_slice_unref(batch.sentence);
    if (sent)
        note_sent(call);
    if (sent && call->is_server && call->end_sent)
        call->status_accepted = true;
    return sent;
}

void call_pump(struct rpc_call *call)
{
    while (send_batch(call))
        ;
}

void call_on_sent(struct tag *tag, bool ok)
{
    struct rpc_call *call = CONTAINER_OF(tag, struct rpc_call, sent_tag);
    pthread_mutex_lock(&call->lock);
    note_sent(call);
    if (ok) {
        call->status_accepted = call->is_server && call->end_sent;
        call_pump(call);
    } else {
        call->send_broken = true;
        call_drop_queue(call);
        grpc_call_cancel(call->core, NULL); /* most likely ended already; never left half alive */
    }
    pthread_mutex_unlock(&call->lock);
    call_end_if_done(call);
}

void call_drop_queue(struct rpc_call *call)
{
    while (call->first) {
        take_cost(call, call->first->cost_bytes);
        drop_first(call);
    }
}

static enum status enqueue(struct rpc_call *call, size_t size,
                           void (*pack)(void *target, const void *source), const void *source)
{
    if (call->terminal || call->send_broken || call->end_wanted || call->silenced)
        return STATUS_CANCELLED;
    size_t cost_bytes = size + CALL_MESSAGE_COST_BYTES;
    if (cost_bytes < size || cost_bytes > call->max_queued_bytes - call->queued_bytes)
        return STATUS_LIMIT;
    /* When all calls together have too many unsent bytes, calls that queue much are stopped. Calls
     * with a client that reads go on. */
    struct send_budget *budget = call->budget;
    if (budget && call->queued_bytes + cost_bytes > RPC_FAIR_BYTES &&
        atomic_load(&budget->used_bytes) + cost_bytes > budget->limit_bytes)
        return STATUS_LIMIT;
    struct outgoing *message = malloc(sizeof *message);
    ASSERT(message);
    grpc_slice slice = grpc_slice_malloc(size);
    if (size)
        pack(GRPC_SLICE_START_PTR(slice), source);
    *message = (struct outgoing){.slice = slice, .cost_bytes = cost_bytes};
    if (call->first)
        call->last->next = message;
    else
        call->first = message;
    call->last = message;
    call->queued_bytes += cost_bytes;
    if (budget)
        atomic_fetch_add(&budget->used_bytes, cost_bytes);
    call_pump(call);
    return STATUS_OK;
}

enum status rpc_call_send_packed(struct rpc_call *call, size_t size,
                                 void (*pack)(void *target, const void *source), const void *source)
{
    pthread_mutex_lock(&call->lock);
    enum status status = enqueue(call, size, pack, source);
    pthread_mutex_unlock(&call->lock);
    return status;
}

static void copy_bytes(void *target, const void *source)
{
    const struct rpc_bytes *bytes = source;
    memcpy(target, bytes->data, bytes->size);
}

enum status rpc_call_send(struct rpc_call *call, const void *data, size_t size)
{
    struct rpc_bytes bytes = {data, size};
    return rpc_call_send_packed(call, size, copy_bytes, &bytes);
}

size_t rpc_call_queued_bytes(struct rpc_call *call)
{
    pthread_mutex_lock(&call->lock);
    size_t queued_bytes = call->queued_bytes;
    pthread_mutex_unlock(&call->lock);
    return queued_bytes;
}

/* `late`: the headers or trailers have left. With call->lock held. */
static enum status add_header(const struct rpc_call *call, bool late, struct header_list *list,
                              const struct rpc_metadata *header)
{
    ASSERT(call->is_server);
    return late || call->terminal || !call->core
               ? STATUS_CANCELLED
               : header_list_add(list, header->key, header->value);
}

enum status rpc_call_add_metadata(struct rpc_call *call, const char *key, const char *value)
{
    pthread_mutex_lock(&call->lock);
    enum status status = add_header(call, call->headers_sent, &call->own_headers,
                                    &(struct rpc_metadata){key, value});
    pthread_mutex_unlock(&call->lock);
    return status;
}

enum status rpc_call_add_trailer(struct rpc_call *call, const char *key, const char *value)
{
    pthread_mutex_lock(&call->lock);
    enum status status =
        add_header(call, call->end_wanted, &call->trailers, &(struct rpc_metadata){key, value});
    pthread_mutex_unlock(&call->lock);
    return status;
}

void rpc_call_half_close(struct rpc_call *call)
{
    ASSERT(!call->is_server);
    pthread_mutex_lock(&call->lock);
    call->end_wanted = true;
    call_pump(call);
    pthread_mutex_unlock(&call->lock);
}

/* Returns a copy, cut between characters: a header block of HTTP/2 has little room. */
static char *copy_message(const char *source)
{
    size_t length = strnlen(source, MAX_SENTENCE_BYTES);
    if (length == MAX_SENTENCE_BYTES)
        for (length--; length && ((unsigned char)source[length] & 0xc0) == 0x80;)
            length--;
    char *copy = strndup(source, length);
    ASSERT(copy);
    return copy;
}

void rpc_call_finish(struct rpc_call *call, enum rpc_code code, const char *reason,
                     const char *message)
{
    ASSERT(call->is_server);
    pthread_mutex_lock(&call->lock);
    if (!call->end_wanted && !call->terminal) {
        call->end_wanted = true;
        call->silenced = true;
        call->end_code = code;
        call->end_message = copy_message(message ? message : "");
        if (reason && *reason && strlen(reason) < sizeof call->end_reason &&
            header_list_add(&call->trailers, "baton-reason", reason) == STATUS_OK)
            memcpy(call->end_reason, reason, strlen(reason) + 1);
        call_pump(call);
        call_resume_reading(call);
    }
    pthread_mutex_unlock(&call->lock);
}

void rpc_call_cancel(struct rpc_call *call)
{
    pthread_mutex_lock(&call->lock);
    if (!call->terminal) {
        call->silenced = true;
        call_drop_queue(call);
        call_resume_reading(call);
        if (call->is_server)
            grpc_call_cancel_with_status(call->core, GRPC_STATUS_CANCELLED,
                                         "cancelled by the server", NULL);
        else
            grpc_call_cancel(call->core, NULL);
    }
    pthread_mutex_unlock(&call->lock);
}

void rpc_call_break(struct rpc_call *call, enum rpc_code code, const char *message)
{
    ASSERT(call->is_server && code != RPC_OK);
    pthread_mutex_lock(&call->lock);
    if (!call->terminal) {
        call->silenced = true;
        call_drop_queue(call);
        call_resume_reading(call);
        grpc_call_cancel_with_status(call->core, (grpc_status_code)code, message, NULL);
    }
    pthread_mutex_unlock(&call->lock);
}

void rpc_call_drop_queued(struct rpc_call *call)
{
    pthread_mutex_lock(&call->lock);
    if (!call->end_wanted) /* otherwise the status may be on its way behind them */
        call_drop_queue(call);
    pthread_mutex_unlock(&call->lock);
}
