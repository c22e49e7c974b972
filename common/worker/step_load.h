/* What the step thread has to do and has done, for metrics and load reports: it publishes, any
 * thread looks. Each number is whole, all together are of about one moment. */
#ifndef BATON_WORKER_STEP_LOAD_H
#define BATON_WORKER_STEP_LOAD_H

#include "common/engine/engine.h"
#include "common/engine/sched/scheduler.h"

#include <stdatomic.h>

/* Of the step thread's time while it had anything to do. */
enum step_time {
    STEP_IN_ENGINE, /* rows, moves of blocks, draws */
    /* jobs, planning, what became of a plan, events (and the wait for a receiver that is behind) */
    STEP_AROUND_IT,
    STEP_TIMES
};

enum step_preemption { STEP_SWAPPED, STEP_DROPPED, STEP_PREEMPTIONS };

struct step_load {
    _Atomic uint32_t waiting, running, blocks[KV_BLOCK_STATES];
    _Atomic uint32_t preempted, swapped_blocks; /* now */
    _Atomic uint64_t queued_tokens, prompt_rows, decode_rows, steps;
    _Atomic uint64_t time_ns[STEP_TIMES];
    _Atomic uint64_t preemptions[STEP_PREEMPTIONS], dropped_rows;
    _Atomic uint64_t prefix_asked_tokens, prefix_hit_tokens, prefix_evicted_blocks;
    _Atomic uint64_t prefix_changes; /* of what is cached, so far */
};

/* Step thread. Before tokens leave: who has the last one of an answer finds its blocks free and its
 * rows counted. */
void step_load_publish(struct step_load *load, const struct engine *engine,
                       struct scheduler *scheduler);

#endif
