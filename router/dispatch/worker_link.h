/* One Session stream to one worker, from dialling to its end: commands go down in order, what the
 * worker says comes up through the inbox as link messages, and the end as one INBOX_LINK_CLOSED,
 * after which nothing of this stream comes any more. A new stream is a new link, opened after the
 * old one's end was dealt with: so loss is always seen before anything new.
 *
 * Owner: the dispatch thread. Refuses: deciding what a message means, redialling.
 */
#ifndef BATON_ROUTER_DISPATCH_WORKER_LINK_H
#define BATON_ROUTER_DISPATCH_WORKER_LINK_H

#include "common/base/arena.h"
#include "common/net/rpc/rpc.h"
#include "proto/worker.pb-c.h"
#include "router/dispatch/inbox.h"

#include <stdbool.h>

#define WORKER_LINK_MAX_UP_BYTES     (4u << 20)
#define WORKER_LINK_MAX_QUEUED_BYTES (64u << 20)

struct worker_link {
    struct inbox_message closed_message; /* first: INBOX_LINK_CLOSED */
    uint64_t worker;                     /* its key */
    struct rpc_channel *channel;
    struct rpc_call *call;
    struct inbox *inbox;
    bool up, refused; /* the worker's Hello was accepted, or not; kept by the owner */
    /* Why it ended; written before INBOX_LINK_CLOSED is posted. */
    enum rpc_code code;
    char message[200];
};

/* Something that the worker said, with the memory that it lies in. */
struct link_message {
    struct inbox_message message; /* first: INBOX_LINK_MESSAGE */
    struct worker_link *link;
    struct arena arena;
    const Baton__Worker__V1__SessionUp *up;
    size_t size; /* as it came */
};
/* It was dealt with: frees it, and lets the worker say more. */
void link_message_free(struct link_message *message);

struct worker_link_config {
    struct rpc_runtime *runtime;
    struct inbox *inbox;
    const char *address;
    uint64_t worker;
    struct rpc_tls tls;
    uint64_t keepalive_us;
    /* Said first: who speaks, and to whom. */
    uint64_t router_incarnation, worker_incarnation;
    const char *worker_name;
};

/* Dials. On success INBOX_LINK_CLOSED will come. */
enum status worker_link_open(const struct worker_link_config *config, struct worker_link **link,
                             struct error *err) WARN_UNUSED;
/* STATUS_LIMIT: the worker doesn't read; STATUS_CANCELLED: the stream is over. */
enum status worker_link_send(struct worker_link *link,
                             const Baton__Worker__V1__SessionDown *command) WARN_UNUSED;
/* Ends the stream now; INBOX_LINK_CLOSED comes. */
void worker_link_close(struct worker_link *link);
/* After INBOX_LINK_CLOSED only. */
void worker_link_destroy(struct worker_link *link);

#endif
