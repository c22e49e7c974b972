/* In which order sequences of one class get rows, blocks and places in a batch. PURE. A policy is a
 * row of functions; classes, budgets and memory are not its business (batch_plan, admission).
 *
 * fcfs  first come, first served; prompts that were begun before new ones. srpf  shortest remaining
 * prefill first, less what was cached of it when it came; who came more than `starve_us` ago goes
 * before all, by arrival. mlfq  skip-join multi-level feedback queue: B. Wu et al., Fast
 * Distributed Inference Serving for Large Language Models
 *         (FastServe), arXiv 2305.05920. Queue p has a quantum of 10 ms x 2^p. A sequence joins the first queue whose quantum
 *         holds its predicted first iteration, goes down one when it has used its quantum up, and back to the first when it has
 *         had no rows for `starve_us`.
 *
 * The bound: behind those that the policy prefers, nobody waits for rows longer than `starve_us`.
 * From then on it is kept waiting only by higher classes and by those of its class that starved,
 * too, and came before it (mlfq: each for one quantum). fcfs has nobody to prefer but prompts that
 * were begun, and those end. All that is among answers, and among prompts: a step's answers come
 * before its prompts (batch_plan), so where a step has fewer places than there are sequences
 * (max_batch_sequences), prompts also wait for a place. Beside answers prompts have few rows of a
 * step, BATCH_CHUNK_LEAST_ROWS (batch_plan.h) at least: whoever is first of them gets on with each
 * step that has a place for him.
 */
#ifndef BATON_ENGINE_SCHED_POLICY_H
#define BATON_ENGINE_SCHED_POLICY_H

#include "common/base/domain/cost_model.h"
#include "common/engine/sched/sequence.h"

#define POLICY_KEY_BITS  32
#define POLICY_RANK_BITS (POLICY_KEY_BITS + 1)
#define MLFQ_QUANTUM_US  10000 /* of queue 0 */
#define MLFQ_LEVELS      16
#define POLICY_STARVE_US 1000000 /* a bound that serves: 1 s */

enum policy_kind { POLICY_FCFS, POLICY_SRPF, POLICY_MLFQ, POLICIES };

struct policy {
    const char *name;    /* "fcfs", ...: of the setting */
    bool weighs_prompts; /* looks at likely_cached */
    /* Smaller first, below 2^POLICY_KEY_BITS; ties go by arrival. */
    uint64_t (*key)(const struct sequence *sequence);
    /* Each may be NULL: a sequence came; a step that took took_us had rows of it; it is now_us. */
    void (*came)(struct sequence *sequence, const struct cost_model *cost);
    void (*ran)(struct sequence *sequence, uint64_t took_us);
    void (*age)(struct sequence *sequence, uint64_t now_us, uint64_t starve_us);
};

const struct policy *policy_of(enum policy_kind kind);

/* For a ranking inside one class: the promoted by arrival, then by the policy's key. Below
 * 2^POLICY_RANK_BITS. */
uint64_t policy_rank(const struct policy *policy, const struct sequence *sequence);

#endif
