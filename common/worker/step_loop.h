/* The step thread: owns the engine, the KV blocks and the schedule, and computes step after step.
 *
 * It works with one other thread, the transfer thread, through two rings: jobs in, events out. The
 * receiver gives each event back with step_loop_recycle.
 *
 * A sequence that is handed off stays, with the block ids that STEP_RESERVED points to, until its
 * owner removes it. A sequence that decodes here is gone with the token that ends it.
 */
#ifndef BATON_WORKER_STEP_LOOP_H
#define BATON_WORKER_STEP_LOOP_H

#include "common/base/ring.h"
#include "common/engine/engine.h"
#include "common/engine/sched/scheduler.h"
#include "common/worker/constraint_host.h"
#include "common/worker/step_events.h"

struct step_loop;

struct step_loop_config {
    struct constraint_host *constraints; /* NULL: answers under a constraint are refused */
    struct engine *engine; /* opened, with its pool; the loop uses it until it is stopped */
    /* The rest is as scheduler.h says. Batches, block_count and swap_blocks must be within the
     * engine's limits. */
    uint32_t chunk_tokens, max_sequences;
    uint64_t chunk_us;
    uint32_t max_batch_sequences, max_batch_tokens;
    uint32_t draft_tokens; /* and as the engine's */
    scheduler_drafter *drafter;
    void *drafter_context;
    uint32_t block_count, swap_blocks;
    enum policy_kind policy;
    uint64_t starve_us, overtake_us;
    bool prompts_first, grow, prefix_cache;
    enum eviction_policy eviction;
    struct cost_model cost;
    int cpu; /* the step thread is pinned to this core; -1: not pinned */
    /* Steps are reported, in STEP_TOKENS and STEP_DONE. */
    bool sends_reports;
    /* When so many steps in a row have failed, `broken` is called on the step thread. 0: never. It
     * is called at once, with `lost`, if the device is lost to this process. */
    uint32_t failed_limit;
    void (*broken)(void *context, bool lost);
    void *broken_context;
    /* A round of work that takes longer is not waited for at the end. 0: any is. */
    uint64_t stall_us;
};

enum status step_loop_start(const struct step_loop_config *config, struct step_loop **loop,
                            struct error *err) WARN_UNUSED;
/* Finishes the step under way, drops the queued jobs, joins the thread. NULL is fine. Returns false
 * if that step takes longer than stall_us: its thread runs on, and only the end of the process
 * frees what it uses. */
bool step_loop_stop(struct step_loop *loop);

/* --- jobs: the transfer thread asks, the step thread carries out before the next step, in order
 * --- */

/* Takes over everything that `spec` owns, whatever the outcome. STATUS_LIMIT: too many jobs wait;
 * nothing was queued, and step_loop_remove of this key then queues nothing either. A sequence that
 * can't be taken comes back as STEP_REFUSED. One with a constraint waits until that is compiled,
 * without holding up others. */
enum status step_loop_add(struct step_loop *loop, const struct sequence_spec *spec) WARN_UNUSED;
/* Decodes a RESERVED sequence from `first_token`; its prompt is in its blocks. The loop reports
 * that token again, as a token. */
void step_loop_admit(struct step_loop *loop, struct sequence_key key, uint32_t first_token,
                     uint64_t logits_hash, const struct token_logprobs *logprobs);
/* Stops the sequence and frees its blocks. The answer is STEP_REMOVED, also for an unknown key,
 * except for a key that step_loop_add has just refused with LIMIT. */
void step_loop_remove(struct step_loop *loop, struct sequence_key key);

/* The answer is one STEP_CACHE with the next events of the prefix cache, at most STEP_CACHE_EVENTS.
 * Fewer come only if no more wait; none without a cache. `restart`: begins with `cleared`. Don't
 * ask again before the answer. */
#define STEP_CACHE_EVENTS 256
void step_loop_read_cache(struct step_loop *loop, bool restart);

/* --- events: recycle each event of the ring once --- */
struct ring *step_loop_events(struct step_loop *loop);
void step_loop_recycle(struct step_loop *loop, struct step_event *event);

const struct step_load *step_loop_load(const struct step_loop *loop);

#endif
