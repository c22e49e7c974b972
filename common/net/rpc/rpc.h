/* Remote calls as Baton sees them: servers with methods, channels with calls, and messages as byte
 * strings in both directions. What carries them (gRPC core) is known to common/net/rpc/grpc/ alone.
 *
 * Threads: rpc_runtime owns a few rpc threads. Handlers run on them, one at a time for each call
 * and in order (open, message..., half_close, closed); they must not block: they translate and post
 * to a ring. Every function below may be called from any thread.
 *
 * Life of a call: `struct rpc_call` lives until its `closed` handler returned AND the owner's
 * reference is given back. rpc_call_ref/unref let another thread keep it; operations on a call that
 * has ended fail with STATUS_CANCELLED and are otherwise harmless. `closed` comes exactly once, on
 * both sides, whatever happened: status, cancel, deadline, lost peer.
 *
 * Sending never blocks: messages queue at the call, bounded by `max_queued_bytes`; one more fails
 * with STATUS_LIMIT (a reader that is too slow), and the owner decides.
 */
#ifndef BATON_NET_RPC_RPC_H
#define BATON_NET_RPC_RPC_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct certificates; /* common/net/crypto/certificates.h */
struct rpc_runtime;
struct rpc_server;
struct rpc_channel;
struct rpc_call;

/* gRPC's status codes, on the wire and to clients. */
enum rpc_code {
    RPC_OK = 0,
    RPC_CANCELLED = 1,
    RPC_UNKNOWN = 2,
    RPC_INVALID_ARGUMENT = 3,
    RPC_DEADLINE_EXCEEDED = 4,
    RPC_NOT_FOUND = 5,
    RPC_ALREADY_EXISTS = 6,
    RPC_PERMISSION_DENIED = 7,
    RPC_RESOURCE_EXHAUSTED = 8,
    RPC_FAILED_PRECONDITION = 9,
    RPC_ABORTED = 10,
    RPC_OUT_OF_RANGE = 11,
    RPC_UNIMPLEMENTED = 12,
    RPC_INTERNAL = 13,
    RPC_UNAVAILABLE = 14,
    RPC_DATA_LOSS = 15,
    RPC_UNAUTHENTICATED = 16,
};
const char *rpc_code_name(enum rpc_code code); /* "OK", "INVALID_ARGUMENT", ... */

struct rpc_bytes {
    const void *data; /* valid during the handler */
    size_t size;
};

/* How a call ended. `reason` is our stable code ("context_length_exceeded"), sent as trailing
 * metadata `baton-reason`; "" where there was none. `message` is the sentence. Both valid during
 * the handler. */
struct rpc_end {
    enum rpc_code code;
    const char *reason;
    const char *message;
    /* Client: no connection could be made, and the latest try that gRPC remembers, which may be
     * older than the call, was refused by the machine. False says nothing. */
    bool refused;
};

struct rpc_handlers {
    /* Server: a call came in. May set the call's context (rpc_call_set_context). Client: not
     * used. */
    void (*open)(struct rpc_call *call, void *service);
    /* One message arrived. A unary call gets exactly one. */
    void (*message)(struct rpc_call *call, struct rpc_bytes bytes);
    /* Server: the client sends no more messages (optional). Client: not used, `closed` tells it. */
    void (*half_close)(struct rpc_call *call);
    /* The call is over: server: the status was sent, or the client left / its deadline passed (code
     * CANCELLED or DEADLINE_EXCEEDED); client: the status arrived. */
    void (*closed)(struct rpc_call *call, const struct rpc_end *end);
};

struct rpc_method {
    const char *path; /* "/baton.v1.Baton/Generate" */
    struct rpc_handlers handlers;
    void *service; /* given to open */
    /* The client may send any number of messages. Otherwise exactly one: none, or a second, ends
     * the call with INVALID_ARGUMENT, and the handler never sees more than one. */
    bool client_streams;
};

struct rpc_metadata {
    const char *key, *value; /* lower-case key, printable ASCII value */
};

/* How the connections of a server or channel are encrypted: TLS 1.2 or 1.3, with the files' current
 * content each time that one is made. Connections that are open go on with what they have. Zeroed:
 * in the clear. */
struct rpc_tls {
    /* Outlives the server or channel. A server needs a certificate, and with a CA it insists on one
     * of the client's that the CA has signed. A channel's CA (none: the machine's own) is what the
     * server's certificate must be signed by. */
    struct certificates *certificates;
    /* DNS name that the other side's certificate must hold. "" or NULL: of a channel, the host of
     * `target`; of a server, any. */
    const char *peer_name;
};

/* --- runtime --- */
/* 1 to 64 threads. A call stays with one of them. STATUS_INVALID otherwise; STATUS_IO: no thread to
 * be had. */
enum status rpc_runtime_create(uint32_t threads, struct rpc_runtime **runtime,
                               struct error *err) WARN_UNUSED;
/* All servers and channels must be destroyed before. */
void rpc_runtime_destroy(struct rpc_runtime *runtime);

/* --- server --- */
/* What it points to (methods' paths and services too) must outlive the server. */
#define RPC_FAIR_BYTES 65536u
#define RPC_MAX_METADATA_BYTES                                                                     \
    16384 /* request headers of a call; more end it with RESOURCE_EXHAUSTED */
struct rpc_server_config {
    const char *listen; /* "host:port"; port 0: any free one */
    struct rpc_tls
        tls; /* a client without the right certificate gets no further than the handshake; one whose certificate has
                         * another name: UNAUTHENTICATED, `wrong_peer` */
    size_t
        max_message_bytes; /* of a received message; a larger one ends the call with RESOURCE_EXHAUSTED,
                               * `message_too_large` (from twice the size on without a reason, and unread). 0: 4 MiB */
    size_t max_queued_bytes; /* unsent, per call. 0: 4 MiB */
    size_t
        max_queued_total_bytes; /* unsent, of all calls; those with less than RPC_FAIR_BYTES are not held to it.
                                    * 0: no limit but those of the calls */
    size_t
        max_receive_memory_bytes; /* of connections and messages on their way in; beyond it calls are cut off, whosever they are.
                                      * 0: 512 MiB */
    bool keyless;           /* it asks nobody for a key: said where other machines reach it */
    size_t max_calls;       /* at once; one more ends with RESOURCE_EXHAUSTED. 0: 16384 */
    size_t max_connections; /* at once; one more is closed at once. 0: 4096 */
    uint64_t keepalive_us;  /* 0: off; a silent peer is found after keepalive + 2 s */
    /* A call whose first message is not here, whole, after so long ends with DEADLINE_EXCEEDED,
     * `late_message`; `late` (may be NULL) is called just before, on a thread of the server's, and
     * must not block nor touch calls. 0: no limit. */
    uint64_t first_message_us;
    void (*late)(void *context);
    void *late_context;
    const struct rpc_method *methods;
    size_t method_count;
    /* Health (grpc.health.v1) and reflection (v1, v1alpha) are served by every server. Services are
     * listed by name; descriptors: serialized FileDescriptorSets (protoc --descriptor_set_out
     * --include_imports). */
    const char *const *services;
    size_t service_count;
    const struct rpc_bytes *descriptors;
    size_t descriptor_count;
};
/* STATUS_INVALID: not "host:port"; STATUS_IO: can't listen there (in use, not our address). */
enum status rpc_server_start(struct rpc_runtime *runtime, const struct rpc_server_config *config,
                             struct rpc_server **server, struct error *err) WARN_UNUSED;
const char *
rpc_server_address(const struct rpc_server *server); /* "127.0.0.1:43211", with the real port */
/* Health: SERVING or NOT_SERVING for every service name and "". Starts as NOT_SERVING. Watchers are
 * told. */
void rpc_server_set_serving(struct rpc_server *server, bool serving);
/* Stops accepting, ends health watches, waits up to grace_us for calls to end, cancels the rest,
 * waits for them (their `closed` handlers have returned). Frees the server. Not from an rpc
 * thread. */
void rpc_server_stop(struct rpc_server *server, uint64_t grace_us);

/* What `listen` may be: STATUS_INVALID with a sentence if it is no "host:port". */
enum status rpc_check_listen(const char *listen, struct error *err) WARN_UNUSED;

/* --- client --- */
/* What `target` may be: "host:port" that can be dialled, so with a host, and not with port 0. */
enum status rpc_check_target(const char *target, struct error *err) WARN_UNUSED;

struct rpc_channel_config {
    const char *target; /* "host:port" */
    struct rpc_tls tls;
    size_t max_message_bytes, max_queued_bytes; /* as in rpc_server_config */
    uint64_t keepalive_us; /* 0: off; a silent peer is found after keepalive + 2 s */
};
enum status rpc_channel_create(struct rpc_runtime *runtime, const struct rpc_channel_config *config,
                               struct rpc_channel **channel, struct error *err) WARN_UNUSED;
/* Cancels its calls; returns after the last `closed` handler. Not from an rpc thread. */
void rpc_channel_destroy(struct rpc_channel *channel);

/* Starts a call; deadline_us is relative, 0: none (long-lived streams only). Handlers: message,
 * closed. On success the caller holds a reference (rpc_call_unref when done); `closed` will come,
 * and may come before this returns: *call is set before the first handler runs. wait_for_ready:
 * queue until connected instead of failing at once with UNAVAILABLE. STATUS_CANCELLED: the channel
 * is being destroyed. */
enum status rpc_call_start(struct rpc_channel *channel, const char *path,
                           const struct rpc_handlers *handlers, void *context, uint64_t deadline_us,
                           bool wait_for_ready, struct rpc_call **call) WARN_UNUSED;
/* The same with request headers, which leave at once (so that a server may speak first). All
 * strings are copied. STATUS_INVALID: a header that HTTP/2 can't carry. */
struct rpc_call_options {
    const char *path;
    struct rpc_handlers handlers;
    void *context;
    uint64_t deadline_us;
    bool wait_for_ready;
    const struct rpc_metadata *metadata;
    size_t metadata_count; /* at most RPC_MAX_METADATA */
};
#define RPC_MAX_METADATA 8
enum status rpc_call_start_with(struct rpc_channel *channel, const struct rpc_call_options *options,
                                struct rpc_call **call) WARN_UNUSED;

/* --- both sides --- */
void rpc_call_ref(struct rpc_call *call);
void rpc_call_unref(struct rpc_call *call);
void rpc_call_set_context(struct rpc_call *call, void *context);
void *rpc_call_context(const struct rpc_call *call);
/* Queues one message; it leaves in order. Each counts its size and 128 bytes towards
 * max_queued_bytes until it has entered the connection. STATUS_LIMIT: the queue is full (the call
 * goes on); STATUS_CANCELLED: the call ended, finished or half-closed. */
enum status rpc_call_send(struct rpc_call *call, const void *data, size_t size) WARN_UNUSED;
/* The same without a copy: `pack` writes the `size` bytes of `source` straight into the transport's
 * memory, before this returns. common/net/rpc/message.h sends protobuf messages with it. */
enum status rpc_call_send_packed(struct rpc_call *call, size_t size,
                                 void (*pack)(void *target, const void *source),
                                 const void *source) WARN_UNUSED;
size_t rpc_call_queued_bytes(struct rpc_call *call);
/* Handlers that pass messages on to another thread say how much lies there: while that is
 * RPC_READ_AHEAD_BYTES or more, nothing further is read from this call, so that the other side is
 * slowed by HTTP/2's flow control. put_aside: in the `message` handler; worked_off: from any
 * thread, with a reference held. Each message counts 128 bytes more than its size. */
#define RPC_READ_AHEAD_BYTES (256u << 10)
void rpc_call_put_aside(struct rpc_call *call, size_t size);
void rpc_call_worked_off(struct rpc_call *call, size_t size);
/* Client: no more messages from us. */
void rpc_call_half_close(struct rpc_call *call);
/* Client: end it now (the server sees a cancel). Server: end it with RPC_CANCELLED, dropping what
 * is queued. Messages that arrive later are dropped; `closed` comes. */
void rpc_call_cancel(struct rpc_call *call);
/* Server: sends what is queued, then the status. The first finish counts. reason and message may be
 * NULL; reason is printable ASCII, message is cut to 1 KiB. Messages that arrive later are dropped;
 * `closed` comes. */
void rpc_call_finish(struct rpc_call *call, enum rpc_code code, const char *reason,
                     const char *message);
/* Server: ends the call at once, although its client doesn't read, so that no status behind queued
 * messages would reach it: what is queued is dropped. The client gets code and message where it
 * reads at all, without a reason. `closed` comes. */
void rpc_call_break(struct rpc_call *call, enum rpc_code code, const char *message);
/* Server: drops what is queued but not on its way, as before a finish with an error. */
void rpc_call_drop_queued(struct rpc_call *call);
/* Server, before finish: adds a header that goes with the status. Fails as rpc_call_add_metadata
 * does. */
enum status rpc_call_add_trailer(struct rpc_call *call, const char *key,
                                 const char *value) WARN_UNUSED;
/* Remaining time until the call's deadline (UINT64_MAX: none), the peer's address
 * ("127.0.0.1:4321"; "" on a client), and one metadata value ("" if absent; lower-case key; valid
 * as long as the call). Metadata on a server: request headers; on a client: response headers, from
 * the first message or `closed` on. */
uint64_t rpc_call_deadline_left_us(const struct rpc_call *call);
const char *rpc_call_peer(const struct rpc_call *call);
const char *rpc_call_metadata(const struct rpc_call *call, const char *key);
/* Server, before the first send: adds a response header. STATUS_INVALID: HTTP/2 can't carry it;
 * STATUS_LIMIT: more than RPC_MAX_METADATA; STATUS_CANCELLED: too late, headers left. */
enum status rpc_call_add_metadata(struct rpc_call *call, const char *key,
                                  const char *value) WARN_UNUSED;

#endif
