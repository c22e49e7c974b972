/* What the dispatcher is told, by rpc threads, HTTP threads and main. A message is embedded in the
 * struct that it is about, so that those which must not be lost need no memory when they are sent.
 *
 * The ring is bounded. Room in it is reserved for the messages that must not be lost (a client
 * left, a link closed, ...): each comes once for something that was counted when it began, so they
 * always fit. Everything else may be told STATUS_LIMIT.
 */
#ifndef BATON_ROUTER_DISPATCH_INBOX_H
#define BATON_ROUTER_DISPATCH_INBOX_H

#include "common/base/ring.h"
#include "common/base/status.h"

enum inbox_kind {
    INBOX_REQUEST,      /* struct request: a new one (reserved: admitted before) */
    INBOX_CLIENT_GONE,  /* struct client_call: its call is over, in whatever way (reserved) */
    INBOX_LINK_MESSAGE, /* struct link_message: a worker said something */
    INBOX_LINK_CLOSED,  /* struct worker_link: its stream is over (reserved) */
    INBOX_CONSTRAINT,   /* struct constraint_checked: it can be kept, or not (reserved) */
    INBOX_MEMBERSHIP,   /* workers joined or left (reserved: one at a time) */
    INBOX_DRAIN,        /* take no new requests (reserved: once) */
    INBOX_STOP,         /* end all requests and links (reserved: once) */
};

struct inbox_message {
    enum inbox_kind kind;
};

struct inbox {
    struct ring *ring;
    size_t open_capacity; /* messages that are not reserved for are refused beyond this fill */
    /* Called behind each post by the thread that posts, when the message may be gone already. NULL:
     * the consumer waits at the ring. */
    void (*posted)(void *context, enum inbox_kind kind);
    void *context;
};

enum status inbox_init(struct inbox *inbox, size_t open_capacity, size_t reserved) WARN_UNUSED;
void inbox_deinit(struct inbox *inbox);
/* STATUS_LIMIT: full; the message stays the caller's. */
enum status inbox_post(struct inbox *inbox, struct inbox_message *message) WARN_UNUSED;
void inbox_post_reserved(struct inbox *inbox, struct inbox_message *message);

#endif
