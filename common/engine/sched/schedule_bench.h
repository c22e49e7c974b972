/* Measures the cost of planning: runs a full schedule for some steps without an engine, and times
 * the scheduler functions of each step. PURE: the clock is the caller's (`baton bench`, a
 * test). */
#ifndef BATON_ENGINE_SCHED_SCHEDULE_BENCH_H
#define BATON_ENGINE_SCHED_SCHEDULE_BENCH_H

#include "common/base/status.h"
#include "common/engine/sched/policy.h"

struct schedule_bench {
    uint32_t sequences; /* running at once, all the time; > 0 */
    uint32_t steps;     /* timed; > 0 */
    enum policy_kind policy;
    bool grow, prefix_cache;
    bool receives; /* prompts come from elsewhere, one step after they have blocks */
    /* Blocks of the pool, in percent of the need of all sequences at their ends. Below 100 some are
     * preempted. 0: 100. */
    uint32_t pool_percent;
    struct schedule_bench_answers {
        uint32_t least, most; /* tokens, at most 448; 0: 32, 287 */
    } answers;
    uint64_t (*now_ns)(void);
};

/* One step: scheduler_admit for received sequences, scheduler_reserve until NULL, scheduler_plan,
 * scheduler_step_done, scheduler_rows_done for each part, removal of ended sequences. Not adding
 * sequences, which allocates their tokens. */
struct schedule_bench_result {
    uint64_t p50_ns, p99_ns, max_ns;
    double mean_ns;    /* with few sequences most steps begin and end none: compare only means */
    double mean_parts; /* a step's */
    uint64_t swapped_out, dropped; /* in the timed steps */
};

/* STATUS_LIMIT: out of memory. Prompts have 64 to 575 tokens, blocks 32 tokens, and chunks let
 * nearly all sequences decode. */
enum status schedule_bench_run(const struct schedule_bench *bench,
                               struct schedule_bench_result *result) WARN_UNUSED;

#endif
