/* One worker without its network: a real engine, a real step loop on a thread of its own, and a
 * pool that others can read. For tests: any failure fails the running cmocka test.
 *
 * The test plays the worker's transfer thread, with one difference: it keeps all events except
 * SIDE_LEAD from the step thread. So the step thread is never further ahead than SIDE_LEAD events,
 * however busy the machine is, and a test's reaction to an event comes soon after it. */
#ifndef BATON_TESTS_SIDE_H
#define BATON_TESTS_SIDE_H

#include "common/kv/transport/kv_transport.h"
#include "common/worker/step_loop.h"
#include "tests/equality/watch.h"

#define SIDE_BLOCK_TOKENS 8
#define SIDE_LEAD         8

struct side_config {
    const char *model;
    enum weight_choice weights;
    enum kv_choice kv;
    uint32_t threads, chunk, sequences, blocks;
    /* 0: a preempted sequence is computed again; otherwise it is swapped if there are slots */
    uint32_t swap_blocks;
    uint32_t context; /* 0: the model's own */
    bool prefix_cache;
    uint32_t draft_tokens; /* with them: */
    scheduler_drafter *drafter;
    void *drafter_context;
};

struct side {
    struct engine *engine;
    struct kv_transport *transport;
    struct step_loop *loop;
    uint32_t blocks;
    struct watch watch; /* watches its steps */
    struct step_event *kept[STEP_LOOP_EVENTS - SIDE_LEAD];
};

/* The pool is full of NaN (int8: the scales are NaN), so a read before a write shows. */
void side_open(struct side *side, const struct side_config *config);
void side_close(struct side *side);

void side_add(struct side *side, const struct sequence_spec *spec);
/* Give it back with step_loop_recycle. */
struct step_event *side_next(struct side *side);

void *side_block(const struct side *side, uint32_t id);
size_t side_block_bytes(const struct side *side);
uint32_t side_blocks(const struct side *side, enum kv_block_state state);

/* Reads whole blocks of `source`, as a decode worker does, and waits for them. */
void side_read(struct side *side, struct side *source, const uint32_t *to, const uint32_t *from,
               uint32_t count);

#endif
