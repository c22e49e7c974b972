/* The transfer thread. It owns the KV transport, the handoff state machines and the streams to the
 * router and to peers. No forward pass ever holds it up. It waits for four things: messages of rpc
 * threads, events of the step thread, bytes that landed, and time. Each goes to the role (prefill
 * or decode) on this thread.
 */
#ifndef BATON_WORKER_TRANSFER_LOOP_H
#define BATON_WORKER_TRANSFER_LOOP_H

#include "common/kv/transport/kv_transport.h"
#include "common/worker/step_loop.h"

struct transfer_loop;

/* A message of another thread, the first member of the poster's own struct. `deliver` runs on the
 * transfer thread and owns the message from then on. `drop` frees a message that is never delivered
 * because the loop stops. */
struct transfer_message {
    void (*deliver)(struct transfer_message *message);
    void (*drop)(struct transfer_message *message);
};

struct transfer_handlers {
    void (*step_event)(void *role, const struct step_event *event);
    void (*kv_event)(void *role, const struct kv_event *event);
    /* Called at least every TRANSFER_TICK_US, under any load. */
    void (*tick)(void *role, uint64_t now_us);
    /* Does a bounded piece of the work that waits, if any. Returns whether it did: it is called
     * again once all else was looked at. NULL: there is no such work. */
    bool (*work)(void *role);
};
/* Bytes of blocks that one `work` sums: under a millisecond. */
#define TRANSFER_TURN_BYTES ((uint64_t)4 << 20)
#define TRANSFER_TICK_US    100000

struct transfer_loop_config {
    struct kv_transport *transport; /* the loop uses it until it is stopped */
    struct step_loop *steps;
    struct transfer_handlers handlers;
    void *role;
};

/* Two halves: rpc servers may post to a loop that is created and not yet started. */
enum status transfer_loop_create(struct transfer_loop **loop) WARN_UNUSED;
enum status transfer_loop_start(struct transfer_loop *loop,
                                const struct transfer_loop_config *config) WARN_UNUSED;
/* Any thread. On failure the caller keeps the message. STATUS_LIMIT: thousands wait;
 * STATUS_CANCELLED: the loop stops. */
enum status transfer_loop_post(struct transfer_loop *loop,
                               struct transfer_message *message) WARN_UNUSED;
/* Posts the end of a stream, which must arrive: a part of the inbox is kept for ends. If the loop
 * stops, the message is dropped. Any thread. */
void transfer_loop_post_end(struct transfer_loop *loop, struct transfer_message *message);
/* Joins the thread. Queued messages are dropped by transfer_loop_destroy, which may be called once
 * no thread posts any more. */
void transfer_loop_stop(struct transfer_loop *loop);
void transfer_loop_destroy(struct transfer_loop *loop);

#endif
