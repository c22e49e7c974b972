/* Brings one rpc stream of protobuf messages onto the transfer thread. The rpc threads unpack each
 * message into an arena and post it; the handlers run on the transfer thread, in order: opened,
 * message..., ended. Session and Peer use it, on either side.
 *
 * A message that can't be unpacked, or that finds the inbox full, ends the stream: neither side
 * could know what the other meant. The stream is destroyed after `ended` returned; until then
 * stream_send may be called on the transfer thread.
 */
#ifndef BATON_WORKER_STREAM_H
#define BATON_WORKER_STREAM_H

#include "common/net/rpc/rpc.h"
#include "common/worker/transfer_loop.h"

#include <protobuf-c/protobuf-c.h>

struct stream;

struct stream_kind {
    const char *name;                           /* "session", for logs */
    const ProtobufCMessageDescriptor *incoming; /* type of the messages that arrive */
    /* On the transfer thread. The message is valid during the call. Only the serving side has
     * `opened`. */
    void (*opened)(struct stream *stream);
    void (*message)(struct stream *stream, const ProtobufCMessage *message);
    void (*ended)(struct stream *stream, const struct rpc_end *end);
};

/* A serving method's needs for its streams; `service` of the rpc_method points to it. */
struct stream_service {
    struct transfer_loop *loop;
    const struct stream_kind *kind;
    void *role; /* stream_role() of every stream */
};

/* Serving side: the handlers of an rpc_method with a struct stream_service as its service. */
extern const struct rpc_handlers stream_server_handlers;

/* Calling side: dials `path` on the channel. Transfer thread. `ended` is also called for a stream
 * that never connected. */
enum status stream_dial(const struct stream_service *service, struct rpc_channel *channel,
                        const char *path, void *context, struct stream **stream) WARN_UNUSED;

void *stream_role(const struct stream *stream);
void *stream_context(const struct stream *stream);
void stream_set_context(struct stream *stream, void *context);
const char *stream_peer(const struct stream *stream); /* address, for logs; serving side */

/* Queues one message. If the reader is too slow (the queue is full) or gone, the stream is
 * cancelled and `ended` follows. */
void stream_send(struct stream *stream, const ProtobufCMessage *message);
bool stream_flushed(const struct stream *stream); /* nothing waits to leave */
/* Serving side: ends the stream with a status. */
void stream_finish(struct stream *stream, enum rpc_code code, const char *reason, const char *text);
void stream_cancel(struct stream *stream);

#endif
