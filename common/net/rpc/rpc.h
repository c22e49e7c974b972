/* Remote calls: servers with methods, channels with calls, and messages as byte strings in both
 * directions. gRPC core carries them, and only common/net/rpc/grpc/ knows it.
 *
 * Threads: rpc_runtime owns a few rpc threads. Handlers run on them, one at a time for each call
 * and in order (open, message..., half_close, closed). They must not block: they translate and post
 * to a ring. Any thread may call the functions below unless a comment says otherwise.
 *
 * Life of a call: `struct rpc_call` lives until its `closed` handler has returned and the owner's
 * reference is given back. With rpc_call_ref another thread keeps it. Operations on a call that has
 * ended fail with STATUS_CANCELLED and do nothing. `closed` comes exactly once, on both sides, at
 * every end: status, cancel, deadline, lost peer.
 *
 * Sending never blocks. Messages queue at the call, bounded by `max_queued_bytes`. One more fails
 * with STATUS_LIMIT (the reader is too slow), and the owner decides.
 */
#ifndef BATON_NET_RPC_RPC_H
#define BATON_NET_RPC_RPC_H

#include "common/base/status.h"
#include "common/net/rpc/frame_gate.h"

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
 * metadata `baton-reason`; "": none. `message` is the sentence. Both are valid during the
 * handler. */
struct rpc_end {
    enum rpc_code code;
    const char *reason;
    const char *message;
    /* Client: no connection could be made, and the machine refused the latest attempt that gRPC
     * remembers, which may be older than the call. False: unknown. */
    bool refused;
};

struct rpc_handlers {
    /* Server: a call came in. May set its context (rpc_call_set_context). Client: not used. */
    void (*open)(struct rpc_call *call, void *service);
    /* One message arrived. A unary call gets exactly one. */
    void (*message)(struct rpc_call *call, struct rpc_bytes bytes);
    /* Server: the client sends no more messages (optional). Client: not used; `closed` comes. */
    void (*half_close)(struct rpc_call *call);
    /* The call is over. Server: the status was sent, or the client left (CANCELLED), or its
     * deadline passed (DEADLINE_EXCEEDED). Client: the status arrived. */
    void (*closed)(struct rpc_call *call, const struct rpc_end *end);
};

struct rpc_method {
    const char *path; /* "/baton.v1.Baton/Generate" */
    struct rpc_handlers handlers;
    void *service; /* given to open */
    /* True: the client may send any number of messages. False: exactly one. None, or a second one,
     * ends the call with INVALID_ARGUMENT, and the handler never gets a second. */
    bool client_streams;
};

struct rpc_metadata {
    const char *key, *value; /* lower-case key, printable ASCII value */
};

/* The TLS (1.2 or 1.3) of a server's or channel's connections. Each new connection uses the
 * files' current content. Open connections keep what they have. Zeroed: no TLS. */
struct rpc_tls {
    /* Outlives the server or channel. A server needs a certificate. With a CA it requires a
     * client's certificate that the CA has signed. A channel's CA must have signed the server's
     * certificate; without one, a CA of this machine must have. */
    struct certificates *certificates;
    /* A DNS name that the other side's certificate must hold. "" and NULL: the host of `target` for
     * a channel, any name for a server. */
    const char *peer_name;
};

/* --- runtime --- */
/* Starts `threads` threads, 1 to 64. A call stays with one of them. STATUS_INVALID: another number.
 * STATUS_IO: the system gives no thread. */
enum status rpc_runtime_create(uint32_t threads, struct rpc_runtime **runtime,
                               struct error *err) WARN_UNUSED;
/* All servers and channels must be destroyed before. */
void rpc_runtime_destroy(struct rpc_runtime *runtime);

/* --- server --- */
/* Unsent bytes that a call may have although all calls together have too many. */
#define RPC_FAIR_BYTES 65536u
/* Request headers of a call. More end it with RESOURCE_EXHAUSTED. */
#define RPC_MAX_METADATA_BYTES 16384
/* File descriptors of a connection: its socket, and the pair between the frame gate and gRPC
 * core. */
#define RPC_CONNECTION_DESCRIPTORS 3
/* File descriptors of a frame gate for each rpc thread: its events, and what wakes it. */
#define RPC_GATE_DESCRIPTORS 2

/* A frame gate between a server's connections and gRPC core (frame_gate.h), for a port that
 * strangers can reach. It ends the TLS. It costs a copy of each byte and two descriptors. */
struct rpc_gate {
    bool on;
    uint64_t handshake_us;      /* TLS and HTTP/2's beginning. 0: 10 s */
    uint64_t first_call_us;     /* 0: 60 s */
    uint64_t idle_us;           /* without a call. 0: no limit */
    uint64_t stall_us;          /* bytes wait, and the client takes none of them. 0: 60 s */
    size_t address_connections; /* at once from one peer address. 0: no limit */
    uint64_t penalty_us;        /* so long a flood costs its address a part of that share */
    /* Open calls of one peer address, on all its connections. More are refused with
     * RESOURCE_EXHAUSTED, `too_many_calls`. While it has half as many more, which don't read that,
     * nothing further is read from the address. 0: half of max_calls. */
    size_t address_calls;
    /* Bytes of messages that aren't whole, on all connections. The connections of an address end
     * that has more of them than it leaves free (fair_share_holds). 0: max_receive_memory_bytes. */
    size_t upload_bytes;
    const char *uncounted; /* addresses without these limits (peer_ranges_parse). NULL: none */
    /* A connection was ended, for this reason (may be NULL). Any thread; must not block. */
    void (*ended)(void *context, enum frame_gate_end end);
    void *context;
};

/* All that it points to (also the methods' paths and services) must outlive the server. */
struct rpc_server_config {
    const char *listen; /* "host:port"; port 0: any free one */
    /* A client without the right certificate fails in the handshake. One with a certificate that
     * holds another name gets UNAUTHENTICATED, `wrong_peer`. */
    struct rpc_tls tls;
    struct rpc_gate gate; /* if it is on, tls.peer_name is NULL */
    /* One received message. A larger one ends the call with RESOURCE_EXHAUSTED,
     * `message_too_large`; from twice the size on without a reason, and unread. 0: 4 MiB. */
    size_t max_message_bytes;
    size_t max_queued_bytes; /* unsent, per call. 0: 4 MiB */
    /* Unsent, all calls together. Calls with less than RPC_FAIR_BYTES are exempt. 0: no limit
     * except the one per call. */
    size_t max_queued_total_bytes;
    /* Connections and incoming messages. Beyond it calls are cut off, whichever they are; a gate
     * keeps each address from going there alone. 0: 512 MiB. */
    size_t max_receive_memory_bytes;
    bool keyless; /* no API key is asked for: logged if other machines reach the server */
    /* At once; one more ends with RESOURCE_EXHAUSTED. 0: 16384. With a gate as many again are taken
     * from addresses within their share (gate.address_calls). */
    size_t max_calls;
    size_t max_connections; /* at once; one more is closed at once. 0: 4096 */
    uint64_t keepalive_us;  /* 0: off; a silent peer is found after keepalive + 2 s */
    /* A call without its whole first message after this time ends with DEADLINE_EXCEEDED,
     * `late_message`. 0: no limit. `late` (may be NULL) is called just before, on a thread of the
     * server, and must not block nor touch calls. */
    uint64_t first_message_us;
    void (*late)(void *context);
    void *late_context;
    const struct rpc_method *methods;
    size_t method_count;
    /* Every server serves health (grpc.health.v1) and reflection (v1, v1alpha). They list services
     * by name, and descriptors: serialized FileDescriptorSets (protoc --descriptor_set_out
     * --include_imports). */
    const char *const *services;
    size_t service_count;
    const struct rpc_bytes *descriptors;
    size_t descriptor_count;
};
/* STATUS_INVALID: `listen` isn't "host:port". STATUS_IO: the address is in use, or isn't this
 * machine's. */
enum status rpc_server_start(struct rpc_runtime *runtime, const struct rpc_server_config *config,
                             struct rpc_server **server, struct error *err) WARN_UNUSED;
/* Returns "127.0.0.1:43211", with the real port. */
const char *rpc_server_address(const struct rpc_server *server);
/* Sets the health of every service name and "": SERVING or NOT_SERVING, as at the start. Watchers
 * get it. */
void rpc_server_set_serving(struct rpc_server *server, bool serving);
/* Stops accepting, ends health watches, and waits up to grace_us for calls to end. Cancels the rest
 * and waits until their `closed` handlers have returned. Frees the server. Not from an rpc
 * thread. */
void rpc_server_stop(struct rpc_server *server, uint64_t grace_us);

/* Checks a value for `listen`. STATUS_INVALID: it isn't "host:port". */
enum status rpc_check_listen(const char *listen, struct error *err) WARN_UNUSED;
/* Returns whether only this machine reaches a server at `listen`. Names aren't resolved: except
 * localhost, they count as reached from outside, as does a text that isn't "host:port". */
bool rpc_listens_on_loopback(const char *listen);

/* --- client --- */
/* Checks a value for `target`: "host:port" with a host, and not with port 0. */
enum status rpc_check_target(const char *target, struct error *err) WARN_UNUSED;

struct rpc_channel_config {
    const char *target; /* "host:port" */
    struct rpc_tls tls;
    size_t max_message_bytes, max_queued_bytes; /* as in rpc_server_config */
    uint64_t keepalive_us; /* 0: off; a silent peer is found after keepalive + 2 s */
};
enum status rpc_channel_create(struct rpc_runtime *runtime, const struct rpc_channel_config *config,
                               struct rpc_channel **channel, struct error *err) WARN_UNUSED;
/* Cancels its calls, and returns after the last `closed` handler. Not from an rpc thread. */
void rpc_channel_destroy(struct rpc_channel *channel);

/* Starts a call with the handlers `message` and `closed`. deadline_us is relative; 0: none, for
 * long-lived streams only. The caller gets a reference (rpc_call_unref). `closed` will come, maybe
 * before this returns: *call is set before the first handler runs. wait_for_ready: queues until
 * connected, instead of failing at once with UNAVAILABLE. STATUS_CANCELLED: the channel is being
 * destroyed. */
enum status rpc_call_start(struct rpc_channel *channel, const char *path,
                           const struct rpc_handlers *handlers, void *context, uint64_t deadline_us,
                           bool wait_for_ready, struct rpc_call **call) WARN_UNUSED;
/* The same with request headers, which leave at once, so that the server may speak first. All
 * strings are copied. STATUS_INVALID: HTTP/2 can't carry a header. */
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
/* Queues one message. Messages leave in order. Each counts its size and 128 bytes towards
 * max_queued_bytes until it has entered the connection. STATUS_LIMIT: the queue is full, and the
 * call goes on. STATUS_CANCELLED: the call has ended, is finished or half-closed. */
enum status rpc_call_send(struct rpc_call *call, const void *data, size_t size) WARN_UNUSED;
/* The same without a copy: `pack` writes the `size` bytes of `source` into the transport's memory,
 * before this returns. common/net/rpc/message.h sends protobuf messages with it. */
enum status rpc_call_send_packed(struct rpc_call *call, size_t size,
                                 void (*pack)(void *target, const void *source),
                                 const void *source) WARN_UNUSED;
size_t rpc_call_queued_bytes(struct rpc_call *call);
/* Count the received bytes that a handler has passed to another thread. While they are
 * RPC_READ_AHEAD_BYTES or more, nothing further is read from the call, and HTTP/2's flow control
 * slows the other side. put_aside: in the `message` handler. worked_off: any thread that holds a
 * reference. Each message counts 128 bytes more than its size. */
#define RPC_READ_AHEAD_BYTES (256u << 10)
void rpc_call_put_aside(struct rpc_call *call, size_t size);
void rpc_call_worked_off(struct rpc_call *call, size_t size);
/* Client: sends no more messages. */
void rpc_call_half_close(struct rpc_call *call);
/* Client: ends the call now (the server sees a cancel). Server: ends it with RPC_CANCELLED and
 * drops queued messages. Messages that arrive later are dropped. `closed` comes. */
void rpc_call_cancel(struct rpc_call *call);
/* Server: sends queued messages, then the status. The first finish counts. reason and message may
 * be NULL. reason is printable ASCII, message is cut to 1 KiB. Messages that arrive later are
 * dropped. `closed` comes. */
void rpc_call_finish(struct rpc_call *call, enum rpc_code code, const char *reason,
                     const char *message);
/* Server: ends at once a call with a client that doesn't read, so that no status behind queued
 * messages would reach it. Drops queued messages. The client gets code and message, without a
 * reason, if it reads at all. `closed` comes. */
void rpc_call_break(struct rpc_call *call, enum rpc_code code, const char *message);
/* Server: drops the queued messages that aren't on their way, as before a finish with an error. */
void rpc_call_drop_queued(struct rpc_call *call);
/* Server, before finish: adds a trailing header. Fails as rpc_call_add_metadata does. */
enum status rpc_call_add_trailer(struct rpc_call *call, const char *key,
                                 const char *value) WARN_UNUSED;
/* Returns the time until the call's deadline; UINT64_MAX: none. */
uint64_t rpc_call_deadline_left_us(const struct rpc_call *call);
/* Returns the client's address, "127.0.0.1:4321"; "" on a client. */
const char *rpc_call_peer(const struct rpc_call *call);
/* Returns one metadata value, "" if absent, valid as long as the call. `key` in lower case. Server:
 * request headers. Client: response headers, from the first message or `closed` on. */
const char *rpc_call_metadata(const struct rpc_call *call, const char *key);
/* Returns the number of entries of this key; rpc_call_metadata returns the first one's value. */
size_t rpc_call_metadata_count(const struct rpc_call *call, const char *key);
/* Server, before the first send: adds a response header. STATUS_INVALID: HTTP/2 can't carry it.
 * STATUS_LIMIT: more than RPC_MAX_METADATA. STATUS_CANCELLED: the headers have left, or the call
 * has ended. */
enum status rpc_call_add_metadata(struct rpc_call *call, const char *key,
                                  const char *value) WARN_UNUSED;

#endif
