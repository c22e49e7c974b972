/* Which share of a worker's steps is not the engine's: a real step loop over a real engine, kept
 * full of requests that come, are computed and end, as schedule_bench keeps a schedule full without
 * one. */
#ifndef BATON_CLI_STEP_BENCH_H
#define BATON_CLI_STEP_BENCH_H

#include "common/base/status.h"
#include "common/engine/sched/policy.h"

#define STEP_BENCH_MAX_ROUNDS 100

struct step_bench {
    const char *model_dir;
    bool random_weights;
    uint32_t threads;   /* that compute */
    uint32_t sequences; /* at once, all the time; > 0 */
    uint32_t steps;     /* of each round, behind as many that warm up; > 0 */
    uint32_t rounds;    /* 1 .. STEP_BENCH_MAX_ROUNDS */
    enum policy_kind policy;
};

/* Of a step, each the median of the rounds. */
struct step_bench_result {
    double rows;
    double step_us;
    double around_us; /* not in the engine: jobs, planning, what became of a plan, events */
    double share;     /* around_us / step_us */
    /* CPU time of the process, over what the steps' threads could have: below 1 where they waited
     * for a CPU, above where they spun around the engine, and by what the caller's own thread
     * took. */
    double ran;
};

/* Prompts of 16 to 79 tokens, answers of 64 to 191, growing, with a prefix cache. Failures: one
 * sentence. */
enum status step_bench_run(const struct step_bench *bench, struct step_bench_result *result,
                           struct error *err) WARN_UNUSED;

#endif
