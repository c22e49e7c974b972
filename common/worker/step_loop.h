/* The step thread: owns the engine, the KV blocks and the schedule, and computes step after step.
 *
 * It talks to one other thread (the transfer thread) through two rings: jobs in, events out. Events
 * come from a pool made at start, so that a step allocates nothing; the receiver gives each one
 * back with step_loop_recycle. A sequence that is handed off stays, with the block ids that
 * STEP_RESERVED points to, until whoever added it removes it; one that decodes here is gone with
 * the token that ends it.
 */
#ifndef BATON_WORKER_STEP_LOOP_H
#define BATON_WORKER_STEP_LOOP_H

#include "common/base/ring.h"
#include "common/engine/engine.h"
#include "common/engine/sched/scheduler.h"
#include "common/worker/constraint_host.h"
#include "common/worker/step_events.h"
#include "common/worker/step_load.h"

struct step_loop;

struct step_loop_config {
    struct constraint_host *constraints; /* NULL: answers under a constraint are refused */
    struct engine *engine; /* opened, with its pool; the loop uses it until it is stopped */
    /* The rest as scheduler.h says, and within the engine's limits: batches, block_count and
     * swap_blocks. */
    uint32_t chunk_tokens, max_sequences;
    uint64_t chunk_us;
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

/* Takes over what `spec` owns whatever the outcome. STATUS_LIMIT: too many jobs wait: nothing was
 * queued, nor will be by the removal that follows. A sequence that can't be taken comes back as
 * STEP_REFUSED. One with a constraint waits, without holding up others, until that is compiled. */
enum status step_loop_add(struct step_loop *loop, const struct sequence_spec *spec) WARN_UNUSED;
/* A RESERVED sequence's prompt is in its blocks: decode from `first_token`, which the loop reports
 * again as a token. */
void step_loop_admit(struct step_loop *loop, struct sequence_key key, uint32_t first_token,
                     uint64_t logits_hash, const struct token_logprobs *logprobs);
/* Stops and frees; answered with STEP_REMOVED (also when the key is unknown, but for one whose add
 * was told LIMIT last). */
void step_loop_remove(struct step_loop *loop, struct sequence_key key);

/* Answered with one STEP_CACHE: the next events of the prefix cache, at most STEP_CACHE_EVENTS,
 * fewer only where no more wait (none without a cache). `restart`: from `cleared` on. One at a
 * time: not before the last answer. */
#define STEP_CACHE_EVENTS 256
void step_loop_read_cache(struct step_loop *loop, bool restart);

/* --- events (step_events.h): what the ring holds is recycled, each once --- */
struct ring *step_loop_events(struct step_loop *loop);
void step_loop_recycle(struct step_loop *loop, struct step_event *event);

const struct step_load *step_loop_load(const struct step_loop *loop);

#endif
