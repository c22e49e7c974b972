/* The rows of one step. PURE. The memory is the caller's; nothing allocates.
 *
 * Iteration-level scheduling (Yu et al., Orca, OSDI 22): before each step it is decided anew which
 * sequences take part. Prompts are cut into chunks. A step's budget goes first to decodes, one row
 * each, then to prompts that were begun, then to new prompts (Agrawal et al., SARATHI-Serve, OSDI
 * 24). So no decode ever waits for a prompt. `offline` sequences get the rest, their decodes first.
 * Prompts that will likely miss their deadlines get rows after the others of their class.
 * Tenants take turns (tenants.h) among decodes when not all have a place, and among prompts; the
 * policy (policy.h) orders the sequences of tenants that are equal.
 *
 * Every answer in a step waits for all rows of that step. Beside decodes, prompts therefore have
 * only as many rows as fit into `chunk_us` by the cost model. Decodes of `offline` sequences don't
 * count.
 *
 * With `prompts_first` it is the other way round, as in engines without chunked prefill: decodes
 * wait while a prompt has rows left. Prompts of `offline` sequences hold up offline decodes alone.
 *
 * Costs one pass over the sequences, and O(log sequences) for each prompt that gets rows.
 */
#ifndef BATON_ENGINE_SCHED_BATCH_PLAN_H
#define BATON_ENGINE_SCHED_BATCH_PLAN_H

#include "common/base/domain/cost_model.h"
#include "common/engine/sched/policy.h"
#include "common/engine/sched/sequence.h"

struct batch_limits {
    uint32_t max_batch_sequences; /* sequences of one step */
    /* Rows of one step. If not above max_batch_sequences, a full batch of decodes leaves no rows
     * for prompts. */
    uint32_t max_batch_tokens;
    uint32_t chunk_tokens; /* prompt rows of one step */
    uint64_t chunk_us;     /* time of the prompt rows beside decodes; 0: any */
    bool prompts_first;    /* steps with rows of prompts have none of decodes */
};

/* Prompts have at least this many rows of a step, whatever time they take. So they never starve,
 * and a step that is slower than its budget teaches the cost model. A tile of AMX has as many rows:
 * fewer wouldn't save time. */
#define BATCH_CHUNK_LEAST_ROWS 16

/* Sequences get rows in the order of their groups: decodes, prompts, offline decodes, offline
 * prompts. */
#define BATCH_GROUPS 4

#define PLANNED_TOKENS_KNOWN UINT32_MAX

/* One sequence's part of a step: rows [first, first + row_count). batch_plan plans no drafts:
 * scheduler_plan adds them. */
struct planned_rows {
    struct sequence *sequence;
    uint32_t row_count;
    bool samples; /* the last row draws a token */
    bool decodes; /* it is a row of an answer */
    uint32_t first;
    /* The last draft_count rows have tokens that were proposed, in the sequence's `tokens` from
     * first + 1 on. They and the row before them each draw a token. */
    uint32_t draft_count;
    /* Its first row has the token that the step before draws as its sample token_from, counted in
     * the order of parts. PLANNED_TOKENS_KNOWN: all its tokens are in the sequence. */
    uint32_t token_from;
};

/* Plans rows for the sequences in state PREFILL and DECODE among by_arrival[count], except those
 * marked `stalled` or `waits`, or that must know a token in flight first. Doesn't look at blocks.
 * Fills `parts` [min(count, max_batch_sequences)] and returns how many. Uses `scratch`
 * [BATCH_GROUPS * count]. */
uint32_t batch_plan(const struct batch_limits *limits, const struct policy *policy,
                    const struct cost_model *cost, struct sequence *const *by_arrival,
                    uint32_t count, struct ranked *scratch, struct planned_rows *parts);

#endif
