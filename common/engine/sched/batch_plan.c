#include "common/engine/sched/batch_plan.h"

#include "common/base/u32.h"

enum { DECODES, PROMPTS, OFFLINE }; /* groups: DECODES, PROMPTS, OFFLINE + each of them */

struct batch {
    struct ranking groups[BATCH_GROUPS]; /* entries: the caller's scratch */
    struct planned_rows *parts;
    uint32_t used;        /* parts so far */
    uint32_t places_left; /* sequences */
    uint32_t rows_left, prompt_rows_left;
    const struct policy *policy;
    const struct cost_model *cost;
    bool timed;    /* answers wait for the step: prompts have us_left, or least_rows_left */
    bool is_split; /* answers that need their tokens are in flight: the others like them wait */
    double us_left;
    uint32_t least_rows_left; /* prompts have these whatever time they take */
};

/* Returns true if the sequence has no row before its tokens in flight are known. */
static bool awaits_token(struct batch *batch, const struct sequence *sequence, int group)
{
    if (!sequence_goes_on(sequence))
        return true;
    if (!sequence->needs_token && !sequence->verifies)
        return false;
    /* Not for a first token: new answers come all the time. */
    if (sequence->needs_token && sequence->token_count > sequence->prompt_count)
        batch->is_split |= group == DECODES || group == OFFLINE + DECODES;
    batch->timed |= group == DECODES;
    return true;
}

/* Puts each sequence that can have rows into its group, in order of arrival. */
static void collect(struct batch *batch, struct sequence *const *by_arrival, uint32_t count)
{
    uint32_t offline_class = priority_class(PRIORITY_OFFLINE);
    for (uint32_t i = 0; i < count; i++) {
        struct sequence *sequence = by_arrival[i];
        bool decodes = sequence->state == SEQUENCE_DECODE;
        bool left_out = sequence->stalled | sequence->waits;
        if ((!decodes && sequence->state != SEQUENCE_PREFILL) || left_out)
            continue;
        int group = decodes ? DECODES : PROMPTS;
        if (sequence->class_index == offline_class)
            group += OFFLINE;
        if (sequence->pending && awaits_token(batch, sequence, group))
            continue;
        struct ranking *ranking = &batch->groups[group];
        ranking->entries[ranking->count++].sequence = sequence;
    }
}

/* Puts the group in order. */
static void rank(const struct batch *batch, struct ranking *ranking)
{
    for (uint32_t i = 0; i < ranking->count; i++) {
        struct sequence *sequence = ranking->entries[i].sequence;
        bool late = sequence->state == SEQUENCE_PREFILL && sequence->likely_late;
        uint64_t first = (uint64_t)sequence->class_index << 1 | late;
        first = first << TENANT_TURN_BITS | sequence->tenant->turn;
        ranking->entries[i].rank = first << POLICY_RANK_BITS | policy_rank(batch->policy, sequence);
        ranking->entries[i].order = sequence->order;
    }
    ranking_build(ranking);
}

static void add_part(struct batch *batch, struct sequence *sequence, uint32_t rows, bool samples)
{
    batch->parts[batch->used++] =
        (struct planned_rows){.sequence = sequence,
                              .row_count = rows,
                              .samples = samples,
                              .decodes = sequence->state == SEQUENCE_DECODE,
                              .first = sequence->computed,
                              .token_from = PLANNED_TOKENS_KNOWN};
    batch->places_left--;
    batch->rows_left -= rows;
}

/* Takes out the answers that need their tokens. Otherwise half of them would be in each step, and
 * each step costs the same however few rows it has. Returns true if some were taken out. */
static bool keep_together(struct ranking *ranking)
{
    uint32_t kept = 0, count = ranking->count;
    for (uint32_t i = 0; i < count; i++)
        if (!ranking->entries[i].sequence->needs_token)
            ranking->entries[kept++] = ranking->entries[i];
    ranking->count = kept;
    return kept < count;
}

/* Takes out the answers that wait where prompts go first, which have all the time then. */
static void hold_decodes(struct batch *batch, const struct batch_limits *limits)
{
    if (!limits->prompts_first)
        return;
    bool prompts = batch->groups[PROMPTS].count;
    if (prompts)
        batch->groups[DECODES].count = 0;
    if (prompts || batch->groups[OFFLINE + PROMPTS].count)
        batch->groups[OFFLINE + DECODES].count = 0;
    batch->timed &= !prompts;
}

static void add_decodes(struct batch *batch, struct ranking *ranking)
{
    uint32_t count = ranking->count;
    if (count <= batch->places_left && count <= batch->rows_left) { /* all: in any order */
        for (uint32_t i = 0; i < count; i++)
            add_part(batch, ranking->entries[i].sequence, 1, true);
        return;
    }
    rank(batch, ranking);
    while (batch->places_left && batch->rows_left && ranking->count)
        add_part(batch, ranking_take(ranking), 1, true);
}

/* Returns how many of at most `rows` rows from `first` on fit into the time left, and takes it. */
static uint32_t take_time(struct batch *batch, uint32_t first, uint32_t rows)
{
    uint32_t fit = cost_model_prefill_rows(batch->cost, first, batch->us_left);
    rows = min_u32(rows, max_u32(fit, batch->least_rows_left));
    double us = cost_model_prefill_us(batch->cost, first, rows);
    batch->us_left = us < batch->us_left ? batch->us_left - us : 0;
    batch->least_rows_left -= min_u32(rows, batch->least_rows_left);
    return rows;
}

static void add_prompts(struct batch *batch, struct ranking *ranking)
{
    rank(batch, ranking);
    while (batch->places_left && batch->rows_left && batch->prompt_rows_left && ranking->count) {
        struct sequence *sequence = ranking_take(ranking);
        uint32_t left = sequence->prompt_count - sequence->computed, rows = left;
        if (rows > batch->rows_left)
            rows = batch->rows_left;
        if (rows > batch->prompt_rows_left)
            rows = batch->prompt_rows_left;
        if (batch->timed)
            rows = take_time(batch, sequence->computed, rows);
        batch->prompt_rows_left = rows ? batch->prompt_rows_left - rows : 0; /* none overtakes it */
        if (rows)
            add_part(batch, sequence, rows, rows == left);
    }
}

uint32_t batch_plan(const struct batch_limits *limits, const struct policy *policy,
                    const struct cost_model *cost, struct sequence *const *by_arrival,
                    uint32_t count, struct ranked *scratch, struct planned_rows *parts)
{
    struct batch batch = {.parts = parts,
                          .places_left = limits->max_batch_sequences,
                          .rows_left = limits->max_batch_tokens,
                          .prompt_rows_left = limits->chunk_tokens,
                          .policy = policy,
                          .cost = cost,
                          .us_left = (double)limits->chunk_us,
                          .least_rows_left = BATCH_CHUNK_LEAST_ROWS};
    for (uint32_t i = 0; i < BATCH_GROUPS; i++)
        batch.groups[i].entries = scratch + (size_t)i * count;
    collect(&batch, by_arrival, count);
    if (batch.is_split) {
        batch.timed |= keep_together(&batch.groups[DECODES]);
        keep_together(&batch.groups[OFFLINE + DECODES]);
    }
    hold_decodes(&batch, limits);
    add_decodes(&batch, &batch.groups[DECODES]);
    batch.timed = (batch.used || batch.timed) && limits->chunk_us;
    add_prompts(&batch, &batch.groups[PROMPTS]);
    add_decodes(&batch, &batch.groups[OFFLINE + DECODES]);
    add_prompts(&batch, &batch.groups[OFFLINE + PROMPTS]);
    return batch.used;
}
