/* Checks the invariants of schedule_sim.h. */
#include "tests/schedule/schedule_sim.h"

#include <string.h>

/* --- the plan --- */

bool life_needs_no_row(const struct life *life, const struct sequence *sequence)
{
    uint32_t answer = sequence_answer_count(sequence) + sequence->pending;
    return answer >= sequence->sampling.max_tokens ||
           sequence->token_count + sequence->pending >= life->config.context;
}

bool life_awaits_token(const struct life *life, const struct sequence *sequence)
{
    size_t cursor = 0;
    if (sequence->state != SEQUENCE_DECODE || life_needs_no_row(life, sequence))
        return false;
    if (flight_drafts(life, sequence) || !sequence->needs_token)
        return flight_drafts(life, sequence);
    for (struct sequence *other; (other = scheduler_next(life->scheduler, &cursor));)
        if (other->state == SEQUENCE_DECODE && other->needs_token && other->pending &&
            !life_needs_no_row(life, other) &&
            (other == sequence || other->token_count > other->prompt_count))
            return true;
    return false;
}

bool life_is_barred(const struct life *life, const struct sequence *sequence)
{
    return (sequence->pending && life_needs_no_row(life, sequence)) ||
           life_awaits_token(life, sequence);
}

void check_before(struct life *life)
{
    size_t cursor = 0;
    life->before_count = 0;
    for (struct sequence *sequence; (sequence = scheduler_next(life->scheduler, &cursor));)
        life->before[life->before_count++] =
            (struct glimpse){.sequence = sequence,
                             .state = sequence->state,
                             .ran_us = sequence->ran_us,
                             .computed = sequence->computed,
                             .promoted = sequence->promoted,
                             .preempted = sequence->preempted,
                             .arriving = sequence->arriving,
                             .barred = life_is_barred(life, sequence),
                             .awaits_token = life_awaits_token(life, sequence)};
}

const struct planned_rows *life_part_of(const struct step_plan *plan,
                                        const struct sequence *sequence)
{
    for (uint32_t i = 0; i < plan->part_count; i++)
        if (plan->parts[i].sequence == sequence)
            return &plan->parts[i];
    return NULL;
}

static void check_drafts(struct life *life, const struct planned_rows *part)
{
    const struct sequence *sequence = part->sequence;
    uint32_t drafts = part->draft_count, more = sequence->pending + drafts;
    uint32_t answer = sequence_answer_count(sequence) + more;
    if (drafts && (drafts > life->config.draft_tokens || !part->decodes || !sequence->may_draft ||
                   answer >= sequence->sampling.max_tokens ||
                   sequence->token_count + more >= life->config.context))
        life_fail(life, HOLDS_BUDGET, "%llu has %u drafts",
                  (unsigned long long)sequence->key.request, drafts);
}

static void check_budget(struct life *life, const struct step_plan *plan)
{
    uint32_t rows = 0, prompt_rows = 0;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct planned_rows *part = &plan->parts[i];
        const struct sequence *sequence = part->sequence;
        bool decodes = sequence->state == SEQUENCE_DECODE;
        if (life_part_of(plan, sequence) != part)
            life_fail(life, HOLDS_BUDGET, "two parts for one sequence");
        if (!decodes && sequence->state != SEQUENCE_PREFILL)
            life_fail(life, HOLDS_BUDGET, "rows for a sequence in state %d", sequence->state);
        uint32_t end = part->first + part->row_count;
        uint32_t token_count = sequence->token_count + sequence->pending + part->draft_count;
        check_drafts(life, part);
        if (part->row_count == 0 || end > token_count || part->first != sequence->computed ||
            part->decodes != decodes || part->samples != (end == token_count) ||
            (decodes && part->row_count != 1 + part->draft_count))
            life_fail(life, HOLDS_BUDGET, "rows %u to %u of %u", part->first, end, token_count);
        rows += part->row_count;
        prompt_rows += decodes ? 0 : part->row_count;
    }
    if (rows > life->config.max_batch_tokens || prompt_rows > life->config.chunk_tokens ||
        plan->part_count > life->config.max_batch_sequences)
        life_fail(life, HOLDS_BUDGET, "%u rows, %u of prompts, %u sequences", rows, prompt_rows,
                  plan->part_count);
}

bool life_are_held(const struct life *life, const struct step_plan *plan, bool offline)
{
    bool held = false;
    for (uint32_t i = 0; life->config.prompts_first && i < plan->part_count; i++)
        held |= !plan->parts[i].decodes && (offline || !life_is_offline(plan->parts[i].sequence));
    return held;
}

/* Online answers have no rows: a prompt has, or had until this plan preempted it. */
static bool may_be_held(const struct life *life, const struct step_plan *plan)
{
    bool held = life_are_held(life, plan, false);
    for (uint32_t i = 0; life->config.prompts_first && i < life->before_count; i++)
        held |= life->before[i].state == SEQUENCE_PREFILL && life_waits(life->before[i].sequence);
    return held;
}

static void check_decodes(struct life *life, const struct step_plan *plan)
{
    for (uint32_t i = 0; i < plan->part_count; i++)
        if (plan->parts[i].decodes &&
            life_are_held(life, plan, life_is_offline(plan->parts[i].sequence)))
            life_fail(life, HOLDS_DECODES, "%llu decodes beside a prompt that goes first",
                      (unsigned long long)plan->parts[i].sequence->key.request);
    uint32_t limit = life->config.max_batch_sequences < life->config.max_batch_tokens
                         ? life->config.max_batch_sequences
                         : life->config.max_batch_tokens;
    uint32_t had_place = 0, absent = 0;
    for (uint32_t i = 0; i < life->before_count; i++) {
        const struct glimpse *glimpse = &life->before[i];
        if (glimpse->state != SEQUENCE_DECODE || life_is_offline(glimpse->sequence))
            continue;
        uint32_t room = glimpse->sequence->block_count * life->config.block_tokens;
        if (life_part_of(plan, glimpse->sequence) || life_waits(glimpse->sequence) ||
            glimpse->sequence->computed + 1 > room || glimpse->barred)
            had_place++; /* rows, or no block or no token for them */
        else
            absent++;
    }
    bool held = may_be_held(life, plan);
    life->happened[DID_FULL_BATCH] += absent > 0 && !held;
    if (absent && had_place < limit && !held)
        life_fail(life, HOLDS_DECODES, "%u decodes have no row, %u of %u places are taken", absent,
                  had_place, limit);
}

static void check_oldest(struct life *life, const struct step_plan *plan)
{
    const struct glimpse *oldest = NULL;
    uint32_t others = 0;
    for (uint32_t i = 0; i < life->before_count; i++) {
        const struct glimpse *glimpse = &life->before[i];
        others += life_runs(glimpse->sequence, glimpse->sequence->state);
        bool ran = life_runs(glimpse->sequence, glimpse->state);
        if (ran && (!oldest || glimpse->sequence->class_index < oldest->sequence->class_index))
            oldest = glimpse;
    }
    if (!oldest)
        return;
    const struct sequence *sequence = oldest->sequence;
    if (life_waits(sequence))
        life_fail(life, HOLDS_OLDEST, "%llu, oldest of the highest class, was preempted",
                  (unsigned long long)sequence->key.request);
    bool has_place = life->config.policy == POLICY_FCFS && oldest->state == SEQUENCE_DECODE &&
                     !life_is_offline(sequence) && sequence->tenant->turn == 0 && !oldest->barred &&
                     !plan->drain && !may_be_held(life, plan);
    bool has_no_memory = others == 1 && scheduler_load(life->scheduler).blocks[KV_BLOCK_FREE] == 0;
    if (has_place && !has_no_memory && !life_part_of(plan, sequence))
        life_fail(life, HOLDS_OLDEST, "%llu, oldest of the highest class, has no row",
                  (unsigned long long)sequence->key.request);
}

/* "Newest" is by arrival here. A sequence that the plan swaps in has no content to give yet. */
static void check_victims(struct life *life)
{
    for (uint32_t i = 0; i < life->before_count; i++) {
        const struct glimpse *victim = &life->before[i];
        if (!life_runs(victim->sequence, victim->state) || !life_waits(victim->sequence))
            continue;
        for (uint32_t k = 0; k < life->before_count; k++) {
            const struct glimpse *other = &life->before[k];
            bool first = other->sequence->class_index > victim->sequence->class_index ||
                         (other->sequence->class_index == victim->sequence->class_index && k > i);
            if (life->tenants > 1 && other->sequence->class_index == victim->sequence->class_index)
                continue; /* tenants that hold more than their part give first */
            if (first && life_runs(other->sequence, other->state) && !other->arriving &&
                !life_waits(other->sequence))
                life_fail(life, HOLDS_VICTIM, "%llu was preempted, and not %llu",
                          (unsigned long long)victim->sequence->key.request,
                          (unsigned long long)other->sequence->key.request);
        }
    }
}

/* A search for those that miss their deadlines comes every 10 ms. */
static void check_deadlines(struct life *life, const struct step_plan *plan)
{
    for (uint32_t i = 0; i < plan->part_count; i++) {
        uint64_t deadline_us = plan->parts[i].sequence->deadline_us;
        if (deadline_us < life->now_us && life->now_us - deadline_us > 10000)
            life_fail(life, HOLDS_DEADLINE, "rows for %llu, whose deadline has passed",
                      (unsigned long long)plan->parts[i].sequence->key.request);
    }
}

void check_plan(struct life *life, const struct step_plan *plan)
{
    check_deadlines(life, plan);
    check_budget(life, plan);
    check_fed(life, plan);
    if (!plan->drain)
        check_decodes(life, plan);
    check_oldest(life, plan);
    check_victims(life);
    check_order(life, plan);
    check_time(life, plan);
}

/* --- bytes --- */

void check_reads(struct life *life, const struct sequence *sequence, uint32_t rows)
{
    uint64_t content = 0;
    for (uint32_t position = 0; position < rows; position++) {
        content = life_content(content, sequence->tokens[position]);
        uint32_t index = position / life->config.block_tokens;
        if (index >= sequence->block_count)
            life_fail(life, HOLDS_CONTENT, "row %u has no block", position);
        uint32_t block = sequence->blocks[index];
        if (life->blocks[block][position % life->config.block_tokens] != content)
            life_fail(life, HOLDS_CONTENT, "%llu.%u reads another's row %u in block %u",
                      (unsigned long long)sequence->key.request, sequence->key.attempt, position,
                      block);
    }
}

void check_write(struct life *life, const struct sequence *sequence, uint32_t position)
{
    uint32_t block = sequence->blocks[position / life->config.block_tokens];
    if (!kv_blocks_writable(scheduler_blocks(life->scheduler), block))
        life_fail(life, HOLDS_WRITE, "row %u goes into block %u, which others may read", position,
                  block);
    size_t cursor = 0;
    for (struct sequence *other; (other = scheduler_next(life->scheduler, &cursor));)
        for (uint32_t i = 0; other != sequence && i < other->block_count; i++)
            if (other->blocks[i] == block)
                life_fail(life, HOLDS_WRITE, "row %u goes into block %u, which %llu.%u holds, too",
                          position, block, (unsigned long long)other->key.request,
                          other->key.attempt);
}

void check_answer(struct life *life, const struct sequence *sequence)
{
    const struct shadow *shadow = life_shadow(life, sequence->key);
    uint64_t content = 0;
    for (uint32_t i = 0; i < sequence->token_count; i++) {
        uint32_t alone = i < shadow->token_count ? shadow->tokens[i]
                                                 : life_draw(content, sequence->sampling.seed);
        if (sequence->tokens[i] != alone)
            life_fail(life, HOLDS_CONTENT, "token %u of %llu.%u is %u, alone it is %u", i,
                      (unsigned long long)sequence->key.request, sequence->key.attempt,
                      sequence->tokens[i], alone);
        content = life_content(content, alone);
    }
}

static void check_told(struct life *life, const struct sequence *sequence)
{
    bool reads = sequence->plan == PLAN_HAND_OFF &&
                 (sequence->state == SEQUENCE_PREFILL || sequence->state == SEQUENCE_HELD);
    if (!reads && sequence->state != SEQUENCE_RESERVED)
        return;
    const struct shadow *shadow = life_shadow(life, sequence->key);
    if (sequence->block_count != shadow->told_count ||
        memcmp(sequence->blocks, shadow->told, shadow->told_count * sizeof *shadow->told))
        life_fail(life, HOLDS_TOLD, "%llu has other blocks than another worker was told",
                  (unsigned long long)sequence->key.request);
}

/* After a plan was carried out, when no copy or swap is under way. */
void check_blocks(struct life *life)
{
    uint32_t holds[LIFE_BLOCKS] = {0}, slot_holds[LIFE_SLOTS] = {0}, free_blocks = 0, slots = 0;
    size_t cursor = 0;
    for (struct sequence *sequence; (sequence = scheduler_next(life->scheduler, &cursor));) {
        check_told(life, sequence);
        for (uint32_t i = 0; i < sequence->block_count; i++)
            holds[sequence->blocks[i]]++;
        for (uint32_t i = 0; i < sequence->slot_count; i++) {
            slots++;
            if (slot_holds[sequence->blocks[i]]++)
                life_fail(life, HOLDS_BLOCKS, "two sequences in host slot %u", sequence->blocks[i]);
        }
        if (life_waits(sequence) && sequence->block_count)
            life_fail(life, HOLDS_BLOCKS, "one that waits has blocks");
        if ((sequence->state == SEQUENCE_SWAPPED) != (sequence->slot_count > 0))
            life_fail(life, HOLDS_BLOCKS, "%u slots in state %d", sequence->slot_count,
                      sequence->state);
    }
    for (uint32_t i = 0; i < life->config.block_count; i++)
        free_blocks += holds[i] == 0;
    free_blocks -= flight_blocks(life, holds);
    struct scheduler_load load = scheduler_load(life->scheduler);
    uint32_t not_held = load.blocks[KV_BLOCK_FREE] + load.blocks[KV_BLOCK_CACHED];
    if (not_held != free_blocks)
        life_fail(life, HOLDS_BLOCKS, "%u blocks are free or cached, %u are held by nobody",
                  not_held, free_blocks);
    if (load.host_slots < slots)
        life_fail(life, HOLDS_BLOCKS, "%u host slots in use, %u have content", load.host_slots,
                  slots);
}
