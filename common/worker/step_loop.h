/* The step thread: owns the engine, the KV blocks and the schedule, and computes step after step.
 *
 * It talks to one other thread (the transfer thread) through two rings: jobs in, events out. Events come from a pool made at
 * start, so that a step allocates nothing; the receiver gives each one back with step_loop_recycle. A sequence that
 * is handed off stays, with the block ids that STEP_RESERVED points to, until whoever added it removes it; one that decodes here
 * is gone with the token that ends it.
 */
#ifndef BATON_WORKER_STEP_LOOP_H
#define BATON_WORKER_STEP_LOOP_H

#include "common/base/ring.h"
#include "common/engine/engine.h"
#include "common/engine/sched/scheduler.h"

#include <stdatomic.h>

struct step_loop;

struct step_loop_config {
    struct engine *engine; /* opened, with its pool; the loop uses it until it is stopped */
    /* The rest as scheduler.h says, and within the engine's limits: batches, block_count and swap_blocks. */
    uint32_t chunk_tokens, max_sequences;
    uint32_t max_batch_sequences, max_batch_tokens;
    uint32_t block_count, swap_blocks;
    enum policy_kind policy;
    uint64_t starve_us, overtake_us;
    bool grow, prefix_cache;
    enum eviction_policy eviction;
    struct cost_model cost;
    int cpu; /* pin the step thread here; -1: nowhere */
};

enum status step_loop_start(const struct step_loop_config *config, struct step_loop **loop,
                            struct error *err) WARN_UNUSED;
/* Finishes the step under way, drops what is queued, joins the thread. */
void step_loop_stop(struct step_loop *loop);

/* --- jobs: called by the transfer thread, carried out before the next step, in order --- */

/* Takes over spec->tokens whatever the outcome. STATUS_LIMIT: too many jobs wait: nothing was queued, nor will be
 * by the removal that follows. A sequence that can't be taken comes back as STEP_REFUSED. */
enum status step_loop_add(struct step_loop *loop, const struct sequence_spec *spec) WARN_UNUSED;
/* A RESERVED sequence's prompt is in its blocks: decode from `first_token`, which the loop reports again as a token. */
void step_loop_admit(struct step_loop *loop, struct sequence_key key, uint32_t first_token,
                     uint64_t logits_hash);
/* Stops and frees; answered with STEP_REMOVED (also when the key is unknown, but for one whose add was told LIMIT last). */
void step_loop_remove(struct step_loop *loop, struct sequence_key key);

/* --- events --- */
enum step_event_kind {
    STEP_RESERVED, /* blocks[0..block_count) are its own now; nothing is told of a PLAN_LOCAL's: they move. The first
                      cached_tokens, whole blocks, are in them already, and others may read those */
    STEP_REFUSED, /* it can't be computed here: status INVALID (never) or LIMIT (not now), sentence in err */
    STEP_READY,  /* hand-off: keys and values of tokens [0, ready_tokens) are in the blocks */
    STEP_TOKENS, /* what the step drew, one entry a sequence */
    STEP_FAILED, /* its rows or its token could not be had: status, sentence in err */
    STEP_REMOVED,
};
struct step_token {
    struct sequence_key key;
    uint32_t index; /* 1-based over the whole answer */
    uint32_t token;
    uint64_t logits_hash;
    enum finish_reason finish;
    bool hand_off; /* the first token of a prefill whose blocks wait for a reader */
};
struct step_event {
    enum step_event_kind kind;
    struct sequence_key key; /* not for STEP_TOKENS */
    enum sequence_plan plan;
    const uint32_t *blocks; /* STEP_RESERVED */
    uint32_t block_count, cached_tokens, ready_tokens;
    enum status status;
    struct error err;
    uint32_t token_count;
    struct step_token tokens[]; /* [max_sequences] */
};
struct ring *step_loop_events(struct step_loop *loop);
void step_loop_recycle(struct step_loop *loop, struct step_event *event);

enum step_preemption { STEP_SWAPPED, STEP_DROPPED, STEP_PREEMPTIONS };

/* A snapshot for metrics and load reports; any thread. */
struct step_load {
    _Atomic uint32_t waiting, running, blocks[KV_BLOCK_STATES];
    _Atomic uint32_t preempted, swapped_blocks; /* now */
    _Atomic uint64_t queued_tokens, prompt_rows, decode_rows, steps;
    _Atomic uint64_t preemptions[STEP_PREEMPTIONS], dropped_rows;
    _Atomic uint64_t prefix_asked_tokens, prefix_hit_tokens, prefix_evicted_blocks;
};
const struct step_load *step_loop_load(const struct step_loop *loop);

#endif
