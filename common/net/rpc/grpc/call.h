/* One call of either side, its headers, and the set of live calls that it is in. server.c and
 * channel.c make calls. Internal to this folder.
 *
 * Batches given to gRPC core are counted in `pending`. Each comes back as one event on the call's
 * rpc thread. The call is over when the terminal batch (client: the status came; server: the close
 * came) and all others are back. Then `closed` runs, core's call is released, and the runtime's
 * reference goes. So memory outlives every tag without a reference for each.
 */
#ifndef BATON_NET_RPC_GRPC_CALL_H
#define BATON_NET_RPC_GRPC_CALL_H

#include "common/net/rpc/grpc/runtime.h"
#include "common/net/rpc/rpc.h"

#include <pthread.h>
#include <stdatomic.h>

#define CALL_MESSAGE_COST_BYTES 128 /* a message's bookkeeping, as malloc rounds it */

/* --- metadata, copied out of gRPC core's slices --- */

/* Received headers: "key\0value\0key\0value\0...", without binary ones (-bin) and values with a
 * NUL. Zeroed: empty. */
struct headers {
    char *block;
    size_t size;
};

void headers_read(struct headers *headers, const grpc_metadata_array *array);
void headers_deinit(struct headers *headers);
const char *headers_get(const struct headers *headers, const char *key); /* "" when absent */
size_t headers_count(const struct headers *headers, const char *key);

/* Headers to send. Zeroed: empty. */
struct header_list {
    grpc_metadata *items; /* NULL or RPC_MAX_METADATA of them: most calls have none */
    size_t count;
};
/* STATUS_INVALID: HTTP/2 can't carry it. STATUS_LIMIT: the list is full. */
enum status header_list_add(struct header_list *list, const char *key,
                            const char *value) WARN_UNUSED;
void header_list_deinit(struct header_list *list);

/* --- the live calls of one server or channel --- */

struct call_set {
    pthread_mutex_t lock;   /* taken before a call's lock, never after */
    pthread_cond_t changed; /* the set became empty, or something happened that its owner awaits */
    struct rpc_call *first;
    size_t count;
    bool closed; /* takes no more calls */
};

/* A call's place in its set. */
struct call_link {
    struct rpc_call *previous, *next;
};

void call_set_init(struct call_set *set);
void call_set_deinit(struct call_set *set); /* must be empty */
/* Returns how many calls are in the set now. 0: the set is closed, and the call isn't in it. */
size_t call_set_add(struct call_set *set, struct rpc_call *call);
void call_set_remove(struct call_set *set, struct rpc_call *call);
void call_set_close(struct call_set *set);
/* Calls `visit` for each call, with the set locked. */
void call_set_each(struct call_set *set, void (*visit)(void *context, struct rpc_call *call),
                   void *context);
/* Waits for a change until clock_now_us() reaches until_us (UINT64_MAX: for ever). With set->lock
 * held. False: time is up. */
bool call_set_wait(struct call_set *set, uint64_t until_us);

/* --- a call --- */

struct outgoing {
    struct outgoing *next;
    grpc_slice slice;
    size_t cost_bytes;
};

/* The unsent bytes of all calls of one server. */
struct send_budget {
    size_t limit_bytes;
    atomic_size_t used_bytes;
};

struct rpc_call {
    /* Fixed when the first handler runs. */
    bool is_server, client_streams, builtin;
    struct rpc_handlers handlers;
    grpc_completion_queue *queue; /* its rpc thread's */
    struct call_set *set;
    struct call_link link;    /* set->lock */
    size_t max_message_bytes; /* server: received; core's limit is higher */
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

    pthread_mutex_t lock; /* guards all fields below */
    grpc_call *core;      /* NULL once closed */
    uint32_t pending;     /* batches that are out */
    bool terminal;        /* the terminal batch is back: nothing can be sent */
    bool silenced;        /* finished or cancelled here: incoming messages are dropped */
    bool sending;         /* sent_tag is out */
    bool send_broken;     /* a send failed; the terminal batch brings the reason */
    bool headers_sent;
    bool end_wanted, end_sent;      /* client: half-close; server: the status */
    bool status_accepted;           /* server: the status entered the connection */
    struct header_list own_headers; /* to be sent first */
    struct header_list trailers;    /* server: baton-reason, and what was added */
    struct outgoing *first, *last;  /* unsent messages */
    size_t queued_bytes, in_flight_bytes;
    size_t aside_bytes;     /* received, and not worked off yet */
    bool reading_paused;    /* received_tag is not out, but will be */
    enum rpc_code end_code; /* server: from finish */
    char end_reason[64];
    char *end_message; /* NULL until then */
};

/* Returns a zeroed call with one reference, the runtime's. Takes `core` over, which is bound to
 * `queue`. */
struct rpc_call *call_create(grpc_call *core, grpc_completion_queue *queue, bool is_server);
/* Frees a call that never began: no batch was started. */
void call_abandon(struct rpc_call *call);
/* Server: posts the terminal batch, runs `open`, starts to read. Client: sends the headers, starts
 * to read. */
void call_begin_server(struct rpc_call *call, void *service);
/* Server: returns whether the call began limit_us or longer ago, hasn't ended, and nothing has come
 * except its headers. Any thread. */
bool call_is_silent(struct rpc_call *call, uint64_t now_us, uint64_t limit_us);
/* Ends such a call with DEADLINE_EXCEEDED, `late_message`. */
void call_end_silent(struct rpc_call *call, uint64_t limit_us);
void call_begin_client(struct rpc_call *call, bool wait_for_ready);

/* --- call_send.c --- */
/* Starts a batch with all that can be sent now, if none is out. With call->lock held. */
void call_pump(struct rpc_call *call);
void call_on_sent(struct tag *tag, bool ok);
void call_drop_queue(struct rpc_call *call);

/* --- call.c, for call_send.c --- */
/* Reads on if reading is paused and needn't be any more. With call->lock held. */
void call_resume_reading(struct rpc_call *call);
/* With call->lock held. */
void call_start_batch(struct rpc_call *call, const grpc_op *ops, size_t count, struct tag *tag);
/* Comes after each event: ends the call if that was the last one. On the rpc thread, without the
 * lock. */
void call_end_if_done(struct rpc_call *call);

#endif
