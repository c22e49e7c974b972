/* A bounded queue of messages between threads, which is how they exchange them. Many producers, one
 * consumer at a time; first in, first out over all producers. Messages are opaque pointers:
 * ownership travels with the pointer. Nobody is woken who doesn't wait: an eventfd is written only
 * while the consumer sleeps in ring_wait, and kept readable while the queue isn't empty from the
 * first ring_fd on.
 *
 * ring_push fails with STATUS_LIMIT when the ring is full and with STATUS_CANCELLED once it is
 * closed; the caller keeps the message then. */
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
/* Consumer: waits until a message is there or timeout_us passed (UINT64_MAX: for ever); NULL on
 * timeout. */
void *ring_wait(struct ring *ring, uint64_t timeout_us);
void ring_close(struct ring *ring); /* any thread: later pushes fail */
/* For poll(): POLLIN while messages are there; cleared by ring_pop of the last. */
int ring_fd(struct ring *ring);
size_t ring_count(struct ring *ring);

#endif
