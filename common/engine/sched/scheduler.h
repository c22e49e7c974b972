/* What a worker computes next: its sequences, their blocks, and the rows of each step. PURE: the live step loop and the
 * simulator call the same functions; nothing here knows a model, a clock or a thread.
 *
 * A step is: scheduler_reserve (who waits for blocks and now fits), scheduler_plan (rows), the engine, scheduler_row_done for
 * every part. Decodes come first, one row each; then prompts in order of arrival share the chunk budget.
 * Owner: one thread. After scheduler_create only scheduler_add allocates (it takes over the caller's token array).
 */
#ifndef BATON_ENGINE_SCHED_SCHEDULER_H
#define BATON_ENGINE_SCHED_SCHEDULER_H

#include "common/engine/sched/kv_blocks.h"
#include "common/engine/sched/sequence.h"

struct scheduler;

struct scheduler_config {
    uint32_t block_tokens, block_count;
    uint32_t max_sequences;  /* in any state */
    uint32_t chunk_tokens;   /* prompt rows of one step at most */
    uint32_t context;        /* tokens of prompt + answer at most */
    const uint32_t *end_ids; /* copied */
    uint32_t end_id_count;
};

enum status scheduler_create(const struct scheduler_config *config,
                             struct scheduler **scheduler) WARN_UNUSED;
void scheduler_destroy(struct scheduler *scheduler);

struct sequence_spec {
    struct sequence_key key;
    enum sequence_plan plan;
    uint32_t *tokens; /* malloc'ed: prompt + emitted; taken over on success */
    uint32_t token_count, emitted_count;
    struct sampling sampling;
};

/* Queues a sequence for blocks: for HAND_OFF as many as its prompt needs, else room for the whole answer, too.
 * STATUS_INVALID: it can never fit (the sentence has the numbers). STATUS_LIMIT: the table is full.
 * The key must be new (a newer attempt has another key). */
enum status scheduler_add(struct scheduler *scheduler, const struct sequence_spec *spec,
                          struct error *err) WARN_UNUSED;

/* Gives blocks to the first one that waits, if it fits now; NULL when none does. Call until NULL. It is then RESERVED
 * (plan RECEIVE) or PREFILL. */
struct sequence *scheduler_reserve(struct scheduler *scheduler);

/* A RESERVED sequence's prompt has arrived: its first drawn token joins, and it decodes from the next step on, unless that
 * token ends it. */
enum finish_reason scheduler_admit(struct scheduler *scheduler, struct sequence *sequence,
                                   uint32_t first_token);

/* Ends a sequence in any state: its blocks are free again, the struct is gone. */
void scheduler_remove(struct scheduler *scheduler, struct sequence *sequence);
struct sequence *scheduler_find(struct scheduler *scheduler, struct sequence_key key);
struct sequence *scheduler_next(struct scheduler *scheduler, size_t *cursor); /* iteration */

/* One sequence's part of a step: rows [computed, computed + row_count). */
struct planned_rows {
    struct sequence *sequence;
    uint32_t row_count;
    bool samples; /* the last row draws a token */
};
/* Fills at most max_sequences parts; returns how many. 0: nothing to compute. */
uint32_t scheduler_plan(struct scheduler *scheduler, struct planned_rows *parts);

/* After the engine: the rows are in the blocks; `token` was drawn where the part samples (else ignored). Returns why the
 * sequence ended (it then is HELD until removed), or FINISH_NONE. A HAND_OFF sequence is HELD after its token. */
enum finish_reason scheduler_rows_done(struct scheduler *scheduler, const struct planned_rows *part,
                                       uint32_t token);

struct scheduler_load {
    uint32_t waiting, running;
    uint64_t queued_tokens; /* prompt rows still to compute */
    uint32_t blocks[KV_BLOCK_STATES];
};
struct scheduler_load scheduler_load(const struct scheduler *scheduler);

#endif
