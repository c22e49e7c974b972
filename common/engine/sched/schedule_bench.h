/* What planning costs: a full schedule is lived for some steps without an engine, and each step's
 * share of scheduler functions is timed. PURE: the clock is the caller's (`baton bench`, a
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
    bool receives; /* prompts come from elsewhere, a step after they have blocks */
    /* Of the blocks that all need at their ends; below 100 there is preemption. 0: 100. */
    uint32_t pool_percent;
    struct schedule_bench_answers {
        uint32_t least, most; /* tokens, at most 448; 0: 32, 287 */
    } answers;
    uint64_t (*now_ns)(void);
};

/* One step: scheduler_admit of who was received, scheduler_reserve until NULL, scheduler_plan,
 * scheduler_step_done, scheduler_rows_done for each part, removal of who ended. Adding is not in it
 * (it allocates the tokens). */
struct schedule_bench_result {
    uint64_t p50_ns, p99_ns, max_ns;
    double mean_ns;    /* of few sequences most steps begin and end none: only means compare */
    double mean_parts; /* of a step */
    uint64_t swapped_out, dropped; /* in the timed steps */
};

/* STATUS_LIMIT: out of memory. Prompts of 64 to 575 tokens, blocks of 32 tokens, chunks that let
 * nearly all decode. */
enum status schedule_bench_run(const struct schedule_bench *bench,
                               struct schedule_bench_result *result) WARN_UNUSED;

#endif
