/* The order in which sequences of one class get rows, blocks and places in a batch. PURE. A policy
 * is a row of functions. Classes, budgets and memory are the business of batch_plan and admission.
 *
 * fcfs: first come, first served. Prompts that were begun go before new ones.
 *
 * srpf: the shortest remaining prefill first, without the rows that were cached when it came.
 * A sequence that came more than `starve_us` ago goes before all others, by arrival.
 *
 * mlfq: skip-join multi-level feedback queue (B. Wu et al., Fast Distributed Inference Serving for
 * Large Language Models, FastServe, arXiv 2305.05920). Queue p has a quantum of 10 ms x 2^p. A
 * sequence joins the first queue with a quantum that holds its predicted first iteration. It goes
 * down one queue when it has used up its quantum. It comes back to the first queue when it has had
 * no rows for `starve_us`.
 *
 * The bound: a sequence waits for rows at most `starve_us` behind sequences that the policy
 * prefers. From then on it waits only for higher classes, and for starved sequences of its class
 * that came before it (mlfq: each for one quantum). fcfs prefers only prompts that were begun, and
 * those end.
 *
 * This order holds among answers and among prompts. A step's answers come before its prompts
 * (batch_plan.h): with fewer places than sequences (max_batch_sequences), prompts also wait for a
 * place. Beside answers, prompts have at least BATCH_CHUNK_LEAST_ROWS rows of a step: the first
 * prompt advances in each step that has a place for it.
 */
#ifndef BATON_ENGINE_SCHED_POLICY_H
#define BATON_ENGINE_SCHED_POLICY_H

#include "common/base/domain/cost_model.h"
#include "common/engine/sched/sequence.h"

#define POLICY_KEY_BITS  32
#define POLICY_RANK_BITS (POLICY_KEY_BITS + 1)
#define MLFQ_QUANTUM_US  10000 /* queue 0's */
#define MLFQ_LEVELS      16
#define POLICY_STARVE_US 1000000 /* a bound for serving: 1 s */

enum policy_kind { POLICY_FCFS, POLICY_SRPF, POLICY_MLFQ, POLICIES };

struct policy {
    const char *name;    /* "fcfs", ...: a value of the setting */
    bool weighs_prompts; /* it reads likely_cached */
    /* Smaller first, below 2^POLICY_KEY_BITS. Ties go by arrival. */
    uint64_t (*key)(const struct sequence *sequence);
    /* Each may be NULL. came: the sequence was added. ran: a step of took_us had rows of it. age:
     * the time is now_us. */
    void (*came)(struct sequence *sequence, const struct cost_model *cost);
    void (*ran)(struct sequence *sequence, uint64_t took_us);
    void (*age)(struct sequence *sequence, uint64_t now_us, uint64_t starve_us);
};

const struct policy *policy_of(enum policy_kind kind);

/* Ranks inside one class: promoted sequences first, by arrival, then by the policy's key. Below
 * 2^POLICY_RANK_BITS. */
uint64_t policy_rank(const struct policy *policy, const struct sequence *sequence);

/* Takes the first few of many in order without sorting them all: a binary heap. The smaller rank
 * goes first, of equal ranks the smaller order. O(count) to build, O(log count) for each one
 * taken. The memory is the caller's. */
struct ranked {
    uint64_t rank, order;
    struct sequence *sequence;
};
struct ranking {
    struct ranked *entries; /* [count]; the caller fills them in any order, then builds */
    uint32_t count;
};
void ranking_build(struct ranking *ranking);
struct sequence *ranking_take(struct ranking *ranking); /* NULL: none is left */
/* Puts one in that was taken. */
void ranking_put(struct ranking *ranking, struct ranked entry);

#endif
