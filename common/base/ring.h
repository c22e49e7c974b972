/* A bounded queue of messages between threads. Many producers, one consumer at a time; first in,
 * first out over all producers. Messages are opaque pointers, and ownership travels with the
 * pointer. A push wakes only a consumer that waits: it writes the eventfd only while the consumer
 * sleeps in ring_wait. From the first ring_fd on, the eventfd stays readable while the queue isn't
 * empty.
 *
 * ring_push fails with STATUS_LIMIT when the ring is full, and with STATUS_CANCELLED once it is
 * closed. The caller keeps the message then. */
#ifndef BATON_BASE_RING_H
#define BATON_BASE_RING_H

#include "common/base/status.h"

#include <stdint.h>

struct ring;

enum status ring_create(size_t capacity, struct ring **ring) WARN_UNUSED;
/* The ring must be empty and no producer may be left. */
void ring_destroy(struct ring *ring);

enum status ring_push(struct ring *ring, void *message) WARN_UNUSED; /* any thread */
void *ring_pop(struct ring *ring);  /* consumer; NULL when empty, never blocks */
void *ring_peek(struct ring *ring); /* consumer: what ring_pop would return; it stays */
/* Consumer: waits until a message is there or timeout_us has passed (UINT64_MAX: for ever). Returns
 * NULL on timeout. */
void *ring_wait(struct ring *ring, uint64_t timeout_us);
void ring_close(struct ring *ring); /* any thread: later pushes fail */
/* For poll(): readable while messages are there. ring_pop of the last message clears it. */
int ring_fd(struct ring *ring);
size_t ring_count(struct ring *ring);

#endif
