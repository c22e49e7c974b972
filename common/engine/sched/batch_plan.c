#include "common/engine/sched/batch_plan.h"

struct batch {
    const struct policy *policy;
    struct sequence *const *by_arrival;
    uint32_t count;
    struct ranking ranking; /* entries: the caller's scratch */
    struct planned_rows *parts;
    uint32_t used;        /* parts so far */
    uint32_t places_left; /* sequences */
    uint32_t rows_left, prompt_rows_left;
};

/* Those in `state`, online or offline, into the ranking; in order of arrival, until it is built. */
static void collect(struct batch *batch, enum sequence_state state, bool offline)
{
    uint32_t offline_class = priority_class(PRIORITY_OFFLINE);
    batch->ranking.count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct sequence *sequence = batch->by_arrival[i];
        if (sequence->state == state && !sequence->stalled &&
            (sequence->class_index == offline_class) == offline)
            batch->ranking.entries[batch->ranking.count++] =
                (struct ranked){(uint64_t)sequence->class_index << POLICY_RANK_BITS |
                                    policy_rank(batch->policy, sequence),
                                sequence->order, sequence};
    }
}

static void add_part(struct batch *batch, struct sequence *sequence, uint32_t rows, bool samples)
{
    batch->parts[batch->used++] = (struct planned_rows){sequence, rows, samples};
    batch->places_left--;
    batch->rows_left -= rows;
}

static void add_decodes(struct batch *batch, bool offline)
{
    collect(batch, SEQUENCE_DECODE, offline);
    uint32_t count = batch->ranking.count;
    if (count <= batch->places_left && count <= batch->rows_left) { /* all: no need of an order */
        for (uint32_t i = 0; i < count; i++)
            add_part(batch, batch->ranking.entries[i].sequence, 1, true);
        return;
    }
    ranking_build(&batch->ranking);
    while (batch->places_left && batch->rows_left && batch->ranking.count)
        add_part(batch, ranking_take(&batch->ranking), 1, true);
}

static void add_prompts(struct batch *batch, bool offline)
{
    if (!batch->places_left || !batch->rows_left || !batch->prompt_rows_left)
        return;
    collect(batch, SEQUENCE_PREFILL, offline);
    ranking_build(&batch->ranking);
    while (batch->places_left && batch->rows_left && batch->prompt_rows_left &&
           batch->ranking.count) {
        struct sequence *sequence = ranking_take(&batch->ranking);
        uint32_t left = sequence->prompt_count - sequence->computed, rows = left;
        if (rows > batch->rows_left)
            rows = batch->rows_left;
        if (rows > batch->prompt_rows_left)
            rows = batch->prompt_rows_left;
        batch->prompt_rows_left -= rows;
        add_part(batch, sequence, rows, rows == left);
    }
}

uint32_t batch_plan(const struct batch_limits *limits, const struct policy *policy,
                    struct sequence *const *by_arrival, uint32_t count, struct ranked *scratch,
                    struct planned_rows *parts)
{
    struct batch batch = {.policy = policy,
                          .by_arrival = by_arrival,
                          .count = count,
                          .ranking = {.entries = scratch},
                          .parts = parts,
                          .places_left = limits->max_batch_sequences,
                          .rows_left = limits->max_batch_tokens,
                          .prompt_rows_left = limits->chunk_tokens};
    add_decodes(&batch, false);
    add_prompts(&batch, false);
    add_decodes(&batch, true);
    add_prompts(&batch, true);
    return batch.used;
}
