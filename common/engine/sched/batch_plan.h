/* The rows of one step. PURE; the memory is the caller's; nothing allocates.
 *
 * Iteration-level scheduling (Yu et al., Orca, OSDI 22): who joins and who leaves is decided before
 * each step. Prompts are cut into chunks, and a step's budget goes first to decodes, one row each,
 * then to prompts that were begun, then to new ones (Agrawal et al., SARATHI-Serve, OSDI 24): no
 * decode ever waits for a prompt. `offline` sequences get what all others left, their decodes
 * first. Which decodes run where not all may, and which prompts come first, is the policy's
 * (policy.h).
 *
 * A step takes as long as its rows, and every answer in it waits for that: beside decodes prompts
 * have as many rows as the cost model says fit into a time (`chunk_us`). Only decodes that aren't
 * `offline` are waited for.
 *
 * One pass over the sequences, and O(log sequences) for each prompt that gets rows.
 */
#ifndef BATON_ENGINE_SCHED_BATCH_PLAN_H
#define BATON_ENGINE_SCHED_BATCH_PLAN_H

#include "common/base/domain/cost_model.h"
#include "common/engine/sched/policy.h"
#include "common/engine/sched/ranking.h"
#include "common/engine/sched/sequence.h"

struct batch_limits {
    uint32_t max_batch_sequences; /* of one step */
    uint32_t max_batch_tokens;    /* rows of one step; if not above max_batch_sequences, a full
                                     batch of decodes leaves nothing for prompts */
    uint32_t chunk_tokens;        /* rows of prompts in one step */
    uint64_t chunk_us;            /* that they take, beside decodes; 0: any */
};

/* Prompts have so many rows of a step, whatever those take: so they never starve, and a step that
 * is slower than its budget teaches what a row costs. A tile of AMX has as many rows: with fewer a
 * step takes as long. */
#define BATCH_CHUNK_LEAST_ROWS 16

/* Who gets rows in which order: decodes, prompts; of all others, of `offline`. */
#define BATCH_GROUPS 4

/* One sequence's part of a step: rows [computed, computed + row_count). */
struct planned_rows {
    struct sequence *sequence;
    uint32_t row_count;
    bool samples; /* the last row draws a token */
};

/* Rows for the sequences in state PREFILL and DECODE among [count], which come in order of arrival.
 * Fills `parts` [min(count, max_batch_sequences)], uses `scratch` [BATCH_GROUPS * count]. Returns
 * how many parts. Blocks are not looked at, but for who is marked as stalled, or waits. */
uint32_t batch_plan(const struct batch_limits *limits, const struct policy *policy,
                    const struct cost_model *cost, struct sequence *const *by_arrival,
                    uint32_t count, struct ranked *scratch, struct planned_rows *parts);

#endif
