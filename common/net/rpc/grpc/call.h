/* One call of either side, as server.c and channel.c make it.
 *
 * Batches given to gRPC core are counted in `pending`; each comes back as one event on the call's
 * rpc thread. The call is over when the terminal batch (client: the status came; server: the close
 * came) and all others are back: then `closed` runs, core's call is released, and the runtime's
 * reference goes. So memory outlives every tag without a reference for each.
 */
#ifndef BATON_NET_RPC_GRPC_CALL_H
#define BATON_NET_RPC_GRPC_CALL_H

#include "common/net/rpc/grpc/call_set.h"
#include "common/net/rpc/grpc/headers.h"
#include "common/net/rpc/grpc/runtime.h"
#include "common/net/rpc/rpc.h"

#include <pthread.h>
#include <stdatomic.h>

#define RPC_DEFAULT_BYTES       (4u << 20) /* message and queue limit where a config says 0 */
#define CALL_MESSAGE_COST_BYTES 128        /* of a message's bookkeeping, as malloc rounds it */

struct outgoing {
    struct outgoing *next;
    grpc_slice slice;
    size_t cost_bytes;
};

/* Unsent bytes of all calls of one server. */
struct send_budget {
    size_t limit_bytes;
    atomic_size_t used_bytes;
};

struct rpc_call {
    /* Fixed when the first handler runs. */
    bool is_server, client_streams, builtin;
    struct rpc_handlers handlers;
    grpc_completion_queue *queue; /* of its rpc thread */
    struct call_set *set;
    struct call_link link;    /* set->lock */
    size_t max_message_bytes; /* server: of a received one; core's limit is higher */
    size_t max_queued_bytes;
    struct send_budget *budget; /* NULL: none */
    uint64_t deadline_us;       /* clock_now_us() time; UINT64_MAX: none */
    uint64_t allowed_us;        /* from the start to the deadline */
    char peer[80];
    struct headers received_headers;

    _Atomic uint64_t silent_since_us; /* server: until the first message came, or the end; else 0 */
    atomic_uint references;
    _Atomic(void *) context;

    /* The rpc thread's, and gRPC core's between a batch and its event. */
    struct tag closed_tag, received_tag, sent_tag;
    grpc_byte_buffer *received;
    size_t received_count;
    grpc_metadata_array initial_metadata, trailing_metadata; /* client */
    grpc_status_code status;                                 /* client */
    grpc_slice status_details;                               /* client */
    const char *error_text;                                  /* client; NULL: none */
    int cancelled;                                           /* server */

    pthread_mutex_t lock; /* of all below */
    grpc_call *core;      /* NULL once closed */
    uint32_t pending;     /* batches that are out */
    bool terminal;        /* the terminal batch is back: nothing can be sent */
    bool silenced;        /* finished or cancelled here: incoming messages are dropped */
    bool sending;         /* sent_tag is out */
    bool send_broken;     /* a send failed; the terminal batch will tell why */
    bool headers_sent;
    bool end_wanted, end_sent;      /* client: half-close; server: the status */
    bool status_accepted;           /* server: the status entered the connection */
    struct header_list own_headers; /* to be sent first */
    struct header_list trailers;    /* server: baton-reason, and what was added */
    struct outgoing *first, *last;  /* unsent messages */
    size_t queued_bytes, in_flight_bytes;
    size_t aside_bytes;     /* received, and not worked off yet */
    bool reading_paused;    /* received_tag is not out, but will be */
    enum rpc_code end_code; /* server: what finish said */
    char end_reason[64];
    char *end_message; /* NULL until then */
};

/* A zeroed call that has one reference, the runtime's; `core`, which is bound to `queue`, is the
 * call's from now on. */
struct rpc_call *call_create(grpc_call *core, grpc_completion_queue *queue, bool is_server);
/* For a call that never began: no batch was started. */
void call_abandon(struct rpc_call *call);
/* Server: posts the terminal batch, runs `open`, starts to read. Client: sends the headers, starts
 * to read. */
void call_begin_server(struct rpc_call *call, void *service);
/* Server: it has not ended, began limit_us or longer ago, and nothing has come but its headers. Any
 * thread. */
bool call_is_silent(struct rpc_call *call, uint64_t now_us, uint64_t limit_us);
/* Ends such a call with DEADLINE_EXCEEDED, `late_message`. */
void call_end_silent(struct rpc_call *call, uint64_t limit_us);
void call_begin_client(struct rpc_call *call, bool wait_for_ready);

/* --- call_send.c --- */
/* With call->lock held: starts a batch with whatever can be sent now, if none is out. */
void call_pump(struct rpc_call *call);
void call_on_sent(struct tag *tag, bool ok);
void call_drop_queue(struct rpc_call *call);

/* --- call.c, for call_send.c --- */
/* With call->lock held: reads on, if reading is paused and needn't be any more. */
void call_resume_reading(struct rpc_call *call);
/* With call->lock held. */
void call_start_batch(struct rpc_call *call, const grpc_op *ops, size_t count, struct tag *tag);
/* On the rpc thread, after each event, without the lock: ends the call if that was the last one. */
void call_end_if_done(struct rpc_call *call);

#endif
