#include "router/dispatch/inbox.h"

#include "common/base/assert.h"

/* Producers look at the fill before they push; so many of them may do so at once. */
#define RACING_PRODUCERS 64

enum status inbox_init(struct inbox *inbox, size_t open_capacity, size_t reserved)
{
    *inbox = (struct inbox){.open_capacity = open_capacity};
    return ring_create(open_capacity + RACING_PRODUCERS + reserved, &inbox->ring);
}

void inbox_deinit(struct inbox *inbox)
{
    ring_destroy(inbox->ring);
}

static enum status post(struct inbox *inbox, struct inbox_message *message)
{
    enum inbox_kind kind = message->kind;
    enum status status = ring_push(inbox->ring, message);
    if (status == STATUS_OK && inbox->posted)
        inbox->posted(inbox->context, kind);
    return status;
}

enum status inbox_post(struct inbox *inbox, struct inbox_message *message)
{
    if (ring_count(inbox->ring) >= inbox->open_capacity)
        return STATUS_LIMIT;
    return post(inbox, message);
}

void inbox_post_reserved(struct inbox *inbox, struct inbox_message *message)
{
    enum status status = post(inbox, message);
    ASSERT(status == STATUS_OK);
}
