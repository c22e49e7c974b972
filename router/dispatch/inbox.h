/* Messages of rpc threads, HTTP threads and main to the dispatcher. A message is embedded in the
 * struct that it is about, so posting one needs no memory.
 *
 * The ring is bounded. Room is reserved for messages that must not be lost (a call closed, a link
 * closed, ...): each comes once for something that was counted when it began, so they always fit.
 * Any other message may be refused with STATUS_LIMIT. */
#ifndef BATON_ROUTER_DISPATCH_INBOX_H
#define BATON_ROUTER_DISPATCH_INBOX_H

#include "common/base/ring.h"
#include "common/base/status.h"

enum inbox_kind {
    INBOX_CALL,         /* struct call: its group is submitted (reserved: each holds a place) */
    INBOX_CALL_CLOSED,  /* struct call: its client's side is over (reserved: each was admitted) */
    INBOX_LINK_MESSAGE, /* struct link_message: a message of a worker */
    INBOX_LINK_CLOSED,  /* struct worker_link: its stream is over (reserved) */
    INBOX_CONSTRAINT,   /* struct constraint_checked: it can be kept, or not (reserved) */
    INBOX_MEMBERSHIP,   /* workers joined or left (reserved: one at a time) */
    INBOX_DRAIN,        /* take no new calls (reserved: once) */
    INBOX_STOP,         /* end all calls and links (reserved: once) */
};

struct inbox_message {
    enum inbox_kind kind;
};

struct inbox {
    struct ring *ring;
    size_t open_capacity; /* beyond this fill, messages without a reserve are refused */
    /* Called after each post on the thread that posts. The message may be gone already. NULL: the
     * consumer waits at the ring. */
    void (*posted)(void *context, enum inbox_kind kind);
    void *context;
};

enum status inbox_init(struct inbox *inbox, size_t open_capacity, size_t reserved) WARN_UNUSED;
void inbox_deinit(struct inbox *inbox);
/* STATUS_LIMIT: full; the message stays the caller's. */
enum status inbox_post(struct inbox *inbox, struct inbox_message *message) WARN_UNUSED;
void inbox_post_reserved(struct inbox *inbox, struct inbox_message *message);

#endif
