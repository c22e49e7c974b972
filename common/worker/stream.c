#include "common/worker/stream.h"

#include "common/base/arena.h"
#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/net/rpc/message.h"
#include "proto/proto_unpack.h"

#include <stdlib.h>

#define MODULE "stream"

/* Lives from open to `ended`. The rpc threads touch it until `closed`, the transfer thread from the
 * first message that they posted to the last one, the end. */
struct stream {
    struct stream_service service;
    struct rpc_call *call;
    void *context;
    bool unheard; /* its opening found the inbox full: the transfer thread doesn't know it */
};

struct stream_message {
    struct transfer_message base;
    struct stream *stream;
    struct arena arena;
    ProtobufCMessage *message;
};

struct stream_end {
    struct transfer_message base;
    struct stream *stream;
    enum rpc_code code;
    char reason[64], text[256];
    bool refused;
};

static void stream_destroy(struct stream *stream)
{
    rpc_call_unref(stream->call);
    free(stream);
}

/* ---------------------------------------------------------------- on rpc threads */

static void opened_deliver(struct transfer_message *base)
{
    struct stream_message *message = (struct stream_message *)base;
    message->stream->service.kind->opened(message->stream);
    free(message);
}

static void message_deliver(struct transfer_message *base)
{
    struct stream_message *message = (struct stream_message *)base;
    message->stream->service.kind->message(message->stream, message->message);
    arena_deinit(&message->arena);
    free(message);
}

static void message_drop(struct transfer_message *base)
{
    struct stream_message *message = (struct stream_message *)base;
    arena_deinit(&message->arena);
    free(message);
}

static void end_deliver(struct transfer_message *base)
{
    struct stream_end *end = (struct stream_end *)base;
    struct rpc_end ended = {end->code, end->reason, end->text, end->refused};
    end->stream->service.kind->ended(end->stream, &ended);
    stream_destroy(end->stream);
    free(end);
}

static void end_drop(struct transfer_message *base)
{
    struct stream_end *end = (struct stream_end *)base;
    stream_destroy(end->stream);
    free(end);
}

static struct stream_message *message_new(struct stream *stream, size_t arena_bytes)
{
    struct stream_message *message = calloc(1, sizeof *message);
    ASSERT(message);
    message->base.drop = message_drop;
    message->stream = stream;
    arena_init(&message->arena, arena_bytes);
    return message;
}

static bool message_post(struct rpc_call *call, struct stream_message *message)
{
    struct stream *stream = message->stream;
    enum status status = transfer_loop_post(stream->service.loop, &message->base);
    if (status == STATUS_OK)
        return true;
    if (status == STATUS_LIMIT)
        log_error_limited(
            MODULE, "stream=%s msg=\"the transfer thread is too far behind: the stream is ended\"",
            stream->service.kind->name);
    message_drop(&message->base);
    rpc_call_cancel(call);
    return false;
}

static struct stream *stream_new(const struct stream_service *service, void *context)
{
    struct stream *stream = calloc(1, sizeof *stream);
    ASSERT(stream);
    stream->service = *service;
    stream->context = context;
    return stream;
}

static void on_open(struct rpc_call *call, void *service)
{
    struct stream *stream = stream_new(service, NULL);
    rpc_call_ref(call);
    stream->call = call;
    rpc_call_set_context(call, stream);
    struct stream_message *message = message_new(stream, 0);
    message->base.deliver = opened_deliver;
    stream->unheard = !message_post(call, message);
}

static void on_message(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct stream *stream = rpc_call_context(call);
    struct stream_message *message = message_new(stream, proto_arena_bytes(bytes.size));
    message->base.deliver = message_deliver;
    struct error err;
    enum status status = proto_unpack(stream->service.kind->incoming, bytes.data, bytes.size,
                                      &message->arena, &message->message, &err);
    if (status == STATUS_OK) {
        message_post(call, message);
        return;
    }
    char quoted[256];
    log_error_limited(MODULE,
                      "stream=%s why=%s msg=\"a message could not be read: the stream is ended\"",
                      stream->service.kind->name, log_quote(err.text, quoted, sizeof quoted));
    message_drop(&message->base);
    rpc_call_cancel(call);
}

static void on_closed(struct rpc_call *call, const struct rpc_end *end)
{
    struct stream *stream = rpc_call_context(call);
    if (stream->unheard) { /* so the ends that must fit are no more than the streams */
        stream_destroy(stream);
        return;
    }
    struct stream_end *message = calloc(1, sizeof *message);
    ASSERT(message);
    message->base = (struct transfer_message){end_deliver, end_drop};
    message->stream = stream;
    message->code = end->code;
    message->refused = end->refused;
    str_copy(message->reason, sizeof message->reason, end->reason);
    str_copy(message->text, sizeof message->text, end->message);
    transfer_loop_post_end(stream->service.loop, &message->base);
}

/* The other side sends no more: for these streams that is the end. */
static void on_half_close(struct rpc_call *call)
{
    rpc_call_finish(call, RPC_OK, NULL, NULL);
}

const struct rpc_handlers stream_server_handlers = {
    .open = on_open, .message = on_message, .half_close = on_half_close, .closed = on_closed};
static const struct rpc_handlers client_handlers = {.message = on_message, .closed = on_closed};

/* ---------------------------------------------------------------- on the transfer thread */

enum status stream_dial(const struct stream_service *service, struct rpc_channel *channel,
                        const char *path, void *context, struct stream **out)
{
    struct stream *stream = stream_new(service, context);
    enum status status =
        rpc_call_start(channel, path, &client_handlers, stream, 0, false, &stream->call);
    if (status != STATUS_OK) {
        free(stream);
        return status;
    }
    *out = stream;
    return STATUS_OK;
}

void *stream_role(const struct stream *stream)
{
    return stream->service.role;
}

void *stream_context(const struct stream *stream)
{
    return stream->context;
}

void stream_set_context(struct stream *stream, void *context)
{
    stream->context = context;
}

const char *stream_peer(const struct stream *stream)
{
    return rpc_call_peer(stream->call);
}

void stream_send(struct stream *stream, const ProtobufCMessage *message)
{
    enum status status = rpc_call_send_message(stream->call, message);
    if (status == STATUS_LIMIT) {
        log_error_limited(MODULE,
                          "stream=%s peer=%s msg=\"the reader is too slow: the stream is ended\"",
                          stream->service.kind->name, rpc_call_peer(stream->call));
        rpc_call_cancel(stream->call);
    }
}

bool stream_flushed(const struct stream *stream)
{
    return rpc_call_queued_bytes(stream->call) == 0;
}

void stream_finish(struct stream *stream, enum rpc_code code, const char *reason, const char *text)
{
    rpc_call_finish(stream->call, code, reason, text);
}

void stream_cancel(struct stream *stream)
{
    rpc_call_cancel(stream->call);
}
